"""Event loops on virtual time, as actors of a world, and memory's private loop on one of them."""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

from afterturn.runtime.loop_thread import LoopThread
from lab.simulation.world import World

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# How often, and for how long, a thread is not scheduled after a step.
_PAUSE_OFTEN, _PAUSE_SHORT = 0.06, 0.002
_PAUSE_SELDOM, _PAUSE_LONG = 0.004, 0.04


class _NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set depends on nothing but when it was made: addresses differ from run to run."""

    def __init__(self, number: int, work: Coroutine[Any, Any, Any], loop: VirtualLoop, context: Context | None) -> None:
        self._number = number
        super().__init__(work, loop=loop, context=context)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop that is stepped by its world. `pausing`: like any thread, it is now and then not scheduled."""

    def __init__(self, world: World, name: str, *, pausing: bool) -> None:
        super().__init__()
        self.name = name
        self.troubles: list[str] = []
        self.when_stopped: Callable[[], None] | None = None
        self._world = world
        self._pausing = pausing
        self._asleep_until = 0.0
        self._soon: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count(1)
        self._stopped = False
        self.set_task_factory(self._new_task)
        self.set_exception_handler(self._trouble)

    # An actor.

    def due(self, now: float) -> float:
        if self._soon or self._stopped:
            return self._asleep_until
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return max(self._timers[0][0], self._asleep_until) if self._timers else math.inf

    def step(self) -> Callable[[], None] | None:
        if self._stopped:
            self._stopped = False
            return self.when_stopped
        self._take_timers()
        count = len(self._soon)
        asyncio._set_running_loop(self)
        try:
            for _ in range(count if self._world.random.random() < 0.5 else min(count, 1)):
                handle = self._soon.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(None)
        if self._pausing:
            self._pause()
        return None

    def begin(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Something that a host of this loop's does, until the host or the world ends it."""
        return self.create_task(work)

    def stall(self, seconds: float) -> None:
        """Somebody blocks this loop for so long, beginning when the callback under way ends."""
        self._asleep_until = max(self._asleep_until, self.time() + seconds)

    def _pause(self) -> None:
        chance = self._world.random.random()
        if chance < _PAUSE_SELDOM:
            self.stall(self._world.random.uniform(0, _PAUSE_LONG))
        elif chance < _PAUSE_OFTEN:
            self.stall(self._world.random.uniform(0, _PAUSE_SHORT))

    def _take_timers(self) -> None:
        now = self.time()
        while self._timers and self._timers[0][0] <= now:
            self._soon.append(heapq.heappop(self._timers)[2])

    def _trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.troubles.append(f"{self.name}: {context.get('message')} {context.get('exception')!r}")

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, R] | Generator[Any, None, R],
        context: Context | None = None,
        **names: Any,
    ) -> asyncio.Task[R]:
        assert asyncio.iscoroutine(work)
        return _NumberedTask(next(self._numbers), work, self, context)

    # What asyncio calls.

    def time(self) -> float:
        return self._world.monotonic()

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_usable()
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_usable()
        handle = asyncio.Handle(callback, args, self, context)
        self._world.deliver(functools.partial(self._soon.append, handle))
        return handle

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_usable()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Left where it is: `due` passes over it."""

    def stop(self) -> None:
        self._stopped = True

    def run_until_complete(self, future: Generator[Any, None, R] | Awaitable[R]) -> R:
        assert asyncio.iscoroutine(future)
        task: asyncio.Task[R] = self.create_task(future)
        self._world.run(task.done)
        return task.result()

    def close(self) -> None:
        self._world.remove(self)
        self._soon.clear()
        self._timers.clear()
        super().close()

    def _check_usable(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")


class SimLoop(LoopThread):
    """Memory's loop, with nothing replaced but its thread."""

    def __init__(self, world: World, name: str) -> None:
        self.virtual = VirtualLoop(world, name, pausing=True)
        self._world = world
        super().__init__(name, self.virtual)

    def start(self) -> None:
        self.virtual.when_stopped = self._wind_up
        self._world.add(self.virtual)
