"""The private event loop that memory runs on, in a thread of its own, and the two ways for hosts to wait for it:
`run` from an event loop, `wait` from a thread without one. Nothing of memory runs on a host's loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from afterturn.errors import AfterturnError, CalledFromHandler, ForkedProcess, MemoryClosed
from afterturn.log import logger
from afterturn.ports import Worker
from afterturn.runtime.once_future import OnceFuture, call_on

R = TypeVar("R")

_CLOSED = "This memory is closed. Open it again with `afterturn.open(...)`."
_JOIN_WITHIN = 1.0
_CANCEL_WITHIN = 1.0


class LoopThread:
    """One event loop in one daemon thread. Its methods may be called from any thread.

    Pass `loop`, and override `start`, to run it in another way than in a thread, as a simulation does.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.new_event_loop()
        self._pid = os.getpid()
        # Work that was accepted under this lock is on the loop before the last coroutine is.
        # Reentrant, because a signal handler may post while its own thread does.
        self._lock = threading.RLock()
        self._closed = False
        self._gone: OnceFuture[bool] = OnceFuture()
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
        """Whether the thread has ended. Before that, a closed loop only refuses new work."""
        return self._gone.settled

    def check(self) -> None:
        """Raises MemoryClosed or ForkedProcess."""
        # The process first: a lock that was held when the process forked is held for ever in the child.
        if os.getpid() != self._pid:
            raise ForkedProcess("This memory was opened before the process forked. Open it again in the child.")
        if self._closed:
            raise MemoryClosed(_CLOSED)

    def check_thread(self) -> None:
        """Raises CalledFromHandler on this loop's own thread, where waiting would never end."""
        if self.in_thread:
            raise CalledFromHandler(
                "afterturn.blocking was called from an event handler, where it would wait for itself. "
                "Hand the work to a thread of your own."
            )

    def post(self, work: Callable[..., object], /, *values: object, **options: object) -> None:
        """Calls `work` on the loop soon, and returns at once. Raises MemoryClosed or ForkedProcess."""
        self.check()
        with self._lock:
            self.check()
            call_on(self._loop, functools.partial(work, *values, **options))

    async def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine on this loop and awaits its result on the caller's. Cancelling the caller cancels it."""
        host = asyncio.get_running_loop()
        result: asyncio.Future[R] = host.create_future()
        task: asyncio.Task[R] | None = None

        def start() -> None:
            nonlocal task
            if result.cancelled():
                work.close()
                return
            task = self._loop.create_task(work)
            task.add_done_callback(finish)

        def finish(ended: asyncio.Task[R]) -> None:
            # Also marks the error as retrieved: if the host's loop has ended, nobody else does.
            error = MemoryClosed(_CLOSED) if ended.cancelled() else ended.exception()
            try:
                call_on(host, functools.partial(_settle, result, ended, error))
            except RuntimeError:
                logger.debug("a call finished after its event loop was closed")

        def cancel() -> None:
            if task is not None:
                task.cancel()

        try:
            self.post(start)
        except AfterturnError:
            work.close()
            raise
        try:
            return await result
        except asyncio.CancelledError:
            # If memory was closed meanwhile, nothing is left to cancel.
            with contextlib.suppress(AfterturnError):
                self.post(cancel)
            raise

    def submit(self, work: Coroutine[Any, Any, R]) -> concurrent.futures.Future[R]:
        """Runs a coroutine on this loop. Cancelling the future cancels it."""
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

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine on this loop and blocks until it has a result."""
        try:
            self.check_thread()
            future = self.submit(work)
        except BaseException:
            # An interrupt too. The loop may have it already: then it runs, or ends with an error that nobody waits for.
            with contextlib.suppress(RuntimeError, ValueError):
                work.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise MemoryClosed(_CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Refuses further work, runs `last`, then cancels the tasks that still run and ends the thread.

        Returns at once, and cannot be cancelled. A second call, or one in a forked child, changes nothing.
        """
        if self.forked:
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                try:
                    asyncio.run_coroutine_threadsafe(self._last(last), self._loop)
                except BaseException:
                    # An interrupt, before or after it was posted. Without this the thread may never end.
                    asyncio.run_coroutine_threadsafe(self._last(last), self._loop)
                    raise

    async def ended(self, *, within: float) -> bool:
        """Waits until the thread has ended. False if it still runs after `within` seconds."""
        return self._joined(gone=await self._gone.wait(within=within))

    def wait_ended(self, *, within: float) -> bool:
        """`ended`, for a thread without an event loop."""
        return self._joined(gone=self._gone.wait_blocking(within=within))

    def _joined(self, *, gone: bool | None) -> bool:
        if gone and self._thread.is_alive():
            self._thread.join(_JOIN_WITHIN)
        return gone is True

    async def _last(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception:  # the boundary: the thread ends whatever went wrong
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
        """After the loop has stopped: cancels the tasks that still run, and wakes those who wait for the end."""
        self._closed = True
        _cancel_all(self._loop)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        self._gone.settle(True)


def _settle(result: asyncio.Future[R], ended: asyncio.Task[R], error: BaseException | None) -> None:
    """On the host's loop."""
    if result.done():
        return
    if error is not None:
        result.set_exception(error)
    else:
        result.set_result(ended.result())


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        ended, _ = loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCEL_WITHIN))
        for task in ended:
            if not task.cancelled() and task.exception() is not None:
                logger.error("%s failed while memory closed", task.get_name(), exc_info=task.exception())


# A forked child inherits event loops that belong to its parent. If one were freed there, it would warn that it was not
# closed; closing it would remove the parent's wake-up pipe from the epoll set that both processes share.
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
    """Runs blocking work on a worker's thread and returns its result to this loop."""
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
            call_on(loop, functools.partial(resolve, result, failure))
        except RuntimeError:
            logger.debug("the event loop was closed before a worker finished")
        # The traceback refers to this frame: a reference cycle that would keep alive what the work had open.
        failure = None

    worker.post(call)
    return await future
