"""A future that works between threads and event loops: one thread sets its value, others read it or wait for it."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from afterturn.runtime.loop_calls import call_on

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
