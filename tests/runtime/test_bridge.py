"""Calls from a host's loop to another and back, by the bridge alone."""

import asyncio
import contextvars
import gc
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from afterturn.errors import MemoryClosed
from afterturn.runtime.loop_thread import Bridge

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class Shore:
    """An event loop in a thread, and a bridge to it that counts how often it was crossed."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.crossed = 0
        self.closed = False
        self.bridge = Bridge(self.loop, self.post, lambda: MemoryClosed("cancelled by closing"))
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def post(self, work: Callable[..., object], *values: object) -> None:
        if self.closed:
            raise MemoryClosed("closed")
        self.crossed += 1
        self.loop.call_soon_threadsafe(work, *values)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._quiet(), self.loop).result(5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _quiet(self) -> None:
        """Waits for calls whose caller has left: a task that is freed before it has run is a warning."""
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)


@pytest.fixture
def shore() -> Iterator[Shore]:
    shore = Shore()
    yield shore
    shore.stop()


async def answer(value: int) -> int:
    return value


async def test_a_call_runs_on_the_other_loop_and_its_result_comes_back(shore: Shore):
    async def where() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert await shore.bridge.run(where()) is shore.loop


async def test_calls_of_one_round_cross_together(shore: Shore):
    """The first of a round goes at once, and the rest of it together."""
    found = await asyncio.gather(*(shore.bridge.run(answer(number)) for number in range(32)))
    assert (found, shore.crossed) == (list(range(32)), 2)


async def test_after_a_crowded_round_the_first_waits_for_the_others(shore: Shore):
    await asyncio.gather(*(shore.bridge.run(answer(number)) for number in range(32)))
    before = shore.crossed
    await asyncio.gather(*(shore.bridge.run(answer(number)) for number in range(32)))
    assert shore.crossed - before == 1


async def test_a_lone_call_crosses_without_waiting_for_the_round_to_end(shore: Shore):
    await shore.bridge.run(answer(1))
    calling = shore.bridge.run(answer(2))
    calling.send(None)
    assert shore.crossed == 2
    calling.close()


async def test_an_error_reaches_the_caller(shore: Shore):
    async def fail() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        await shore.bridge.run(fail())


async def test_cancelling_the_caller_cancels_the_work(shore: Shore):
    """Cancellation passes through."""
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    calling = asyncio.ensure_future(shore.bridge.run(wait()))
    await asyncio.to_thread(started.wait, 5)
    calling.cancel()
    await asyncio.wait({calling})
    assert calling.cancelled()
    assert await asyncio.to_thread(cancelled.wait, 5)


async def test_what_closing_cancels_is_told_so(shore: Shore):
    async def cancel_myself() -> None:
        raise asyncio.CancelledError

    with pytest.raises(MemoryClosed, match="cancelled by closing"):
        await shore.bridge.run(cancel_myself())


async def test_a_call_that_is_not_accepted_is_refused_and_never_starts(shore: Shore):
    shore.closed = True
    work = answer(1)
    with pytest.raises(MemoryClosed):
        await shore.bridge.run(work)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def test_each_call_runs_in_its_callers_context(shore: Shore):
    async def ask() -> str:
        return who.get()

    async def calling(name: str) -> str:
        who.set(name)
        return await shore.bridge.run(ask())

    assert await asyncio.gather(*(calling(name) for name in ("ada", "bob", "eve"))) == ["ada", "bob", "eve"]


def test_a_hosts_loop_is_not_held_on_to(shore: Shore):
    """A host may come with many loops, one after another."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(shore.bridge.run(answer(1)))
    loop.close()
    seen = weakref.ref(loop)
    del loop
    asyncio.run_coroutine_threadsafe(answer(1), shore.loop).result(5)
    gc.collect()
    assert seen() is None
