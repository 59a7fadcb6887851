"""The SQLite store without an event loop: one writer with group commit, and a pool of connections for readers.

`store.py` drives it from an event loop.
"""

from __future__ import annotations

import os
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import apsw

from afterturn.config import Config
from afterturn.errors import DeadlineExceeded, InvalidFile, MemoryClosed, StoreUnavailable
from afterturn.log import logger
from afterturn.stores.engine import Progress, ReadCall, StoreEngine, Write, WriteOutcome, never, no_progress
from afterturn.stores.keys import KeyNeeded, KeyRing
from afterturn.stores.sql.sealing import check_keys, is_sealed_store
from afterturn.stores.sql.unit import SqlUnit, settle_keys
from afterturn.stores.sqlite.backup import (
    automatic_copies,
    copy_into,
    keep_automatic_copy,
    leftovers,
    note_copy,
    noted_copies,
    partial_file,
    prepare_restore,
    rescue,
    write_backup,
)
from afterturn.stores.sqlite.connection import (
    StoreLocation,
    check_place,
    connect,
    connect_reader,
    file_identity,
    log_bytes,
    run,
    scalar,
    use_wal,
    wait_for_locks,
)
from afterturn.stores.sqlite.errors import translate
from afterturn.stores.sqlite.schema import SCHEMA, check_version, migrate, too_new
from afterturn.stores.sqlite.session import ApswSession, absolute, find_refusal, sql_unit

if TYPE_CHECKING:
    from afterturn.ports import Clock, KeyProvider, Unit
    from afterturn.types import RemainingBytes, UnitScope

UnitFactory: TypeAlias = Callable[[ApswSession], SqlUnit]
R = TypeVar("R")
READERS = 2
GROUP_SECONDS_MAX = 0.1
_LOG_WAIT = 0.1
# Longer than a transaction takes. A fork that would have to wait longer happens anyway.
_FORK_WAIT = 2.0
# About 30 ms: rare enough that the callback, which needs Python's lock, costs a query nothing.
_STOP_STEPS = 1_000_000


# Opening


def open_engine(
    path: str | os.PathLike[str],
    config: Config,
    clock: Clock,
    *,
    vfs: str | None = None,
    keys: KeyProvider | None = None,
) -> Engine:
    """Checks, sets up and migrates the file. Blocks; raises the specific StoreError. With `keys` the store is sealed,
    or is if it is new."""
    engine = open_to_copy(path, config, clock, vfs=vfs, keys=keys)
    try:
        if (refused := find_refusal(engine.writer.connection, has_keys=keys is not None)) is not None:
            raise refused
        session = ApswSession(engine.writer.connection)
        check_keys(session, engine.keys, engine.name)
        if keys is not None and not is_sealed_store(session):
            engine.write_now(partial(settle_keys, keys=engine.keys, name=engine.name))
    except BaseException:
        engine.close()
        raise
    engine.writer.ignores_marks = False
    return engine


def open_to_copy(
    path: str | os.PathLike[str],
    config: Config,
    clock: Clock,
    *,
    vfs: str | None = None,
    keys: KeyProvider | None = None,
) -> Engine:
    """As `open_engine`, also for a store that was moved, sealed or not."""
    place = StoreLocation(absolute(path), config, clock, SCHEMA, vfs)
    ring = None if keys is None else KeyRing(keys, clock)
    engine = open_place(place, sql_unit if ring is None else partial(sql_unit, keys=ring))
    engine.keys = ring
    engine.writer.has_keys = ring is not None
    engine.writer.ignores_marks = True
    return engine


def open_place(place: StoreLocation, unit: UnitFactory = sql_unit) -> Engine:
    check_place(place)
    connection = connect(place)
    try:
        check_version(connection, place)
        use_wal(connection, within=place.config.busy_timeout)
        migrate(connection, place, lambda version: keep_automatic_copy(place, version))
    except apsw.Error as error:
        connection.close()
        raise translate(error, str(place.path)) from error
    except BaseException:
        connection.close()
        raise
    return Engine(place, connection, unit)


def rescue_store(path: Path, source: Path, config: Config, clock: Clock, *, progress: Progress = no_progress) -> Path:
    """Replaces a store that is too damaged to open with a backup. Returns where the damaged file was moved to."""
    return rescue(StoreLocation(path.absolute(), config, clock, SCHEMA), source, progress)


class Engine(StoreEngine):
    readers_max = READERS
    readers: Readers
    writer: Writer

    def __init__(self, place: StoreLocation, connection: apsw.Connection, unit: UnitFactory) -> None:
        super().__init__(str(place.path), place.clock, None)
        self.place = place
        self.writer = Writer(connection, place, unit)
        # One more than there are reading threads, so that `read_now` need not wait for them.
        self.readers = Readers(place, READERS + 1, unit)
        _open.update((self.writer, self.readers))

    def new_read(self, work: Callable[[Unit], R], at: UnitScope = None) -> ReadCall[R]:
        read = Read(work)
        return ReadCall(partial(self.readers.run, read), read.halt)

    def scrub(self) -> tuple[RemainingBytes, ...]:
        """Overwrites the bytes of deleted rows in file and log, unless somebody reads or writes."""
        self.check_usable()
        with self.writer.lock:
            if self.writer.empty_log() and _scrub_file(self.writer.connection) and self.writer.empty_log():
                return ()
        until = "every process that reads it now has finished; a job tries again"
        from afterturn.types import RemainingBytes

        return (RemainingBytes(f"old pages of {self.place.path} and its log", until, retry=True),)

    def backup(self, target: Path, progress: Progress = no_progress, stopped: Callable[[], bool] = never) -> None:
        self.check_usable()
        write_backup(self.place, target, progress, stopped)
        self.writer.note_copy(target)

    def restore(self, source: Path, progress: Progress = no_progress, stopped: Callable[[], bool] = never) -> None:
        """Writers wait while the content is replaced. After that has begun, `stopped` is ignored."""
        self.check_usable()
        with partial_file(self.place.path) as prepared:
            prepare_restore(self.place, source, prepared, no_progress, stopped)
            with closing(connect(self.place._replace(file=prepared))) as connection:
                if is_sealed_store(ApswSession(connection)) != (self.keys is not None):
                    raise InvalidFile(
                        f"{source} is {'not ' if self.keys is not None else ''}sealed with keys, unlike this store. "
                        "Restore it into a store of its own."
                    )
            with self.writer.lock:
                self.check_usable()
                copy_into(self.writer.connection, self.place, prepared, progress)

    def backups(self) -> list[Path]:
        """Every copy of the store that is known: automatic ones, leftovers, and those that `backup` wrote."""
        with closing(connect_reader(self.place)) as connection:
            noted = noted_copies(connection)
        return automatic_copies(self.place.path) + leftovers(self.place.path) + noted


# Reading


class Read(Generic[R]):
    """One read, which runs at most once. `halt` stops it soon, and never affects the read after it."""

    def __init__(self, work: Callable[[Unit], R]) -> None:
        self.work = work
        self.halted = False
        self.connection: apsw.Connection | None = None
        self.lock = threading.Lock()

    def halt(self) -> None:
        with self.lock:
            self.halted = True
            if self.connection is not None:
                self.connection.interrupt()


class Readers:
    """A pool of at most `limit` reading connections, opened when they are first needed. Further reads wait."""

    def __init__(self, place: StoreLocation, limit: int, unit: UnitFactory) -> None:
        self._place = place
        self._limit = limit
        self._unit = unit
        self._file = file_identity(place.path)
        self._idle: deque[apsw.Connection] = deque()
        self._running: set[Read[Any]] = set()
        # Reentrant: a signal handler may read while its own thread is about to.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._closed = False
        self._paused = 0

    def run(self, read: Read[R]) -> R:
        """Runs the read in a transaction of its own, so that it sees one state of the store."""
        if file_identity(self._place.path) != self._file:
            raise _replaced(self._place.path)
        # Without context managers, whose generators take a tenth of the time of a small query.
        connection = self._borrow(read)
        try:
            if connection is None:
                connection = connect_reader(self._place)
            with read.lock:
                if read.halted:
                    raise DeadlineExceeded(f"A read of the store {self._place.path} was stopped before it began.")
                read.connection = connection
            # SQLite forgets an interrupt that arrives just before a statement starts; this catches it.
            connection.set_progress_handler(lambda: read.halted, _STOP_STEPS)
            connection.execute("BEGIN")
            return read.work(self._unit(ApswSession(connection, read)))
        except apsw.Error as error:
            raise translate(error, str(self._place.path)) from error
        finally:
            with read.lock:
                read.connection = None
            self._give_back(read, connection)

    def pause(self, *, within: float) -> bool:
        with self._changed:
            self._paused += 1
            if self._changed.wait_for(lambda: not self._running, within):
                return True
            self._paused -= 1
            return False

    def resume(self) -> None:
        with self._changed:
            self._paused -= 1
            self._changed.notify_all()

    def halt(self) -> None:
        """Stops the running reads and refuses new ones."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            running = list(self._running)
        for read in running:
            read.halt()

    def close(self) -> None:
        """Closes idle connections at once, and each borrowed one when it is given back."""
        with self._changed:
            self._closed = True
            while self._idle:
                self._idle.pop().close()
            self._changed.notify_all()

    def _borrow(self, read: Read[Any]) -> apsw.Connection | None:
        """An idle connection. None if there is none and one more may be opened."""
        with self._lock:
            if self._closed or self._paused or len(self._running) >= self._limit:
                self._changed.wait_for(lambda: self._closed or (not self._paused and len(self._running) < self._limit))
            if self._closed:
                raise MemoryClosed(f"The store {self._place.path} is closed. Open it again.")
            self._running.add(read)
            return self._idle.pop() if self._idle else None

    def _give_back(self, read: Read[Any], connection: apsw.Connection | None) -> None:
        with self._lock:
            self._running.discard(read)
            if connection is not None:
                self._end(connection)
            self._changed.notify_all()

    def _end(self, connection: apsw.Connection) -> None:
        connection.set_progress_handler(None)
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            # The connection is broken. The next read opens a new one, and reports its own error.
            connection.close(True)
            return
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)


# Writing


class Writer:
    """Owns the writing connection. Writes share a commit, and each succeeds or fails alone.

    Its methods block; they may be called from any thread, and run one at a time.
    """

    def __init__(self, connection: apsw.Connection, place: StoreLocation, unit: UnitFactory) -> None:
        self.connection = connection
        self.lock = threading.RLock()
        self.halted = False
        # Whether it writes to a store that was moved or is sealed, as the copier does.
        self.ignores_marks = False
        # Whether it may write to a sealed store.
        self.has_keys = False
        self._place = place
        self._path = place.path
        self._files = _identities(self._path)
        self._unit = unit
        self._lock_timeout = place.config.busy_timeout
        wait_for_locks(connection, lambda: 0.0 if self.halted else self._lock_timeout)
        connection.set_progress_handler(lambda: self.halted, _STOP_STEPS)

    def commit(self, writes: Sequence[Write]) -> list[WriteOutcome]:
        """The outcomes of the first of `writes`, in order, once they are durable.

        Writes that have not begun after GROUP_SECONDS_MAX are left to the next call, so that other processes get the
        lock.
        """
        with self.lock:
            # With savepoints FTS5 would write a segment for each unit, so they are used only after a unit has failed.
            outcomes = self._attempt(writes, isolated=False)
            if outcomes is None:
                outcomes = self._attempt(writes, isolated=True)
            if outcomes is None:
                # One of them lost the whole transaction (a full disk, for example), so each gets its own.
                outcomes = [outcome for write in writes for outcome in self._attempt([write], isolated=False) or ()]
            return outcomes

    def empty_log(self) -> bool:
        """Moves the write-ahead log into the file and truncates it. False if a reader still needs it."""
        with self.lock:
            self._lock_timeout = min(_LOG_WAIT, self._place.config.busy_timeout)
            try:
                self.connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except (apsw.BusyError, apsw.LockedError):
                return False
            except apsw.Error as error:
                raise translate(error, str(self._place.path)) from error
            finally:
                self._lock_timeout = self._place.config.busy_timeout
            return log_bytes(self._place.path) == 0

    def note_copy(self, target: Path) -> None:
        """The copy is there already, so a store that cannot note it must not report that there is none."""
        with self.lock:
            try:
                note_copy(self.connection, target, self._place.clock.now())
            except apsw.Error as error:
                logger.warning("the backup %s could not be noted, so a forget will not name it: %s", target, error)

    def pause(self, *, within: float) -> bool:
        return self.lock.acquire(timeout=within)

    def resume(self) -> None:
        self.lock.release()

    def halt(self) -> None:
        """Rolls back the running transaction and lets no other begin."""
        self.halted = True
        self.connection.interrupt()

    def close(self) -> None:
        with self.lock:
            self.connection.set_progress_handler(None)
            # Clears an interrupt that met no statement: it would stop the checkpoint of the last connection.
            run(self.connection, "SELECT 1")
            self.connection.close()

    def _attempt(self, writes: Sequence[Write], *, isolated: bool) -> list[WriteOutcome] | None:
        """Runs the writes in one transaction. None if the transaction was lost or given up and had several writes."""
        try:
            try:
                self.connection.execute("BEGIN IMMEDIATE")
            except apsw.Error as error:
                return [self._failure(error) for _ in writes]
            if (files := _identities(self._path)) != self._files:
                # SQLite would go on writing to files that nobody can open again.
                self._rescue_log(files)
                return [WriteOutcome(error=_replaced(self._path)) for _ in writes]
            if (version := scalar(self.connection, "PRAGMA user_version")) > self._place.schema.newest:
                # A newer program has migrated the store meanwhile.
                return [WriteOutcome(error=too_new(self._place, version)) for _ in writes]
            if not self.ignores_marks:
                refused = find_refusal(self.connection, has_keys=self.has_keys)
                if refused is not None:
                    return [WriteOutcome(error=refused) for _ in writes]
            deadline = self._place.clock.monotonic() + GROUP_SECONDS_MAX
            outcomes: list[WriteOutcome] = []
            failed = False
            for write in writes:
                outcomes.append(self._run(write, isolated=isolated))
                failed = not self.connection.in_transaction or (not isolated and outcomes[-1].error is not None)
                if failed or self._place.clock.monotonic() > deadline:
                    break
            if failed:
                return outcomes if len(writes) == 1 else None
            return self._commit(outcomes)
        except apsw.Error as error:
            return [self._failure(error)] if len(writes) == 1 else None
        finally:
            self._roll_back()

    def _rescue_log(self, files: _Identities) -> None:
        """If only the log was removed, moves what it holds into the store's file: this connection still has it open."""
        self._roll_back()
        if files[0] == self._files[0] and files[1] is None:
            try:
                self.connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.Error:
                logger.exception("the removed log of %s could not be saved; its last commits are lost", self._path)

    def _run(self, write: Write, *, isolated: bool) -> WriteOutcome:
        if write.is_cancelled():
            return WriteOutcome(skipped=True)
        if isolated:
            self.connection.execute("SAVEPOINT unit")
        try:
            unit = self._unit(ApswSession(self.connection, self))
            value = write.work(unit)
            unit.flush()
            outcome = WriteOutcome(value)
        except (Exception, KeyNeeded) as error:  # noqa: BLE001 the boundary of one unit: its caller gets the error
            outcome = WriteOutcome(error=error)
        if isolated and self.connection.in_transaction:
            if outcome.error is not None:
                self.connection.execute("ROLLBACK TO unit")
            self.connection.execute("RELEASE unit")
        return outcome

    def _commit(self, outcomes: list[WriteOutcome]) -> list[WriteOutcome]:
        try:
            if self.halted:
                raise apsw.InterruptError("interrupted")
            self.connection.execute("COMMIT")
        except apsw.Error as error:
            return [outcome if outcome.error or outcome.skipped else self._failure(error) for outcome in outcomes]
        return outcomes

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            try:
                self.connection.execute("ROLLBACK")
            except apsw.Error:
                # SQLite ends a transaction even when rolling back fails; the next one recovers the log.
                logger.warning("rolling back in %s failed", self._place.path, exc_info=True)

    def _failure(self, error: apsw.Error) -> WriteOutcome:
        failure = translate(error, str(self._place.path))
        failure.__cause__ = error
        return WriteOutcome(error=failure)


_Identities: TypeAlias = list[tuple[int, int] | None]


def _identities(path: Path) -> _Identities:
    """The device and inode of the store's file, its log and the log's index; None for a file that is not there."""
    return [file_identity(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")]


def _replaced(path: Path) -> StoreUnavailable:
    return StoreUnavailable(f"The store {path}, or its log, was removed or replaced while it was open. Open it again.")


# Scrubbing: overwriting what SQLite leaves in the unused middle of its pages.
#
# `secure_delete` zeroes deleted rows but not moved ones: when a page overfills, SQLite copies rows to a neighbour
# and rebuilds the page without clearing the gap. A row deleted later is zeroed where it is, not where it had been.

_BATCH_PAGES = 256
_FILE_HEADER_BYTES = 100
# b-tree page types by their first byte, with the size of the header that follows.
_HEADER_BYTES = {0x02: 12, 0x05: 12, 0x0A: 8, 0x0D: 8}
# The other pages begin with a page number, whose first byte could be mistaken for a type only beyond 128 GiB.
_PAGES_MAX = 1 << 25
_COUNT_SCRUB = (
    "INSERT INTO meta (key, value) VALUES ('scrubbed', '1') "
    "ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1"
)


def _scrub_file(connection: apsw.Connection) -> bool:
    try:
        if scalar(connection, "PRAGMA auto_vacuum"):
            # Somebody else set this. Its pointer-map pages look like b-tree pages, so the file is rewritten instead.
            run(connection, "VACUUM")
            return True
        # Pages in this connection's cache still have their old gaps.
        connection.release_memory()
        connection.execute("BEGIN IMMEDIATE")
        if log_bytes(Path(connection.filename)):
            return False
        if clear_gaps(connection):
            # A commit makes every other connection drop its cache before it writes again.
            run(connection, _COUNT_SCRUB)
        connection.execute("COMMIT")
        return True
    except (apsw.BusyError, apsw.LockedError):
        return False
    except apsw.Error as error:
        raise translate(error, connection.filename) from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def clear_gaps(connection: apsw.Connection) -> int:
    """Zeroes the gap of every page in place. Returns the number of pages that needed it.

    The log must be empty and the write lock held, so that no page moves meanwhile. Readers are not affected: the bytes
    of a gap mean nothing. Connections that cache pages must drop them afterwards, or they write the old gaps back.
    """
    page_bytes = scalar(connection, "PRAGMA page_size")
    # Through the connection's own VFS: closing a file opened otherwise would drop the locks of this process.
    flags = [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB, 0]
    file = apsw.VFSFile(connection.open_vfs, connection.filename, flags)
    try:
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
    finally:
        file.xClose()


def _pages(file: apsw.VFSFile, page_bytes: int) -> Iterator[tuple[int, bytes]]:
    size = file.xFileSize()
    for batch in range(0, size, _BATCH_PAGES * page_bytes):
        content = file.xRead(min(_BATCH_PAGES * page_bytes, size - batch), batch)
        for at in range(0, len(content), page_bytes):
            yield batch + at, content[at : at + page_bytes]


def _gap(page: bytes, offset: int) -> tuple[int, int]:
    """Start and end of the unused middle of a page; (0, 0) for a page that is not a sound b-tree page."""
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


# Forking: no process forks in the middle of a transaction.
#
# SQLite keeps track of a process's own locks in its memory, which a forked child inherits. A lock that the parent held
# at that moment would stay locked for the child's own connections to the same file.


class Pausable(Protocol):
    def pause(self, *, within: float) -> bool:
        """Waits until no work is running, and lets none begin. False if that took too long."""

    def resume(self) -> None: ...


_open: weakref.WeakSet[Pausable] = weakref.WeakSet()
_paused: list[Pausable] = []


def _pause_all() -> None:
    _paused.extend(item for item in list(_open) if item.pause(within=_FORK_WAIT))


def _resume_all() -> None:
    while _paused:
        _paused.pop().resume()


def _leave_to_parent() -> None:
    _paused.clear()
    _open.clear()


os.register_at_fork(before=_pause_all, after_in_parent=_resume_all, after_in_child=_leave_to_parent)
