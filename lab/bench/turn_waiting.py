"""How much longer turns take with memory, while its selector is slow or never answers, or its store hangs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import afterturn
from afterturn.base.config import Config
from afterturn.base.ports import Clock, Store, Unit
from afterturn.stores.sqlite.store import open_store
from afterturn.turn.turn import PhaseName
from lab.bench.report import Progress
from lab.bench.turn_corpus import USER, past, questions
from lab.bench.turn_host import Choosing, Message, NoMemory, Ours, Paced, Way, run_turn, timer

R = TypeVar("R")
CALL_SECONDS = 0.05
HISTORY = 100
PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Case:
    """What is wrong with memory. `selector` is how long it takes; None: it never answers."""

    name: str
    selector: float | None = 0.0
    hangs: bool = False


CASES = (
    Case("selector 0 ms", 0.0),
    Case("selector 100 ms", 0.1),
    Case("selector 900 ms", 0.9),
    Case("selector 2,500 ms", 2.5),
    Case("selector never answers", None),
    Case("store hangs", 0.0, hangs=True),
)


@dataclass(frozen=True, slots=True)
class Waits:
    """Medians over the rounds, in seconds. `bare` is the turn without memory.

    `verbs`: the time spent in `turn()`, in all `inject` and in leaving. `wall`: of pairs of turns, one without memory
    and one with, run one after the other, how much longer the second took.
    """

    case: str
    way: str
    grace: float | None
    steps: int
    rounds: int
    bare: float
    verbs: float
    wall: float

    @property
    def grace_kept(self) -> float:
        """How long the grace is by this machine's timers, which are late: as late as those of the model's calls."""
        return (self.grace or 0.0) * self.bare / (self.steps * CALL_SECONDS)

    @property
    def verbs_share(self) -> float:
        return self.verbs / self.bare

    @property
    def wall_share(self) -> float:
        return self.wall / self.bare


@dataclass(frozen=True, slots=True)
class WaitingScale:
    """How often each case is run. Awaiting naively takes seconds each time, so it is run less often."""

    cases: tuple[Case, ...]
    config: Config
    steps: tuple[int, ...]
    rounds: int
    naive_rounds: int
    naive_within: float | None = None


FULL = WaitingScale(CASES, Config(refined=True), steps=(1, 5), rounds=40, naive_rounds=3)
QUICK = WaitingScale(
    (CASES[0], CASES[4], CASES[5]),
    Config(refined=True, model_timeout=0.3, recall_timeout=0.2, close_timeout=0.2),
    steps=(1,),
    rounds=1,
    naive_rounds=1,
    naive_within=0.2,
)


async def measure_waiting(store: Path, scale: WaitingScale, told: Progress) -> list[Waits]:
    """Ours at grace 0 and at the default, and awaiting the whole recall; each in turns with the same loop alone."""
    found = []
    for case in scale.cases:
        for grace in (0.0, Config().grace):
            async with _open(store, case, scale, grace) as memory:
                for steps in scale.steps:
                    told(f"waiting: {case.name}, grace {grace * 1000:g} ms, {steps} steps")
                    pairs = await _Pairs(memory, case, f"{case.name}-{grace}", steps).run(scale.rounds)
                    found.append(_waits(case, "ours", grace, steps, pairs))
        async with _open(store, case, scale, 0.0) as memory:
            told(f"waiting: {case.name}, awaiting naively")
            naive = _Pairs(memory, case, f"{case.name}-naive", 1, "refined", scale.naive_within)
            pairs = await naive.run(1 if case.selector is None or case.hangs else scale.naive_rounds)
            found.append(_waits(case, "awaiting naively", None, 1, pairs))
    return found


def _open(store: Path, case: Case, scale: WaitingScale, grace: float) -> afterturn.Memory:
    parts = afterturn.Parts(store=Hanging) if case.hangs else afterturn.Parts()
    return afterturn.open(store, replace(scale.config, grace=grace), model=Choosing(case.selector), parts=parts)


class Hanging:
    """The SQLite store, whose reads never return once it is open: a network drive that is gone."""

    def __init__(self, path: Path, config: Config, clock: Clock) -> None:
        self._inner: Store = open_store(path, config, clock)

    async def read(self, work: Callable[[Unit], R]) -> R:
        await timer(None)
        return await self._inner.read(work)

    def write(self, work: Callable[[Unit], R]) -> Awaitable[R]:
        return self._inner.write(work)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Turns without memory and with it, one after the other, in conversations whose names begin with `name`."""

    memory: afterturn.Memory
    case: Case
    name: str
    steps: int
    phase: PhaseName = "fast"
    within: float | None = None

    async def run(self, rounds: int) -> list[tuple[float, float, float]]:
        """Of each round: the turn without memory, the turn with it, and what of that was spent in memory's verbs.

        One round more warms up and does not count, unless there is only one. Which comes first changes by the round.
        """
        await self.memory.ready()
        counted = range(rounds if rounds == 1 else rounds + 1)
        found = [await self._both(at, question) for at, question in zip(counted, questions(rounds + 1), strict=False)]
        return found[-rounds:]

    async def _both(self, at: int, question: str) -> tuple[float, float, float]:
        # A conversation of its own, so that nothing is known to the model and there is always something to inject.
        conversation = self.memory.conversation(f"{self.name}-{self.steps}-{at}", user=USER)
        ours = Ours(conversation, phase=self.phase, within=self.within)
        took = {}
        for way in (NoMemory(), ours) if at % 2 else (ours, NoMemory()):
            took[way is ours] = await _timed(way, self.steps, question)
            await self._settle(ours)
        return took[False], took[True], ours.spent

    async def _settle(self, ours: Ours) -> None:
        """What a turn has left to do is done before the next one is measured, as when a person reads in between."""
        if ours.turn is not None and not self.case.hangs:
            await ours.turn.wait_recorded()
            await self.memory.drain()
        await timer(PAUSE)


async def _timed(way: Way, steps: int, question: str) -> float:
    messages: list[Message] = past(HISTORY)
    model = Paced(steps, CALL_SECONDS)
    began = perf_counter()
    await run_turn(way, model, messages, question)
    return perf_counter() - began


def _waits(case: Case, way: str, grace: float | None, steps: int, pairs: Sequence[tuple[float, float, float]]) -> Waits:
    return Waits(
        case=case.name,
        way=way,
        grace=grace,
        steps=steps,
        rounds=len(pairs),
        bare=median(bare for bare, _, _ in pairs),
        verbs=median(verbs for _, _, verbs in pairs),
        wall=median(ours - bare for bare, ours, _ in pairs),
    )
