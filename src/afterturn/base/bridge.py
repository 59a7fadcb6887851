"""The way of a call from a host's event loop to memory's, and of its result back.

Calls of one round of a loop cross together: each crossing of its own is a system call and a fight for Python's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeVar

from afterturn.base.errors import AfterturnError

logger = logging.getLogger("afterturn")
R = TypeVar("R")
T = TypeVar("T")


class Outbox(Generic[T]):
    """Lives on one event loop. What is put in during one round of it is sent together.

    A lone item is sent at once: only after a round with several does the first of the next wait for the others.
    """

    def __init__(self, send: Callable[[list[T]], None]) -> None:
        self._send = send
        self._waiting: list[T] = []
        self._count = 0
        self._is_crowded = False

    def put(self, loop: asyncio.AbstractEventLoop, item: T) -> None:
        """`loop` is the one that runs."""
        self._waiting.append(item)
        self._count += 1
        if self._count == 1:
            loop.call_soon(self._end_round)
            if not self._is_crowded:
                self.flush()

    def flush(self) -> None:
        if self._waiting:
            items, self._waiting = self._waiting, []
            self._send(items)

    def _end_round(self) -> None:
        self._is_crowded = self._count > 1
        self._count = 0
        self.flush()


class Crossing(Generic[R]):
    """One coroutine that runs on memory's loop, in its caller's context, for somebody who awaits `result` elsewhere."""

    __slots__ = ("_cancelled", "_context", "_task", "_work", "result")

    def __init__(self, work: Coroutine[Any, Any, R], result: asyncio.Future[R]) -> None:
        self.result = result
        self._work = work
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[R] | None = None
        self._cancelled = False

    # On memory's loop.

    def start(self, loop: asyncio.AbstractEventLoop, done: Callable[[Crossing[R]], None]) -> None:
        if self._cancelled:
            self._work.close()
            return
        self._task = loop.create_task(self._work, context=self._context)
        self._task.add_done_callback(functools.partial(self._ended, done))

    def _ended(self, done: Callable[[Crossing[R]], None], task: asyncio.Task[R]) -> None:
        # Looked at here, since a host whose loop has ended will not: asyncio would complain that nobody did.
        if not task.cancelled():
            task.exception()
        done(self)

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    # On the host's loop.

    def settle(self, closed: Callable[[], Exception]) -> None:
        """Hands the task's outcome over, to whoever still waits for it."""
        assert self._task is not None
        error = closed() if self._task.cancelled() else self._task.exception()
        if self.result.done():
            return
        if error is not None:
            self.result.set_exception(error)
        else:
            self.result.set_result(self._task.result())

    def refuse(self, error: Exception) -> None:
        """It never comes to memory's loop."""
        self._work.close()
        if not self.result.done():
            self.result.set_exception(error)


class Bridge:
    """Between memory's loop and those of its hosts.

    `post` has something called on memory's loop or raises an AfterturnError; `closed` is what a call gets that memory's
    closing has cancelled.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, post: Callable[..., None], closed: Callable[[], Exception]
    ) -> None:
        self._loop = loop
        self._post = post
        self._closed = closed
        self._shores: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Shore] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    async def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Awaited on a host's loop. Cancelling it cancels the coroutine on memory's."""
        host = asyncio.get_running_loop()
        crossing = Crossing(work, host.create_future())
        self._shore(host).there.put(host, crossing)
        try:
            value: R = await crossing.result
        except asyncio.CancelledError:
            # When memory has closed meanwhile, nothing is left to cancel.
            with contextlib.suppress(AfterturnError):
                self._post(crossing.cancel)
            raise
        return value

    def flush(self) -> None:
        """Sends the last results back. On memory's thread, before its loop is closed."""
        for shore in list(self._shores.values()):
            shore.back.flush()

    def _shore(self, host: asyncio.AbstractEventLoop) -> _Shore:
        shore = self._shores.get(host)
        if shore is None:
            with self._lock:
                shore = self._shores.setdefault(host, self._new_shore(weakref.ref(host)))
        return shore

    def _new_shore(self, host: weakref.ref[asyncio.AbstractEventLoop]) -> _Shore:
        back: Outbox[Crossing[Any]] = Outbox(lambda crossings: self._return(host, crossings))
        return _Shore(Outbox(lambda crossings: self._send(crossings, back)), back)

    def _send(self, crossings: list[Crossing[Any]], back: Outbox[Crossing[Any]]) -> None:
        try:
            self._post(self._start, crossings, back)
        except AfterturnError as error:
            for crossing in crossings:
                crossing.refuse(error)

    def _start(self, crossings: list[Crossing[Any]], back: Outbox[Crossing[Any]]) -> None:
        for crossing in crossings:
            crossing.start(self._loop, lambda done: back.put(self._loop, done))

    def _return(self, host: weakref.ref[asyncio.AbstractEventLoop], crossings: list[Crossing[Any]]) -> None:
        loop = host()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(_settle, crossings, self._closed)
        except RuntimeError:
            logger.debug("%d results came after their event loop had ended", len(crossings))


class _Shore(NamedTuple):
    """One host's side. Refers to its loop weakly: a host may come with many loops, one after another."""

    there: Outbox[Crossing[Any]]
    back: Outbox[Crossing[Any]]


def _settle(crossings: list[Crossing[Any]], closed: Callable[[], Exception]) -> None:
    for crossing in crossings:
        crossing.settle(closed)
