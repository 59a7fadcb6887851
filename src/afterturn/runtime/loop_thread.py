"""The way of a call from a host's event loop to memory's, and of its result back.

Calls of one round of a loop cross together: each crossing of its own is a system call and a fight for Python's lock.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeVar, cast

from afterturn.errors import AfterturnError, CalledFromHandler, ForkedProcess, MemoryClosed
from afterturn.ports import Worker
from afterturn.runtime.once_future import OnceFuture

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


# The private event loop that memory runs on, in a thread of its own, and the two ways to wait for it.
#
# Hosts stay on their own loop or on none; nothing of memory's runs there.


class LoopThread:
    """One event loop in one daemon thread. Its methods may be called from any thread.

    `loop` is for whoever has another way to run it than a thread, and `start` to override (a simulation does).
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.new_event_loop()
        self._pid = os.getpid()
        # Whatever was accepted under this lock is on the loop before its last piece of work is.
        # A signal's handler may post while its own thread does.
        self._lock = threading.RLock()
        self._closed = False
        self._gone: OnceFuture[bool] = OnceFuture()
        self._bridge = Bridge(self._loop, self.post, lambda: MemoryClosed(_CLOSED))
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()
        _inheritable.add(self)

    @property
    def in_thread(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def forked(self) -> bool:
        return os.getpid() != self._pid

    @property
    def gone(self) -> bool:
        """Whether it has ended, and not only refuses new work."""
        return self._gone.settled

    def check(self) -> None:
        """Raises MemoryClosed or ForkedProcess."""
        # First of all: a lock that was held when the process forked is held for ever in the child.
        if os.getpid() != self._pid:
            raise ForkedProcess("This memory was opened before the process forked. Open it again in the child.")
        if self._closed:
            raise MemoryClosed(_CLOSED)

    def check_thread(self) -> None:
        """CalledFromHandler where waiting for this loop would wait for oneself."""
        if self.in_thread:
            raise CalledFromHandler(
                "afterturn.blocking was called from an event handler, where it would wait for itself. "
                "Hand the work to a thread of your own."
            )

    def post(self, work: Callable[..., object], *values: object) -> None:
        """Has `work` called on the loop soon; returns at once. Raises MemoryClosed or ForkedProcess."""
        self.check()
        with self._lock:
            self.check()
            self._loop.call_soon_threadsafe(work, *values)

    def submit(self, work: Coroutine[Any, Any, R]) -> concurrent.futures.Future[R]:
        """Runs a coroutine on the loop. Cancelling the future cancels it there."""
        try:
            self.check()
        except AfterturnError:
            work.close()
            raise
        with self._lock:
            if not self._closed:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise MemoryClosed(_CLOSED)

    async def run(self, work: Coroutine[Any, Any, R]) -> R:
        """The bridge for hosts with a loop of their own."""
        try:
            self.check()
        except BaseException:
            work.close()
            raise
        return await self._bridge.run(work)

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """The bridge for hosts without one."""
        try:
            self.check_thread()
        except CalledFromHandler:
            work.close()
            raise
        future = self.submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise MemoryClosed(_CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Refuses all further work, runs `last`, then cancels what still runs and ends the thread. Returns at once.

        Nobody can cancel it any more. A second call, or one in a forked child, changes nothing.
        """
        if self.forked:
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                try:
                    asyncio.run_coroutine_threadsafe(self._last(last), self._loop)
                except BaseException:
                    # An interrupt, before or after it was posted. Nobody else would end the thread; twice is harmless.
                    asyncio.run_coroutine_threadsafe(self._last(last), self._loop)
                    raise

    async def ended(self, *, within: float) -> bool:
        """Waits until the thread is gone. False: it still runs after `within` seconds."""
        return self._joined(gone=await self._gone.wait(within=within))

    def wait_ended(self, *, within: float) -> bool:
        """The same for a thread without a loop."""
        return self._joined(gone=self._gone.wait_blocking(within=within))

    def _joined(self, *, gone: bool | None) -> bool:
        if gone and self._thread.is_alive():
            self._thread.join(_JOIN)
        return gone is True

    async def _last(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception:  # the boundary: whatever went wrong, the thread ends
            logger.exception("closing failed")
        finally:
            self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            self._wind_up()

    def _wind_up(self) -> None:
        """When the loop has stopped: ends what still runs, and tells those who wait."""
        self._closed = True
        _cancel_all(self._loop)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._bridge.flush()
        self._loop.close()
        self._gone.settle(True)


_CLOSED = "This memory is closed. Open it again with `afterturn.open(...)`."
_JOIN = 1.0
_CANCEL = 1.0


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        ended, _ = loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCEL))
        for task in ended:
            if not task.cancelled() and task.exception() is not None:
                logger.error("%s failed while memory closed", task.get_name(), exc_info=task.exception())


# A forked child inherits event loops that are the parent's. Were one freed there, it would warn that it was not closed,
# and closing it would take the parent's wake-up pipe out of the epoll set that both share.
_inheritable: weakref.WeakSet[LoopThread] = weakref.WeakSet()


def _keep_inherited() -> None:
    if not _inheritable:
        return
    import ctypes  # 5 ms that only forked children should pay

    for loop in list(_inheritable):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(loop))
    _inheritable.clear()


os.register_at_fork(after_in_child=_keep_inherited)


async def run_on(worker: Worker, work: Callable[[], R]) -> R:
    """Runs blocking work on a worker's thread and gives its result to this loop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def resolve(result: R | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(R, result))

    def call() -> None:
        result: R | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  the boundary: raised again where the result is awaited
            failure = error
        try:
            loop.call_soon_threadsafe(resolve, result, failure)
        except RuntimeError:
            logger.debug("the loop closed before a worker answered")
        # Its traceback refers to this frame: a cycle that would hold on to whatever the work had open.
        failure = None

    worker.post(call)
    return await future
