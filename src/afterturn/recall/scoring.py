"""The formula of `ranking` over arrays: all rows of an edition estimated, or some of them weighed exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from afterturn.recall.asked import Weights
from afterturn.recall.edition import Edition, among
from afterturn.recall.postings import Places
from afterturn.recall.ranking import EVEN_STATED, SIMILARITY_ASSUMED, evidence, in_context, saturated, score, standing
from afterturn.recall.sketches import Floats

Rows: TypeAlias = NDArray[np.intp]
ReadCosines: TypeAlias = Callable[[NDArray[np.int64]], Floats]
"""Of entries by key, from the store: where a shelf has sketches alone."""


@dataclass(frozen=True, slots=True)
class Question:
    """`named` are the codes of speakers."""

    weights: Weights
    vector: Floats | None
    named: frozenset[int]


class Weighed(NamedTuple):
    """Of some rows, in their order."""

    scores: Floats
    shares: Floats
    cosines: Floats

    def take(self, at: NDArray[Any]) -> Weighed:
        return Weighed(self.scores.take(at), self.shares.take(at), self.cosines.take(at))

    def part(self, start: int, end: int) -> Weighed:
        return Weighed(self.scores[start:end], self.shares[start:end], self.cosines[start:end])


class Held(NamedTuple):
    """Where the question's terms are, all in one: the row, which of the terms it is, and how often it is there.

    `names` and `weights` are of terms that are held at all, the weights as shares of the question's.
    """

    names: Sequence[str]
    weights: Floats
    rows: NDArray[np.intp]
    terms: NDArray[np.intp]
    counts: Floats


def find_held(weights: Weights, found: Mapping[str, Sequence[Places]]) -> Held:
    held = [(weight, found[term]) for term, weight in weights.by_term.items() if found[term]]
    names = [term for term in weights.by_term if found[term]]
    of_terms = np.array([weight for weight, _ in held], np.float32)
    if weights.total:
        of_terms /= np.float32(weights.total)
    if not held:
        nothing = np.zeros(0, np.intp)
        return Held(names, of_terms, nothing, nothing, np.zeros(0, np.float32))
    places = [place for _, parts in held for place in parts]
    sizes = [sum(rows.size for rows, _ in parts) for _, parts in held]
    return Held(
        names,
        of_terms,
        np.concatenate([rows for rows, _ in places], dtype=np.intp),
        np.repeat(np.arange(len(held)), sizes),
        np.concatenate([counts for _, counts in places], dtype=np.float32),
    )


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

    def held_by(self, rows: list[int]) -> dict[int, tuple[str, ...]]:
        """The terms that each of these rows holds; absent when none."""
        held = self._held
        is_wanted = np.zeros(self._edition.count, np.bool_)
        is_wanted[rows] = True
        places = is_wanted.take(held.rows).nonzero()[0]
        found: dict[int, tuple[str, ...]] = {}
        for place in places.tolist():
            row = int(held.rows[place])
            if held.counts[place]:
                found[row] = (*found.get(row, ()), held.names[held.terms[place]])
        return found

    def estimated(self) -> Floats:
        """About the scores of all rows, from their sketches, and as if no two messages beside each other held the same
        term. The dead are weighed too."""
        edition, question, held = self._edition, self._question, self._held
        shares = np.zeros(edition.count, np.float32)
        if held.rows.size:
            reached = saturated(held.counts, edition.spans.take(held.rows, mode="clip"))
            reached *= held.weights.take(held.terms)
            np.add.at(shares, held.rows, reached)
            alone = shares.take(edition.deaf)
            edition.add_context(shares)
            shares[edition.deaf] = alone
        known = evidence(shares, question.weights.worth, self._likeness())
        return score(known, self._standing(None), self._even(None))

    def weigh(self, rows: Rows | None) -> Weighed:
        """Exactly; None is all of them."""
        edition = self._edition
        if rows is None:
            around, said, near = edition.whole_context
            counts, cosines = self._counts(None), self._cosines(None)
            own, compared, spans = counts, cosines, edition.spans
        else:
            around, said, near = edition.context(rows)
            speaking = _Gathered(edition.count, rows, around)
            counts, around = self._counts(speaking), speaking.at(around)
            own, spans = counts.take(speaking.at(rows), axis=1), edition.spans.take(rows)
            # Likeness reaches less far than words do.
            alike = _Gathered(edition.count, rows, near)
            cosines, near = self._cosines(alike.rows), alike.at(near)
            compared = cosines.take(alike.at(rows))
        counted = own + (counts.take(around, axis=1) * said).sum(axis=1)
        shares: Floats = self._held.weights @ saturated(counted, spans)
        likeness = in_context(compared, *cosines.take(near))
        known = evidence(shares, self._question.weights.worth, likeness)
        return Weighed(score(known, self._standing(rows), self._even(rows)), shares, compared)

    def _counts(self, gathered: _Gathered | None) -> Floats:
        """(terms, rows): how often each row holds each term. None is all rows."""
        held, count = self._held, self._edition.count
        if gathered is None:
            counted = np.zeros((held.weights.size, count), np.float32)
            counted[held.terms, held.rows] = held.counts
            return counted
        counted = np.zeros((held.weights.size, gathered.rows.size), np.float32)
        found = np.flatnonzero(gathered.is_among.take(held.rows))
        counted[held.terms.take(found), gathered.at(held.rows.take(found))] = held.counts.take(found)
        return counted

    def _standing(self, rows: Rows | None) -> Floats:
        edition, named = self._edition, self._question.named
        if not named:
            return edition.plain if rows is None else edition.plain.take(rows)
        chosen = slice(0, edition.count) if rows is None else rows
        is_named = among(edition.facts.speakers[chosen], named).astype(np.float32)
        return standing(is_named, edition.facts.is_own[chosen], edition.newer[chosen])

    def _even(self, rows: Rows | None) -> Floats:
        records = self._edition.facts.is_record
        is_record = records[: self._edition.count] if rows is None else records.take(rows)
        return np.where(is_record, np.float32(self._question.weights.even), np.float32(EVEN_STATED))

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
        has = edition.has_vector if rows is None else edition.has_vector.take(rows)
        if vector is None or edition.vectors is None or not has.any():
            return np.full(has.size, SIMILARITY_ASSUMED, np.float32)
        is_whole = not edition.without_vector.size
        if edition.vectors.matrix is not None and rows is None:
            found = edition.vectors.cosines(vector, slice(0, edition.count))
            found[edition.without_vector] = SIMILARITY_ASSUMED
            return found
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
