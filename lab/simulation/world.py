"""Virtual time, and who does something next. One thread: each step of an actor is whole, and a seed orders them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Protocol

START = 1_704_067_200.0
STEPS_MAX = 400_000


class Stuck(AssertionError):
    """Nothing can happen any more, or something happens for ever."""


class Actor(Protocol):
    """What has a thread of its own outside of the simulation."""

    @property
    def name(self) -> str: ...

    def due(self, now: float) -> float:
        """When it has something to do: a time in the past is now, infinity is never by itself."""

    def step(self) -> Callable[[], None] | None:
        """Does it. What it returns is called when the step is over, and may let the world go on itself."""


class World:
    """The clock of everything, and the order of everything. `random` is the one source of chance."""

    def __init__(self, seed: int | str) -> None:
        self.random = Random(seed)
        self.log: list[str] = []
        self.tell: Callable[[str], None] | None = None
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
        if self.tell is not None:
            self.tell(line)

    def add(self, actor: Actor) -> None:
        self._actors.append(actor)

    def remove(self, actor: Actor) -> None:
        if actor in self._actors:
            self._actors.remove(actor)

    def run(self, until: Callable[[], bool], *, deadline: float = math.inf) -> bool:
        """Lets things happen. False when it is `deadline` first; Stuck when nothing is left that could happen."""
        while not until():
            if not self._step(deadline):
                return until()
        return True

    def block(self, until: Callable[[], bool], *, within: float) -> bool:
        """As `run`, for an actor in the middle of a step, which does nothing else meanwhile."""
        before = asyncio._get_running_loop()
        kept, self._kept = self._kept, None
        try:
            return self.run(until, deadline=self._now + max(0.0, within))
        finally:
            self._kept = kept
            asyncio._set_running_loop(before)

    def deliver(self, post: Callable[[], None]) -> None:
        """What one thread leaves for another: at once, or when the worker's step that does it is over."""
        if self._kept is None:
            post()
        else:
            self._kept.append(post)

    @contextmanager
    def keeping(self) -> Iterator[list[Callable[[], None]]]:
        """Keeps what is delivered, for whoever delivers it later."""
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
            raise Stuck(f"{STEPS_MAX} steps were taken and no end is in sight at {self._now:.4f}.")
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
