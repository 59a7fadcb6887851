"""Spill files: recordings that could not be stored wait here, in a folder next to the store.

A recording has a file of its own (`.json`). When more turns end than memory may hold, they are appended to one file of
the process (`.jsonl`), and get files of their own when fewer end.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from afterturn.conversation.recording import Recording
from afterturn.errors import InvalidFile, KeyMissing, KeysUnavailable, StoreCorrupt, StoreError
from afterturn.log import logger
from afterturn.runtime.files import sync
from afterturn.stores.keys import KeyRing
from afterturn.types import Finding, Selector

_LATER = (
    "A running host stores them when the store can be written, or when their provider accepts them. If none runs on "
    "this machine, run `afterturn worker --once`."
)
_SEALED, _COLUMN = "sealed", "spill file"
_LINKED = "{folder} is a symbolic link, so no turn is written there"
_LOOK = "Examine the file, then delete it, or rename it to .json to try again."


class Spill:
    """A folder of waiting recordings. A file is whole or not there; several processes may share the folder."""

    def __init__(self, folder: Path, keys: KeyRing | None = None) -> None:
        self.folder = folder
        # If the store is sealed, its files are too.
        self.keys = keys
        # The file that `append` writes to, and its size. It is locked as long as it is open. Changed under this lock.
        self._lock = threading.Lock()
        self._file: tuple[int, Path] | None = None
        self._size = 0
        self._closed = False

    def put(self, recording: Recording) -> Path:
        """Durable when it returns. The same turn spilled twice is one file.

        Raises OSError, also if the store is sealed and the key of the turn's space cannot be used.
        """
        target = self._path(recording)
        self._write(target, self._content(recording, target), recording.ended_at)
        sync(self.folder)
        return target

    def append(self, recording: Recording) -> None:
        """Adds the turn to one file, on any thread, without waiting for the disk: it survives a kill of the process.

        Raises OSError as `put` does, and after `close`.
        """
        line = self._content(recording, self._path(recording)).encode() + b"\n"
        with self._lock:
            if self._closed:
                raise OSError("memory is closed")
            while self._file is None:
                self._make_folder()
                path = self.folder / f"{os.getpid()}-{os.urandom(8).hex()}.jsonl"
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
                self._file, self._size = (os.open(path, flags, 0o600), path), 0
                fcntl.flock(self._file[0], fcntl.LOCK_EX)
                if not path.exists():  # before it was locked, another process took it for one that was left
                    self._end_file()
            # One call of the system: after each, a busy process makes the host's thread wait for Python's lock.
            if os.write(self._file[0], line) < len(line):
                os.ftruncate(self._file[0], self._size)
                raise OSError(f"no space is left in {self.folder}")
            self._size += len(line)

    def close(self, *, erase: bool = False) -> None:
        """Ends `append`. The file stays, for the next process, unless all of its turns are stored: `erase`."""
        with self._lock:
            self._closed = True
            try:
                if self._file is not None and erase:
                    _erase(self._file[1])
                elif self._file is not None:
                    os.fsync(self._file[0])
            finally:
                self._end_file()

    def _end_file(self) -> None:
        if self._file is not None:
            os.close(self._file[0])
            self._file = None

    def unpack(self) -> None:
        """Gives the turns that were appended files of their own, except those that another process still appends.

        Raises OSError, also if `close` is called meanwhile. A turn that was unpacked before is unpacked again, and is
        still stored once.
        """
        with self._lock:
            self._end_file()
        for path in self._named("*.jsonl"):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            except FileNotFoundError:
                continue
            with os.fdopen(descriptor, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                if path.exists():  # else another process was quicker
                    for line in file:
                        if self._closed:  # which does not wait for thousands of files
                            raise OSError("memory is closed")
                        self._unpack_line(line)
                    sync(self.folder)
                    _erase(path)

    def _unpack_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        header = _header_in(text)
        try:
            if header is not None:
                name = f"{int(header['name'], 16):032x}.json"
                self._write(self.folder / name, text, float(header["ended_at"]))
            else:
                recording = Recording.from_json(text)
                self._write(self._path(recording), text, recording.ended_at)
        except (InvalidFile, KeyError, ValueError) as error:
            name = hashlib.blake2b(line, digest_size=16).hexdigest()
            logger.warning("a turn in %s is damaged and is set aside in %s.bad: %s", self.folder, name, error)
            self._write(self.folder / f"{name}.bad", text, 0.0)

    def _content(self, recording: Recording, target: Path) -> str:
        text = recording.to_json()
        if self.keys is None:
            return text
        try:
            cipher = self.keys.known_cipher(recording.tenant, recording.space)
        except StoreError as error:
            raise OSError(str(error)) from error
        if cipher is None:
            raise OSError(f"the key of {recording.space} was not used before, so the turn cannot be sealed")
        sealed = cipher.seal(_COLUMN, target.stem, text)
        header = {"tenant": recording.tenant, "space": recording.space, "key": cipher.key_id, "name": target.stem}
        return json.dumps({**header, "ended_at": recording.ended_at, _SEALED: sealed})

    def _make_folder(self) -> None:
        if self.is_linked:
            raise OSError(_LINKED.format(folder=self.folder))
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _write(self, target: Path, content: str, ended_at: float) -> None:
        """`sync` of the folder must follow."""
        self._make_folder()
        draft = target.with_suffix(f".{os.getpid()}.tmp")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                # `files` sorts by this time, so that turns keep their order even if they were written late or together.
                os.utime(file.fileno(), (ended_at, ended_at))
                os.fsync(file.fileno())
            draft.replace(target)
        except BaseException:
            # On a full disk, half a turn must not stay.
            draft.unlink(missing_ok=True)
            raise

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
                yield self._read_file(path)
            except FileNotFoundError:
                continue  # another process was quicker
            except KeysUnavailable as error:
                logger.warning("%s cannot be opened and keeps waiting: %s", path, error)
            except (InvalidFile, KeyMissing, StoreCorrupt, UnicodeDecodeError) as error:
                # Another process that has stored the turn renames its file before it erases it.
                if _set_aside(path):
                    logger.warning("%s is damaged and is set aside: %s", path, error)
            except OSError as error:
                logger.warning("%s cannot be read and keeps waiting: %s", path, error)

    def move_to(self, other: Spill) -> int:
        """Moves the waiting recordings to the folder of another store. Returns how many. Raises OSError."""
        moved = 0
        self.unpack()
        for path in self.files():
            if _header(path) is not None:
                # Sealed as it is: both stores have the same keys.
                other._write(other.folder / path.name, path.read_text(encoding="utf-8"), _modified(path))
                sync(other.folder)
                _erase(path)
                moved += 1
        for recording in self.waiting():
            other.put(recording)
            self.remove(recording)
            moved += 1
        return moved

    def _read_file(self, path: Path) -> Recording:
        text = path.read_text(encoding="utf-8")
        header = _header(path)
        if header is None:
            return Recording.from_json(text)
        if self.keys is None:
            raise KeysUnavailable(f"{path} is sealed. Set `keys` as it was when the turn was recorded.")
        cipher = self.keys.load_cipher(header["key"], header["tenant"], header["space"])
        return Recording.from_json(cipher.open(_COLUMN, path.stem, header[_SEALED]))

    def _read(self, path: Path) -> Recording | None:
        """Returns None if it cannot be read."""
        try:
            return self._read_file(path)
        except (InvalidFile, StoreError, UnicodeDecodeError, OSError):
            return None

    def files(self) -> list[Path]:
        return sorted(self._named("*.json"), key=lambda path: (_modified(path), path.name))

    def count(self) -> int:
        """How many turns wait."""
        waiting = len(self.files())
        for path in self._named("*.jsonl"):
            with suppress(OSError):  # another process was quicker
                waiting += path.read_bytes().count(b"\n")
        return waiting

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
        if waiting := self.count():
            message = f"{waiting} {'turn waits' if waiting == 1 else 'turns wait'} in {self.folder}."
            found.insert(0, Finding("warning", "recordings", message, _LATER))
        return found or [Finding("ok", "recordings", "No finished turn waits to be recorded.")]

    def unreadable(self) -> list[Path]:
        """Files that may contain any turn: damaged ones, and those that another process is writing."""
        damaged = [path for path in self.damaged() if _header(path) is None and self._read(path) is None]
        return damaged + sorted([*self._named("*.tmp"), *self._named("*.jsonl")])

    def forget(self, tenant: str, space: str, selector: Selector) -> int:
        """Erases the files that a selector covers. Returns how many. Raises OSError."""
        self.clear_drafts()
        self.unpack()
        covered = [path for path in [*self.files(), *self.damaged()] if self._is_covered(path, tenant, space, selector)]
        for path in covered:
            _erase(path)
        return len(covered)

    def _is_covered(self, path: Path, tenant: str, space: str, selector: Selector) -> bool:
        header = _header(path)
        if header is not None and selector.everything and (header["tenant"], header["space"]) == (tenant, space):
            return True
        recording = self._read(path)
        return recording is not None and covers(recording, tenant, space, selector)

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


def _header(path: Path) -> dict[str, str] | None:
    """The content of a sealed file, None for any other."""
    try:
        return _header_in(path.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return None


def _header_in(text: str) -> dict[str, str] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_sealed = isinstance(found, dict) and all(
        isinstance(found.get(name), str) for name in ("tenant", "space", "key", _SEALED)
    )
    return found if is_sealed else None


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


def _set_aside(path: Path) -> bool:
    """False if it is not there any more."""
    try:
        path.replace(path.with_suffix(".bad"))
    except FileNotFoundError:
        return False
    except OSError as error:
        logger.warning("%s cannot be renamed: %s", path, error)
    return True


def _erase(path: Path) -> None:
    """Renames the file first, to a draft: a process that is reading it must not take zeros for a damaged turn."""
    erased = path if path.suffix == ".tmp" else path.with_suffix(f".erased.{os.getpid()}.tmp")
    try:
        path.replace(erased)
        if not erased.is_symlink():
            size = erased.stat().st_size
            with erased.open("r+b") as file:
                file.write(b"\x00" * size)
                file.flush()
                os.fsync(file.fileno())
        erased.unlink()
    except FileNotFoundError:
        return
