"""A question asked of a whole space in memory: every row estimated, then the best of a lane weighed exactly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from afterturn.base.ports import Index
from afterturn.base.types import Entry, Lane, LaneQuery
from afterturn.recall.asked import NO_WEIGHTS, Asked
from afterturn.recall.edition import WEIGHED_ROWS_MAX, Edition, among
from afterturn.recall.lexical import Ranked
from afterturn.recall.postings import Places
from afterturn.recall.ranking import SIMILARITY_ASSUMED
from afterturn.recall.resolving import Resolver
from afterturn.recall.scoring import Held, Question, Rows, Scoring, Weighed
from afterturn.recall.searching import Conversation, Placed, best_first
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

    def __init__(self, stock: Stock, index: Index, resolver: Resolver | None = None, *, exact: bool = False) -> None:
        """`exact` weighs every row in full, whatever it takes."""
        self._stock = stock
        self._edition = stock.edition
        self._index = index
        self._resolver = resolver or Resolver(stock, index)
        self._exact = exact
        self._places: dict[str, list[Places]] = {}

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
        # Where nothing has gone, nothing is blank.
        count = len if self._edition.alive_count == self._edition.count else np.count_nonzero
        found = {term: sum([int(count(held)) for _, held in parts]) for term, parts in self._find(terms)}
        return {term: documents for term, documents in found.items() if documents}

    def read(self, asked: Asked, query_vector: Floats | None) -> Reading:
        weights = asked.spaces.get(self._stock.place.space, NO_WEIGHTS)
        named = frozenset(self._stock.codes.find_speakers(asked.names)) if asked.names else _NOBODY
        question = Question(weights, query_vector, named)

        def read_cosines(keys: NDArray[np.int64]) -> Floats:
            assert query_vector is not None
            return _read_cosines(self._index, self._stock, keys, query_vector)

        held = Held(weights, dict(self._find(weights.by_term)))
        scoring = Scoring(self._edition, question, held, read_cosines)
        vectors = self._edition.vectors
        is_small = self._edition.count <= WEIGHED_ROWS_MAX and (vectors is None or vectors.matrix is not None)
        return Reading(self._stock, self._edition, scoring, self._resolver, exact=self._exact or is_small)

    def _find(self, terms: Collection[str]) -> Iterator[tuple[str, list[Places]]]:
        """Where each of the terms is: mostly known, since whoever reads has asked for their frequencies."""
        unknown = [term for term in terms if term not in self._places]
        if unknown:
            self._places.update(zip(unknown, self._edition.postings.find(unknown), strict=True))
        return ((term, self._places[term]) for term in terms)


class Reading:
    """One question's estimates of all rows, from which lane after lane takes its best."""

    def __init__(self, stock: Stock, edition: Edition, scoring: Scoring, resolver: Resolver, *, exact: bool) -> None:
        self._codes = stock.codes
        self._edition = edition
        self._scoring = scoring
        self._resolver = resolver
        # Of each key that was given.
        self._rows: dict[int, int] = {}
        self._terms: dict[int, tuple[str, ...]] = {}
        self._given: defaultdict[tuple[Lane | None, Conversation], list[Ranked]] = defaultdict(list)
        self._exhausted: set[tuple[Lane | None, Conversation]] = set()
        self._weighed = scoring.weigh(None) if exact else None
        self._values = scoring.estimated() if self._weighed is None else self._weighed.scores

    def best(self, lane: Lane | None, conversation: Conversation, count: int) -> list[Ranked]:
        """The best `count`, best first; equal ones: the newer first. Asking for more goes on behind the earlier."""
        given = self._given[lane, conversation]
        if len(given) < count and (lane, conversation) not in self._exhausted:
            self._rank(lane, conversation, count)
            if len(given) < count:
                self._exhausted.add((lane, conversation))
        return given[:count]

    def best_of(self, lanes: Collection[Lane], conversation: Conversation, count: int) -> list[Placed]:
        codes = self._find_codes(conversation)
        if not frozenset(lanes).issuperset(_lanes(codes)):
            return best_first((lane, row) for lane in lanes for row in self.best(lane, conversation, count))
        # Everything there is: only of the best it matters which lane they are in.
        facts, rows = self._edition.facts, self._rows
        found = [
            (Lane.EPISODIC if facts.is_record[rows[one.key]] else Lane.LONG_TERM, one)
            for one in self.best(None, None, count)
        ]
        return [self._moved_here(placed, codes) for placed in found] if codes else found

    def entries(self, query: LaneQuery, keys: Sequence[int]) -> dict[int, Entry]:
        return self._resolver.entries(query, keys)

    def terms(self, keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """Of keys that were given."""
        return {key: self._terms[key] for key in keys}

    def _find_codes(self, conversation: Conversation) -> frozenset[int]:
        return _NOBODY if conversation is None else frozenset(self._codes.find_conversations(*conversation))

    def _rank(self, lane: Lane | None, conversation: Conversation, count: int) -> None:
        codes = self._find_codes(conversation)
        if self._weighed is not None:
            rows = self._choose(_likely, lane, codes, count)
            rows = rows.take(self._order(rows, self._values.take(rows), count))
            weighed = self._weighed.take(rows)
        else:
            rows = self._choose(_top, lane, codes, count + _SPARE)
            weighed = self._scoring.weigh(rows)
            order = self._order(rows, weighed.scores, count)
            rows, weighed = rows.take(order), weighed.take(order)
        self._give((lane, conversation), rows, weighed, count)

    def _choose(self, choose: Choose, lane: Lane | None, codes: frozenset[int], count: int) -> Rows:
        edition = self._edition
        if lane is None and edition.alive_count == edition.count:
            return choose(self._values, count)
        rows = _rows(edition, lane, codes)
        return rows.take(choose(self._values.take(rows), count))

    def _order(self, rows: Rows, scores: Floats, count: int) -> Rows:
        """Where the best are, best first; equal ones: the newer first."""
        return np.lexsort((-self._edition.facts.keys.take(rows), -scores))[:count]

    def _give(self, to: tuple[Lane | None, Conversation], rows: Rows, weighed: Weighed, count: int) -> None:
        """What is new of these, which are in order."""
        edition, given = self._edition, self._given[to]
        similarities: list[float | None] = weighed.cosines.tolist()
        if not self._scoring.is_compared:
            similarities = [None] * rows.size
        elif edition.without_vector.size:
            has = edition.has_vector.take(rows).tolist()
            similarities = [one if compared else None for one, compared in zip(similarities, has, strict=True)]
        keys = edition.facts.keys.take(rows).tolist()
        known = {ranked.key for ranked in given}
        ranked = list(map(Ranked, keys, weighed.scores.tolist(), weighed.shares.tolist(), similarities))
        given += [one for one in ranked if one.key not in known][: count - len(given)] if known else ranked
        self._rows.update(zip(keys, rows.tolist(), strict=True))
        self._terms.update(zip(keys, self._scoring.found_terms(weighed), strict=True))

    def _moved_here(self, placed: Placed, codes: frozenset[int]) -> Placed:
        """To the short-term lane, where it was said in the conversation that is asked from."""
        lane, row = placed
        is_here = int(self._edition.facts.conversations[self._rows[row.key]]) in codes
        return (Lane.SHORT_TERM, row) if is_here and lane is Lane.EPISODIC else placed


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
    if block <= 1 or values.size <= WEIGHED_ROWS_MAX:
        largest = values.copy()
    else:
        # Of each column: as many rows as are wanted are at least as large as the last of the best of them.
        columns = values.size // block
        largest = values[: columns * block].reshape(block, columns).max(axis=0)
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
