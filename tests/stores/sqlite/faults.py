"""A disk that fails on demand, as an SQLite VFS over the real one."""

from collections.abc import Callable
from typing import Any

import apsw

FULL = apsw.FullError
BROKEN = apsw.IOError


class Disk:
    """Fails every `operation` ("write", "sync", "truncate") from the `after`th on, until `mend`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.failures = 0
        self._operations: frozenset[str] = frozenset()
        self._after = 0
        self._error: Callable[[str], apsw.Error] = BROKEN
        self._vfs = _Vfs(self)

    def break_down(self, *operations: str, after: int, error: Callable[[str], apsw.Error]) -> None:
        self._operations, self._after, self._error = frozenset(operations), after, error
        self.calls = self.failures = 0

    def mend(self) -> None:
        self._operations = frozenset()

    def pass_through(self, operation: str) -> None:
        if operation in self._operations:
            self.calls += 1
            if self.calls > self._after:
                self.failures += 1
                raise self._error("injected")

    def unplug(self) -> None:
        self._vfs.unregister()


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__(disk.name, base="")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 the name is SQLite's
        return _File(self._disk, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._disk.pass_through("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.pass_through("sync")
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.pass_through("truncate")
        super().xTruncate(newsize)

    def excepthook(self, *error: Any) -> bool:
        """Errors here are meant; nobody needs them on stderr."""
        return True
