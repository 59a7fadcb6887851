"""Tasks that outlive a call: failures are kept apart, and closing ends all of them."""

import asyncio

import pytest

from afterturn.runtime.supervisor import FAILURES_MAX, Supervisor

WAIT = 100.0


async def _fail() -> None:
    raise ValueError("broken")


async def test_a_failed_task_is_kept_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """§14: a failed child never cancels anybody else, and `doctor` can show it."""
    supervisor, done = Supervisor(), asyncio.Event()

    async def work() -> None:
        await asyncio.wait({failing})
        done.set()

    failing = supervisor.start(_fail(), "failing")
    supervisor.start(work(), "working")
    await asyncio.wait_for(done.wait(), WAIT)
    ((name, error),) = supervisor.failures
    assert (name, str(error)) == ("failing", "broken")
    assert "failing failed" in caplog.text
    await supervisor.close(within=WAIT)


async def test_failures_are_bounded() -> None:
    """§14: a task that fails again and again fills no memory."""
    supervisor = Supervisor()
    tasks = {supervisor.start(_fail(), "failing") for _ in range(FAILURES_MAX + 10)}
    await asyncio.wait(tasks)
    assert len(supervisor.failures) == FAILURES_MAX


async def test_closing_cancels_and_waits() -> None:
    """§14: every task has ended when closing returns."""
    supervisor, ended = Supervisor(), asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = supervisor.start(hang(), "hanging")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await supervisor.close(within=WAIT)
    assert task.cancelled()
    assert ended.is_set()
    assert supervisor.failures == type(supervisor.failures)(maxlen=FAILURES_MAX)


async def test_closing_is_bounded_though_a_task_does_not_end() -> None:
    """§14: a task that will not be cancelled is left after the time is over."""
    supervisor, release = Supervisor(), asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    task = supervisor.start(stubborn(), "stubborn")
    await asyncio.sleep(0)
    await supervisor.close(within=0.01)
    assert not task.done()
    release.set()
    await asyncio.wait({task})


async def test_a_task_started_while_closing_never_begins() -> None:
    """§14: and its coroutine does not complain that nobody awaited it."""
    supervisor, begun = Supervisor(), asyncio.Event()

    async def work() -> None:
        begun.set()

    await supervisor.close(within=WAIT)
    task = supervisor.start(work(), "late")
    await asyncio.wait({task})
    assert task.cancelled()
    assert not begun.is_set()
