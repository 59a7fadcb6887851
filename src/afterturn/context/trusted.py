"""Which folders may give context files: those that the host trusts, and their parents in the same repository."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

PATH_CHARS_MAX = 4096


class Refusal(StrEnum):
    """Why a file or a folder gives nothing."""

    OUTSIDE = "outside the trusted folders"
    DANGLING = "a link that leads nowhere"
    NO_FOLDER = "no such folder"
    FOREIGN = "others may write there"
    NO_NAME = "no file's name"
    NO_FILE = "not a regular file"
    UNREADABLE = "may not be read"
    CHANGED = "changed while it was opened"
    TOO_LARGE = "too large"
    NO_TEXT = "not UTF-8 text"
    TOO_MANY = "too many context files"
    NO_ROOM = "no room left"
    TIMEOUT = "reading took too long"


@dataclass(frozen=True, slots=True)
class Skipped:
    path: str
    reason: Refusal


@dataclass(frozen=True, slots=True)
class Trusted:
    """Real paths. Everything below `folder` and the `roots` is trusted; of a parent, only its own context files.

    `parents` are those of each root, outermost first: empty without a repository around it.
    """

    folder: str | None
    roots: tuple[str, ...]
    parents: tuple[tuple[str, ...], ...]
    skipped: tuple[Skipped, ...] = ()

    def admits(self, real: str, folder: str) -> bool:
        """Whether what was found in `folder` may be read where it really is. A link can lead into no parent."""
        wholes = self.roots if self.folder is None else (self.folder, *self.roots)
        if any(is_within(real, whole) for whole in wholes):
            return True
        return os.path.dirname(real) == folder and any(folder in above for above in self.parents)

    def find_root(self, real: str) -> str | None:
        """The outermost root around it."""
        around = [root for root in self.roots if is_within(real, root)]
        return min(around, key=len) if around else None


def find_trusted(folder: str | None, roots: Sequence[str]) -> Trusted:
    """Looks at the file system. A root that is no folder is in `skipped`; `folder` may be missing."""
    found: dict[str, tuple[str, ...]] = {}
    skipped: list[Skipped] = []
    for root in roots:
        real = real_folder(root)
        if real is None:
            skipped.append(Skipped(root, Refusal.NO_FOLDER))
        elif real not in found:
            found[real], refused = _parents(real)
            skipped.extend(refused)
    home = None if folder is None else real_folder(folder)
    return Trusted(home, tuple(found), tuple(found.values()), tuple(skipped))


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")


def real_folder(path: str) -> str | None:
    try:
        return real_path(path) if len(path) <= PATH_CHARS_MAX and stat.S_ISDIR(os.stat(path).st_mode) else None
    except (OSError, ValueError):
        return None


def real_path(path: str) -> str:
    """Of something that is there. The kernel goes first: it refuses chains of links that `realpath` would recurse into.

    Raises OSError or ValueError.
    """
    os.stat(path)
    try:
        return "/" + os.path.realpath(path, strict=True).lstrip("/")
    except RecursionError as error:
        raise OSError(f"{path} became a long chain of links.") from error


def _parents(root: str) -> tuple[tuple[str, ...], list[Skipped]]:
    above = _up_to_repository(root)
    for parent in above:
        if _is_foreign(parent, root):
            return (), [Skipped(parent, Refusal.FOREIGN)]
    return tuple(reversed(above)), []


def _up_to_repository(root: str) -> list[str]:
    """Innermost first; empty when there is no repository, or when the root is its top."""
    above: list[str] = []
    folder = root
    while not os.path.lexists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return []
        above.append(parent)
        folder = parent
    return above


def _is_foreign(parent: str, root: str) -> bool:
    """Whoever can write above a project could make a repository of it, as in `/tmp`, and tell its agent what to do."""
    try:
        above, own = os.stat(parent), os.stat(root)
    except OSError:
        return True
    is_open = above.st_mode & ~own.st_mode & stat.S_IWOTH
    return bool(is_open) or above.st_uid not in (own.st_uid, os.geteuid())
