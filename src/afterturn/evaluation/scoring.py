"""Figures of one question, and their means with intervals. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

CUTS = (1, 3, 5, 10, 20)
NDCG_CUT = 10
RESAMPLES = 1000
SEED = 7

Figures: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class QuestionOutcome:
    """One question's figures. Intervals are by `talk`: questions about one conversation are no independent samples."""

    talk: str
    category: str
    figures: Figures


def rank_figures(ranked: Sequence[str], evidence: Sequence[str]) -> dict[str, float]:
    """`ranked` best first, each name once; `evidence` is not empty."""
    places = sorted(place for place, name in enumerate(ranked) if name in set(evidence))
    figures: dict[str, float] = {}
    for cut in CUTS:
        found = sum(place < cut for place in places)
        figures[f"recall@{cut}"] = found / len(evidence)
        figures[f"all@{cut}"] = float(found == len(evidence))
    ideal = sum(_gain(place) for place in range(min(len(evidence), NDCG_CUT)))
    figures[f"ndcg@{NDCG_CUT}"] = sum(_gain(place) for place in places if place < NDCG_CUT) / ideal
    figures["mrr"] = 1 / (places[0] + 1) if places else 0.0
    return figures


def _gain(place: int) -> float:
    return 1 / math.log2(place + 2)


def means(outcomes: Iterable[QuestionOutcome]) -> dict[str, float]:
    """Of each figure over the questions that have it."""
    values: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, value in outcome.figures.items():
            values.setdefault(name, []).append(value)
    return {name: sum(found) / len(found) for name, found in values.items()}


def intervals(outcomes: Sequence[QuestionOutcome]) -> dict[str, tuple[float, float]]:
    """Of 95 %, by drawing whole conversations with replacement; none of a single one, which tells nothing of others.

    The same outcomes give the same intervals.
    """
    import numpy as np

    talks = sorted({outcome.talk for outcome in outcomes})
    if len(talks) < 2:
        return {}
    names = sorted({name for outcome in outcomes for name in outcome.figures})
    sums = np.zeros((len(talks), len(names)))
    counts = np.zeros((len(talks), len(names)))
    for outcome in outcomes:
        row = talks.index(outcome.talk)
        for name, value in outcome.figures.items():
            column = names.index(name)
            sums[row, column] += value
            counts[row, column] += 1
    drawn = np.random.default_rng(SEED).integers(0, len(talks), size=(RESAMPLES, len(talks)))
    resampled = sums[drawn].sum(axis=1) / np.maximum(counts[drawn].sum(axis=1), 1)
    low, high = np.percentile(resampled, [2.5, 97.5], axis=0)
    return {name: (float(low[at]), float(high[at])) for at, name in enumerate(names)}


def differences(ours: Sequence[QuestionOutcome], theirs: Sequence[QuestionOutcome]) -> list[QuestionOutcome]:
    """What ours has more, question by question; both in the same order."""
    return [
        QuestionOutcome(
            mine.talk, mine.category, {name: value - other.figures[name] for name, value in mine.figures.items()}
        )
        for mine, other in zip(ours, theirs, strict=True)
    ]
