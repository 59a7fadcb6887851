"""Calls from other threads into an event loop."""

import asyncio
import contextvars
import threading
from collections.abc import Iterator

import pytest

from afterturn.runtime.once_future import call_on

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts how often another thread woke it up."""

    wake_ups = 0

    def _write_to_self(self) -> None:
        self.wake_ups += 1
        super()._write_to_self()  # type: ignore[misc]


@pytest.fixture
def loop() -> Iterator[CountingLoop]:
    loop = CountingLoop()
    yield loop
    loop.close()


def test_calls_that_wait_share_one_wake_up_and_keep_their_order(loop: CountingLoop) -> None:
    """R2: each wake-up makes its caller wait for Python's lock, so a burst of turns gets one."""
    done: list[int] = []

    def call_often() -> None:
        for number in range(200):
            call_on(loop, lambda number=number: done.append(number))

    caller = threading.Thread(target=call_often)
    caller.start()
    caller.join()
    call_on(loop, loop.stop)
    loop.run_forever()
    assert (done, loop.wake_ups) == (list(range(200)), 1)


def test_a_call_made_while_others_run_is_not_lost(loop: CountingLoop) -> None:
    """R2: it is called in a later step of the loop."""
    done: list[str] = []

    def first() -> None:
        call_on(loop, lambda: (done.append("later"), loop.stop()))
        done.append("first")

    call_on(loop, first)
    loop.run_forever()
    assert done == ["first", "later"]


def test_a_call_that_fails_does_not_stop_the_others(loop: CountingLoop) -> None:
    """R2: the loop reports it, as it does for its own callbacks."""
    reported: list[object] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))

    def fail() -> None:
        raise ValueError("broken")

    call_on(loop, fail)
    call_on(loop, loop.stop)
    loop.run_forever()
    assert [str(error) for error in reported] == ["broken"]


def test_each_call_has_the_context_of_its_caller(loop: CountingLoop) -> None:
    """§2: a host's context variables do not reach the calls of another."""
    seen: list[str] = []
    for name in ("ada", "bob"):
        context = contextvars.copy_context()
        context.run(who.set, name)
        context.run(call_on, loop, lambda: seen.append(who.get()))
    call_on(loop, loop.stop)
    loop.run_forever()
    assert seen == ["ada", "bob"]


def test_a_closed_loop_refuses_every_call() -> None:
    """§2: a host may close its loop while something is on its way to it. A call that is neither made nor refused
    leaves its caller waiting."""
    loop = asyncio.new_event_loop()
    loop.close()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            call_on(loop, loop.stop)
