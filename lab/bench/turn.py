"""`make bench-turn`: every figure in one run, and the one table of what they have to be."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import afterturn
from afterturn.base.config import Config
from lab.bench import turn_delivery, turn_prompts, turn_waiting
from lab.bench.report import Goal, Progress, command_of, surroundings
from lab.bench.turn_corpus import memories
from lab.bench.turn_delivery import FIRST_AT_ONCE, FIRST_LATER, Delivery, DeliveryScale, measure_delivery
from lab.bench.turn_host import learn
from lab.bench.turn_prompts import OURS, PER_CALL, PER_TURN, Course, Prompts, measure_prompts
from lab.bench.turn_report import Check, TurnReport
from lab.bench.turn_waiting import WaitingScale, Waits, measure_waiting

Steps: TypeAlias = Callable[[str, int, int], None]

TARGETS = {
    "recalls per user message": Goal(1),
    "prompts that begin with the one before": Goal(100, "%", at_least=True),
    "memories shown again while still in sight": Goal(0, ""),
    "tokens injected beside recall per turn": Goal(1),
    # As many as if every call of a turn but its first were free.
    "tokens injected beside recall per call, × calls per turn": Goal(1),
    "added at grace 0, in verbs": Goal(1, "%"),
    "added at grace 0, on the wall": Goal(1, "%"),
    "added at the default grace beyond the grace, in verbs": Goal(1, "%"),
    "added at the default grace beyond the grace, on the wall": Goal(1, "%"),
    "tool-free turns delivered, first turns included": Goal(99, "%", at_least=True),
    "first turns of processes delivered": Goal(99, "%", at_least=True),
}


@dataclass(frozen=True, slots=True)
class Scale:
    """`others` are memories that have nothing to do with what is asked."""

    others: int
    courses: tuple[Course, ...]
    waiting: WaitingScale
    delivery: DeliveryScale

    @property
    def steps(self) -> int:
        """How often a run tells what it is doing."""
        waiting, delivery = self.waiting, self.delivery
        return (
            len(self.courses) * len(turn_prompts.WAYS)
            + len(waiting.cases) * (2 * len(waiting.steps) + 1)
            + (len(delivery.selectors) + 1) * len(delivery.turns)
            + delivery.processes
        )


FULL = Scale(1000, turn_prompts.FULL, turn_waiting.FULL, turn_delivery.FULL)
QUICK = Scale(50, turn_prompts.QUICK, turn_waiting.QUICK, turn_delivery.QUICK)


def measure_turn(*, quick: bool = False, progress: Steps = lambda step, done, total: None) -> TurnReport:
    """Runs everything in a temporary folder. `quick` measures too little to mean anything: it shows the form."""
    scale, done = QUICK if quick else FULL, 0

    def told(step: str) -> None:
        nonlocal done
        done += 1
        progress(step, done, scale.steps)

    command = command_of("turn", "--quick" if quick else "")
    with tempfile.TemporaryDirectory(prefix="afterturn-bench-") as folder:
        prompts, waits, deliveries = asyncio.run(_measure(Path(folder), scale, told))
        around = surroundings(command, Path(folder))
    judged = checks(prompts, waits, deliveries)
    if quick:
        judged = tuple(replace(check, passed=None) for check in judged)
    return TurnReport(around, judged, tuple(prompts), tuple(waits), tuple(deliveries))


async def _measure(folder: Path, scale: Scale, told: Progress) -> tuple[list[Prompts], list[Waits], list[Delivery]]:
    store = folder / "memories.db"
    async with afterturn.open(store, Config()) as memory:
        await learn(memory, memories(scale.others))
    return (
        await measure_prompts(store, scale.courses, told),
        await measure_waiting(store, scale.waiting, told),
        await measure_delivery(store, scale.delivery, told),
    )


def checks(prompts: Sequence[Prompts], waits: Sequence[Waits], deliveries: Sequence[Delivery]) -> tuple[Check, ...]:
    """Every target, with the worst that was found for it."""
    found = {**_of_prompts(prompts), **_of_waits(waits), **_of_deliveries(deliveries)}
    return tuple(_check(name, goal, found[name]) for name, goal in TARGETS.items())


Figures: TypeAlias = list[tuple[float, str]]


def _check(name: str, goal: Goal, figures: Figures) -> Check:
    figure, where = min(figures) if goal.at_least else max(figures)
    return Check(name, figure, goal.unit, str(goal), goal.is_met(figure), where)


def _of_prompts(prompts: Iterable[Prompts]) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    by_way = {(one.course, one.way): one for one in prompts}
    for (course, way), ours in by_way.items():
        if way != OURS:
            continue
        per_turn, per_call = by_way[course, PER_TURN], by_way[course, PER_CALL]
        figures = {
            "recalls per user message": ours.recalls / ours.turns,
            "prompts that begin with the one before": ours.stability * 100,
            "memories shown again while still in sight": float(ours.repeats),
            "tokens injected beside recall per turn": ours.injected / per_turn.injected,
            "tokens injected beside recall per call, × calls per turn": (
                ours.injected / per_call.injected * ours.calls / ours.turns
            ),
        }
        for name, figure in figures.items():
            found.setdefault(name, []).append((figure, course))
    return found


def _of_waits(waits: Iterable[Waits]) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    for one in waits:
        if one.grace is None:
            continue
        when = "added at the default grace beyond the grace" if one.grace else "added at grace 0"
        where = f"{one.case}, {one.steps} steps"
        for how, added in (("in verbs", one.verbs), ("on the wall", one.wall)):
            found.setdefault(f"{when}, {how}", []).append(((added - one.grace_kept) / one.bare * 100, where))
    return found


def _of_deliveries(deliveries: Iterable[Delivery]) -> dict[str, Figures]:
    tool_free = [one for one in deliveries if one.grace == Config().grace and one.steps == 1]
    first = [one for one in tool_free if one.kind in (FIRST_AT_ONCE, FIRST_LATER)]
    return {
        "tool-free turns delivered, first turns included": [_share(tool_free)],
        "first turns of processes delivered": [_share(first)],
    }


def _share(deliveries: Sequence[Delivery]) -> tuple[float, str]:
    relevant, delivered = sum(one.relevant for one in deliveries), sum(one.delivered for one in deliveries)
    return 100 * delivered / max(1, relevant), f"{delivered} of {relevant}"
