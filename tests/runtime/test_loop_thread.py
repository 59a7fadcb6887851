"""The private loop: accepting work, refusing it, and closing."""

import asyncio
import contextvars
import gc
import inspect
import os
import threading
import weakref
from collections.abc import Iterator

import pytest

from afterturn.errors import CalledFromHandler, ForkedProcess, MemoryClosed
from afterturn.runtime.exits import ExitCloser
from afterturn.runtime.loop_thread import LoopThread, run_on
from afterturn.runtime.worker import ThreadWorker

WAIT = 100.0
who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    private = LoopThread("test-loop")
    private.start()
    yield private
    private.end(_nothing)
    assert private.wait_ended(within=WAIT)


async def _nothing() -> None:
    """Nothing is left to do."""


async def _thread_name() -> str:
    return threading.current_thread().name


async def test_work_runs_on_the_private_thread(loop: LoopThread) -> None:
    """§2: nothing of memory's runs on the host's loop."""
    assert await loop.run(_thread_name()) == "test-loop"


def test_threads_without_a_loop_wait_for_their_answer(loop: LoopThread) -> None:
    """§2: the second bridge to the same loop."""
    assert loop.wait(_thread_name()) == "test-loop"


def test_an_interrupt_while_work_is_posted_leaves_no_coroutine(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python would report it as never awaited when the host presses Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    work = _nothing()
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "run_coroutine_threadsafe", interrupt)
        with pytest.raises(KeyboardInterrupt):
            loop.wait(work)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


def test_work_posted_before_the_end_runs_before_it(loop: LoopThread) -> None:
    """C4: accepted work runs, even if the loop closes right after it."""
    seen: list[int] = []

    async def last() -> None:
        seen.append(-1)

    for number in range(100):
        loop.post(seen.append, number)
    loop.end(last)
    assert loop.wait_ended(within=WAIT)
    assert seen == [*range(100), -1]


def test_an_ended_loop_refuses_work(loop: LoopThread) -> None:
    """§2: use after closing raises."""
    loop.end(_nothing)
    with pytest.raises(MemoryClosed):
        loop.post(print)
    with pytest.raises(MemoryClosed):
        loop.wait(_nothing())


def test_the_first_end_counts(loop: LoopThread) -> None:
    """§2: closing twice is harmless."""
    ended: list[str] = []

    async def note(name: str) -> None:
        ended.append(name)

    loop.end(lambda: note("first"))
    loop.end(lambda: note("second"))
    assert loop.wait_ended(within=WAIT)
    assert ended == ["first"]


async def test_waiting_callers_are_informed_at_the_end(loop: LoopThread) -> None:
    """§2: a call that the end cuts off raises MemoryClosed; nobody waits for ever."""
    begun = threading.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    waiting = asyncio.ensure_future(loop.run(hang()))
    await asyncio.to_thread(begun.wait, WAIT)
    loop.end(_nothing)
    with pytest.raises(MemoryClosed):
        await asyncio.wait_for(waiting, WAIT)


async def test_cancelling_the_host_cancels_the_work(loop: LoopThread) -> None:
    """§2: cancellation passes through to memory's loop."""
    begun, cancelled = threading.Event(), threading.Event()

    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    waiting = asyncio.ensure_future(loop.run(hang()))
    await asyncio.to_thread(begun.wait, WAIT)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(cancelled.wait, WAIT)


async def test_a_call_cancelled_before_it_starts_leaves_nothing_behind(loop: LoopThread) -> None:
    """§2: it neither runs nor warns that nobody awaited it."""
    held, ran = threading.Event(), threading.Event()

    async def work() -> None:
        ran.set()

    loop.post(held.wait, WAIT)
    calling = asyncio.ensure_future(loop.run(work()))
    await asyncio.sleep(0)
    calling.cancel()
    await asyncio.wait({calling})
    held.set()
    await loop.run(_nothing())
    assert (calling.cancelled(), ran.is_set()) == (True, False)


async def test_an_error_reaches_the_host(loop: LoopThread) -> None:
    """§2: as it was raised."""

    async def fail() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        await loop.run(fail())


async def test_a_call_that_is_refused_never_starts(loop: LoopThread) -> None:
    """§2: its coroutine is closed."""
    loop.end(_nothing)
    work = _thread_name()
    with pytest.raises(MemoryClosed):
        await loop.run(work)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def test_each_call_runs_in_its_callers_context(loop: LoopThread) -> None:
    """§2: context variables of the host are there, each caller's own."""

    async def ask() -> str:
        return who.get()

    async def call(name: str) -> str:
        who.set(name)
        return await loop.run(ask())

    assert await asyncio.gather(*(call(name) for name in ("ada", "bob", "eve"))) == ["ada", "bob", "eve"]


def test_a_hosts_loop_is_not_held_on_to(loop: LoopThread) -> None:
    """§2: a host may come with many loops, one after another."""
    host = asyncio.new_event_loop()
    host.run_until_complete(loop.run(_nothing()))
    host.close()
    seen = weakref.ref(host)
    del host
    loop.wait(_nothing())
    gc.collect()
    assert seen() is None


def test_a_result_for_a_loop_that_has_ended_is_dropped(loop: LoopThread, caplog: pytest.LogCaptureFixture) -> None:
    """§2: the host closed its loop without waiting."""
    begun, going_on = threading.Event(), threading.Event()

    async def fail() -> None:
        begun.set()
        await asyncio.to_thread(going_on.wait, WAIT)
        raise LookupError("nobody reads it")

    host = asyncio.new_event_loop()
    calling = host.create_task(loop.run(fail()))
    host.run_until_complete(asyncio.to_thread(begun.wait, WAIT))
    host.close()
    going_on.set()
    loop.wait(_nothing())
    assert loop.wait(_thread_name()) == "test-loop"
    calling.get_coro().close()
    calling._log_destroy_pending = False  # type: ignore[attr-defined]
    assert [record.getMessage() for record in caplog.records] == []


def test_a_failing_end_still_ends_the_thread(loop: LoopThread, caplog: pytest.LogCaptureFixture) -> None:
    """§2: the error is logged and the thread is gone."""

    async def fail() -> None:
        raise ValueError("broken")

    loop.end(fail)
    assert loop.wait_ended(within=WAIT)
    assert "closing failed" in caplog.text


def test_waiting_on_its_own_thread_is_refused(loop: LoopThread) -> None:
    """§2: it would wait for itself."""

    async def wait_for_itself() -> None:
        loop.wait(_nothing())

    with pytest.raises(CalledFromHandler):
        loop.wait(wait_for_itself())


def test_a_forked_child_is_refused_even_while_the_lock_is_held(loop: LoopThread) -> None:
    """§2: the lock of another thread is held for ever in the child, so the child looks at its number first."""
    with loop._lock:
        child = os.fork()
        if not child:
            try:
                loop.post(print)
            except ForkedProcess:
                os._exit(0)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_a_workers_error_is_raised_where_it_is_awaited() -> None:
    """§13: blocking work runs on its own thread; its result and its errors come back."""
    worker = ThreadWorker("test-worker")
    with pytest.raises(ZeroDivisionError):
        await run_on(worker, lambda: 1 // 0)
    assert await run_on(worker, lambda: 6 * 7) == 42
    worker.close(within=WAIT)


class _Open:
    def __init__(self, steps: list[str], *, broken: bool = False) -> None:
        self._steps = steps
        self._broken = broken

    def start_closing(self) -> None:
        if self._broken:
            raise ValueError("broken")
        self._steps.append("start")

    def wait_closed(self) -> None:
        self._steps.append("wait")


def test_at_exit_all_begin_to_close_before_any_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """C4: three memories take as long as the slowest; one that fails does not keep the others open."""
    steps: list[str] = []
    chance = ExitCloser()
    for memory in (_Open(steps), _Open(steps, broken=True), _Open(steps)):
        chance.watch(memory)
    chance.close_all()
    assert steps == ["start", "start", "wait", "wait", "wait"]
    assert "closing at exit failed" in caplog.text
    chance._open.clear()
