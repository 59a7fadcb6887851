"""A question asked of a whole space in memory: every row estimated, then the best weighed exactly (see `ranking`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from afterturn.base.ports import Index
from afterturn.base.types import Lane
from afterturn.recall.asked import Asked, Weights
from afterturn.recall.edition import Edition, among
from afterturn.recall.ranking import SIMILARITY_ASSUMED, evidence, in_context, saturated, score, standing
from afterturn.recall.searching import Ranked
from afterturn.recall.sketches import read_vectors, widened_product
from afterturn.recall.stock import Stock

Rows: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float32]

# An estimate may be wrong by some places: so many more rows than are wanted are weighed exactly.
_SPARE = 128
# Below this many rows, weighing all of them takes no longer than choosing.
_WEIGHED_ROWS_MAX = 1024
_BLOCK = 64
_NO_WEIGHTS = Weights({}, {}, 0.0, 0.0)
_OUT = np.float32(-1e9)


@dataclass(frozen=True, slots=True)
class Weighed:
    """Of some rows, in their order."""

    scores: Floats
    shares: Floats
    cosines: Floats


class Shelf:
    """One space as it stands now. Valid only inside the unit it was found in."""

    def __init__(self, stock: Stock, index: Index, *, exact: bool = False) -> None:
        """`exact` weighs every row in full, whatever it takes."""
        self.edition = stock.edition
        self._stock = stock
        self._index = index
        self._exact = exact

    @property
    def complete(self) -> bool:
        """False while many of its entries have no vector."""
        return self.edition.is_complete

    def read(self, asked: Asked, query_vector: Floats | None) -> Reading:
        weights = asked.spaces.get(self._stock.place.space, _NO_WEIGHTS)
        named = frozenset(self._stock.codes.find_speakers(asked.names))
        question = Question(weights, query_vector, named)
        return Reading(self._stock, self._index, self.edition, question, exact=self._exact)


@dataclass(frozen=True, slots=True)
class Question:
    """`named` are the codes of speakers."""

    weights: Weights
    vector: Floats | None
    named: frozenset[int]


class Reading:
    """One question's estimates of all rows, from which lane after lane takes its best."""

    def __init__(self, stock: Stock, index: Index, edition: Edition, question: Question, *, exact: bool) -> None:
        self._stock = stock
        self._index = index
        self._edition = edition
        self._question = question
        self._given: dict[tuple[Lane | None, tuple[str | None, str] | None], list[Ranked]] = {}
        vectors = edition.vectors
        is_sketched = vectors is not None and vectors.is_sketched
        self._weighed: Weighed | None = None
        if exact or (edition.count <= _WEIGHED_ROWS_MAX and not is_sketched):
            self._weighed = self._weigh(None)
            self._values = self._weighed.scores + np.where(edition.is_alive, np.float32(0), _OUT)
        else:
            self._values = self._estimated()

    def best(self, lane: Lane | None, conversation: tuple[str | None, str] | None, count: int) -> list[Ranked]:
        """The best `count`, best first; equal ones: the newer first. Asking for more goes on behind the earlier."""
        given = self._given.setdefault((lane, conversation), [])
        if len(given) < count:
            known = {ranked.key for ranked in given}
            ranked = self._ranked(self._candidates(_LanePart(self._edition, lane, self._codes(conversation)), count))
            given += [one for one in ranked if one.key not in known][: count - len(given)]
        return given[:count]

    def _codes(self, conversation: tuple[str | None, str] | None) -> frozenset[int]:
        return frozenset(() if conversation is None else self._stock.codes.find_conversations(*conversation))

    def _candidates(self, part: _LanePart, count: int) -> Rows:
        return _top(part.only(self._values), count if self._weighed is not None else count + _SPARE)

    def _ranked(self, rows: Rows) -> list[Ranked]:
        if not rows.size:
            return []
        facts, weighed = self._edition.facts, self._weighed
        at: NDArray[np.integer] = rows
        if weighed is None:
            weighed, at = self._weigh(rows), np.arange(rows.size)
        keys = facts.keys[rows]
        order = np.lexsort((-keys, -weighed.scores[at]))
        at = at[order]
        has = (
            self._edition.has_vector[rows[order]] if self._question.vector is not None else np.zeros(at.size, np.bool_)
        )
        columns = (keys[order], weighed.scores[at], weighed.shares[at], weighed.cosines[at], has)
        return [
            Ranked(key, value, share, cosine if compared else None)
            for key, value, share, cosine, compared in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def _estimated(self) -> Floats:
        edition, question = self._edition, self._question
        total = question.weights.total
        shares = self._shares_estimated()
        if total:
            shares /= np.float32(total)
        known = evidence(shares, question.weights.worth, self._likeness_estimated())
        values = score(known, self._standing(slice(0, edition.count)) if question.named else edition.plain)
        values += ~edition.is_alive * _OUT
        return values

    def _shares_estimated(self) -> Floats:
        edition = self._edition
        reached = np.zeros(edition.count, np.float32)
        for term, weight in self._question.weights.by_term.items():
            for rows, counts in edition.postings.find(term):
                worth = saturated(counts.astype(np.float32), edition.spans.take(rows, mode="clip"))
                worth *= np.float32(weight)
                np.add.at(reached, rows, worth)
        return edition.with_context(reached)

    def _likeness_estimated(self) -> Floats:
        edition, vector = self._edition, self._question.vector
        if vector is None or edition.vectors is None:
            return np.full(edition.count, SIMILARITY_ASSUMED, np.float32)
        if edition.vectors.is_sketched:
            cosines = edition.vectors.estimated(vector, edition.count)
        else:
            cosines = edition.vectors.cosines(vector, slice(0, edition.count))
        cosines[~edition.has_vector] = SIMILARITY_ASSUMED
        return in_context(cosines, cosines.take(edition.before, mode="wrap"), cosines.take(edition.after, mode="wrap"))

    def _weigh(self, rows: Rows | None) -> Weighed:
        """Exactly; None is all of them."""
        edition, question = self._edition, self._question
        chosen = np.arange(edition.count, dtype=np.int32) if rows is None else rows
        around, there = edition.around(chosen)
        needed: Rows = chosen
        at: NDArray[np.integer] = chosen
        beside: NDArray[np.integer] = around
        if rows is not None:
            needed = np.unique(np.concatenate([chosen, around.ravel()]))
            at, beside = needed.searchsorted(chosen), needed.searchsorted(around)
        said = edition.said_around(around, there)
        shares = np.zeros(chosen.size, np.float32)
        for term, weight in question.weights.by_term.items():
            counts = self._counts(term, needed)
            if counts is not None:
                counted = counts[at] + (said * counts[beside]).sum(axis=0)
                shares += np.float32(weight) * saturated(counted, edition.spans[chosen])
        total = question.weights.total
        if total:
            shares /= np.float32(total)
        cosines = self._cosines(needed)
        own = cosines[at]
        likeness = in_context(own, cosines[beside[0]], cosines[beside[1]])
        scores = score(evidence(shares, question.weights.worth, likeness), self._standing(chosen))
        return Weighed(scores, shares, own)

    def _standing(self, rows: Rows | slice) -> Floats:
        edition, named = self._edition, self._question.named
        is_named = among(edition.facts.speakers[rows], named).astype(np.float32)
        return standing(is_named, edition.facts.is_own[rows], edition.newer[rows])

    def _counts(self, term: str, rows: Rows) -> Floats | None:
        """How often the rows, which are in order, hold the term. None: the space does not have it."""
        found = self._edition.postings.find(term)
        if not found:
            return None
        counted = np.zeros(rows.size, np.float32)
        for holding, counts in found:
            if holding.size <= rows.size:
                at = rows.searchsorted(holding)
                at[at == rows.size] = 0
                is_there = rows[at] == holding
                counted[at[is_there]] = counts[is_there]
            else:
                at = holding.searchsorted(rows)
                at[at == holding.size] = 0
                is_there = holding[at] == rows
                counted[is_there] = counts[at[is_there]]
        return counted

    def _cosines(self, rows: Rows) -> Floats:
        edition, vector = self._edition, self._question.vector
        cosines = np.full(rows.size, SIMILARITY_ASSUMED, np.float32)
        if vector is None or edition.vectors is None:
            return cosines
        has = edition.has_vector[rows]
        if edition.vectors.matrix is None:
            self._read_cosines(rows[has], cosines, has)
        elif has.all():
            cosines = edition.vectors.cosines(vector, rows)
        else:
            cosines[has] = edition.vectors.cosines(vector, rows[has])
        return cosines

    def _read_cosines(self, rows: Rows, cosines: Floats, has: NDArray[np.bool_]) -> None:
        """From the store: the shelf has sketches alone."""
        place, embedder, vector = self._stock.place, self._stock.plan.embedder, self._question.vector
        assert embedder is not None
        assert vector is not None
        keys = self._edition.facts.keys[rows]
        found = self._index.vectors(place.tenant, place.space, embedder, keys.tolist())
        products = widened_product(read_vectors([data for _, data in found], embedder.dimensions), vector)
        by_key = dict(zip((key for key, _ in found), products.tolist(), strict=True))
        cosines[has] = [by_key.get(key, SIMILARITY_ASSUMED) for key in keys.tolist()]


@dataclass(frozen=True, slots=True)
class _LanePart:
    """The rows of one lane; `conversations` are the codes of the one that is asked from, a code an owner."""

    edition: Edition
    lane: Lane | None
    conversations: frozenset[int]

    def only(self, values: Floats) -> Floats:
        """A copy, in which what is not in the lane is worth nothing."""
        return np.asarray(values + ~self._held(slice(0, self.edition.count)) * _OUT, np.float32)

    def _held(self, rows: Rows | slice) -> NDArray[np.bool_]:
        facts, lane = self.edition.facts, self.lane
        records = facts.is_record[rows]
        if lane is None:
            return np.ones_like(records)
        if lane is Lane.LONG_TERM:
            return ~records
        here = among(facts.conversations[rows], self.conversations)
        return records & here if lane is Lane.SHORT_TERM else records & ~here


def _top(values: Floats, count: int) -> Rows:
    """The rows of the `count` largest values; of equal ones at the end, the last. In ascending order."""
    least = _OUT / 2
    columns = values.size // _BLOCK
    if columns > 2 * count:
        # The largest of each column: as many rows as are wanted are at least as large as the last of the best of them.
        largest = values[: columns * _BLOCK].reshape(_BLOCK, columns).max(axis=0)
        least = max(least, np.partition(largest, columns - count)[columns - count])
    rows = np.flatnonzero(values >= least).astype(np.int32)
    if rows.size <= count:
        return rows
    chosen = values[rows]
    last = np.partition(chosen, rows.size - count)[rows.size - count]
    above, level = rows[chosen > last], rows[chosen == last]
    return np.sort(np.concatenate([above, level[level.size - (count - above.size) :]]))
