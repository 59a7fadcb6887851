"""The row of growth: one space from a thousand memories to a million, and how much longer each step makes a recall."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from lab.bench.recall_asking import Asker, Question, asking
from lab.bench.recall_reference import random_matrix
from lab.bench.recall_report import Measured, Row, number
from lab.bench.recall_scale import WIDTH, Growth, Scale, Told
from lab.bench.recall_stores import SPACE, Stores, texts_of
from lab.bench.report import Goal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The default has room for some 200,000 memories; a host with more of them in one space gives the index more.
INDEX_BYTES_MAX = 4 * 1024**3
# Both ends of a step are medians, and a machine's speed wanders by some per cent.
NOISE = 0.1
_QUESTIONS = 200
LINEAR = Goal(1 + NOISE, "")


def measure_growth(stores: Stores, scale: Scale, told: Told) -> tuple[list[Measured], Growth]:
    paths = [stores.single(size) for size in scale.growth]
    with ExitStack() as opened:
        sides = [
            _Side.made(stores, size, opened.enter_context(asking(path, index_bytes_max=INDEX_BYTES_MAX)), path)
            for size, path in zip(scale.growth, paths, strict=True)
        ]
        # Size after size in every round, so that all of them have the same weather.
        for at in range(scale.growth_rounds):
            told(f"growth: round {at} of {scale.growth_rounds}")
            for side in sides:
                side.measure(scale.growth_calls)
    found = tuple((side.size, median(side.ours), median(side.product)) for side in sides)
    slopes = slopes_of([(size, ours) for size, ours, _ in found])
    worst = max(slopes)
    sizes = "; ".join(f"{size:,}: {_shown(ours)}, product {_shown(product)}" for size, ours, product in found)
    figure = Row("growth").alone(
        f"growth {scale.growth[0]:,} → {scale.growth[-1]:,}, steepest step",
        "",
        worst,
        LINEAR,
        f"the slope between two sizes, both axes logarithmic: 1 is linear, and {NOISE:g} is allowed for noise; all "
        f"steps: {', '.join(f'{slope:.2f}' for slope in slopes)}",
        f"p50 by size, beside a product with {WIDTH} columns: {sizes}",
        f"index_bytes_max {INDEX_BYTES_MAX / 1024**3:g} GiB, so that all vectors of the largest space are in memory",
    )
    return [figure], found


def slopes_of(points: Sequence[tuple[int, float]]) -> list[float]:
    """Of each step from one size to the next; a size that takes twice the time at twice the size gives 1."""
    return [
        math.log(later / earlier) / math.log(larger / smaller)
        for (smaller, earlier), (larger, later) in pairwise(points)
    ]


@dataclass(slots=True)
class _Side:
    """One size, opened and in memory. Times are in seconds."""

    size: int
    asker: Asker
    asked: Iterator[Question]
    matrix: NDArray[np.float32]
    ours: list[float] = field(default_factory=list)
    product: list[float] = field(default_factory=list)

    @classmethod
    def made(cls, stores: Stores, size: int, asker: Asker, path: Path) -> _Side:
        asked = asker.questions(stores.corpus.questions(_QUESTIONS, texts_of(path, SPACE), seed=6))
        asker.shelve(SPACE, asked[0])
        return cls(size, asker, cycle(asked), random_matrix(size, WIDTH))

    def measure(self, calls: int) -> None:
        """Several in a row on each side, the first unmeasured: it finds its data driven out of the cache."""
        vectors = random_matrix(calls + 1, WIDTH, seed=2)
        self.ours += [self.asker.timed(SPACE, next(self.asked)) for _ in range(calls + 1)][1:]
        self.product += [_product(self.matrix, vector) for vector in vectors][1:]


def _product(matrix: NDArray[np.float32], vector: NDArray[np.float32]) -> float:
    began = perf_counter()
    _ = matrix @ vector
    return perf_counter() - began


def _shown(seconds: float) -> str:
    return f"{number(seconds * 1000)} ms"
