"""Reading beside the writer: connections that are lent, and reads that any thread may stop."""

from __future__ import annotations

import logging
import os
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import apsw

from afterturn.config import Config
from afterturn.errors import DeadlineExceeded, ForkedProcess, MemoryClosed, StoreUnavailable
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
    connect_reader,
    log_bytes,
    open_connection,
    run,
    scalar,
    stop_when,
    use_wal,
    wait_for_locks,
)
from afterturn.stores.sqlite.errors import translate
from afterturn.stores.sqlite.schema import AFTER, MIGRATIONS, check_version, migrate
from afterturn.stores.sqlite.session import ApswSession, FtsText

R = TypeVar("R")


class Read(Generic[R]):
    """One read, run at most once. `halt` ends it soon and never touches the read that follows."""

    def __init__(self, work: Callable[[Unit], R]) -> None:
        self.work = work
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._halted = False

    def halt(self) -> None:
        with self._lock:
            self._halted = True
            if self._connection is not None:
                self._connection.interrupt()

    def is_halted(self) -> bool:
        return self._halted

    def run(self, connection: apsw.Connection, unit: Callable[[ApswSession], Unit]) -> R:
        """In a transaction, which ends when the connection is taken back."""
        with self._lock:
            if self._halted:
                raise DeadlineExceeded("The read was stopped before it began.")
            self._connection = connection
        stop_when(connection, self.is_halted)
        try:
            run(connection, "BEGIN")
            return self.work(unit(ApswSession(connection, self.is_halted)))
        finally:
            with self._lock:
                self._connection = None
            stop_when(connection, None)


class Readers:
    """At most `limit` connections, opened when they are first needed. One more borrower waits for one."""

    def __init__(self, place: StoreLocation, limit: int) -> None:
        self._place = place
        self._limit = limit
        self._idle: deque[apsw.Connection] = deque()
        self._running: set[Read[Any]] = set()
        # A signal's handler may read while its own thread is about to.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._closed = False
        self._paused = 0

    def snapshot(self, read: Read[R], unit: Callable[[ApswSession], Unit]) -> R:
        """Runs the read in a transaction of its own: one state of the store from its first statement on."""
        # Not as context managers, whose generators take a tenth of the time of a small question.
        connection = self._lend(read)
        try:
            connection = connection or connect_reader(self._place)
            return read.run(connection, unit)
        except apsw.Error as error:
            raise translate(error, str(self._place.path)) from error
        finally:
            self._take_back(read, connection)

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
        """Ends the reads under way and refuses all others."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            running = list(self._running)
        for read in running:
            read.halt()

    def close(self) -> None:
        """Closes idle connections at once, and each lent one when it comes back."""
        with self._changed:
            self._closed = True
            while self._idle:
                self._idle.pop().close()
            self._changed.notify_all()

    def _lend(self, read: Read[Any]) -> apsw.Connection | None:
        """An idle connection, or None: then there is room for one more."""
        with self._lock:
            if self._closed or self._paused or len(self._running) >= self._limit:
                self._changed.wait_for(lambda: self._closed or (not self._paused and len(self._running) < self._limit))
            if self._closed:
                raise MemoryClosed(f"The store {self._place.path} is closed. Open it again.")
            self._running.add(read)
            return self._idle.pop() if self._idle else None

    def _take_back(self, read: Read[Any], connection: apsw.Connection | None) -> None:
        with self._lock:
            self._running.discard(read)
            if connection is not None:
                self._end(connection)
            self._changed.notify_all()

    def _end(self, connection: apsw.Connection) -> None:
        try:
            if connection.in_transaction:
                run(connection, "ROLLBACK")
        except apsw.Error:
            # Whatever is wrong with it stays with it: the next read gets a fresh connection, and its own error.
            connection.close(True)
            return
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)


# The one writer: several units of work share a commit, and each succeeds or fails alone.

logger = logging.getLogger(__name__)
GROUP_SECONDS_MAX = 0.1
_LOG_WAIT = 0.1


class WritingUnit(Unit, Protocol):
    def flush(self) -> None:
        """Writes what the unit has kept back; called once, at the end of the work."""


def _always() -> bool:
    return True


class Write(NamedTuple):
    """`wanted` is asked when the work's turn comes; after that it commits or rolls back whole."""

    work: Callable[[Unit], Any]
    wanted: Callable[[], bool] = _always


class WriteOutcome(NamedTuple):
    """What became of one write. A skipped one has neither value nor error."""

    value: Any = None
    error: Exception | None = None
    skipped: bool = False


class Writer:
    """Owns the writing connection. Its methods block, from any thread, one at a time."""

    def __init__(
        self, connection: apsw.Connection, place: StoreLocation, unit: Callable[[ApswSession], WritingUnit]
    ) -> None:
        self.connection = connection
        self.lock = threading.RLock()
        self._place = place
        self._unit = unit
        self._halted = False
        self._patience = place.config.busy_timeout
        wait_for_locks(connection, lambda: 0.0 if self._halted else self._patience)
        stop_when(connection, self.is_halted)

    def commit(self, writes: Sequence[Write]) -> list[WriteOutcome]:
        """Outcomes of the first of `writes`, in order, once they are durable.

        What has not begun after GROUP_SECONDS_MAX is left to the next call, so that other processes get the lock.
        """
        with self.lock:
            # Savepoints would make FTS5 write a segment for each unit, so they are kept for groups in which one fails.
            outcomes = self._attempt(writes, isolated=False)
            if outcomes is None:
                outcomes = self._attempt(writes, isolated=True)
            if outcomes is None:
                # One of them lost the whole transaction (a full disk, for one), and with it its neighbours' work.
                outcomes = [outcome for write in writes for outcome in self._attempt([write], isolated=False) or ()]
            return outcomes

    def empty_log(self) -> bool:
        """Moves the write-ahead log into the file and truncates it. False when a reader holds on to it."""
        with self.lock:
            self._patience = min(_LOG_WAIT, self._place.config.busy_timeout)
            try:
                self.connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except (apsw.BusyError, apsw.LockedError):
                return False
            except apsw.Error as error:
                raise translate(error, str(self._place.path)) from error
            finally:
                self._patience = self._place.config.busy_timeout
            return log_bytes(self._place.path) == 0

    def pause(self, *, within: float) -> bool:
        return self.lock.acquire(timeout=within)

    def resume(self) -> None:
        self.lock.release()

    def halt(self) -> None:
        """Rolls back what is under way and lets nothing begin."""
        self._halted = True
        self.connection.interrupt()

    def close(self) -> None:
        with self.lock:
            stop_when(self.connection, None)
            # Takes away an interrupt that met no statement: it would stop the checkpoint of the last connection.
            run(self.connection, "SELECT 1")
            self.connection.close()

    def is_halted(self) -> bool:
        return self._halted

    def _attempt(self, writes: Sequence[Write], *, isolated: bool) -> list[WriteOutcome] | None:
        """None when there were neighbours and the transaction was lost before its end, or is not to be kept."""
        try:
            try:
                run(self.connection, "BEGIN IMMEDIATE")
            except apsw.Error as error:
                return [self._failure(error) for _ in writes]
            outcomes = self._run_all(writes, isolated=isolated)
            if not self.connection.in_transaction:
                return outcomes if len(writes) == 1 else None
            if not isolated and any(outcome.error for outcome in outcomes):
                return outcomes if len(writes) == 1 else None
            return self._end(outcomes)
        except apsw.Error as error:
            return [self._failure(error)] if len(writes) == 1 else None
        finally:
            self._roll_back()

    def _run_all(self, writes: Sequence[Write], *, isolated: bool) -> list[WriteOutcome]:
        deadline = self._place.clock.monotonic() + GROUP_SECONDS_MAX
        outcomes = []
        for write in writes:
            outcome = self._run_isolated(write) if isolated else self._run(write)
            outcomes.append(outcome)
            if not self.connection.in_transaction or self._place.clock.monotonic() > deadline:
                break
            if outcome.error is not None and not isolated:
                break
        return outcomes

    def _run(self, write: Write) -> WriteOutcome:
        if not write.wanted():
            return WriteOutcome(skipped=True)
        try:
            unit = self._unit(ApswSession(self.connection, self.is_halted))
            value = write.work(unit)
            unit.flush()
        except Exception as error:  # noqa: BLE001 the boundary of one unit: its caller gets the error, its neighbours go on
            return WriteOutcome(error=error)
        return WriteOutcome(value)

    def _run_isolated(self, write: Write) -> WriteOutcome:
        run(self.connection, "SAVEPOINT unit")
        outcome = self._run(write)
        if self.connection.in_transaction:
            if outcome.error is not None:
                run(self.connection, "ROLLBACK TO unit")
            run(self.connection, "RELEASE unit")
        return outcome

    def _end(self, outcomes: list[WriteOutcome]) -> list[WriteOutcome]:
        try:
            if self._halted:
                raise apsw.InterruptError("interrupted")
            run(self.connection, "COMMIT")
        except apsw.Error as error:
            return [outcome if outcome.error or outcome.skipped else self._failure(error) for outcome in outcomes]
        return outcomes

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            try:
                run(self.connection, "ROLLBACK")
            except apsw.Error:
                # SQLite gives a transaction up even when undoing it meets an error; the next one recovers the log.
                logger.warning("rolling back in %s failed", self._place.path, exc_info=True)

    def _failure(self, error: apsw.Error) -> WriteOutcome:
        failure = translate(error, str(self._place.path))
        failure.__cause__ = error
        return WriteOutcome(error=failure)


# Lets no process fork in the middle of a transaction.
#
# SQLite keeps track of a process's own locks in its memory. A forked child inherits that too: whatever the parent held
# at that moment would stay locked for the child's own connections to the same file, for ever.

# Longer than a transaction takes; a fork that has to wait for more than this happens all the same.
_FORK_WAIT = 2.0


class Pausable(Protocol):
    def pause(self, *, within: float) -> bool:
        """Waits until nothing is under way, and lets nothing begin. False when that took too long."""

    def resume(self) -> None: ...


_watched: weakref.WeakSet[Pausable] = weakref.WeakSet()
_paused: list[Pausable] = []


def watch(item: Pausable) -> None:
    _watched.add(item)


def _pause() -> None:
    _paused.extend(item for item in list(_watched) if item.pause(within=_FORK_WAIT))


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
_COUNT_SCRUB = (
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
            run(connection, _COUNT_SCRUB)
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
