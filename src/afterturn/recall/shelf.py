"""A question asked of a whole space in memory: every row estimated, then the best of a lane weighed exactly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from afterturn.base.ports import Index
from afterturn.base.types import Lane
from afterturn.recall.asked import NO_WEIGHTS, Asked
from afterturn.recall.edition import WEIGHED_ROWS_MAX, Edition, among
from afterturn.recall.postings import Places
from afterturn.recall.ranking import SIMILARITY_ASSUMED
from afterturn.recall.resolving import Resolver
from afterturn.recall.scoring import Found, Held, Question, Rows, Scoring, Weighed
from afterturn.recall.searching import Candidate, Conversation
from afterturn.recall.sketches import Floats, read_vectors, widened_product
from afterturn.recall.stock import Stock

# An estimate may be wrong by some places: so many more rows than are wanted are weighed exactly.
_SPARE = 128
_BLOCK = 64
# So many columns for each row that is wanted: of fewer, too many rows are left to choose from.
_COLUMNS = 4
_NOBODY: frozenset[int] = frozenset()

Choose: TypeAlias = Callable[[Floats, int], Rows]


class Shelf:
    """One space as it stands now. Valid only inside the unit it was found in."""

    def __init__(
        self,
        stock: Stock,
        index: Index,
        resolver: Resolver | None = None,
        *,
        exact: bool = False,
    ) -> None:
        """`exact` weighs every row in full, whatever it takes."""
        self._stock = stock
        self._edition = edition = stock.edition
        self._index = index
        self._resolver = resolver or Resolver(stock, index)
        is_compared = edition.vectors is None or edition.vectors.matrix is not None
        self._exact = exact or (edition.count <= WEIGHED_ROWS_MAX and is_compared)
        self._found: dict[str, Found] = {}

    @property
    def complete(self) -> bool:
        """False while many of its entries have no vector."""
        return self._edition.is_complete

    @property
    def documents(self) -> int:
        return self._edition.alive_count

    def name_words(self) -> frozenset[str]:
        return self._stock.codes.name_words()

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """In how many entries each of the terms is; absent when in none."""
        found = self._find(terms)
        return {term: found[term].documents for term in terms if found[term].documents}

    def read(self, asked: Asked, query_vector: Floats | None) -> Reading:
        weights = asked.spaces.get(self._stock.place.space, NO_WEIGHTS)
        named = frozenset(self._stock.codes.find_speakers(asked.names)) if asked.names else _NOBODY
        question = Question(weights, query_vector, named)

        def read_cosines(keys: NDArray[np.int64]) -> Floats:
            assert query_vector is not None
            return _read_cosines(self._index, self._stock, keys, query_vector)

        held = Held(weights, self._find(weights.by_term))
        scoring = Scoring(self._edition, question, held, read_cosines)
        return Reading(self._stock, self._edition, scoring, self._resolver, exact=self._exact)

    def _find(self, terms: Collection[str]) -> Mapping[str, Found]:
        """Where each of the terms is: mostly known, since whoever reads has asked for their frequencies."""
        unknown = [term for term in terms if term not in self._found]
        if unknown:
            found = self._edition.postings.find(unknown)
            self._found.update(zip(unknown, map(Found, found, map(self._count, found)), strict=True))
        return self._found

    def _count(self, places: Sequence[Places]) -> int:
        # Where nothing has gone, nothing is blank.
        count = len if self._edition.alive_count == self._edition.count else np.count_nonzero
        return sum([int(count(counts)) for _, counts in places])


class Reading:
    """One question's estimates of all rows, from which lane after lane takes its best."""

    def __init__(self, stock: Stock, edition: Edition, scoring: Scoring, resolver: Resolver, *, exact: bool) -> None:
        self.entries = resolver.entries
        self._codes = stock.codes
        self._edition = edition
        self._scoring = scoring
        self._given: defaultdict[tuple[Lane | None, Conversation], list[Candidate]] = defaultdict(list)
        self._exhausted: set[tuple[Lane | None, Conversation]] = set()
        self._weighed = scoring.weigh(None) if exact else None
        self._values = scoring.estimated() if self._weighed is None else self._weighed.scores

    def best(self, lane: Lane | None, conversation: Conversation, count: int) -> list[Candidate]:
        """The best `count`, best first; equal ones: the newer first. Asking for more goes on behind the earlier."""
        given = self._given[lane, conversation]
        if len(given) < count and (lane, conversation) not in self._exhausted:
            known = {one.key for one in given}
            ranked = self._rank(lane, self._find_codes(conversation), count)
            given += [one for one in ranked if one.key not in known][: count - len(given)]
            if len(given) < count:
                self._exhausted.add((lane, conversation))
        return given[:count]

    def best_of(self, lanes: Collection[Lane], conversation: Conversation, count: int) -> list[Candidate]:
        if frozenset(lanes).issuperset(_lanes(self._find_codes(conversation))):
            return self.best(None, conversation, count)
        found = [one for lane in lanes for one in self.best(lane, conversation, count)]
        return sorted(found, key=lambda one: (-one.score, -one.key))

    def _find_codes(self, conversation: Conversation) -> frozenset[int]:
        return _NOBODY if conversation is None else frozenset(self._codes.find_conversations(*conversation))

    def _rank(self, lane: Lane | None, codes: frozenset[int], count: int) -> Iterable[Candidate]:
        if self._weighed is not None:
            rows = self._choose(_likely, lane, codes, count)
            rows = rows.take(self._order(rows, self._values.take(rows), count))
            weighed = self._weighed.take(rows)
        else:
            rows = self._choose(_top, lane, codes, count + _SPARE)
            weighed = self._scoring.weigh(rows)
            order = self._order(rows, weighed.scores, count)
            rows, weighed = rows.take(order), weighed.take(order)
        keys = self._edition.facts.keys.take(rows).tolist()
        lanes = self._lanes(rows, codes) if lane is None else [lane] * len(keys)
        values = (weighed.scores.tolist(), weighed.shares.tolist(), self._similarities(rows, weighed))
        return map(Candidate, keys, lanes, *values, self._scoring.found_terms(weighed))

    def _choose(self, choose: Choose, lane: Lane | None, codes: frozenset[int], count: int) -> Rows:
        edition = self._edition
        if lane is None and edition.alive_count == edition.count:
            return choose(self._values, count)
        rows = _rows(edition, lane, codes)
        return rows.take(choose(self._values.take(rows), count))

    def _order(self, rows: Rows, scores: Floats, count: int) -> Rows:
        """Where the best are, best first; equal ones: the newer first."""
        return np.lexsort((-self._edition.facts.keys.take(rows), -scores))[:count]

    def _lanes(self, rows: Rows, codes: frozenset[int]) -> list[Lane]:
        """Where each of them is, when these are the codes of the conversation that is asked from."""
        facts = self._edition.facts
        is_record = facts.is_record.take(rows).tolist()
        if not codes:
            return [Lane.EPISODIC if recorded else Lane.LONG_TERM for recorded in is_record]
        said_in = facts.conversations.take(rows).tolist()
        return [
            Lane.LONG_TERM if not recorded else Lane.SHORT_TERM if code in codes else Lane.EPISODIC
            for recorded, code in zip(is_record, said_in, strict=True)
        ]

    def _similarities(self, rows: Rows, weighed: Weighed) -> list[float | None]:
        edition = self._edition
        if not self._scoring.is_compared:
            return [None] * rows.size
        similarities: list[float | None] = weighed.cosines.tolist()
        if not edition.without_vector.size:
            return similarities
        has = edition.has_vector.take(rows).tolist()
        return [one if compared else None for one, compared in zip(similarities, has, strict=True)]


def _lanes(codes: frozenset[int]) -> Sequence[Lane]:
    """Those that have rows, when these are the codes of the conversation that is asked from."""
    return tuple(Lane) if codes else (Lane.LONG_TERM, Lane.EPISODIC)


def _rows(edition: Edition, lane: Lane | None, conversations: frozenset[int]) -> Rows:
    """Those of one lane; `conversations` are the codes of the one that is asked from, a code an owner."""
    if lane is None:
        return np.flatnonzero(edition.is_alive)
    if lane is Lane.LONG_TERM:
        return edition.statements
    if not conversations:
        return edition.records if lane is Lane.EPISODIC else edition.records[:0]
    here = among(edition.facts.conversations.take(edition.records), conversations)
    return edition.records[here if lane is Lane.SHORT_TERM else ~here]


def _likely(values: Floats, count: int) -> Rows:
    """Where the `count` largest are, and others; all that are as large as the last of them."""
    if values.size <= count:
        return np.arange(values.size)
    block = min(_BLOCK, values.size // (_COLUMNS * count))
    if block <= 1:
        largest = values.copy()
    else:
        # Of each column: as many rows as are wanted are at least as large as the last of the best of them.
        columns = values.size // block
        largest = np.maximum.reduce(values[: columns * block].reshape(block, columns))
    largest.partition(largest.size - count)
    rows: Rows = (values >= largest[-count]).nonzero()[0]
    return rows


def _top(values: Floats, count: int) -> Rows:
    """Where the `count` largest are; of equal ones at the end, the last. In ascending order."""
    rows = _likely(values, count)
    if rows.size <= count:
        return rows
    chosen = values.take(rows)
    last = np.partition(chosen, rows.size - count)[rows.size - count]
    found: Rows = rows[chosen >= last]
    if found.size == count:
        return found
    above, level = rows[chosen > last], rows[chosen == last]
    return np.sort(np.concatenate([above, level[level.size - (count - above.size) :]]))


def _read_cosines(index: Index, stock: Stock, keys: NDArray[np.int64], query_vector: Floats) -> Floats:
    embedder = stock.plan.embedder
    assert embedder is not None
    found = index.vectors(stock.place.tenant, stock.place.space, embedder, keys.tolist())
    products = widened_product(read_vectors(found.values(), embedder.dimensions), query_vector)
    by_key = dict(zip(found, products.tolist(), strict=True))
    return np.array([by_key.get(key, SIMILARITY_ASSUMED) for key in keys.tolist()], np.float32)
