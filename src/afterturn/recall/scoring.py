"""The formula of `ranking` over arrays: all rows of an edition estimated, or some of them weighed exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from afterturn.recall.asked import Weights
from afterturn.recall.edition import Edition, among
from afterturn.recall.postings import Places
from afterturn.recall.ranking import SIMILARITY_ASSUMED, evidence, in_context, saturated, score, standing
from afterturn.recall.sketches import Floats

Rows: TypeAlias = NDArray[np.intp]
ReadCosines: TypeAlias = Callable[[NDArray[np.int64]], Floats]
"""Of entries by key, from the store: where a shelf has sketches alone."""


class Question(NamedTuple):
    """`named` are the codes of speakers."""

    weights: Weights
    vector: Floats | None
    named: frozenset[int]


class Weighed(NamedTuple):
    """Of some rows, in their order; `held` has a row for each of the terms that are held, above 0 where one is."""

    scores: Floats
    shares: Floats
    cosines: Floats
    held: Floats

    def take(self, at: NDArray[Any]) -> Weighed:
        values = (self.scores.take(at), self.shares.take(at), self.cosines.take(at))
        return Weighed(*values, self.held.take(at, axis=1))


class Occurrences(NamedTuple):
    """Of all terms, one after the other: the row, which of the terms it is, and how often it is there."""

    rows: NDArray[np.intp]
    terms: NDArray[np.intp]
    counts: Floats


class Found(NamedTuple):
    """Where a term is, and in how many living rows."""

    places: Sequence[Places]
    documents: int


class Held:
    """Where those of the question's terms are that any row holds. `weights` are shares of the question's."""

    def __init__(self, weights: Weights, found: Mapping[str, Found]) -> None:
        self.names = [term for term in weights.by_term if found[term].places]
        total = weights.total or 1.0
        self.weights = np.array([weights.by_term[term] / total for term in self.names], np.float32)
        self._places = [found[term].places for term in self.names]

    @cached_property
    def occurrences(self) -> Occurrences:
        places = [place for parts in self._places for place in parts]
        if not places:
            nothing = np.zeros(0, np.intp)
            return Occurrences(nothing, nothing, np.zeros(0, np.float32))
        return Occurrences(
            np.concatenate([rows for rows, _ in places], dtype=np.intp),
            np.repeat(np.arange(len(self.names)), [sum(rows.size for rows, _ in parts) for parts in self._places]),
            np.concatenate([counts for _, counts in places], dtype=np.float32),
        )

    def table(self, count: int) -> Floats:
        """(terms, rows): how often each of the first `count` rows holds each term."""
        counted = np.zeros((len(self.names), count), np.float32)
        for of_term, parts in zip(counted, self._places, strict=True):
            for rows, counts in parts:
                of_term.put(rows, counts)
        return counted


class Scoring:
    """One question's. Terms that no row holds are left out from the beginning; they count in the total."""

    def __init__(self, edition: Edition, question: Question, held: Held, read_cosines: ReadCosines) -> None:
        self._edition = edition
        self._question = question
        self._held = held
        self._read_cosines = read_cosines

    @property
    def is_compared(self) -> bool:
        """By meaning too."""
        return self._question.vector is not None

    def found_terms(self, weighed: Weighed) -> list[tuple[str, ...]]:
        """The question's terms that each of these rows holds."""
        return [tuple(compress(self._held.names, is_held)) for is_held in (weighed.held.T > 0).tolist()]

    def estimated(self) -> Floats:
        """About the scores of all rows, from their sketches, and as if no two messages beside each other held the same
        term. The dead are weighed too."""
        edition, question, held = self._edition, self._question, self._held
        shares = np.zeros(edition.count, np.float32)
        if held.names:
            rows, terms, counts = held.occurrences
            reached = saturated(counts, edition.spans.take(rows, mode="clip"))
            reached *= held.weights.take(terms)
            np.add.at(shares, rows, reached)
            alone = shares.take(edition.deaf)
            edition.add_context(shares)
            shares[edition.deaf] = alone
        known = evidence(shares, question.weights.worth, self._likeness())
        return score(known, self._standing(None), self._even(None))

    def weigh(self, rows: Rows | None) -> Weighed:
        """Exactly; None is all of them."""
        if rows is None:
            return self._weigh_all()
        edition = self._edition
        around, said, near = edition.context(rows)
        speaking = _Gathered(edition.count, rows, around)
        counts = self._counts(speaking)
        own = counts.take(speaking.at(rows), axis=1)
        shares = self._shares(counts, own, speaking.at(around), said, edition.spans.take(rows))
        # Likeness reaches less far than words do.
        alike = _Gathered(edition.count, rows, near)
        cosines = self._cosines(alike.rows)
        compared = cosines.take(alike.at(rows))
        likeness = in_context(compared, *cosines.take(alike.at(near)))
        known = evidence(shares, self._question.weights.worth, likeness)
        return Weighed(score(known, self._standing(rows), self._even(rows)), shares, compared, own)

    def _weigh_all(self) -> Weighed:
        edition = self._edition
        around, said, near = edition.whole_context
        held = self._held.table(edition.count)
        shares = self._shares(held, held, around, said, edition.spans)
        cosines = self._cosines(None)
        likeness = in_context(cosines, *cosines.take(near, mode="wrap"))
        known = evidence(shares, self._question.weights.worth, likeness)
        return Weighed(score(known, self._standing(None), self._even(None)), shares, cosines, held)

    def _shares(self, counts: Floats, own: Floats, around: Rows, said: Floats, spans: Floats) -> Floats:
        """`counts` has those that are `around`, `own` those that are asked for."""
        # Rows are never out of bounds, and not looking whether they are takes two thirds of the time.
        counted = np.einsum("ijk,jk->ik", counts.take(around, axis=1, mode="wrap"), said)
        counted += own
        shares: Floats = self._held.weights @ saturated(counted, spans)
        return shares

    def _counts(self, gathered: _Gathered) -> Floats:
        """(terms, rows): how often each of the rows holds each term."""
        rows, terms, counts = self._held.occurrences
        counted = np.zeros((len(self._held.names), gathered.rows.size), np.float32)
        found = np.flatnonzero(gathered.is_among.take(rows))
        counted[terms.take(found), gathered.at(rows.take(found))] = counts.take(found)
        return counted

    def _standing(self, rows: Rows | None) -> Floats:
        edition, named = self._edition, self._question.named
        if not named:
            return edition.plain if rows is None else edition.plain.take(rows)
        chosen = slice(0, edition.count) if rows is None else rows
        is_named = among(edition.facts.speakers[chosen], named).astype(np.float32)
        return standing(is_named, edition.facts.is_own[chosen], edition.newer[chosen])

    def _even(self, rows: Rows | None) -> Floats:
        even = self._edition.even(self._question.weights.even)
        return even if rows is None else even.take(rows)

    def _likeness(self) -> Floats:
        """Estimated, where there are sketches."""
        edition, vector = self._edition, self._question.vector
        if vector is not None and edition.vectors is not None and edition.vectors.is_sketched:
            cosines = edition.vectors.estimated(vector, edition.count)
            cosines[edition.without_vector] = SIMILARITY_ASSUMED
        else:
            cosines = self._cosines(None)
        before, after = (cosines.take(towards, mode="wrap") for towards in (edition.before, edition.after))
        return in_context(cosines, before, after)

    def _cosines(self, rows: NDArray[np.intp] | None) -> Floats:
        """Exactly; None is all rows."""
        edition, vector = self._edition, self._question.vector
        if vector is None or edition.vectors is None or not edition.vectors_count:
            return np.full(edition.count if rows is None else rows.size, SIMILARITY_ASSUMED, np.float32)
        is_whole = not edition.without_vector.size
        if edition.vectors.matrix is not None and rows is None:
            found = edition.vectors.cosines(vector, slice(0, edition.count))
            if not is_whole:
                found[edition.without_vector] = SIMILARITY_ASSUMED
            return found
        has = edition.has_vector if rows is None else edition.has_vector.take(rows)
        chosen = np.flatnonzero(has) if rows is None else rows if is_whole else rows[has]
        if edition.vectors.matrix is None:
            found = self._read_cosines(edition.facts.keys[chosen])
        else:
            found = edition.vectors.cosines(vector, chosen)
        if found.size == has.size:
            return found
        cosines = np.full(has.size, SIMILARITY_ASSUMED, np.float32)
        cosines[has] = found
        return cosines


class _Gathered:
    """All these rows once, in ascending order, and where in that each of them is."""

    def __init__(self, count: int, *wanted: NDArray[Any]) -> None:
        # Marks are set and found in a fraction of the time that sorting takes.
        self.is_among = np.zeros(count, np.bool_)
        for rows in wanted:
            self.is_among[rows] = True
        self.rows = np.flatnonzero(self.is_among)
        self._places = np.empty(count, np.intp)
        self._places[self.rows] = np.arange(self.rows.size)

    def at(self, rows: NDArray[Any]) -> NDArray[np.intp]:
        return self._places.take(rows)
