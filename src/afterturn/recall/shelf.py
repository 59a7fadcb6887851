"""A question asked of a whole space in memory: every row estimated, then the best of a lane weighed exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest

import numpy as np
from numpy.typing import NDArray

from afterturn.base.ports import Index
from afterturn.base.types import Lane
from afterturn.recall.asked import NO_WEIGHTS, SPEAKERS_MAX, Asked
from afterturn.recall.edition import Edition, among
from afterturn.recall.ranking import SIMILARITY_ASSUMED
from afterturn.recall.scoring import Question, Rows, Scoring, Weighed
from afterturn.recall.searching import Ranked
from afterturn.recall.sketches import Floats, read_vectors, widened_product
from afterturn.recall.stock import Stock

# An estimate may be wrong by some places: so many more rows than are wanted are weighed exactly.
_SPARE = 128
# Below this many rows, weighing all of them takes no longer than choosing.
_WEIGHED_ROWS_MAX = 1024
_BLOCK = 64

_OUT = np.float32(-1e9)


class Shelf:
    """One space as it stands now. Valid only inside the unit it was found in."""

    def __init__(self, stock: Stock, index: Index, *, exact: bool = False) -> None:
        """`exact` weighs every row in full, whatever it takes."""
        self._stock = stock
        self._edition = stock.edition
        self._index = index
        self._exact = exact

    @property
    def complete(self) -> bool:
        """False while many of its entries have no vector."""
        return self._edition.is_complete

    @property
    def documents(self) -> int:
        return self._edition.alive_count

    def speakers(self) -> list[str]:
        """As many as a store would tell, and the same ones."""
        return nsmallest(SPEAKERS_MAX, self._stock.codes.speakers())

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """In how many entries each of the terms is; absent when in none."""
        found = zip(terms, self._edition.postings.find(terms), strict=True)
        counts = ((term, sum(int(np.count_nonzero(held)) for _, held in places)) for term, places in found)
        return {term: count for term, count in counts if count}

    def read(self, asked: Asked, query_vector: Floats | None) -> Reading:
        weights = asked.spaces.get(self._stock.place.space, NO_WEIGHTS)
        named = frozenset(self._stock.codes.find_speakers(asked.names))
        question = Question(weights, query_vector, named)

        def read_cosines(keys: NDArray[np.int64]) -> Floats:
            assert query_vector is not None
            return _read_cosines(self._index, self._stock, keys, query_vector)

        scoring = Scoring(self._edition, question, read_cosines)
        vectors = self._edition.vectors
        is_small = self._edition.count <= _WEIGHED_ROWS_MAX and (vectors is None or vectors.matrix is not None)
        return Reading(self._stock, self._edition, scoring, question, exact=self._exact or is_small)


class Reading:
    """One question's estimates of all rows, from which lane after lane takes its best."""

    def __init__(self, stock: Stock, edition: Edition, scoring: Scoring, question: Question, *, exact: bool) -> None:
        self._codes = stock.codes
        self._edition = edition
        self._scoring = scoring
        self._is_compared = question.vector is not None
        self._given: dict[tuple[Lane | None, tuple[str | None, str] | None], list[Ranked]] = {}
        self._weighed = scoring.weigh(None) if exact else None
        self._values = scoring.estimated() if self._weighed is None else self._weighed.scores

    def best(self, lane: Lane | None, conversation: tuple[str | None, str] | None, count: int) -> list[Ranked]:
        """The best `count`, best first; equal ones: the newer first. Asking for more goes on behind the earlier."""
        given = self._given.setdefault((lane, conversation), [])
        if len(given) < count:
            codes = frozenset(() if conversation is None else self._codes.find_conversations(*conversation))
            known = {ranked.key for ranked in given}
            ranked = self._ranked(_LanePart(self._edition, lane, codes), count)
            given += [one for one in ranked if one.key not in known][: count - len(given)]
        return given[:count]

    def _ranked(self, part: _LanePart, count: int) -> list[Ranked]:
        weighed = self._weighed
        rows = part.best(self._values, count if weighed is not None else count + _SPARE)
        if not rows.size:
            return []
        weighed = self._scoring.weigh(rows) if weighed is None else _of(weighed, rows)
        keys = self._edition.facts.keys[rows]
        order = np.lexsort((-keys, -weighed.scores))[:count]
        has = self._edition.has_vector[rows[order]] & self._is_compared
        columns = (keys, weighed.scores, weighed.shares, weighed.cosines)
        return [
            Ranked(key, value, share, cosine if compared else None)
            for key, value, share, cosine, compared in zip(
                *(column[order].tolist() for column in columns), has.tolist(), strict=True
            )
        ]


@dataclass(frozen=True, slots=True)
class _LanePart:
    """The rows of one lane; `conversations` are the codes of the one that is asked from, a code an owner."""

    edition: Edition
    lane: Lane | None
    conversations: frozenset[int]

    def best(self, values: Floats, count: int) -> Rows:
        """The rows of the `count` largest values; of equal ones at the end, the last. In ascending order."""
        chosen = self._chosen()
        if self.lane is Lane.SHORT_TERM:
            # Few: one conversation of many.
            rows = np.flatnonzero(chosen).astype(np.int32)
            return rows[_top(values[rows], count)]
        return _top(np.add(values, ~chosen * _OUT, dtype=np.float32), count)

    def _chosen(self) -> NDArray[np.bool_]:
        edition, lane = self.edition, self.lane
        if lane is None:
            return edition.is_alive
        records = edition.facts.is_record[: edition.count]
        if lane is Lane.LONG_TERM:
            return edition.is_alive & ~records
        here = among(edition.facts.conversations[: edition.count], self.conversations)
        return edition.is_alive & records & (here if lane is Lane.SHORT_TERM else ~here)


def _top(values: Floats, count: int) -> Rows:
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


def _of(weighed: Weighed, rows: Rows) -> Weighed:
    return Weighed(weighed.scores[rows], weighed.shares[rows], weighed.cosines[rows])


def _read_cosines(index: Index, stock: Stock, keys: NDArray[np.int64], query_vector: Floats) -> Floats:
    embedder = stock.plan.embedder
    assert embedder is not None
    found = index.vectors(stock.place.tenant, stock.place.space, embedder, keys.tolist())
    products = widened_product(read_vectors([data for _, data in found], embedder.dimensions), query_vector)
    by_key = dict(zip((key for key, _ in found), products.tolist(), strict=True))
    return np.array([by_key.get(key, SIMILARITY_ASSUMED) for key in keys.tolist()], np.float32)
