"""A SQLite VFS that kills the process with SIGKILL at a chosen call."""

import os
import signal
from typing import Any

import apsw


class KillingVfs(apsw.VFS):
    """Becomes the default VFS for all connections. Counts writes, syncs, truncates and deletes."""

    def __init__(self, kill_at: int) -> None:
        self._left = kill_at
        # By name: an empty name would mean the default, which will be this VFS itself.
        self.real = apsw.vfs_names()[0]
        super().__init__("killing", base=self.real, makedefault=True)

    def is_due(self) -> bool:
        self._left -= 1
        return self._left < 0

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 the names are SQLite's
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001
        if self.is_due():
            die()
        super().xDelete(filename, syncdir)


class _File(apsw.VFSFile):
    def __init__(self, disk: KillingVfs, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(disk.real, name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        if self._disk.is_due():
            # Writes half of the page: recovery must notice a torn page.
            super().xWrite(bytes(data)[: len(bytes(data)) // 2], offset)
            die()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._disk.is_due():
            die()
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        if self._disk.is_due():
            die()
        super().xTruncate(newsize)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
