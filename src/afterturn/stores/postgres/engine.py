"""The PostgreSQL store without an event loop: one writer with group commit, and a few connections for readers.

`store.py` drives it from an event loop; `recall_once` calls `read_once`.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.generators import fetch_many
from psycopg.pq import TransactionStatus

from afterturn.config import Config, StoreUrl
from afterturn.errors import AfterturnError, DeadlineExceeded, MemoryClosed, StoreError, StoreUnavailable
from afterturn.log import logger
from afterturn.ports import Clock, KeyProvider, Unit
from afterturn.runtime.worker import ThreadWorker
from afterturn.stores.engine import ReadCall, StoreEngine, Write, WriteOutcome, tenant_of
from afterturn.stores.keys import KeyNeeded, KeyRing
from afterturn.stores.postgres.connection import StoreServer, set_tenant
from afterturn.stores.postgres.errors import NotAnswering, is_lost, may_rerun, translate
from afterturn.stores.postgres.migration import check_migrated, find_version, migrate
from afterturn.stores.postgres.schema import MIGRATIONS, Migration
from afterturn.stores.postgres.session import HashedTerms, PgConnection, PostgresSession, Transaction
from afterturn.stores.sql.sealing import check_keys, is_sealed_store
from afterturn.stores.sql.session import FIND_MARKS, Row, Session, refusal
from afterturn.stores.sql.tables import TABLES
from afterturn.stores.sql.unit import SqlUnit, in_session, settle_keys, sql_session
from afterturn.types import RemainingBytes, Tenant, UnitScope

R = TypeVar("R")
READERS = 4
# Units that have not begun after this time are left to the next commit, so that other processes get the lock.
GROUP_SECONDS_MAX = 0.1
# A write waits for a lock for 12 times `busy_timeout`: a minute with the default settings. The pause lets through those
# who waited behind it.
_LOCK_TRIES_MAX = 12
_LOCK_PAUSE = 0.3
_RERUNS_MAX = 20
_CONNECT_PAUSE = 0.25
_CANCEL_WAIT = 5.0
# The row that it would delete is outdated after some hours anyway.
_LEAVE_WAIT = 1.0
# The server ignores a signal that arrives before its statement, so it is sent again until the work has ended. No other
# statement begins meanwhile.
_CANCEL_TRIES_MAX = 20
_CANCEL_PAUSE = 0.05
_MARKS_KEPT = 30 * 86_400.0
_MARK = (
    b"INSERT INTO last_commit (writer, commit_id, at, schema_version) VALUES (%s, %s, %s, %s) "
    b"ON CONFLICT (writer) DO UPDATE SET commit_id = excluded.commit_id, at = excluded.at"
)
_DROP_MARK = "DELETE FROM last_commit WHERE writer = %s"
_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class AS c "
    "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind IN ('r', 'p', 'm')"
)
_DROP_OLD_MARKS = b"DELETE FROM last_commit WHERE at < %s"

# Deleted rows are gone for every query. When their bytes are overwritten is the server's own affair.
_LEFT_TO_THE_SERVER = (
    RemainingBytes("unused parts of the server's pages", "it has vacuumed the tables and used the room again"),
    RemainingBytes("the server's write-ahead log and its archive", "they are recycled and deleted"),
    RemainingBytes("the server's log, if it logs statements", "you delete its files"),
    RemainingBytes("replicas", "they have replayed and vacuumed the same"),
    RemainingBytes("backups of the server", "you delete them"),
)


def open_engine(
    url: StoreUrl,
    config: Config,
    clock: Clock,
    *,
    migrations: Sequence[Migration] = MIGRATIONS,
    keys: KeyProvider | None = None,
) -> PostgresEngine:
    """Connects, checks and migrates. Blocks; raises the specific StoreError. With `keys` the store is sealed, or is if
    it is new."""
    engine = open_to_copy(url, config, clock, migrations=migrations, patient=False, keys=keys)
    try:
        engine.read_now(lambda unit: _check_in_use(unit, engine.server))
        if keys is not None and not engine.read_now(in_session(is_sealed_store)):
            engine.write_now(partial(settle_keys, keys=engine.keys, name=engine.name))
    except BaseException:
        engine.close()
        raise
    engine.writer.ignores_marks = False
    return engine


def open_to_copy(
    url: StoreUrl,
    config: Config,
    clock: Clock,
    *,
    migrations: Sequence[Migration] = MIGRATIONS,
    patient: bool = True,
    keys: KeyProvider | None = None,
) -> PostgresEngine:
    """As `open_engine`, also for a store that was moved, sealed or not.

    With `patient`, statements and pauses between them may take as long as they need, as in a copy of a whole store."""
    # Raises InvalidInput now, not when the first turn is recorded.
    set_tenant(Tenant(config.tenant))
    server = StoreServer(url, config, clock, migrations, patient=patient)
    server.keys = None if keys is None else KeyRing(keys, clock)
    connection = server.open()
    try:
        migrate(connection, server)
    except BaseException:
        connection.close()
        raise
    engine = PostgresEngine(server, connection)
    engine.writer.ignores_marks = True
    return engine


def read_once(
    url: StoreUrl,
    config: Config,
    clock: Clock,
    work: Callable[[Unit], R],
    *,
    at: UnitScope,
    keys: KeyRing | None = None,
) -> R:
    """Runs one read in the caller's thread. Creates, migrates and writes nothing."""
    server = StoreServer(url, config, clock)
    server.keys = keys
    with server.open() as connection:
        check_migrated(find_version(connection, server), server)

        def checked(unit: Unit) -> R:
            _check_in_use(unit, server)
            return work(unit)

        try:
            return ServerRead(checked, at).run_on(connection, server)
        except psycopg.Error as error:
            raise translate(error, server.name) from error


def is_created(url: StoreUrl, config: Config, clock: Clock) -> bool:
    """Whether the schema has the tables of a store, of any version. Blocks; raises a StoreError."""
    server = StoreServer(url, config, clock)
    with server.open() as connection:
        return find_version(connection, server) > 0


def _check_in_use(unit: Unit, server: StoreServer) -> None:
    """Raises for a store that was moved, or that does not fit the keys."""
    session = sql_session(unit)
    refused = refusal(session.rows(FIND_MARKS), server.name, has_keys=server.keys is not None)
    if refused is not None:
        raise refused
    check_keys(session, server.keys, server.name)


class PostgresEngine(StoreEngine):
    readers_max = READERS
    readers: ServerReaders
    writer: ServerWriter

    def __init__(self, server: StoreServer, connection: PgConnection) -> None:
        super().__init__(server.name, server.clock, server.keys)
        self.server = server
        self.writer = ServerWriter(server, connection)
        # One more than there are reading threads, so that `read_now` need not wait for them.
        self.readers = ServerReaders(server, READERS + 1)
        self._canceller = ThreadWorker("afterturn-cancel")

    def new_read(self, work: Callable[[Unit], R], at: UnitScope = None) -> ReadCall[R]:
        read = ServerRead(work, at)

        def halt() -> None:
            # On a thread: a statement is cancelled through a connection of its own, which may take some time.
            read.halted = True
            with suppress(AfterturnError):
                self._canceller.post(read.cancel)

        return ReadCall(partial(self.readers.run, read), halt)

    def scrub(self) -> tuple[RemainingBytes, ...]:
        return _LEFT_TO_THE_SERVER

    def advance_sequences(self, session: Session) -> None:
        """The sequences do not see keys that were inserted."""
        for table in TABLES:
            if (column := table.own_key) is not None:
                session.run(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column}'), "
                    f"greatest((SELECT max({column}) FROM {table.name}), "
                    f"nextval(pg_get_serial_sequence('{table.name}', '{column}'))))"
                )

    def size_bytes(self) -> int:
        """Of all tables with their indexes. Waits up to `busy_timeout` for a table that is being rewritten."""
        row = self.read_now(lambda unit: sql_session(unit).row(_SIZE, (self.server.schema,)))
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        super().close()
        self._canceller.close(within=0.0)


# Reading


class ServerRead(Generic[R]):
    """One read. `cancel` stops the running statement; the connection is not used again then, because a late signal
    could stop the next statement on it."""

    def __init__(self, work: Callable[[Unit], R], at: UnitScope = None) -> None:
        self.work = work
        self.at = at
        self.halted = False
        self.connection: PgConnection | None = None
        self.lock = threading.Lock()
        self.ended = threading.Event()

    def run_on(self, connection: PgConnection, server: StoreServer) -> R:
        """Raises psycopg.Error only if the read may run again on another connection."""
        session = PostgresSession(Transaction(connection, server.begin_read(self.at)), server.name, self)
        try:
            value = self.work(SqlUnit(session, HashedTerms(session), server.keys))
        except AfterturnError:
            if session.failure is not None and is_lost(session.failure):
                raise session.failure from None
            raise
        if session.failure is not None:
            raise translate(session.failure, server.name) from session.failure
        return value

    def cancel(self) -> None:
        self.halted = True
        for _ in range(_CANCEL_TRIES_MAX):
            with self.lock:
                if self.connection is None or self.connection.is_abandoned:
                    return
                _cancel(self.connection)
            if self.ended.wait(_CANCEL_PAUSE):
                return


class ServerReaders:
    """At most `limit` reading connections, opened when they are first needed. Further reads wait."""

    def __init__(self, server: StoreServer, limit: int) -> None:
        self._server = server
        self._places = threading.BoundedSemaphore(limit)
        self._idle: deque[PgConnection] = deque()
        self._running: set[ServerRead[Any]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, read: ServerRead[R]) -> R:
        """Runs the read in a transaction of its own, so that it sees one state of the store."""
        with self._places:
            while True:
                with self._lock:
                    self._check_open()
                    idle = self._idle.pop() if self._idle else None
                    self._running.add(read)
                try:
                    return self._run_once(read, idle)
                except psycopg.Error as error:
                    if isinstance(error, NotAnswering):
                        self._drop_idle()
                    # An idle connection may have been lost long ago, for example when the server was restarted.
                    if idle is None or not may_rerun(error):
                        raise translate(error, self._server.name) from error

    def halt(self) -> None:
        with self._lock:
            self._closed = True
            running = list(self._running)
        for read in running:
            read.cancel()

    def close(self) -> None:
        """Closes idle connections at once, and each one in use after its read."""
        with self._lock:
            self._closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _run_once(self, read: ServerRead[R], idle: PgConnection | None) -> R:
        connection = idle
        try:
            if connection is None:
                connection = self._server.connect()
            with read.lock:
                if read.halted:
                    raise DeadlineExceeded(f"A read of the store {self._server.name} was stopped before it began.")
                read.connection = connection
                read.ended.clear()
            # The answer to the last ROLLBACK. Raises psycopg.Error if the connection was lost.
            connection.wait(fetch_many(connection.pgconn))
            return read.run_on(connection, self._server)
        finally:
            with read.lock:
                read.connection = None
                read.ended.set()
            if connection is not None:
                self._give_back(read, connection)
            with self._lock:
                self._running.discard(read)

    def _give_back(self, read: ServerRead[Any], connection: PgConnection) -> None:
        is_usable = not read.halted and _roll_back(connection, waits=False)
        with self._lock:
            if is_usable and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise MemoryClosed(f"The store {self._server.name} is closed. Open it again.")


# Writing


class _Rerun(Exception):
    """The transaction was rolled back, and may succeed when it runs again."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__()
        self.error = error


class _Isolate(Exception):
    """One of several units failed. The transaction was rolled back; they run again, each with a savepoint."""


class ServerWriter:
    """Owns the writing connection. Writes share a commit, and each succeeds or fails alone.

    Its methods block; they may be called from any thread, and run one at a time.
    """

    def __init__(self, server: StoreServer, connection: PgConnection) -> None:
        self.lock = threading.RLock()
        self.halted = False
        # Whether it writes to a store that is moved or not complete, as the copier does. The copier locks one tenant,
        # and must see the rows of other tenants to distinguish its own from them.
        self.ignores_marks = False
        self._server = server
        self._connection: PgConnection | None = connection
        self._writer_id = uuid.uuid4().hex
        self._has_committed = False
        # While the server is away, one try is enough for each commit: its callers have other plans for that.
        self._is_away = False
        self._is_closed = False
        self._stopped = threading.Event()

    def commit(self, writes: Sequence[Write]) -> list[WriteOutcome]:
        writes = self._first_group(writes)
        with self.lock:
            lock_tries, reruns = 0, 0
            busy_timeout = self._server.config.busy_timeout
            deadline = self._server.clock.monotonic() + _LOCK_TRIES_MAX * busy_timeout
            # Alone, a unit needs no savepoint. Of several, one is rarely undone: then all run again, with savepoints.
            isolated = False
            while True:
                try:
                    return self._attempt(writes, isolated=isolated)
                except _Isolate:
                    isolated = True
                except _Rerun as again:
                    lock_tries += again.error.sqlstate == "55P03"
                    reruns += again.error.sqlstate != "55P03"
                    is_late = lock_tries >= _LOCK_TRIES_MAX and self._server.clock.monotonic() > deadline
                    if is_late or reruns >= _RERUNS_MAX or self.halted:
                        return [self._failure(again.error) for _ in writes]
                    if again.error.sqlstate == "55P03":
                        self._stopped.wait(min(_LOCK_PAUSE, busy_timeout))
                except psycopg.Error as error:
                    return [self._failure(error) for _ in writes]
                except AfterturnError as error:
                    return [WriteOutcome(error=error) for _ in writes]

    def halt(self) -> None:
        """Rolls back the running transaction and lets no other begin."""
        self.halted = True
        self._stopped.set()
        for _ in range(_CANCEL_TRIES_MAX):
            connection = self._connection
            if connection is not None and not connection.closed and not connection.is_abandoned:
                _cancel(connection)
            if self.lock.acquire(timeout=_CANCEL_PAUSE):
                self.lock.release()
                return

    def close(self) -> None:
        with self.lock:
            self._is_closed = True
            self._stopped.set()
            if self._connection is not None:
                self._leave(self._connection)
                self._connection.close()

    def _leave(self, connection: PgConnection) -> None:
        """Removes this process from those that are alive. If that fails, its row is outdated after some hours."""
        if self._has_committed and not connection.closed:
            drop = psycopg.ClientCursor(connection).mogrify(_DROP_MARK, (self._writer_id,))
            connection.answer_timeout = _LEAVE_WAIT
            with suppress(psycopg.Error):
                connection.execute(b"; ".join([self._server.begin_write(()), drop.encode(), b"COMMIT"]))

    def _attempt(self, writes: Sequence[Write], *, isolated: bool) -> list[WriteOutcome]:
        """Runs the writes in one transaction. Raises _Rerun, _Isolate, or the psycopg.Error that is final for all."""
        connection = self._connected()
        begin = self._server.begin_write([write.at for write in writes])
        transaction = Transaction(connection, begin, FIND_MARKS.encode(), self._find_refusal)
        try:
            outcomes = self._run_units(transaction, writes, isolated=isolated)
            has_stored = any(outcome.error is None and not outcome.skipped for outcome in outcomes)
            if has_stored and not transaction.is_empty:
                if self.halted:
                    stopped = DeadlineExceeded(f"The store {self._server.name} was closed, and nothing was stored.")
                    return [WriteOutcome(error=stopped) for _ in outcomes]
                # Not together with COMMIT: the store may have been moved.
                transaction.begin()
                self._commit(transaction)
            return outcomes
        except psycopg.Error as error:
            if may_rerun(error):
                raise _Rerun(error) from error
            if len(writes) > 1 and not isolated and not isinstance(error, NotAnswering):
                raise _Isolate from error
            raise
        finally:
            self._end(connection)

    def _find_refusal(self, rows: Sequence[Row]) -> StoreError | None:
        has_keys = self._server.keys is not None
        return None if self.ignores_marks else refusal(rows, self._server.name, has_keys=has_keys)

    def _first_group(self, writes: Sequence[Write]) -> Sequence[Write]:
        """The first writes that may share a commit: those of one tenant. One that needs the whole store does not keep
        that lock for others."""
        tenants = [tenant_of(write.at) or self._server.config.tenant for write in writes]
        alone = (at for at, write in enumerate(writes) if write.at is None or tenants[at] != tenants[0])
        return writes[: max(1, next(alone, len(writes)))]

    def _run_units(self, transaction: Transaction, writes: Sequence[Write], *, isolated: bool) -> list[WriteOutcome]:
        deadline = self._server.clock.monotonic() + GROUP_SECONDS_MAX
        outcomes: list[WriteOutcome] = []
        has_settings = len({set_tenant(write.at) for write in writes}) > 1
        for write in writes:
            if write.is_cancelled():
                outcomes.append(WriteOutcome(skipped=True))
            elif isolated:
                transaction.begin_unit(set_tenant(write.at))
                outcomes.append(self._run(transaction, write, isolated=True))
                if outcomes[-1].error is not None:
                    transaction.undo_unit()
            else:
                if has_settings:
                    transaction.add(set_tenant(write.at))
                outcomes.append(self._run(transaction, write))
                if outcomes[-1].error is not None and len(writes) > 1:
                    raise _Isolate
            if self._server.clock.monotonic() > deadline:
                break
        return outcomes

    def _run(self, transaction: Transaction, write: Write, *, isolated: bool = False) -> WriteOutcome:
        session = PostgresSession(transaction, self._server.name, self)
        try:
            unit = SqlUnit(session, HashedTerms(session), self._server.keys)
            value = write.work(unit)
            unit.flush()
            if isolated:
                session.end_unit()
            outcome = WriteOutcome(value)
        except (Exception, KeyNeeded) as error:  # noqa: BLE001 the boundary of one unit: its caller gets the error
            outcome = WriteOutcome(error=error)
        if session.failure is not None:
            if may_rerun(session.failure):
                raise _Rerun(session.failure)
            if isinstance(session.failure, NotAnswering):
                raise session.failure
            # The unit may have caught the error; its transaction is lost all the same, and every later statement fails.
            if outcome.error is None or isinstance(outcome.error.__cause__, psycopg.errors.InFailedSqlTransaction):
                outcome = self._failure(session.failure)
        return outcome

    def _commit(self, transaction: Transaction) -> None:
        """Returns when the transaction is durable. Raises psycopg.Error if it is certain that it is not."""
        commit_id, now = uuid.uuid4().hex, self._server.clock.now()
        if not self._has_committed:
            transaction.add(transaction.bind(_DROP_OLD_MARKS, (now - _MARKS_KEPT,)))
        mark = (self._writer_id, commit_id, now, len(self._server.migrations))
        transaction.add(transaction.bind(_MARK, mark))
        try:
            transaction.execute(b"COMMIT")
            self._has_committed = True
        except psycopg.Error as error:
            if not is_lost(error):
                raise
            transaction.connection.close()
            logger.warning(
                "the connection to %s was lost during a commit; asking whether it took place", self._server.name
            )
            if not self._was_committed(commit_id):
                raise

    def _was_committed(self, commit_id: str) -> bool:
        """Takes the lock of the store first, which the lost transaction holds until it has ended, one way or the other.

        Raises StoreUnavailable if the server cannot be asked.
        """
        for _ in range(_LOCK_TRIES_MAX):
            connection: PgConnection | None = None
            try:
                connection = self._connected()
                connection.execute(self._server.begin_write())
                query = "SELECT 1 FROM last_commit WHERE writer = %s AND commit_id = %s"
                return connection.execute(query, (self._writer_id, commit_id)).fetchone() is not None
            except psycopg.Error as error:
                if not may_rerun(error) or self._is_away or self.halted:
                    break
            finally:
                if connection is not None:
                    self._end(connection)
        raise StoreUnavailable(
            f"The connection to {self._server.name} was lost during a commit, and the server could not be asked "
            "whether it took place. Read the current state before you write it again."
        )

    def _connected(self) -> PgConnection:
        """The connection, a new one if it was lost. Waits up to `busy_timeout` for a server that is being restarted.

        Raises psycopg.Error, and MemoryClosed after `close`.
        """
        if self._is_closed:
            raise MemoryClosed(f"The store {self._server.name} is closed. Open it again.")
        if self._connection is not None and not self._connection.closed:
            return self._connection
        tries = 1 if self._is_away else max(1, int(self._server.config.busy_timeout / _CONNECT_PAUSE))
        while True:
            try:
                self._connection = self._server.connect()
            except psycopg.Error as error:
                tries -= 1
                is_restarting = is_lost(error) and not isinstance(error, psycopg.errors.ConnectionTimeout)
                if not tries or not is_restarting or self._stopped.wait(_CONNECT_PAUSE):
                    self._is_away = True
                    raise
            else:
                self._is_away = False
                return self._connection

    def _end(self, connection: PgConnection) -> None:
        """After a halt the connection is not used again: a late signal could stop its next statement."""
        if self.halted or not _roll_back(connection):
            connection.close()

    def _failure(self, error: psycopg.Error) -> WriteOutcome:
        failure = translate(error, self._server.name)
        failure.__cause__ = error
        return WriteOutcome(error=failure)


def _roll_back(connection: PgConnection, *, waits: bool = True) -> bool:
    """Ends the transaction, if one is open. False if the connection cannot be used again. Without `waits`, the next
    read waits for the server's answer."""
    try:
        if not connection.closed and connection.info.transaction_status is not TransactionStatus.IDLE:
            if waits:
                connection.execute("ROLLBACK")
            else:
                connection.pgconn.send_query(b"ROLLBACK")
                connection.pgconn.flush()
    except psycopg.Error:
        # It is closed by the caller; the server rolls back what it has not committed.
        return False
    return not connection.closed


def _cancel(connection: PgConnection) -> None:
    try:
        connection.cancel_safe(timeout=_CANCEL_WAIT)
    except psycopg.Error as error:
        # The server does not answer: the thread that waits for it gives the connection up.
        connection.is_abandoned = True
        logger.warning("a statement could not be cancelled: %s", error)
