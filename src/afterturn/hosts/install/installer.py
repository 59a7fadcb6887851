"""Plans and writes the changes in clients' files. A plan covers all files of a client before the first one is written.

A file is replaced as a whole, so that no reader sees half of it. Its mode stays. The first change leaves a copy next to
the file; uninstalling puts it back if nothing else has changed since. A user's own files may be symbolic links, as many
people link them to a folder of settings. A link in a project is refused, because the repository may have brought it.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterturn.config import state_folder
from afterturn.errors import Conflict, InvalidFile
from afterturn.hosts.install import json_text
from afterturn.hosts.install.clients import ConfigFile
from afterturn.hosts.install.entries import State
from afterturn.hosts.state import change_document, read_document, refuse_links
from afterturn.runtime.files import replace_file

BACKUP = ".afterturn-backup"
# A document in the state folder: {"folders": [...]}, the folders that installing has created.
_CREATED, _FOLDERS = "install.json", "folders"
_BYTES_MAX = 50_000_000


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file before and after. None: there is no file. `backup` is what is kept next to it afterwards."""

    target: ConfigFile
    titles: tuple[str, ...]
    before: str | None
    after: str | None
    backup: str | None = None
    kept: tuple[str, ...] = ()
    """The parts that were left alone because somebody else's entry has our name."""

    @property
    def path(self) -> Path:
        return self.target.path

    @property
    def is_needed(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of each part in a file, by title. `problem` says why it cannot be read."""

    path: Path
    parts: dict[str, State]
    problem: str = ""


def find_states(targets: Sequence[ConfigFile]) -> Iterator[FileState]:
    for target in targets:
        try:
            text = _read_target(target) or ""
            states = {part.title: _checked(target.path, part.state, text) for part in target.parts}
        except InvalidFile as error:
            yield FileState(target.path, {}, str(error))
        else:
            yield FileState(target.path, states)


def write_change(change: FileChange) -> None:
    """Raises InvalidFile if the file cannot be written, Conflict if it has changed since the plan was made."""
    if not change.is_needed:
        return
    if _read_target(change.target) != change.before:
        raise Conflict(f"{change.path} was changed by another program at the same time. Run the command again.")
    real = change.path if change.target.project else Path(os.path.realpath(change.path))
    backup = backup_of(change.path)
    try:
        if change.backup is not None:
            _write(backup, change.backup, mode=stat.S_IMODE(real.stat().st_mode))
        if change.after is None:
            real.unlink()
        else:
            _make_folder(real.parent)
            _write(real, change.after, mode=None if real.exists() else 0o666)
        if change.backup is None:
            backup.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidFile(f"{change.path} cannot be written: {error.strerror}. Correct it, then try again.") from error


def remove_created_folders(targets: Sequence[ConfigFile]) -> None:
    """Removes the folders that installing has created for these files, unless something else is in them."""
    above = {str(folder) for target in targets for folder in Path(os.path.realpath(target.path)).parents}
    if above.isdisjoint(read_document(_CREATED).get(_FOLDERS, ())):
        return
    with change_document(_CREATED) as document:
        for folder in sorted(above.intersection(document[_FOLDERS]), reverse=True):
            with suppress(OSError):
                os.rmdir(folder)
        document[_FOLDERS] = [folder for folder in document[_FOLDERS] if os.path.isdir(folder)]
    if not document[_FOLDERS]:
        for name in (_CREATED, f"{_CREATED}.lock"):
            (state_folder() / name).unlink(missing_ok=True)


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def plan_install(target: ConfigFile) -> FileChange:
    """Raises InvalidFile if the file cannot be changed safely."""
    before = _read_target(target)
    text = before or ""
    added, kept, was_there = [], [], False
    for part in target.parts:
        state = _checked(target.path, part.state, text)
        was_there = was_there or state in (State.CURRENT, State.OUTDATED)
        if state is State.FOREIGN:
            kept.append(part.title)
        elif state is not State.CURRENT:
            text = _checked(target.path, part.add, text)
            added.append(part.title)
    after = text if added else before
    _check_only_ours(target, before, after)
    backup = _read_backup(target) if was_there else before
    return _checked_change(FileChange(target, tuple(added), before, after, backup, tuple(kept)))


def plan_uninstall(target: ConfigFile) -> FileChange:
    """Raises InvalidFile if the file cannot be changed safely."""
    before = _read_target(target)
    if before is None:
        return FileChange(target, (), None, None)
    text, removed, kept = before, [], []
    for part in target.parts:
        state = _checked(target.path, part.state, text)
        if state is State.FOREIGN:
            kept.append(part.title)
        elif state is not State.ABSENT:
            text = _checked(target.path, part.remove, text)
            removed.append(part.title)
    if not removed:
        return FileChange(target, (), before, before, None, tuple(kept))
    _check_only_ours(target, before, text)
    original = _read_backup(target)
    if original is not None and _strip(target, original) == _strip(target, text):
        text = original
    after = text if text or original == "" else None
    return _checked_change(FileChange(target, tuple(removed), before, after, None, tuple(kept)))


def _checked_change(change: FileChange) -> FileChange:
    """A file that its owner has made read-only stays as it is: somebody else may manage it.

    So does another person's: root, with their home folder, would replace it by one that they cannot change.
    """
    found = next(path for path in (change.path, *change.path.absolute().parents) if path.exists())
    seen = found.stat()
    if change.is_needed and seen.st_uid != os.geteuid():
        raise InvalidFile(f"{found} belongs to another user. Run the command as that user. Nothing was changed.")
    if change.is_needed and found == change.path and not seen.st_mode & stat.S_IWUSR:
        raise InvalidFile(f"{change.path} is read-only. Make it writable, or add the entries where it comes from.")
    return change


def _check_only_ours(target: ConfigFile, before: str | None, after: str | None) -> None:
    """A second reading of both texts must give the same once our own parts are left out."""
    if _strip(target, before or "") != _strip(target, after or ""):
        raise InvalidFile(f"{target.path} cannot be changed without changing other entries. Nothing was written.")


def _strip(target: ConfigFile, text: str) -> Any:
    for part in target.parts:
        if _checked(target.path, part.state, text) is not State.FOREIGN:
            text = part.remove(text)
    if target.path.suffix == ".toml":
        return _without_empty(_checked(target.path, tomllib.loads, text))
    if target.path.suffix in (".json", ".jsonc"):
        return _without_empty(_checked(target.path, json_text.parse, text or "{}"))
    return text


def _without_empty(value: Any) -> Any:
    """Without empty objects and lists: the one that had only our entries is removed with them."""
    if not isinstance(value, dict):
        return value
    kept = {key: _without_empty(one) for key, one in value.items()}
    return {key: one for key, one in kept.items() if one != {} and one != []}


def _checked(path: Path, read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFile(
            f"{path} cannot be read: {error}. Correct it, then try again. Nothing was changed."
        ) from error


def _read_target(target: ConfigFile) -> str | None:
    if target.project is not None:
        for path in (target.path, backup_of(target.path)):
            refuse_links(path, target.project, remedy="Remove the link, or leave out --project. Nothing was changed.")
    return _read(target.path)


def _read_backup(target: ConfigFile) -> str | None:
    backup = backup_of(target.path)
    return None if backup.is_symlink() else _read(backup)


def _read(path: Path) -> str | None:
    """The file's text, line breaks as they are; None without a file."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InvalidFile(f"{path} is not a file. Correct it, then try again. Nothing was changed.")
        if found.st_size > _BYTES_MAX:
            raise InvalidFile(f"{path} is larger than {_BYTES_MAX:,} bytes. Nothing was changed.")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror}. Correct it, then try again.") from error
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path} is not UTF-8. Correct it, then try again. Nothing was changed.") from error


def _make_folder(folder: Path) -> None:
    """Notes the folders that it creates, so that uninstalling can remove them."""
    missing = [str(one) for one in (folder, *folder.parents) if not one.exists()]
    if missing:
        with change_document(_CREATED) as document:
            document[_FOLDERS] = sorted({*document.get(_FOLDERS, ()), *missing})
        folder.mkdir(parents=True, exist_ok=True)


def _write(path: Path, text: str, *, mode: int | None) -> None:
    with replace_file(path, mode=mode) as stream:
        stream.write(text.encode())
