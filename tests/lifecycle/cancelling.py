"""Cancels a call at a chosen await."""

import asyncio
import functools
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any

import pytest

import afterturn

AWAITS_MAX = 60
DELAYS = [pytest.param(0.0, id="before it begins"), pytest.param(0.0015, id="once it has begun")]


class CancelAtAwait:
    """Awaits a coroutine and has the task cancelled `delay` seconds after its `cut`th await has begun."""

    def __init__(self, work: Coroutine[Any, Any, object], cut: int, delay: float) -> None:
        self._work = work
        self._cut = cut
        self._delay = delay
        self.awaits = 0

    def __await__(self) -> Generator[Any, None, object]:
        step = functools.partial(self._work.send, None)
        while True:
            try:
                waited = step()
            except StopIteration as ended:
                return ended.value
            self._count()
            try:
                yield waited
                step = functools.partial(self._work.send, None)
            except BaseException as error:  # noqa: BLE001 a cancellation too belongs to the coroutine
                step = functools.partial(self._work.throw, error)

    def _count(self) -> None:
        self.awaits += 1
        if self.awaits == self._cut:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(self._delay, task.cancel)


async def cancel_at_await(work: Coroutine[Any, Any, object], cut: int, delay: float) -> int:
    """How many awaits it came to. Runs on memory's loop."""
    cutting = CancelAtAwait(work, cut, delay)
    task = asyncio.ensure_future(_awaited(cutting))
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is not None:
        raise AssertionError("a cancelled call must not fail otherwise") from task.exception()
    return cutting.awaits


async def settled(memory: afterturn.Memory) -> None:
    """A write that had begun when its caller was cancelled ends before this one begins."""
    await memory.retry_dead()


async def _awaited(work: Awaitable[object]) -> object:
    return await work
