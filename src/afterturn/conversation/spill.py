"""Spill files: recordings that could not be stored wait here, one file each, in a folder next to the store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from afterturn.conversation.recording import Recording
from afterturn.errors import InvalidFile
from afterturn.log import logger
from afterturn.runtime.files import sync
from afterturn.types import Finding, Selector

_LATER = (
    "A running host stores them when the store can be written, or when their provider accepts them. If none runs on "
    "this machine, run `afterturn worker --once`."
)
_LINKED = "{folder} is a symbolic link, so no turn is written there"
_LOOK = "Examine the file, then delete it, or rename it to .json to try again."


class Spill:
    """A folder of waiting recordings. A file is whole or not there; several processes may share the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, recording: Recording) -> Path:
        """Durable when it returns. The same turn spilled twice is one file. Raises OSError."""
        if self.is_linked:
            raise OSError(_LINKED.format(folder=self.folder))
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = self._path(recording)
        draft = target.with_suffix(f".{os.getpid()}.tmp")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(recording.to_json())
                file.flush()
                # `files` sorts by this time, so that turns keep their order even if they were written late or together.
                os.utime(file.fileno(), (recording.ended_at, recording.ended_at))
                os.fsync(file.fileno())
            draft.replace(target)
        except BaseException:
            # On a full disk, half a turn must not stay.
            draft.unlink(missing_ok=True)
            raise
        sync(self.folder)
        return target

    @property
    def is_linked(self) -> bool:
        """Whether the folder is a symbolic link. It is not used then: turns must not go where somebody else chose."""
        return self.folder.is_symlink()

    def remove(self, recording: Recording) -> None:
        """Once it is stored, or forgotten."""
        _erase(self._path(recording))

    def set_aside(self, recording: Recording) -> None:
        """Keeps a recording that cannot be stored, for a person to examine."""
        _set_aside(self._path(recording))

    def clear_drafts(self) -> None:
        """Erases unfinished files of processes that have died. Call it on the thread that calls `put`."""
        for path in self._named("*.tmp"):
            if not _is_written(path):
                _erase(path)

    def waiting(self) -> Iterator[Recording]:
        """The waiting recordings, oldest first. A damaged file is renamed to `.bad`, for a person to examine."""
        for path in self.files():
            try:
                yield Recording.from_json(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                continue  # another process was quicker
            except (InvalidFile, UnicodeDecodeError) as error:
                logger.warning("%s is damaged and is set aside: %s", path, error)
                _set_aside(path)
            except OSError as error:
                logger.warning("%s cannot be read and keeps waiting: %s", path, error)

    def move_to(self, other: Spill) -> int:
        """Moves the waiting recordings to the folder of another store. Returns how many. Raises OSError."""
        moved = 0
        for recording in self.waiting():
            other.put(recording)
            self.remove(recording)
            moved += 1
        return moved

    def files(self) -> list[Path]:
        return sorted(self._named("*.json"), key=lambda path: (_modified(path), path.name))

    def damaged(self) -> list[Path]:
        return sorted(self._named("*.bad"))

    def _named(self, pattern: str) -> Iterator[Path]:
        return iter(()) if self.is_linked else self.folder.glob(pattern)

    def findings(self) -> list[Finding]:
        """The findings of `afterturn doctor` about this folder."""
        found = [
            Finding("error", "recordings", f"{path} could not be stored, or is damaged.", _LOOK)
            for path in self.damaged()
        ]
        if self.is_linked:
            found.append(Finding("error", "recordings", _LINKED.format(folder=self.folder), "Remove the link."))
        if waiting := len(self.files()):
            message = f"{waiting} {'turn waits' if waiting == 1 else 'turns wait'} in {self.folder}."
            found.insert(0, Finding("warning", "recordings", message, _LATER))
        return found or [Finding("ok", "recordings", "No finished turn waits to be recorded.")]

    def unreadable(self) -> list[Path]:
        """Files that may contain any turn: damaged ones, and those that another process is writing."""
        return [path for path in self.damaged() if _read(path) is None] + sorted(self._named("*.tmp"))

    def forget(self, tenant: str, space: str, selector: Selector) -> int:
        """Erases the files that a selector covers. Returns how many. Raises OSError."""
        self.clear_drafts()
        covered = [
            path
            for path in [*self.files(), *self.damaged()]
            if (recording := _read(path)) is not None and covers(recording, tenant, space, selector)
        ]
        for path in covered:
            _erase(path)
        return len(covered)

    def _path(self, recording: Recording) -> Path:
        key = "\n".join(recording.key)
        return self.folder / (
            hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() + ".json"
        )


def covers(recording: Recording, tenant: str, space: str, selector: Selector) -> bool:
    """Whether forgetting by this selector applies to this recording."""
    if (recording.tenant, recording.space) != (tenant, space):
        return False
    return (
        selector.everything
        or selector.conversation == recording.conversation
        or (selector.speaker is not None and selector.speaker in recording.speakers)
    )


def _read(path: Path) -> Recording | None:
    """Returns None if it cannot be read."""
    try:
        return Recording.from_json(path.read_text(encoding="utf-8"))
    except (InvalidFile, UnicodeDecodeError, OSError):
        return None


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_written(draft: Path) -> bool:
    """Whether another running process may be writing it. The process id is in the name."""
    writer = draft.suffixes[-2][1:] if len(draft.suffixes) > 1 else ""
    if not writer.isdecimal() or int(writer) == os.getpid():
        return False
    try:
        os.kill(int(writer), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _set_aside(path: Path) -> None:
    try:
        path.replace(path.with_suffix(".bad"))
    except OSError as error:
        logger.warning("%s cannot be renamed: %s", path, error)


def _erase(path: Path) -> None:
    try:
        if not path.is_symlink():
            size = path.stat().st_size
            with path.open("r+b") as file:
                file.write(b"\x00" * size)
                file.flush()
                os.fsync(file.fileno())
        path.unlink()
    except FileNotFoundError:
        return
