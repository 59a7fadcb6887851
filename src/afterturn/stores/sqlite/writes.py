"""The one writer: several units of work share a commit, and each succeeds or fails alone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import apsw

from afterturn.ports import Unit
from afterturn.stores.sqlite.connection import StoreLocation, log_bytes, run, stop_when, wait_for_locks
from afterturn.stores.sqlite.errors import translate
from afterturn.stores.sqlite.session import ApswSession

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
