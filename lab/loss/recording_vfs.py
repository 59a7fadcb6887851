"""A SQLite VFS that logs every change of a file, and the files as a crash at any point of that log would leave them.

A killed process leaves everything that it wrote, perhaps the half of its last write. A power cut leaves everything that
was synced, and of the later writes any, in any combination, some of them torn at a sector.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import apsw

from lab.loss.plan import Step

_SECTOR = 512
# SQLite's VFS must not be freed while a connection may use it.
_kept: list[apsw.VFS] = []


class Call(NamedTuple):
    """`kind` is write, sync, truncate or delete; or begin or done, for a `step` of the workload.

    `offset` is the new size of a truncated file.
    """

    kind: str
    file: str = ""
    offset: int = 0
    data: bytes = b""
    step: Step | None = None


class RecordingVfs(apsw.VFS):
    """Becomes the default VFS until `stop`. Between `fail` and `mend`, writes, syncs and truncates fail."""

    def __init__(self, log: list[Call]) -> None:
        self.log = log
        self.failures = 0
        self._fails_from: int | None = None
        self._error: type[apsw.Error] = apsw.IOError
        self.real = apsw.vfs_names()[0]
        super().__init__(f"recording-{len(_kept)}", base=self.real, makedefault=True)
        _kept.append(self)

    def fail(self, error: type[apsw.Error], *, after: int) -> None:
        """Every call fails from the `after`th on."""
        self._error, self._fails_from = error, len(self.log) + after

    def mend(self) -> None:
        self._fails_from = None

    def check(self) -> None:
        if self._fails_from is not None and len(self.log) >= self._fails_from:
            self.failures += 1
            raise self._error("injected by the lab")

    def stop(self) -> None:
        self.unregister()

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 the names are SQLite's
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001
        super().xDelete(filename, syncdir)
        self.log.append(Call("delete", os.path.basename(filename), int(syncdir)))

    def excepthook(self, *error: Any) -> bool:
        """Errors here are meant; nobody needs them on stderr."""
        return True


class _File(apsw.VFSFile):
    def __init__(self, disk: RecordingVfs, name: Any, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._name = os.path.basename(path)
        super().__init__(disk.real, name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._disk.check()
        super().xWrite(data, offset)
        self._disk.log.append(Call("write", self._name, offset, bytes(data)))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.check()
        super().xSync(flags)
        self._disk.log.append(Call("sync", self._name))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.check()
        super().xTruncate(newsize)
        self._disk.log.append(Call("truncate", self._name, newsize))

    def excepthook(self, *error: Any) -> bool:
        return True


Files = Mapping[str, bytes]


def after_kill(log: Sequence[Call], initial: Files, points: Sequence[int]) -> Iterator[tuple[int, dict[str, bytes]]]:
    """The files as they are when the process is killed in the call at each of `points`, which are sorted."""
    files = {name: bytearray(content) for name, content in initial.items()}
    at = 0
    for point in points:
        for call in log[at:point]:
            _apply(files, call)
        at = point
        left = {name: bytes(content) for name, content in files.items()}
        if point < len(log) and log[point].kind == "write":
            torn = {name: bytearray(content) for name, content in left.items()}
            call = log[point]
            _apply(torn, call._replace(data=call.data[: len(call.data) // 2]))
            left = {name: bytes(content) for name, content in torn.items()}
        yield point, left


def after_power_cut(
    log: Sequence[Call], initial: Files, points: Sequence[int], random: Random
) -> Iterator[tuple[int, dict[str, bytes]]]:
    """The files as a power cut before the call at each of `points` may leave them, by chance."""
    disk = _Disk(initial)
    at = 0
    for point in points:
        for call in log[at:point]:
            disk.take(call)
        at = point
        yield point, disk.after_power_cut(random)


class _Disk:
    """What is durable, and the calls since the last sync of each file."""

    def __init__(self, initial: Files) -> None:
        self._durable = {name: bytearray(content) for name, content in initial.items()}
        self._pending: defaultdict[str, list[Call]] = defaultdict(list)
        self._named = set(initial)

    def take(self, call: Call) -> None:
        if not call.file:
            return
        self._pending[call.file].append(call)
        if call.kind == "sync":
            self._settle(call.file)
            # SQLite syncs the folder with the first sync of a new journal or log, and so every earlier delete in it.
            if call.file not in self._named:
                self._named.add(call.file)
                for name in [name for name, calls in self._pending.items() if calls[-1].kind == "delete"]:
                    self._settle(name)
        elif call.kind == "delete":
            self._named.discard(call.file)
            if call.offset:
                self._settle(call.file)

    def after_power_cut(self, random: Random) -> dict[str, bytes]:
        left = {name: bytearray(content) for name, content in self._durable.items()}
        for calls in self._pending.values():
            for call in _survivors(calls, random):
                _apply(left, call)
        return {name: bytes(content) for name, content in left.items()}

    def _settle(self, file: str) -> None:
        for call in self._pending.pop(file):
            _apply(self._durable, call)


def _survivors(calls: Sequence[Call], random: Random) -> Iterator[Call]:
    """Those of the unsynced calls that reached the disk: none, the first ones, all but the first, or any."""
    kept = random.choice((0.0, 0.5, 0.9, 1.0))
    is_prefix = random.random() < 0.3
    first = int(len(calls) * kept)
    for number, call in enumerate(calls):
        if (number < first) if is_prefix else (random.random() < kept):
            if call.kind == "write" and random.random() < 0.1:
                cut = random.randrange(0, len(call.data) + 1, _SECTOR)
                yield call._replace(data=call.data[:cut])
            else:
                yield call


def _apply(files: dict[str, bytearray], call: Call) -> None:
    if call.kind == "delete":
        files.pop(call.file, None)
    elif call.kind == "truncate":
        content = files.setdefault(call.file, bytearray())
        del content[call.offset :]
    elif call.kind == "write":
        content = files.setdefault(call.file, bytearray())
        if len(content) < call.offset:
            content.extend(bytes(call.offset - len(content)))
        content[call.offset : call.offset + len(call.data)] = call.data


def write_files(folder: Path, files: Files) -> None:
    """Replaces the files of the folder. Without the shared memory file, which does not survive."""
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
