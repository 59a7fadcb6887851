"""Reads context files such as `AGENTS.md` from trusted folders: those of the host, and their parents in the same
repository. Synchronous, for a worker thread."""

from __future__ import annotations

import codecs
import errno
import os
import stat
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

PATH_CHARS_MAX = 4096


class Refusal(StrEnum):
    """Why a file or folder was skipped."""

    OUTSIDE = "outside the trusted folders"
    DANGLING = "a broken link"
    NO_FOLDER = "no such folder"
    FOREIGN = "others may write there"
    NO_NAME = "not a file name"
    NO_FILE = "not a regular file"
    UNREADABLE = "no permission to read it"
    CHANGED = "changed while it was opened"
    TOO_LARGE = "too large"
    NO_TEXT = "not UTF-8 text"
    TOO_MANY = "too many context files"
    NO_ROOM = "no room left"
    TIMEOUT = "reading took too long"


class Skipped(NamedTuple):
    path: str
    reason: Refusal


class TrustedFolders(NamedTuple):
    """Real paths. Everything below `folder` and the `roots` is trusted; in a parent only its own context files are.

    `parents` has the parents of each root, outermost first, up to the top of its repository; none if it is in none.
    """

    folder: str | None
    roots: tuple[str, ...]
    parents: tuple[tuple[str, ...], ...]
    skipped: tuple[Skipped, ...] = ()

    def admits(self, real: str, folder: str) -> bool:
        """Whether a file that was found in `folder` may be read at its real path. Links may not lead into a parent."""
        wholes = self.roots if self.folder is None else (self.folder, *self.roots)
        if any(is_within(real, whole) for whole in wholes):
            return True
        return os.path.dirname(real) == folder and any(folder in above for above in self.parents)

    def find_root(self, real: str) -> str | None:
        """The outermost root that contains it."""
        around = [root for root in self.roots if is_within(real, root)]
        return min(around, key=len) if around else None


def find_trusted(folder: str | None, roots: Sequence[str]) -> TrustedFolders:
    """Reads the file system. A root that is not a folder is in `skipped`; `folder` may be missing."""
    found: dict[str, tuple[str, ...]] = {}
    skipped: list[Skipped] = []
    for root in roots:
        real = real_folder(root)
        if real is None:
            skipped.append(Skipped(root, Refusal.NO_FOLDER))
        elif real not in found:
            above = _up_to_repository(real)
            foreign = next((parent for parent in above if _is_foreign(parent, real)), None)
            found[real] = tuple(reversed(above)) if foreign is None else ()
            skipped += [] if foreign is None else [Skipped(foreign, Refusal.FOREIGN)]
    real_global = None if folder is None else real_folder(folder)
    return TrustedFolders(real_global, tuple(found), tuple(found.values()), tuple(skipped))


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")


def real_folder(path: str) -> str | None:
    try:
        return real_path(path) if len(path) <= PATH_CHARS_MAX and stat.S_ISDIR(os.stat(path).st_mode) else None
    except (OSError, ValueError):
        return None


def real_path(path: str) -> str:
    """The real path of something that exists. `stat` comes first, because the kernel refuses long chains of links that
    `realpath` would recurse into.

    Raises OSError or ValueError.
    """
    os.stat(path)
    try:
        return "/" + os.path.realpath(path, strict=True).lstrip("/")
    except RecursionError as error:
        raise OSError(f"{path} became a long chain of links.") from error


def _up_to_repository(root: str) -> list[str]:
    """The parents, innermost first; empty if there is no repository, or the root is its top."""
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
    """Whether others can write to `parent`, as to `/tmp`: they could put instructions for the agent there."""
    try:
        above, own = os.stat(parent), os.stat(root)
    except OSError:
        return True
    is_open = above.st_mode & ~own.st_mode & stat.S_IWOTH
    return bool(is_open) or above.st_uid not in (own.st_uid, os.geteuid())


# A larger file is not a context file.
HUGE_BYTES = 8 * 1024 * 1024
# A longer file is cut, and the cut is marked: half of the standing block.
FILE_BYTES_MAX = 16_384
FILES_MAX = 64
# Folders of installed packages, whose instructions are not the project's.
FETCHED = frozenset({".git", ".tox", ".venv", "bower_components", "node_modules", "site-packages", "vendor", "venv"})
_BOM = "\ufeff"

# Without O_PATH, files below a folder that may be entered but not listed cannot be read.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_MOVED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Tier(StrEnum):
    GLOBAL = "global"
    ENVIRONMENT = "environment"
    JUST_IN_TIME = "just_in_time"


class ContextFile(NamedTuple):
    """`path` is the real path; `cut`: the file continues after `text`."""

    path: str
    tier: Tier
    text: str
    cut: bool = False


class ContextFiles(NamedTuple):
    """In the order in which they are shown: outer folders first."""

    files: tuple[ContextFile, ...] = ()
    skipped: tuple[Skipped, ...] = ()


class ContextFolders(NamedTuple):
    """The folder for all projects and the host's roots, and the names and maximum size of the files."""

    folder: str | None
    roots: tuple[str, ...]
    names: tuple[str, ...]
    file_bytes_max: int = FILE_BYTES_MAX


def file_names(setting: str) -> tuple[str, ...]:
    """The names in the setting `context_files`, each once."""
    return tuple(dict.fromkeys(name for item in setting.split(",") if (name := item.strip())))


def read_standing(places: ContextFolders, also: Iterable[str] = ()) -> ContextFiles:
    """The files for all projects, then those of the roots and their parents, then `also`: files of touched paths."""
    trusted = find_trusted(places.folder, places.roots)
    reader = _FileReader(places, trusted, frozenset())
    if trusted.folder is not None:
        reader.read_folder(trusted.folder, Tier.GLOBAL)
    for root, parents in zip(trusted.roots, trusted.parents, strict=True):
        for folder in (*parents, root):
            reader.read_folder(folder, Tier.ENVIRONMENT)
    for path in also:
        if os.path.basename(path) in reader.names and trusted.find_root(path) is not None:
            reader.read_file(path, Tier.JUST_IN_TIME)
    return reader.found()


def read_touched(places: ContextFolders, touched: Sequence[str], loaded: Collection[str]) -> ContextFiles:
    """The files from the trusted root of each touched path down to its folder, except those `loaded` (real paths).

    A path need not exist; a relative one starts at the first root. Paths outside all roots are ignored.
    """
    trusted = find_trusted(places.folder, places.roots)
    reader = _FileReader(places, trusted, loaded)
    seen: set[str] = set()
    for path in touched:
        for folder in _folders_down_to(path, trusted):
            if folder not in seen:
                seen.add(folder)
                reader.read_folder(folder, Tier.JUST_IN_TIME)
    return reader.found(with_roots=False)


def _folders_down_to(path: str, trusted: TrustedFolders) -> list[str]:
    """The folders from the trusted root down to the path's own, without those of installed packages."""
    start = path if os.path.isabs(path) or not trusted.roots else os.path.join(trusted.roots[0], path)
    folder = _nearest_folder(start)
    root = None if folder is None else trusted.find_root(folder)
    if folder is None or root is None:
        return []
    below = folder[len(root) :].strip("/")
    chain = [root]
    for name in below.split("/") if below else ():
        if name in FETCHED:
            break
        chain.append(os.path.join(chain[-1], name))
    return chain


def _nearest_folder(path: str) -> str | None:
    """The real path of the nearest existing folder; None if it is not a valid path."""
    if len(path) > PATH_CHARS_MAX or "\x00" in path:
        return None
    while (folder := real_folder(path)) is None:
        parent = os.path.dirname(path)
        if parent == path:
            return None
        path = parent
    return folder


class _FileReader:
    """Collects the files, each once, and the skipped paths."""

    def __init__(self, places: ContextFolders, trusted: TrustedFolders, loaded: Collection[str]) -> None:
        self._trusted = trusted
        self._bytes_max = places.file_bytes_max
        self._seen = set(loaded)
        self._files: list[ContextFile] = []
        self._skipped: list[Skipped] = []
        self.names = [name for name in places.names if self._is_name(name)]

    def found(self, *, with_roots: bool = True) -> ContextFiles:
        """`with_roots`: includes the roots that were skipped."""
        skipped = (*self._trusted.skipped, *self._skipped) if with_roots else tuple(self._skipped)
        return ContextFiles(tuple(self._files), tuple(dict.fromkeys(skipped)))

    def read_folder(self, folder: str, tier: Tier) -> None:
        for name in self.names:
            self.read_file(os.path.join(folder, name), tier)

    def read_file(self, path: str, tier: Tier) -> None:
        try:
            os.lstat(path)
        except (OSError, ValueError) as error:
            if getattr(error, "errno", errno.ENOENT) not in _ABSENT:
                self._skip(path, Refusal.UNREADABLE)
            return
        self._read_existing(path, tier)

    def _read_existing(self, path: str, tier: Tier) -> None:
        try:
            real = real_path(path)
        except OSError as error:
            self._skip(path, Refusal.DANGLING if error.errno in _MOVED else Refusal.UNREADABLE)
            return
        if not self._trusted.admits(real, os.path.dirname(path)):
            self._skip(path, Refusal.OUTSIDE)
        elif real not in self._seen:
            self._seen.add(real)
            self._take(real, tier)

    def _take(self, real: str, tier: Tier) -> None:
        if len(self._files) >= FILES_MAX:
            self._skip(real, Refusal.TOO_MANY)
            return
        read = _read(real, self._bytes_max)
        if isinstance(read, Refusal):
            self._skip(real, read)
            return
        text, is_cut = read
        if text.strip():
            self._files.append(ContextFile(real, tier, text, is_cut))

    def _is_name(self, name: str) -> bool:
        usable = "/" not in name and "\x00" not in name and name not in (".", "..")
        if not usable:
            self._skip(name, Refusal.NO_NAME)
        return usable

    def _skip(self, path: str, reason: Refusal) -> None:
        self._skipped.append(Skipped(path, reason))


def _read(real: str, bytes_max: int) -> tuple[str, bool] | Refusal:
    """The beginning of a file, and whether it continues."""
    try:
        # Checked before opening, because opening a device or pipe can have effects, and again when it is open.
        if not stat.S_ISREG(os.stat(real, follow_symlinks=False).st_mode):
            return Refusal.NO_FILE
        descriptor = _open(real)
    except OSError as error:
        return Refusal.CHANGED if error.errno in _MOVED else Refusal.UNREADABLE
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Refusal.NO_FILE
        if status.st_size > HUGE_BYTES:
            return Refusal.TOO_LARGE
        with open(descriptor, "rb", closefd=False) as file:
            return _decoded(file.read(bytes_max + 1), bytes_max)
    except OSError:
        return Refusal.UNREADABLE
    finally:
        os.close(descriptor)


def _open(real: str) -> int:
    """Opens a real path folder by folder without following links, so that the checked file is opened."""
    *folders, name = real.strip("/").split("/")
    here = os.open("/", _FOLDER)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        return os.open(name, _FILE, dir_fd=here)
    finally:
        os.close(here)


def _decoded(data: bytes, bytes_max: int) -> tuple[str, bool] | Refusal:
    is_cut = len(data) > bytes_max
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data[:bytes_max], final=not is_cut)
    except UnicodeDecodeError:
        return Refusal.NO_TEXT
    return Refusal.NO_TEXT if "\x00" in text else (text.removeprefix(_BOM), is_cut)
