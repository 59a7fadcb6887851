"""A memory without an event loop, before it has needed one: its store is open, and is read in the caller's thread.

A script, a hook or a cron job that asks one question has its answer before a loop, an embedder and all else are loaded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from afterturn.parts import check_servers, open_engine
from afterturn.space.reading import SpaceReader

if TYPE_CHECKING:
    from afterturn.base.config import Config
    from afterturn.base.ports import Clock, Ids, Unit
    from afterturn.opening import Handler
    from afterturn.parts import Engine, Parts

R = TypeVar("R")

# After which the rest is started though nobody asked for it: jobs wait, and so do vectors.
START_AFTER = 0.5


class _Parts(NamedTuple):
    store: Early
    clock: Clock
    ids: Ids
    config: Config
    tenant: str
    embedding: None = None


class _Latch:
    """Set once. Not `threading.Event`, whose lock is held for moments: a signal's handler that comes just then would
    wait for its own thread."""

    def __init__(self) -> None:
        self.is_set = False
        self._waiting: list[threading.Lock] = []

    def set(self) -> None:
        self.is_set = True
        while self._waiting:
            try:
                self._waiting.pop().release()
            except IndexError:  # somebody else who sets it has woken the last one
                return

    def wait(self, within: float = -1) -> bool:
        """Whether it is set. A negative time is no limit."""
        own = threading.Lock()
        own.acquire()
        # Before it looks: whoever sets it afterwards finds this one.
        self._waiting.append(own)
        if not self.is_set:
            own.acquire(timeout=within)
        return self.is_set


class Early:
    """One open store. Reads are answered one at a time, until it is handed over or closed."""

    def __init__(self, engine: Engine, config: Config, parts: Parts) -> None:
        self.engine = engine
        self.process = os.getpid()
        self.is_closed = False
        # Why the rest could not be started.
        self.failure: BaseException | None = None
        # A signal's handler may ask while its own thread does.
        self._reading = threading.RLock()
        self._parts = _Parts(self, parts.clock, parts.ids, config, config.tenant)
        self._needed = _Latch()
        self._over = _Latch()
        self._starter: threading.Thread | None = None

    @property
    def is_usable(self) -> bool:
        # First of all: a lock that was held when the process forked is held for ever in the child.
        return os.getpid() == self.process and not self.is_closed

    @property
    def is_awaited(self) -> bool:
        """Whether somebody needs the rest, or its end."""
        return self._needed.is_set

    def space(self, name: str) -> SpaceReader:
        return SpaceReader(self._parts, name)

    async def read(self, work: Callable[[Unit], R]) -> R:
        """A coroutine as any store's, though it waits for nothing: `at_once` runs it."""
        with self._reading:
            return self.engine.read_now(work)

    def start_later(self, start: Callable[[Early], None]) -> None:
        """Calls it in a thread, after START_AFTER or when the rest is needed; it ends with `settle`.

        Nobody else starts anything: no signal interrupts a thread of ours, and leaves modules half loaded.
        """
        self._starter = threading.Thread(target=self._wait, args=(start,), name="afterturn-start", daemon=True)
        self._starter.start()

    def settle(self) -> None:
        """The rest was started, or never will be."""
        self._over.set()

    def wait_settled(self) -> None:
        self._needed.set()
        self._over.wait()

    def close(self, *, within: float) -> None:
        """Once the reads of other threads have ended; what still goes on after so many seconds is interrupted."""
        self.is_closed = True
        self._needed.set()
        held = self._reading.acquire(timeout=within)
        try:
            if not held:
                self.engine.halt()
            self.engine.close()
        finally:
            if held:
                self._reading.release()

    def wait_ended(self, *, within: float) -> bool:
        """Whether its thread is gone."""
        if self._starter is None or self._starter is threading.current_thread():
            return True
        self._starter.join(within)
        return not self._starter.is_alive()

    def _wait(self, start: Callable[[Early], None]) -> None:
        self._needed.wait(START_AFTER)
        start(self)


def open_early(file: str | None, config: Config, parts: Parts, on_event: Handler | None) -> Early | None:
    """None where memory is to be opened as a whole: a store that is yet to be made, a host that hears of everything,
    or parts that are no files, threads or loop of ours."""
    if file is None or on_event is not None or not parts.are_own or not os.path.isfile(file):
        return None
    check_servers(config, parts)
    return Early(open_engine(file, config, parts), config, parts)


def at_once(work: Coroutine[Any, Any, R]) -> R:
    """What a coroutine gives that has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as ended:
        value: R = ended.value
        return value
    work.close()
    raise AssertionError("a read had to wait, and there is no loop")
