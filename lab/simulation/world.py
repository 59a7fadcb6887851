"""Virtual time: loops and workers in one thread, in an order that the seed decides."""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from random import Random
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

from afterturn.errors import MemoryClosed
from afterturn.runtime.loop_thread import LoopThread

START = 1_704_067_200.0
STEPS_MAX = 400_000


class Stuck(AssertionError):
    """Nothing can happen any more, or something happens forever."""


class Actor(Protocol):
    """Something that has its own thread outside of the simulation."""

    @property
    def name(self) -> str: ...

    def due(self, now: float) -> float:
        """When it has something to do: a past time means now, infinity means never by itself."""

    def step(self) -> Callable[[], None] | None:
        """Runs one step. The returned callback, if any, is called after the step and may run the world itself."""


class World:
    """The clock and the scheduler. `random` is the only source of randomness."""

    def __init__(self, seed: int | str) -> None:
        self.random = Random(seed)
        self.log: list[str] = []
        self.on_line: Callable[[str], None] | None = None
        self._now = 0.0
        self._actors: list[Actor] = []
        self._at_work: list[Actor] = []
        self._steps = 0
        self._kept: list[Callable[[], None]] | None = None

    # The Clock port.

    def now(self) -> float:
        return START + self._now

    def monotonic(self) -> float:
        return self._now

    def note(self, who: str, what: str) -> None:
        line = f"{self._now:10.4f} {who:<14} {what}"
        self.log.append(line)
        if self.on_line is not None:
            self.on_line(line)

    def add(self, actor: Actor) -> None:
        self._actors.append(actor)

    def remove(self, actor: Actor) -> None:
        if actor in self._actors:
            self._actors.remove(actor)

    def run(self, until: Callable[[], bool], *, deadline: float = math.inf) -> bool:
        """Runs steps. False if `deadline` is reached first; Stuck if nothing is left to run."""
        while not until():
            if not self._step(deadline):
                return until()
        return True

    def block(self, until: Callable[[], bool], *, within: float) -> bool:
        """Like `run`, for an actor in the middle of a step, which does nothing else meanwhile."""
        before = asyncio._get_running_loop()
        kept, self._kept = self._kept, None
        try:
            return self.run(until, deadline=self._now + max(0.0, within))
        finally:
            self._kept = kept
            asyncio._set_running_loop(before)

    def deliver(self, post: Callable[[], None]) -> None:
        """Passes a call from one thread to another: at once, or after the current step of a worker."""
        if self._kept is None:
            post()
        else:
            self._kept.append(post)

    @contextmanager
    def keeping(self) -> Iterator[list[Callable[[], None]]]:
        """Keeps deliveries, to be made later."""
        before, self._kept = self._kept, []
        try:
            yield self._kept
        finally:
            self._kept = before

    def _step(self, deadline: float) -> bool:
        ready, soonest = self._ready()
        if not ready:
            if min(soonest, deadline) == math.inf:
                raise Stuck(f"Nothing is left to happen at {self._now:.4f}; actors: {[a.name for a in self._actors]}")
            self._now = min(soonest, deadline)
            return soonest <= deadline
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise Stuck(f"{STEPS_MAX} steps have run without an end at {self._now:.4f}.")
        actor = ready[0] if len(ready) == 1 else self.random.choice(ready)
        self._at_work.append(actor)
        try:
            follow = actor.step()
        finally:
            self._at_work.pop()
        if follow is not None:
            follow()
        return True

    def _ready(self) -> tuple[list[Actor], float]:
        now, soonest = self._now, math.inf
        ready = []
        for actor in self._actors:
            due = actor.due(now)
            if due <= now:
                if actor not in self._at_work:
                    ready.append(actor)
            elif due < soonest and actor not in self._at_work:
                soonest = due
        return ready, soonest


Pace = Callable[[], float]


class SimWorker:
    """The Worker port. `pace` returns the virtual seconds until a thread starts its next piece of work."""

    def __init__(self, world: World, name: str, threads: int, pace: Pace) -> None:
        self.name = name
        self.pace = pace
        self.queue: deque[Callable[[], None]] = deque()
        self._world = world
        self._closed = False
        self._lanes = [_Lane(world, self, f"{name}-{number}") for number in range(1, threads + 1)]
        for lane in self._lanes:
            world.add(lane)

    def post(self, work: Callable[[], None]) -> None:
        if self._closed:
            raise MemoryClosed(f"The worker {self.name!r} is closed. Open memory again.")
        self.queue.append(work)

    def close(self, *, within: float) -> bool:
        self._closed = True
        ended = self.is_idle() or (within > 0 and self._world.block(self.is_idle, within=within))
        if ended:
            self.vanish()
        return ended

    def vanish(self) -> None:
        """Removes its threads, whatever they were doing."""
        for lane in self._lanes:
            self._world.remove(lane)

    def is_idle(self) -> bool:
        """Whether all posted work is done."""
        return not self.queue and not any(lane.is_busy for lane in self._lanes)


class _Lane:
    """One thread: it runs a piece of work at one moment, and reports the result somewhat later."""

    def __init__(self, world: World, worker: SimWorker, name: str) -> None:
        self.name = name
        self._world = world
        self._worker = worker
        self._work: Callable[[], None] | None = None
        self._results: list[Callable[[], None]] = []
        self._next = 0.0

    @property
    def is_busy(self) -> bool:
        return self._work is not None or bool(self._results)

    def due(self, now: float) -> float:
        if self.is_busy:
            return self._next
        return now if self._worker.queue else math.inf

    def step(self) -> None:
        if self._results:
            results, self._results = self._results, []
            for report in results:
                report()
        elif self._work is not None:
            work, self._work = self._work, None
            with self._world.keeping() as self._results:
                work()
            self._next = self._world.monotonic() + self._worker.pace() / 4
        else:
            self._work = self._worker.queue.popleft()
            self._next = self._world.monotonic() + self._worker.pace()


R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# How often, and for how long, a thread is not scheduled after a step.
_PAUSE_OFTEN, _PAUSE_SHORT = 0.06, 0.002
_PAUSE_SELDOM, _PAUSE_LONG = 0.004, 0.04


class _NumberedTask(asyncio.Task[Any]):
    """A task whose hash depends only on its creation order: memory addresses differ between runs."""

    def __init__(self, number: int, work: Coroutine[Any, Any, Any], loop: VirtualLoop, context: Context | None) -> None:
        self._number = number
        super().__init__(work, loop=loop, context=context)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop that its world steps. `pausing`: it is sometimes not scheduled, like any thread."""

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
        """Starts work of a host on this loop, until the host or the world ends it."""
        return self.create_task(work)

    def stall(self, seconds: float) -> None:
        """Blocks this loop for the given time, starting after the current callback."""
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
        """Cancelled timers stay in the heap: `due` skips them."""

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
    """Memory's loop; only its thread is replaced."""

    def __init__(self, world: World, name: str) -> None:
        self.virtual = VirtualLoop(world, name, pausing=True)
        self._world = world
        super().__init__(name, self.virtual)

    def start(self) -> None:
        self.virtual.when_stopped = self._wind_up
        self._world.add(self.virtual)
