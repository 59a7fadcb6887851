"""The private event loop that memory runs on, in a thread of its own, and the two bridges to it.

Hosts stay on their own loop or on none; nothing of memory's runs there.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from afterturn.base.errors import ForkedProcess, MemoryClosed
from afterturn.base.ports import Worker

logger = logging.getLogger("afterturn")
P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)


class PrivateLoop:
    """One event loop in one daemon thread. Its methods may be called from any thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def in_thread(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def forked(self) -> bool:
        return os.getpid() != self._pid

    def post(self, work: Callable[..., object], *values: object) -> None:
        """Has `work` called on the loop soon; returns at once. Raises MemoryClosed or ForkedProcess."""
        self._check()
        try:
            self._loop.call_soon_threadsafe(work, *values)
        except RuntimeError as error:  # closed between the check and the call
            raise MemoryClosed(_CLOSED) from error

    def submit(self, work: Coroutine[Any, Any, R]) -> concurrent.futures.Future[R]:
        """Runs a coroutine on the loop. Cancelling the future cancels it there."""
        try:
            self._check()
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException as error:
            work.close()
            if isinstance(error, RuntimeError):
                raise MemoryClosed(_CLOSED) from error
            raise

    async def run(self, work: Coroutine[Any, Any, R]) -> R:
        """The bridge for hosts with a loop of their own."""
        future = self.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if future.cancelled() and not (task and task.cancelling()):
                raise MemoryClosed(_CLOSED) from None
            raise

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """The bridge for hosts without one."""
        if self.in_thread:
            work.close()
            raise RuntimeError("afterturn.blocking was called from an event handler, which would wait for itself.")
        future = self.submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise MemoryClosed(_CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def stop(self, *, within: float) -> bool:
        """Cancels what still runs, ends the loop and its thread. Harmless when it has ended. False: still running."""
        if self.forked:
            return True
        if not self._closed:
            self._closed = True
            try:
                self._loop.call_soon_threadsafe(self._loop.stop)
            except RuntimeError:
                return True
        if not self.in_thread:
            self._thread.join(within)
        return not self._thread.is_alive()

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcess("This memory was opened before the process forked. Open it again in the child.")
        if self._closed:
            raise MemoryClosed(_CLOSED)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            _cancel_all(self._loop)
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            self._loop.close()


_CLOSED = "This memory is closed. Open it again with `afterturn.open(...)`."


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


class Bridged(Protocol[C_co]):
    """A public object: the core it stands for, and the loop that core lives on."""

    @property
    def _core(self) -> C_co: ...
    @property
    def _loop(self) -> PrivateLoop: ...


def awaiting(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Bridged[C], P], Coroutine[Any, Any, R]]:
    """A core's coroutine as a public one, awaited from any loop."""

    @functools.wraps(method)
    async def call(self: Bridged[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._loop.run(method(self._core, *args, **kwargs))

    return call


def blocking(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Bridged[C], P], R]:
    """A core's coroutine as a plain method, for threads without a loop."""

    @functools.wraps(method)
    def call(self: Bridged[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.wait(method(self._core, *args, **kwargs))

    return call


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

    worker.post(call)
    return await future


class LastChance:
    """Closes what the host left open when the interpreter exits, so that what was promised is still written."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[Closing] = weakref.WeakSet()
        self._registered = False

    def watch(self, memory: Closing) -> None:
        if not self._registered:
            self._registered = True
            atexit.register(self._close_all)
        self._open.add(memory)

    def forget(self, memory: Closing) -> None:
        self._open.discard(memory)

    def _close_all(self) -> None:
        for memory in list(self._open):
            try:
                memory.close_at_exit()
            except Exception:  # the boundary: the interpreter is leaving, and the next memory still wants closing
                logger.exception("closing at exit failed")


class Closing(Protocol):
    def close_at_exit(self) -> None: ...


last_chance = LastChance()
