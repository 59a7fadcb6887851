"""Workers whose threads are lanes of a world: work begins in the order it was posted, and takes as long as it may."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from afterturn.errors import MemoryClosed
from lab.simulation.world import World

Pace = Callable[[], float]


class SimWorker:
    """The Worker port. `pace` says how long, in virtual seconds, a thread takes to come to the next piece of work."""

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
        """Its threads are gone, whatever they were doing."""
        for lane in self._lanes:
            self._world.remove(lane)

    def is_idle(self) -> bool:
        """Whether nothing is posted that is not done."""
        return not self.queue and not any(lane.is_busy for lane in self._lanes)


class _Lane:
    """One thread: takes a piece of work, does it whole at one moment, and tells of it somewhat later."""

    def __init__(self, world: World, worker: SimWorker, name: str) -> None:
        self.name = name
        self._world = world
        self._worker = worker
        self._work: Callable[[], None] | None = None
        self._told: list[Callable[[], None]] = []
        self._next = 0.0

    @property
    def is_busy(self) -> bool:
        return self._work is not None or bool(self._told)

    def due(self, now: float) -> float:
        if self.is_busy:
            return self._next
        return now if self._worker.queue else math.inf

    def step(self) -> None:
        if self._told:
            told, self._told = self._told, []
            for tell in told:
                tell()
        elif self._work is not None:
            work, self._work = self._work, None
            with self._world.keeping() as self._told:
                work()
            self._next = self._world.monotonic() + self._worker.pace() / 4
        else:
            self._work = self._worker.queue.popleft()
            self._next = self._world.monotonic() + self._worker.pace()
