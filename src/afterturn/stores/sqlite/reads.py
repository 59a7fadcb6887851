"""Reading beside the writer: connections that are lent, and reads that any thread may stop."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import apsw

from afterturn.errors import DeadlineExceeded, MemoryClosed
from afterturn.ports import Unit
from afterturn.stores.sqlite.connection import StoreLocation, connect_reader, run, stop_when
from afterturn.stores.sqlite.errors import translate
from afterturn.stores.sqlite.session import ApswSession

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
