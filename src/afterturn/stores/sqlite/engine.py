"""Lets no process fork in the middle of a transaction.

SQLite keeps track of a process's own locks in its memory. A forked child inherits that too: whatever the parent held
at that moment would stay locked for the child's own connections to the same file, for ever.
"""

from __future__ import annotations

import os
import struct
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import apsw

from afterturn.config import Config
from afterturn.errors import ForkedProcess, MemoryClosed, StoreUnavailable
from afterturn.ports import Clock, Unit
from afterturn.stores.sql.unit import SqlUnit
from afterturn.stores.sqlite.backup import (
    Progress,
    automatic_copies,
    copy_into,
    keep_automatic_copy,
    leftovers,
    never,
    no_progress,
    partial_file,
    prepare_restore,
    rescue,
    write_backup,
)
from afterturn.stores.sqlite.connection import (
    StoreLocation,
    check_place,
    connect,
    log_bytes,
    open_connection,
    run,
    scalar,
    use_wal,
)
from afterturn.stores.sqlite.errors import translate
from afterturn.stores.sqlite.migrations import check_version, migrate
from afterturn.stores.sqlite.reads import Read, Readers
from afterturn.stores.sqlite.schema import AFTER, MIGRATIONS
from afterturn.stores.sqlite.session import ApswSession, FtsText
from afterturn.stores.sqlite.writes import Write, WriteOutcome, Writer, WritingUnit

# Longer than a transaction takes; a fork that has to wait for more than this happens all the same.
_WITHIN = 2.0


class Pausable(Protocol):
    def pause(self, *, within: float) -> bool:
        """Waits until nothing is under way, and lets nothing begin. False when that took too long."""

    def resume(self) -> None: ...


_watched: weakref.WeakSet[Pausable] = weakref.WeakSet()
_paused: list[Pausable] = []


def watch(item: Pausable) -> None:
    _watched.add(item)


def _pause() -> None:
    _paused.extend(item for item in list(_watched) if item.pause(within=_WITHIN))


def _resume() -> None:
    while _paused:
        _paused.pop().resume()


def _leave() -> None:
    # The parent's; a child does not touch them.
    _paused.clear()
    _watched.clear()


os.register_at_fork(before=_pause, after_in_parent=_resume, after_in_child=_leave)


# Clears what SQLite leaves behind in the unused middle of its pages.
#
# `secure_delete` zeroes deleted rows but not moved ones: when a page overfills, SQLite copies rows to a neighbour
# and rebuilds the page without clearing the gap. A row deleted later is zeroed where it is, not where it had been.

_BATCH_PAGES = 256
_FILE_HEADER_BYTES = 100
# b-tree page types by their first byte, with the size of the header that follows.
_HEADER_BYTES = {0x02: 12, 0x05: 12, 0x0A: 8, 0x0D: 8}
# The other pages begin with a page number, whose first byte could be mistaken for a type only beyond 128 GiB.
_PAGES_MAX = 1 << 25
_TELL = (
    "INSERT INTO meta (key, value) VALUES ('scrubbed', '1') "
    "ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1"
)


def scrub(writer: Writer) -> bool:
    """Makes the bytes of deleted rows go from file and log. False when somebody reads or writes: try again later."""
    with writer.lock:
        return writer.empty_log() and _scrub_file(writer) and writer.empty_log()


def _scrub_file(writer: Writer) -> bool:
    connection = writer.connection
    try:
        if scalar(connection, "PRAGMA auto_vacuum"):
            # Somebody's choice, not ours. Its pointer-map pages can be taken for b-tree pages, so all is written anew.
            run(connection, "VACUUM")
            return True
        # Pages in this connection's cache still have their old gaps.
        connection.release_memory()
        run(connection, "BEGIN IMMEDIATE")
        if log_bytes(Path(connection.filename)):
            return False
        if clear_gaps(connection):
            # A commit makes every other connection drop its cache before it writes again.
            run(connection, _TELL)
        run(connection, "COMMIT")
        return True
    except (apsw.BusyError, apsw.LockedError):
        return False
    except apsw.Error as error:
        raise translate(error, connection.filename) from error
    finally:
        if connection.in_transaction:
            run(connection, "ROLLBACK")


def clear_gaps(connection: apsw.Connection) -> int:
    """Zeroes the gap of every page in place; how many pages needed it.

    The log must be empty and the write lock held, so that nobody moves pages meanwhile. Readers do not mind: the bytes
    of a gap mean nothing. Connections that cache pages have to be told, or they write the old gaps back.
    """
    page_bytes = scalar(connection, "PRAGMA page_size")
    # By the connection's own VFS: closing a file opened otherwise would drop the locks of this process.
    flags = [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB, 0]
    file = apsw.VFSFile(connection.open_vfs, connection.filename, flags)
    try:
        return _clear(file, page_bytes)
    finally:
        file.xClose()


def _clear(file: apsw.VFSFile, page_bytes: int) -> int:
    cleared = 0
    if file.xFileSize() // page_bytes < _PAGES_MAX:
        for start, page in _pages(file, page_bytes):
            first, last = _gap(page, _FILE_HEADER_BYTES if start == 0 else 0)
            if any(page[first:last]):
                file.xWrite(bytes(last - first), start + first)
                cleared += 1
    if cleared:
        file.xSync(apsw.SQLITE_SYNC_FULL)
    return cleared


def _pages(file: apsw.VFSFile, page_bytes: int) -> Iterator[tuple[int, bytes]]:
    size = file.xFileSize()
    for batch in range(0, size, _BATCH_PAGES * page_bytes):
        content = file.xRead(min(_BATCH_PAGES * page_bytes, size - batch), batch)
        for at in range(0, len(content), page_bytes):
            yield batch + at, content[at : at + page_bytes]


def _gap(page: bytes, offset: int) -> tuple[int, int]:
    """Where the unused middle of a page begins and ends; nowhere for a page that is no sound b-tree page."""
    header = _HEADER_BYTES.get(page[offset])
    if header is None:
        return 0, 0
    cells, content = struct.unpack_from(">HH", page, offset + 3)
    first = offset + header + 2 * cells
    last = content or 65536
    if not first <= last <= len(page):
        return 0, 0
    pointers = struct.unpack_from(f">{cells}H", page, offset + header)
    return (first, last) if all(last <= pointer < len(page) for pointer in pointers) else (0, 0)


# The SQLite store without an event loop: what hooks and short commands use, and what `store.py` drives.

R = TypeVar("R")
READERS = 2


def sql_unit(session: ApswSession) -> WritingUnit:
    return SqlUnit(session, FtsText(session))


def open_engine(path: str | os.PathLike[str], config: Config, clock: Clock, *, vfs: str | None = None) -> Engine:
    """Checks the file, sets it up, migrates it. Blocks; raises the specific StoreError."""
    return open_place(StoreLocation(_absolute(path), config, clock, MIGRATIONS, AFTER, vfs))


def rescue_store(path: Path, source: Path, config: Config, clock: Clock, *, progress: Progress = no_progress) -> Path:
    """Puts a backup in the place of a store that is too damaged to open; where the damaged file went."""
    return rescue(StoreLocation(path.absolute(), config, clock, MIGRATIONS, AFTER), source, progress)


def open_place(place: StoreLocation, unit: Callable[[ApswSession], WritingUnit] = sql_unit) -> Engine:
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


def read_once(path: Path, config: Config, clock: Clock, work: Callable[[Unit], R]) -> R:
    """Runs one read in the caller's thread on a read-only connection. Creates, migrates and writes nothing."""
    place = StoreLocation(_absolute(path), config, clock, MIGRATIONS, AFTER)
    if not os.path.isfile(place.file):
        raise StoreUnavailable(f"There is no store at {place.path}. Open it once with `afterturn.open` to create it.")
    try:
        connection = open_connection(place, apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        raise translate(error, str(place.path)) from error
    try:
        version = check_version(connection, place)
        if version < len(MIGRATIONS):
            raise StoreUnavailable(
                f"The store {place.path} has schema version {version} and needs {len(MIGRATIONS)}. "
                "Open it once with `afterturn.open` to migrate it."
            )
        return Read(work).run(connection, sql_unit)
    except apsw.Error as error:
        raise translate(error, str(place.path)) from error
    finally:
        connection.close(True)


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.join("" if os.path.isabs(path) else os.getcwd(), path)


def _keep_copy(place: StoreLocation, version: int) -> None:
    keep_automatic_copy(place, version)


class Engine:
    """One open store. Every method blocks and may be called from any thread; a forked child gets ForkedProcess."""

    def __init__(
        self, place: StoreLocation, connection: apsw.Connection, unit: Callable[[ApswSession], WritingUnit]
    ) -> None:
        self.place = place
        self._unit = unit
        self._writer = Writer(connection, place, unit)
        # One more than there are reading threads, so that `read_now` need not wait for them.
        self._readers = Readers(place, READERS + 1)
        watch(self._writer)
        watch(self._readers)
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

    def commit(self, writes: list[Write]) -> list[WriteOutcome]:
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
