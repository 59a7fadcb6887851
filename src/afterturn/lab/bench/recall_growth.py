"""The row of growth: one space from a thousand memories to a million, and how much longer each step makes a recall."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from afterturn.lab.bench.recall_asking import asking
from afterturn.lab.bench.recall_reference import random_matrix
from afterturn.lab.bench.recall_report import Goal, Measured, Row, number
from afterturn.lab.bench.recall_scale import WIDTH, Growth, Scale, Told
from afterturn.lab.bench.recall_stores import SPACE, Stores, texts_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The default has room for some 200,000 memories; a host with more of them in one space gives the index more.
INDEX_BYTES_MAX = 4 * 1024**3
# A step of one size to the next is measured minutes apart, on a machine whose speed wanders by some per cent.
NOISE = 0.1
_BLOCK = 10
LINEAR = Goal(1 + NOISE, "")


def measure_growth(stores: Stores, scale: Scale, told: Told) -> tuple[list[Measured], Growth]:
    found = tuple((size, *_measure_size(stores, scale, size, told)) for size in scale.growth)
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


def _measure_size(stores: Stores, scale: Scale, size: int, told: Told) -> tuple[float, float]:
    path = stores.single(size)
    told(f"growth: {size:,} memories")
    least, most = scale.growth_calls
    matrix, vectors = random_matrix(size, WIDTH), random_matrix(most, WIDTH, seed=2)
    ours: list[float] = []
    product: list[float] = []
    with asking(path, index_bytes_max=INDEX_BYTES_MAX) as asker:
        asked = asker.questions(stores.corpus.questions(most, texts_of(path, SPACE), seed=6))
        asker.shelve(SPACE, asked[0])
        started = perf_counter()
        # In rows, as where a host asks again soon: neither side finds its data driven out of the cache.
        for start in range(0, most, _BLOCK):
            ours += [asker.timed(SPACE, question) for question in asked[start : start + _BLOCK]]
            product += [_product(matrix, vector) for vector in vectors[start : start + _BLOCK]]
            if len(ours) >= least and perf_counter() - started > scale.growth_seconds:
                break
    return median(ours), median(product)


def _product(matrix: NDArray[np.float32], vector: NDArray[np.float32]) -> float:
    began = perf_counter()
    _ = matrix @ vector
    return perf_counter() - began


def _shown(seconds: float) -> str:
    return f"{number(seconds * 1000)} ms"
