"""How much a run measures, and how ours and the limit take turns."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from lab.bench.report import Progress

_TELL_EVERY = 10

Measure: TypeAlias = Callable[[int], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Scale:
    """Many short rounds rather than a few long ones: the weather of a machine changes by the second.

    One round more than counts comes first and warms up.
    """

    rounds: int
    import_rounds: int
    imported: int
    idle_seconds: float


FULL = Scale(rounds=150, import_rounds=7, imported=10_000, idle_seconds=3.0)
QUICK = Scale(rounds=2, import_rounds=1, imported=200, idle_seconds=0.05)


async def alternate(
    rounds: int, ours: Measure, limit: Measure, told: Progress, title: str
) -> tuple[list[float], list[float]]:
    """Measures both in every round, the one that went first going second in the next."""
    found: dict[Measure, list[float]] = {ours: [], limit: []}
    for at in range(rounds + 1):
        if at % _TELL_EVERY == 0:
            told(f"{title}: round {at} of {rounds}")
        for measure in (ours, limit) if at % 2 else (limit, ours):
            found[measure].append(await measure(at))
    return found[ours][1:], found[limit][1:]
