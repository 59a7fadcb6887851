"""Which project a folder belongs to, and whose memory a command uses.

A project is a git repository, so all its worktrees and subfolders share one memory. Without git it is the folder.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from afterturn.config import Config, state_folder
from afterturn.errors import InvalidFile, InvalidInput
from afterturn.hosts.state import change_document, read_document

PERSON, PROJECT = "user:", "project:"
_FILE = "projects.json"
_NAME_CHARS_MAX = 60
_POINTER_BYTES_MAX = 4096
_CONFIG_BYTES_MAX = 1_000_000


class Project(NamedTuple):
    """`root` is the folder of the repository, or the folder itself.

    `space` is what it writes, `merged` are the spaces of the projects that were merged into it, which it reads too.
    """

    space: str
    root: Path
    merged: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.space.removeprefix(PROJECT)


class KnownProject(NamedTuple):
    """A project that was used on this machine. `into` is the space of the project that it was merged into."""

    space: str
    root: Path | None
    into: str | None = None
    is_paused: bool = False


def find_project(path: str | os.PathLike[str]) -> Project:
    """The project of a folder, or of a file's folder. Raises InvalidFile only if the list of projects is damaged."""
    root, own = _identify(path)
    merges = _texts("merged")
    space = _follow(own, merges)
    merged = [other for other in (own, *merges) if other != space and _follow(other, merges) == space]
    return Project(space, root, tuple(dict.fromkeys(merged)))


def note_project(path: str | os.PathLike[str]) -> None:
    """Remembers the project's folder for `afterturn project list`."""
    root, own = _identify(path)
    if _texts("roots").get(own) != str(root):
        with change_document(_FILE) as document:
            document.setdefault("roots", {})[own] = str(root)


def known_projects() -> list[KnownProject]:
    roots, merges, paused = _texts("roots"), _texts("merged"), _texts("paused")
    roots = {**paused, **roots}
    spaces = sorted({*roots, *merges, *merges.values()})
    return [
        KnownProject(space, Path(roots[space]) if space in roots else None, merges.get(space), space in paused)
        for space in spaces
    ]


def set_paused(path: str | os.PathLike[str], *, paused: bool) -> str:
    """Switches the hooks of coding agents off or on for the project of a folder, and returns its own space."""
    root, own = _identify(path)
    with change_document(_FILE) as document:
        if paused:
            document.setdefault("paused", {})[own] = str(root)
        else:
            document.get("paused", {}).pop(own, None)
    return own


def is_paused(path: str | os.PathLike[str]) -> bool:
    """Whether hooks are switched off for the project of a folder. Raises InvalidFile as `find_project` does."""
    paused = _texts("paused")
    return bool(paused) and own_space(path) in paused


def merge_projects(space: str, into: str) -> None:
    """From now on the folder of `space` uses the memory of `into`, which reads both. No memory is moved."""
    with change_document(_FILE) as document:
        merges = document.setdefault("merged", {})
        if _follow(into, merges) == space:
            raise InvalidInput(f"{into} uses the memory of {space} already. Name two different projects.")
        merges[space] = into


def separate_project(space: str) -> bool:
    """Takes a merge back. False if there was none."""
    with change_document(_FILE) as document:
        return document.setdefault("merged", {}).pop(space, None) is not None


def own_space(path: str | os.PathLike[str]) -> str:
    """The space that a folder has by itself, whatever it was merged into."""
    return _identify(path)[1]


def current_user_space(config: Config) -> str:
    """The space of the person who is logged in: the setting `space` if it is a person's, else `user:<login>`."""
    if config.space is not None and config.space.startswith(PERSON):
        return config.space
    import getpass

    try:
        login = getpass.getuser()
    except (OSError, KeyError):
        login = f"uid-{os.getuid()}"
    return PERSON + _clean(login)


def _texts(key: str) -> dict[str, str]:
    found = read_document(_FILE).get(key, {})
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InvalidFile(f'"{key}" in {state_folder() / _FILE} is not valid. Correct it, or remove the file.')
    return found


def _follow(space: str, merges: Mapping[str, str]) -> str:
    seen = {space}
    while (following := merges.get(space)) is not None and following not in seen:
        seen.add(following)
        space = following
    return space


def _identify(path: str | os.PathLike[str]) -> tuple[Path, str]:
    here = Path(os.path.realpath(path))
    folder = here.parent if here.is_file() else here
    root, identity = _find_repository(folder) or (folder, folder)
    name = (identity.parent if identity.name == ".git" else identity).name.removesuffix(".git")
    digest = hashlib.sha256(os.fsencode(identity)).hexdigest()[:12]
    return root, f"{PROJECT}{_clean(name)}-{digest}"


def _clean(name: str) -> str:
    """A name for people; the digest makes it unique."""
    kept = re.sub(r"[^\w.-]+", "-", name.encode("utf-8", "replace").decode().casefold()).strip("-.")
    return kept[:_NAME_CHARS_MAX] or "folder"


def _find_repository(here: Path) -> tuple[Path, Path] | None:
    """The root of the repository around a folder, and its git common directory. `here` has no symbolic links."""
    for folder in (here, *here.parents):
        try:
            found = _repository_of(folder / ".git")
            if found is None and folder.suffix == ".git" and _is_git_folder(folder):
                found = folder, folder
        except (OSError, ValueError):
            found = None
        if found is not None:
            return found
    return None


def _repository_of(marker: Path) -> tuple[Path, Path] | None:
    """The repository of a `.git`. None if there is no such repository.

    A pointer or a symbolic link may be part of an unpacked archive, so it counts only if files inside the git folder
    that it leads to name this worktree. If they do not, the folder is a project of its own.
    """
    here = marker.parent
    if marker.is_dir() and not marker.is_symlink():
        return (here, marker) if _is_git_folder(marker) else None
    git_folder = Path(os.path.realpath(marker)) if marker.is_symlink() else _read_path(marker, prefix="gitdir: ")
    if git_folder.parent.name == "worktrees" and (git_folder / "commondir").is_file():
        # Not the folder that `commondir` names: an archive may bring a folder where it names any repository.
        common = git_folder.parent.parent
        root, is_named = common.parent if common.name == ".git" else common, _names_marker(git_folder, marker)
    else:
        common, root, is_named = git_folder, here, _names_worktree(git_folder, here)
    if not _is_git_folder(common):
        return None
    return (root, common) if is_named else (here, here)


def _names_marker(git_folder: Path, marker: Path) -> bool:
    """Whether a repository's folder for a linked worktree names this `.git` file. Hard links of it do not count."""
    try:
        return not marker.is_symlink() and _read_path(git_folder / "gitdir") == marker
    except (OSError, ValueError):
        return False


def _names_worktree(git_folder: Path, here: Path) -> bool:
    """Whether a repository's settings name the folder as its worktree, as git writes them for a submodule."""
    for name in ("config", "config.worktree"):
        try:
            text = _read(git_folder / name, _CONFIG_BYTES_MAX)
        except (OSError, ValueError):
            continue
        for found in re.findall(r"^\s*worktree\s*=\s*(.*?)\s*$", text, re.MULTILINE | re.IGNORECASE):
            named = re.sub(r"\\(.)", r"\1", found.strip('"'))
            if os.path.realpath(git_folder / named) == str(here):
                return True
    return False


def _is_git_folder(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir()


def _read_path(file: Path, *, prefix: str = "") -> Path:
    """The path that a file of git names, relative to the file's folder, without symbolic links."""
    text = _read(file, _POINTER_BYTES_MAX)
    if not text.startswith(prefix):
        raise ValueError(f"{file} does not name a folder")
    return Path(os.path.realpath(file.parent / text.removeprefix(prefix).rstrip("\r\n")))


def _read(file: Path, size: int) -> str:
    """The beginning of a file. Raises ValueError if it is something else: a pipe would block."""
    if not file.is_file():
        raise ValueError(f"{file} is not a file")
    with open(file, "rb") as stream:
        return os.fsdecode(stream.read(size))
