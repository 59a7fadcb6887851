"""A future that works between threads and event loops: one thread sets its value, others read it or wait for it.

Calls from any thread into an event loop cause one wake-up for several calls.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar


class _PendingCalls:
    """The calls that wait for one loop, in order. Each runs in the context of its caller: telemetry finds the host's
    current span there.

    `call_soon_threadsafe` writes to a socket for every call. The caller gives Python's lock up for that and waits to
    get it back, up to 5 ms while other threads are busy: with 200 turns at once, a host waited for 235 ms, not 67.
    """

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[[], object], contextvars.Context]] = deque()
        self._is_posted = False

    def add(self, loop: asyncio.AbstractEventLoop, work: Callable[[], object]) -> None:
        self._calls.append((work, contextvars.copy_context()))
        if not self._is_posted:
            self._is_posted = True
            try:
                loop.call_soon_threadsafe(self.run_all, loop)
            except RuntimeError:
                # The next call must raise too: its caller may wait for the result.
                self._calls.clear()
                self._is_posted = False
                raise

    def run_all(self, loop: asyncio.AbstractEventLoop) -> None:
        # Reset before it takes any, so that a later call posts again.
        self._is_posted = False
        for _ in range(len(self._calls)):
            work, context = self._calls.popleft()
            try:
                context.run(work)
            except Exception as error:  # noqa: BLE001  the boundary of one call, as in asyncio's own handles
                loop.call_exception_handler({"message": f"{work} failed", "exception": error})
            except BaseException:
                loop.call_soon(self.run_all, loop)
                raise


_pending: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _PendingCalls] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def call_on(loop: asyncio.AbstractEventLoop, work: Callable[[], object]) -> None:
    """Calls `work` on the loop soon, after those that were passed before. Raises RuntimeError if it is closed."""
    pending = _pending.get(loop)
    if pending is None:
        with _lock:
            pending = _pending.setdefault(loop, _PendingCalls())
    pending.add(loop, work)


def run_pending(loop: asyncio.AbstractEventLoop) -> None:
    """Runs the calls that wait for this loop now. Called on the loop, before something that must not overtake them."""
    pending = _pending.get(loop)
    if pending is not None:
        pending.run_all(loop)


T = TypeVar("T")


class OnceFuture(Generic[T]):
    """Settled at most once. Reading never blocks. Waiting has a time limit, and works from any event loop or thread."""

    __slots__ = ("_lock", "_value", "_waiters")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value: tuple[T] | None = None
        self._waiters: list[Callable[[], None]] = []

    def settle(self, value: T) -> bool:
        """Sets the value. Returns False, and keeps the first value, if it was settled before."""
        with self._lock:
            if self._value is not None:
                return False
            self._value = (value,)
            waiters, self._waiters = self._waiters, []
        for wake in waiters:
            wake()
        return True

    def peek(self) -> T | None:
        """Returns the value, or None if there is none yet."""
        return None if self._value is None else self._value[0]

    @property
    def settled(self) -> bool:
        return self._value is not None

    async def wait(self, *, within: float) -> T | None:
        """Returns the value as soon as it is set, or None after `within` seconds of this loop's time."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            try:
                call_on(loop, functools.partial(_finish, woken))
            except RuntimeError:  # the host has closed its loop, so nobody waits there
                return

        if not self._register(wake):
            return self.peek()
        try:
            await asyncio.wait({woken}, timeout=within)
        finally:
            self._unregister(wake)
        return self.peek()

    def wait_blocking(self, *, within: float) -> T | None:
        """`wait`, for a thread without an event loop."""
        woken = threading.Event()
        if self._register(woken.set):
            try:
                woken.wait(within)
            finally:
                self._unregister(woken.set)
        return self.peek()

    def _register(self, wake: Callable[[], None]) -> bool:
        with self._lock:
            if self._value is not None:
                return False
            self._waiters.append(wake)
            return True

    def _unregister(self, wake: Callable[[], None]) -> None:
        with self._lock:
            if wake in self._waiters:
                self._waiters.remove(wake)


def _finish(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


async def is_set(event: asyncio.Event, *, within: float) -> bool:
    """Waits for an event. False if it is not set in time."""
    # `asyncio.wait_for` swallows cancellations before Python 3.12.
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True
