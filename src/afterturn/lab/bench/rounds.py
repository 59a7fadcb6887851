"""How much a run measures, and how ours and the limit take turns."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from afterturn.lab.bench.report import Progress

Measure: TypeAlias = Callable[[int], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Scale:
    """`rounds` are counted ones; one more comes first and warms up."""

    rounds: int
    adds: int
    imported: int
    import_rounds: int
    starts: int
    idle_seconds: float


FULL = Scale(rounds=9, adds=320, imported=10_000, import_rounds=3, starts=1000, idle_seconds=3.0)
QUICK = Scale(rounds=1, adds=32, imported=200, import_rounds=1, starts=20, idle_seconds=0.05)


async def alternate(
    rounds: int, ours: Measure, limit: Measure, told: Progress, title: str
) -> tuple[list[float], list[float]]:
    """Measures both in every round, the one that went first going second in the next."""
    found: dict[Measure, list[float]] = {ours: [], limit: []}
    for at in range(rounds + 1):
        told(f"{title}: round {at} of {rounds}")
        for measure in (ours, limit) if at % 2 else (limit, ours):
            found[measure].append(await measure(at))
    return found[ours][1:], found[limit][1:]
