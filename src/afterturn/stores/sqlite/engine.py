"""The SQLite store without an event loop: what hooks and short commands use, and what `store.py` drives."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from afterturn.base.config import Config
from afterturn.base.errors import ForkedProcess, MemoryClosed
from afterturn.base.ports import Clock, Unit
from afterturn.stores.sql.unit import SqlUnit
from afterturn.stores.sqlite import forks
from afterturn.stores.sqlite.backup import (
    automatic_copies,
    copy_into,
    keep_automatic_copy,
    leftovers,
    partial_file,
    prepare_restore,
    rescue,
    write_backup,
)
from afterturn.stores.sqlite.connection import Place, check_place, connect, use_wal
from afterturn.stores.sqlite.failures import translate
from afterturn.stores.sqlite.migrations import check_version, migrate
from afterturn.stores.sqlite.pages import scrub
from afterturn.stores.sqlite.progress import Progress, never, no_progress
from afterturn.stores.sqlite.reads import Read, Readers
from afterturn.stores.sqlite.schema import AFTER, MIGRATIONS
from afterturn.stores.sqlite.session import ApswSession
from afterturn.stores.sqlite.text import FtsText
from afterturn.stores.sqlite.writes import Outcome, Write, Writer, WritingUnit

R = TypeVar("R")
READERS = 2


def sql_unit(session: ApswSession) -> WritingUnit:
    return SqlUnit(session, FtsText(session))


def open_engine(path: str | os.PathLike[str], config: Config, clock: Clock, *, vfs: str | None = None) -> Engine:
    """Checks the file, sets it up, migrates it. Blocks; raises the specific StoreError."""
    return open_place(Place(_absolute(path), config, clock, MIGRATIONS, AFTER, vfs))


def rescue_store(path: Path, source: Path, config: Config, clock: Clock, *, progress: Progress = no_progress) -> Path:
    """Puts a backup in the place of a store that is too damaged to open; where the damaged file went."""
    return rescue(Place(path.absolute(), config, clock, MIGRATIONS, AFTER), source, progress)


def open_place(place: Place, unit: Callable[[ApswSession], WritingUnit] = sql_unit) -> Engine:
    check_place(place)
    connection = connect(place)
    try:
        check_version(connection, place)
        use_wal(connection, within=place.config.busy_timeout)
        migrate(connection, place, lambda version: _keep_copy(place, version))
    except apsw.Error as error:
        connection.close()
        raise translate(error, str(place.path)) from error
    except BaseException:
        connection.close()
        raise
    return Engine(place, connection, unit)


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.join("" if os.path.isabs(path) else os.getcwd(), path)


def _keep_copy(place: Place, version: int) -> None:
    keep_automatic_copy(place, version)


class Engine:
    """One open store. Every method blocks and may be called from any thread; a forked child gets ForkedProcess."""

    def __init__(self, place: Place, connection: apsw.Connection, unit: Callable[[ApswSession], WritingUnit]) -> None:
        self.place = place
        self._unit = unit
        self._writer = Writer(connection, place, unit)
        # One more than there are reading threads, so that `read_now` need not wait for them.
        self._readers = Readers(place, READERS + 1)
        forks.watch(self._writer)
        forks.watch(self._readers)
        self._process = os.getpid()
        self._closed = False

    def write_now(self, work: Callable[[Unit], R]) -> R:
        outcome = self.commit([Write(work)])[0]
        if outcome.error is not None:
            raise outcome.error
        value: R = outcome.value
        return value

    def read_now(self, work: Callable[[Unit], R]) -> R:
        return self.snapshot(Read(work))

    def commit(self, writes: list[Write]) -> list[Outcome]:
        self.check_usable()
        return self._writer.commit(writes)

    def snapshot(self, read: Read[R]) -> R:
        self.check_usable()
        return self._readers.snapshot(read, self._unit)

    def scrub(self) -> bool:
        """Removes the bytes of what was deleted. False when a reader holds on to them: this hardly waits for one."""
        self.check_usable()
        return scrub(self._writer)

    def backup(self, target: Path, progress: Progress = no_progress, stopped: Callable[[], bool] = never) -> None:
        self.check_usable()
        write_backup(self.place, target, progress, stopped)

    def restore(self, source: Path, progress: Progress = no_progress, stopped: Callable[[], bool] = never) -> None:
        """Writers wait while the content is replaced. `stopped` is heeded until that begins."""
        self.check_usable()
        with partial_file(self.place.path) as prepared:
            prepare_restore(self.place, source, prepared, no_progress, stopped)
            with self._writer.lock:
                self.check_usable()
                copy_into(self._writer.connection, self.place, prepared, progress)

    def backups(self) -> list[Path]:
        return automatic_copies(self.place.path) + leftovers(self.place.path)

    def halt(self) -> None:
        """Ends what is running: reads fail, the transaction under way is rolled back whole, nothing new begins."""
        self._writer.halt()
        self._readers.halt()

    def close(self) -> None:
        """Waits for what is running. Twice is harmless; in a forked child it leaves the parent's files alone."""
        if self._closed or self.is_foreign():
            return
        self._closed = True
        self._readers.close()
        self._writer.close()

    def is_foreign(self) -> bool:
        """Whether this is a forked child's copy of its parent's store."""
        return os.getpid() != self._process

    def check_usable(self) -> None:
        if self.is_foreign():
            raise ForkedProcess(
                f"The store {self.place.path} belongs to the parent process. Open it anew in the child."
            )
        if self._closed:
            raise MemoryClosed(f"The store {self.place.path} is closed. Open it again.")
