"""The formula of `ranking` over arrays: all rows of an edition estimated, or some of them weighed exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from afterturn.recall.asked import Weights
from afterturn.recall.edition import Edition, among
from afterturn.recall.ranking import EVEN_STATED, SIMILARITY_ASSUMED, evidence, in_context, saturated, score, standing
from afterturn.recall.sketches import Floats

Rows: TypeAlias = NDArray[np.int32]
ReadCosines: TypeAlias = Callable[[NDArray[np.int64]], Floats]
"""Of entries by key, from the store: where a shelf has sketches alone."""


@dataclass(frozen=True, slots=True)
class Question:
    """`named` are the codes of speakers."""

    weights: Weights
    vector: Floats | None
    named: frozenset[int]


@dataclass(frozen=True, slots=True)
class Weighed:
    """Of some rows, in their order."""

    scores: Floats
    shares: Floats
    cosines: Floats


class Scoring:
    """One question's. Terms that no row holds are left out from the beginning; they count in the total."""

    def __init__(self, edition: Edition, question: Question, read_cosines: ReadCosines) -> None:
        self._edition = edition
        self._question = question
        self._read_cosines = read_cosines
        found = edition.postings.find(list(question.weights.by_term))
        held = [
            (weight, places) for weight, places in zip(question.weights.by_term.values(), found, strict=True) if places
        ]
        self._held = [places for _, places in held]
        self._weights = np.array([weight for weight, _ in held], np.float32)
        if question.weights.total:
            self._weights /= np.float32(question.weights.total)

    def estimated(self) -> Floats:
        """About the scores of all rows, from their sketches, and as if no two messages beside each other held the same
        term. The dead are weighed too."""
        edition, question = self._edition, self._question
        shares = np.zeros(edition.count, np.float32)
        for weight, places in zip(self._weights, self._held, strict=True):
            for rows, counts in places:
                reached = saturated(counts.astype(np.float32), edition.spans.take(rows, mode="clip"))
                reached *= weight
                np.add.at(shares, rows, reached)
        alone = shares[~edition.facts.hears[: edition.count]]
        edition.add_context(shares)
        shares[~edition.facts.hears[: edition.count]] = alone
        known = evidence(shares, question.weights.worth, self._likeness())
        standing = self._standing(slice(0, edition.count)) if question.named else edition.plain
        return score(known, standing, self._even(slice(0, edition.count)))

    def weigh(self, rows: Rows | None) -> Weighed:
        """Exactly; None is all of them."""
        edition = self._edition
        chosen = np.arange(edition.count, dtype=np.int32) if rows is None else rows
        around, there = edition.around(chosen)
        needed, at, beside = (None, chosen, around) if rows is None else _placed(chosen, around)
        counts = self._counts(needed)
        counted = counts if rows is None else counts.take(at, axis=1)
        if there.any():
            said = edition.said_around(around, there)
            counted = counted + sum(part * counts.take(other, axis=1) for part, other in zip(said, beside, strict=True))
        shares: Floats = self._weights @ saturated(counted, edition.spans[chosen])
        # Likeness reaches less far than words do.
        needed, at, beside = (None, chosen, around) if rows is None else _placed(chosen, around[:2])
        cosines = self._cosines(needed)
        own = cosines[at]
        hears = edition.facts.hears[chosen]
        before, after = (np.where(hears, cosines[towards], own) for towards in beside[:2])
        known = evidence(shares, self._question.weights.worth, in_context(own, before, after))
        scores = score(known, self._standing(chosen), self._even(chosen))
        return Weighed(scores, shares, own)

    def _counts(self, rows: Rows | None) -> Floats:
        """(terms, rows): how often each row holds each term. Rows are in ascending order; None is all of them."""
        counted = np.zeros((len(self._held), self._edition.count if rows is None else rows.size), np.float32)
        for of_term, places in zip(counted, self._held, strict=True):
            for holding, counts in places:
                if rows is None:
                    of_term[holding] = counts
                else:
                    at = holding.searchsorted(rows)
                    is_there = holding.take(at, mode="clip") == rows
                    of_term += counts.take(at, mode="clip") * is_there
        return counted

    def _standing(self, rows: Rows | slice) -> Floats:
        edition, named = self._edition, self._question.named
        is_named = among(edition.facts.speakers[: edition.count][rows], named).astype(np.float32)
        return standing(is_named, edition.facts.is_own[: edition.count][rows], edition.newer[rows])

    def _even(self, rows: Rows | slice) -> Floats:
        records = self._edition.facts.is_record[: self._edition.count][rows]
        return np.where(records, np.float32(self._question.weights.even), np.float32(EVEN_STATED))

    def _likeness(self) -> Floats:
        """Estimated, where there are sketches."""
        edition, vector = self._edition, self._question.vector
        if vector is not None and edition.vectors is not None and edition.vectors.is_sketched:
            cosines = edition.vectors.estimated(vector, edition.count)
            cosines[~edition.has_vector] = SIMILARITY_ASSUMED
        else:
            cosines = self._cosines(None)
        before, after = (cosines.take(towards, mode="wrap") for towards in (edition.before, edition.after))
        return in_context(cosines, before, after)

    def _cosines(self, rows: Rows | None) -> Floats:
        """Exactly; None is all rows."""
        edition, vector = self._edition, self._question.vector
        has = edition.has_vector if rows is None else edition.has_vector[rows]
        if vector is None or edition.vectors is None or not has.any():
            return np.full(has.size, SIMILARITY_ASSUMED, np.float32)
        chosen = np.flatnonzero(has).astype(np.int32) if rows is None else rows[has]
        if edition.vectors.matrix is None:
            found = self._read_cosines(edition.facts.keys[chosen])
        elif rows is None:
            found = edition.vectors.cosines(vector, slice(0, edition.count))[has]
        else:
            found = edition.vectors.cosines(vector, chosen)
        if found.size == has.size:
            return found
        cosines = np.full(has.size, SIMILARITY_ASSUMED, np.float32)
        cosines[has] = found
        return cosines


def _placed(chosen: Rows, around: NDArray[np.intp]) -> tuple[Rows, NDArray[Any], NDArray[Any]]:
    """All these rows once, in ascending order, and where in that each of either is."""
    # A fifth of the time that `unique` takes of a few hundred.
    ordered = np.sort(np.concatenate([chosen, around.ravel()]))
    differs = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=differs[1:])
    needed: Rows = ordered[differs].astype(np.int32)
    return needed, needed.searchsorted(chosen), needed.searchsorted(around)
