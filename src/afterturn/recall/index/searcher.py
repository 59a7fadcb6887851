"""Searches one space in memory: estimates every row's score, then scores the best of a lane exactly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from afterturn.ports import Index
from afterturn.recall.index.snapshot import (
    SCORED_ROWS_MAX,
    Floats,
    IndexSnapshot,
    PostingList,
    among,
    read_vectors,
    widened_product,
)
from afterturn.recall.index.space_index import SpaceIndex
from afterturn.recall.query import NO_WEIGHTS, Query, TermWeights, admits, is_decidable
from afterturn.recall.scoring import SIMILARITY_ASSUMED, ScoredRow, evidence, in_context, prior, saturated, score
from afterturn.types import Entry, Lane, LaneQuery


class EntryResolver:
    """Reads entries by key, from the entry cache or the store. Valid only inside the unit of `index`."""

    def __init__(
        self,
        space_index: SpaceIndex,
        index: Index,
        *,
        seq: int | None = None,
        grown: Callable[[SpaceIndex], None] = lambda _: None,
    ) -> None:
        """`seq` is the newest change of the space that the unit sees; without it nothing is cached. `grown` is called
        after the cache has grown."""
        self._space_index = space_index
        self._index = index
        self._seq = seq
        self._grown = grown

    def entries(self, query: LaneQuery, keys: Sequence[int]) -> dict[int, Entry]:
        """Those of `keys` that the query admits."""
        known = self._space_index.cached_entries(keys, seq=self._seq) if is_decidable(query) else {}
        is_admitted = {key: admits(query, entry) for key, entry in known.items()}
        found = {key: entry for key, entry in known.items() if is_admitted[key]}
        unsure = [key for key in keys if is_admitted.get(key) is None]
        if not unsure:
            return found
        read = self._index.resolve(query, unsure)
        self._space_index.cache_entries(read, seq=self._seq)
        self._grown(self._space_index)
        return found | read


Rows: TypeAlias = NDArray[np.intp]
Conversation: TypeAlias = tuple[str | None, str] | None
"""The conversation that is asked from: its owner, if only that one counts, and its id."""
ReadCosines: TypeAlias = Callable[[NDArray[np.int64]], Floats]
"""Reads exact cosines by key from the store, for an index that keeps only quantized vectors."""


class RowScores(NamedTuple):
    """Scores of some rows, in their order. `counts` has one line per term that any row contains."""

    scores: Floats
    shares: Floats
    cosines: Floats
    counts: Floats

    def take(self, at: NDArray[Any]) -> RowScores:
        values = (self.scores.take(at), self.shares.take(at), self.cosines.take(at))
        return RowScores(*values, self.counts.take(at, axis=1))


class Occurrences(NamedTuple):
    """The occurrences of all terms, one term after the other: row, number of the term, count."""

    rows: NDArray[np.intp]
    terms: NDArray[np.intp]
    counts: Floats


class TermPostings(NamedTuple):
    """The posting lists of a term, and in how many living rows it occurs."""

    postings: Sequence[PostingList]
    documents: int


class TermOccurrences:
    """The question's terms that any row contains. `weights` are shares of the question's weight."""

    def __init__(self, weights: TermWeights, found: Mapping[str, TermPostings]) -> None:
        self.names = [term for term in weights.by_term if found[term].postings]
        total = weights.total or 1.0
        self.weights = np.array([weights.by_term[term] / total for term in self.names], np.float32)
        self._places = [found[term].postings for term in self.names]

    @cached_property
    def occurrences(self) -> Occurrences:
        postings = [place for parts in self._places for place in parts]
        if not postings:
            nothing = np.zeros(0, np.intp)
            return Occurrences(nothing, nothing, np.zeros(0, np.float32))
        return Occurrences(
            np.concatenate([rows for rows, _ in postings], dtype=np.intp),
            np.repeat(np.arange(len(self.names)), [sum(rows.size for rows, _ in parts) for parts in self._places]),
            np.concatenate([counts for _, counts in postings], dtype=np.float32),
        )

    def table(self, count: int) -> Floats:
        """(terms, rows): the counts of each term in the first `count` rows."""
        counted = np.zeros((len(self.names), count), np.float32)
        for of_term, parts in zip(counted, self._places, strict=True):
            for rows, counts in parts:
                of_term.put(rows, counts)
        return counted


class Scoring:
    """The formulas of scoring.py over arrays, for one question. Terms that no row contains count only in the total."""

    def __init__(
        self,
        snapshot: IndexSnapshot,
        weights: TermWeights,
        vector: Floats | None,
        named: frozenset[int],
        terms: TermOccurrences,
        read_cosines: ReadCosines,
    ) -> None:
        """`named` are the codes of the speakers that the question names."""
        self._snapshot = snapshot
        self._weights = weights
        self._vector = vector
        self._named = named
        self._terms = terms
        self._read_cosines = read_cosines

    @property
    def is_compared(self) -> bool:
        """Whether the question has a vector."""
        return self._vector is not None

    def found_terms(self, row_scores: RowScores) -> list[tuple[str, ...]]:
        """For each row the question's terms that it contains."""
        return [tuple(compress(self._terms.names, has_term)) for has_term in (row_scores.counts.T > 0).tolist()]

    def estimate(self) -> Floats:
        """Estimates the scores of all rows, dead ones included: by quantized vectors, and as if neighbours never
        contained the same term."""
        snapshot = self._snapshot
        shares = np.zeros(snapshot.count, np.float32)
        if self._terms.names:
            rows, terms, counts = self._terms.occurrences
            reached = saturated(counts, snapshot.spans.take(rows, mode="clip"))
            reached *= self._terms.weights.take(terms)
            np.add.at(shares, rows, reached)
            alone = shares.take(snapshot.without_content)
            snapshot.add_context(shares)
            shares[snapshot.without_content] = alone
        return self._scores(shares, self._estimate_similarity(), None)

    def score_rows(self, rows: Rows) -> RowScores:
        """Scores these rows exactly."""
        snapshot = self._snapshot
        around, weights, near = snapshot.context(rows)
        gathered = _Gathered(snapshot.count, rows, around)
        counts = self._counts(gathered)
        own = counts.take(gathered.at(rows), axis=1)
        shares = self._shares(counts, own, gathered.at(around), weights, snapshot.spans.take(rows))
        # Similarity counts only the next neighbours, words also those after them.
        alike = _Gathered(snapshot.count, rows, near)
        cosines = self._cosines(alike.rows)
        compared = cosines.take(alike.at(rows))
        similarity = in_context(compared, *cosines.take(alike.at(near)))
        return RowScores(self._scores(shares, similarity, rows), shares, compared, own)

    def score_all(self) -> RowScores:
        """Scores all rows exactly."""
        snapshot = self._snapshot
        around, weights, near = snapshot.all_context
        counts = self._terms.table(snapshot.count)
        shares = self._shares(counts, counts, around, weights, snapshot.spans)
        cosines = self._cosines(None)
        similarity = in_context(cosines, *cosines.take(near, mode="wrap"))
        return RowScores(self._scores(shares, similarity, None), shares, cosines, counts)

    def _scores(self, shares: Floats, similarity: Floats, rows: Rows | None) -> Floats:
        known = evidence(shares, self._weights.worth, similarity)
        return score(known, self._priors(rows), self._midpoints(rows))

    def _shares(self, counts: Floats, own: Floats, around: Rows, weights: Floats, spans: Floats) -> Floats:
        """`counts` has the rows in `around`, `weights` are theirs; `own` has the rows to score."""
        # Rows are never out of bounds. Skipping the check saves a third of the time.
        counted = np.einsum("ijk,jk->ik", counts.take(around, axis=1, mode="wrap"), weights)
        counted += own
        shares: Floats = self._terms.weights @ saturated(counted, spans)
        return shares

    def _counts(self, gathered: _Gathered) -> Floats:
        """(terms, rows): the counts of each term in each of the rows."""
        rows, terms, counts = self._terms.occurrences
        counted = np.zeros((len(self._terms.names), gathered.rows.size), np.float32)
        found = np.flatnonzero(gathered.is_among.take(rows))
        counted[terms.take(found), gathered.at(rows.take(found))] = counts.take(found)
        return counted

    def _priors(self, rows: Rows | None) -> Floats:
        snapshot, named = self._snapshot, self._named
        if not named:
            return snapshot.priors if rows is None else snapshot.priors.take(rows)
        chosen = slice(0, snapshot.count) if rows is None else rows
        is_named = among(snapshot.columns.speakers[chosen], named).astype(np.float32)
        return prior(is_named, snapshot.columns.is_own[chosen], snapshot.newer[chosen])

    def _midpoints(self, rows: Rows | None) -> Floats:
        midpoints = self._snapshot.midpoints(self._weights.midpoint)
        return midpoints if rows is None else midpoints.take(rows)

    def _estimate_similarity(self) -> Floats:
        """Of all rows with their neighbours; an estimate where vectors are quantized."""
        snapshot, vector = self._snapshot, self._vector
        if vector is not None and snapshot.vectors is not None and snapshot.vectors.is_quantized:
            cosines = snapshot.vectors.estimate(vector, snapshot.count)
            cosines[snapshot.without_vector] = SIMILARITY_ASSUMED
        else:
            cosines = self._cosines(None)
        before, after = (cosines.take(towards, mode="wrap") for towards in (snapshot.before, snapshot.after))
        return in_context(cosines, before, after)

    def _cosines(self, rows: NDArray[np.intp] | None) -> Floats:
        """Exact cosines; None is all rows."""
        snapshot, vector = self._snapshot, self._vector
        if vector is None or snapshot.vectors is None or not snapshot.vectors_count:
            return np.full(snapshot.count if rows is None else rows.size, SIMILARITY_ASSUMED, np.float32)
        is_whole = not snapshot.without_vector.size
        if snapshot.vectors.matrix is not None and rows is None:
            found = snapshot.vectors.cosines(vector, slice(0, snapshot.count))
            if not is_whole:
                found[snapshot.without_vector] = SIMILARITY_ASSUMED
            return found
        has = snapshot.has_vector if rows is None else snapshot.has_vector.take(rows)
        chosen = np.flatnonzero(has) if rows is None else rows if is_whole else rows[has]
        if snapshot.vectors.matrix is None:
            found = self._read_cosines(snapshot.columns.keys[chosen])
        else:
            found = snapshot.vectors.cosines(vector, chosen)
        if found.size == has.size:
            return found
        cosines = np.full(has.size, SIMILARITY_ASSUMED, np.float32)
        cosines[has] = found
        return cosines


class _Gathered:
    """Distinct rows in ascending order, and the position of each."""

    def __init__(self, count: int, *wanted: NDArray[Any]) -> None:
        # Faster than sorting.
        self.is_among = np.zeros(count, np.bool_)
        for rows in wanted:
            self.is_among[rows] = True
        self.rows = np.flatnonzero(self.is_among)
        self._places = np.empty(count, np.intp)
        self._places[self.rows] = np.arange(self.rows.size)

    def at(self, rows: NDArray[Any]) -> NDArray[np.intp]:
        return self._places.take(rows)


# An estimate may be a few ranks off, so this many more rows are scored exactly.
_SPARE = 128
_BLOCK = 64
# With fewer columns per wanted row, too many rows are left to choose from.
_COLUMNS = 4
_NOBODY: frozenset[int] = frozenset()


class IndexSearcher:
    """One space as of the unit that found it. Valid only inside that unit."""

    def __init__(
        self,
        space_index: SpaceIndex,
        index: Index,
        resolver: EntryResolver | None = None,
        *,
        exact: bool = False,
    ) -> None:
        """`exact` scores every row exactly, however long it takes."""
        self._space_index = space_index
        self._snapshot = snapshot = space_index.snapshot
        self._index = index
        self._resolver = resolver or EntryResolver(space_index, index)
        is_compared = snapshot.vectors is None or snapshot.vectors.matrix is not None
        self._exact = exact or (snapshot.count <= SCORED_ROWS_MAX and is_compared)
        self._found: dict[str, TermPostings] = {}

    @property
    def complete(self) -> bool:
        """False while many of its entries have no vector."""
        return self._snapshot.is_complete

    @property
    def documents(self) -> int:
        return self._snapshot.alive_count

    def name_words(self) -> frozenset[str]:
        return self._space_index.dictionary.name_words()

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """In how many entries each term occurs; absent when in none."""
        found = self._find(terms)
        return {term: found[term].documents for term in terms if found[term].documents}

    def search(self, query: Query, query_vector: Floats | None) -> SearchCursor:
        weights = query.spaces.get(self._space_index.space_key.space, NO_WEIGHTS)
        named = frozenset(self._space_index.dictionary.find_speakers(query.names)) if query.names else _NOBODY

        def read_cosines(keys: NDArray[np.int64]) -> Floats:
            assert query_vector is not None
            return _read_cosines(self._index, self._space_index, keys, query_vector)

        terms = TermOccurrences(weights, self._find(weights.by_term))
        scoring = Scoring(self._snapshot, weights, query_vector, named, terms, read_cosines)
        return SearchCursor(self._space_index, self._snapshot, scoring, self._resolver, exact=self._exact)

    def _find(self, terms: Collection[str]) -> Mapping[str, TermPostings]:
        """The posting lists of each term. Most are known: `frequencies` was called before."""
        unknown = [term for term in terms if term not in self._found]
        if unknown:
            found = self._snapshot.postings.find(unknown)
            self._found.update(zip(unknown, map(TermPostings, found, map(self._count, found)), strict=True))
        return self._found

    def _count(self, postings: Sequence[PostingList]) -> int:
        # Without dead rows, no posting is blank.
        count = len if self._snapshot.alive_count == self._snapshot.count else np.count_nonzero
        return sum([int(count(counts)) for _, counts in postings])


class SearchCursor:
    """One question's scores of all rows, from which each lane takes its best."""

    def __init__(
        self,
        space_index: SpaceIndex,
        snapshot: IndexSnapshot,
        scoring: Scoring,
        resolver: EntryResolver,
        *,
        exact: bool,
    ) -> None:
        self.entries = resolver.entries
        self._dictionary = space_index.dictionary
        self._snapshot = snapshot
        self._scoring = scoring
        self._given: defaultdict[tuple[Lane | None, Conversation], list[ScoredRow]] = defaultdict(list)
        self._exhausted: set[tuple[Lane | None, Conversation]] = set()
        self._all_scores = scoring.score_all() if exact else None
        self._values = scoring.estimate() if self._all_scores is None else self._all_scores.scores

    def best(self, lane: Lane | None, conversation: Conversation, count: int) -> list[ScoredRow]:
        """The best `count`, best first; for equal scores the newer. A larger `count` continues after them."""
        given = self._given[lane, conversation]
        if len(given) < count and (lane, conversation) not in self._exhausted:
            known = {one.key for one in given}
            ranked = self._rank(lane, self._find_codes(conversation), count)
            given += [one for one in ranked if one.key not in known][: count - len(given)]
            if len(given) < count:
                self._exhausted.add((lane, conversation))
        return given[:count]

    def best_of(self, lanes: Collection[Lane], conversation: Conversation, count: int) -> list[ScoredRow]:
        # Without a conversation, no row is in the short-term lane.
        filled = Lane if self._find_codes(conversation) else (Lane.LONG_TERM, Lane.EPISODIC)
        if frozenset(lanes).issuperset(filled):
            return self.best(None, conversation, count)
        found = [one for lane in lanes for one in self.best(lane, conversation, count)]
        return sorted(found, key=lambda one: (-one.score, -one.key))

    def _find_codes(self, conversation: Conversation) -> frozenset[int]:
        return _NOBODY if conversation is None else frozenset(self._dictionary.find_conversations(*conversation))

    def _rank(self, lane: Lane | None, codes: frozenset[int], count: int) -> Iterable[ScoredRow]:
        snapshot = self._snapshot
        choose, wanted = (_top, count + _SPARE) if self._all_scores is None else (_likely, count)
        if lane is None and snapshot.recalled.size == snapshot.count:
            rows = choose(self._values, wanted)
        else:
            rows = _rows(snapshot, lane, codes)
            rows = rows.take(choose(self._values.take(rows), wanted))
        if self._all_scores is not None:
            rows = rows.take(self._order(rows, self._values.take(rows), count))
            row_scores = self._all_scores.take(rows)
        else:
            row_scores = self._scoring.score_rows(rows)
            order = self._order(rows, row_scores.scores, count)
            rows, row_scores = rows.take(order), row_scores.take(order)
        keys = snapshot.columns.keys.take(rows).tolist()
        lanes = self._lanes(rows, codes) if lane is None else [lane] * len(keys)
        values = (row_scores.scores.tolist(), row_scores.shares.tolist(), self._similarities(rows, row_scores))
        return map(ScoredRow, keys, lanes, *values, self._scoring.found_terms(row_scores), self._partners(rows))

    def _partners(self, rows: Rows) -> list[int | None]:
        """The key of the answer after a user's message, and of the user's message before an answer."""
        snapshot = self._snapshot
        is_own = snapshot.columns.is_own.take(rows) > 0
        others = np.where(is_own, snapshot.after.take(rows), snapshot.before.take(rows))
        is_pair = (snapshot.columns.is_own.take(others) > 0) != is_own
        keys = snapshot.columns.keys.take(others).tolist()
        return [key if paired else None for key, paired in zip(keys, is_pair.tolist(), strict=True)]

    def _order(self, rows: Rows, scores: Floats, count: int) -> Rows:
        """The positions of the best, best first; for equal scores the newer."""
        return np.lexsort((-self._snapshot.columns.keys.take(rows), -scores))[:count]

    def _lanes(self, rows: Rows, codes: frozenset[int]) -> list[Lane]:
        """The lane of each row; `codes` are those of the conversation that asks."""
        columns = self._snapshot.columns
        is_record = columns.is_record.take(rows).tolist()
        if not codes:
            return [Lane.EPISODIC if recorded else Lane.LONG_TERM for recorded in is_record]
        said_in = columns.conversations.take(rows).tolist()
        return [
            Lane.LONG_TERM if not recorded else Lane.SHORT_TERM if code in codes else Lane.EPISODIC
            for recorded, code in zip(is_record, said_in, strict=True)
        ]

    def _similarities(self, rows: Rows, row_scores: RowScores) -> list[float | None]:
        snapshot = self._snapshot
        if not self._scoring.is_compared:
            return [None] * rows.size
        similarities: list[float | None] = row_scores.cosines.tolist()
        if not snapshot.without_vector.size:
            return similarities
        has = snapshot.has_vector.take(rows).tolist()
        return [one if compared else None for one, compared in zip(similarities, has, strict=True)]


def _rows(snapshot: IndexSnapshot, lane: Lane | None, conversations: frozenset[int]) -> Rows:
    """The rows of one lane; `conversations` are the codes of the conversation that asks, one per owner."""
    if lane is None:
        return snapshot.recalled
    if lane is Lane.LONG_TERM:
        return snapshot.statements
    if not conversations:
        return snapshot.records if lane is Lane.EPISODIC else snapshot.records[:0]
    here = among(snapshot.columns.conversations.take(snapshot.records), conversations)
    return snapshot.records[here if lane is Lane.SHORT_TERM else ~here]


def _likely(values: Floats, count: int) -> Rows:
    """The positions of the `count` largest, of all that equal the last of them, and of some others."""
    if values.size <= count:
        return np.arange(values.size)
    block = min(_BLOCK, values.size // (_COLUMNS * count))
    if block <= 1:
        largest = values.copy()
    else:
        # At least `count` rows are as large as the smallest of the best column maxima.
        columns = values.size // block
        largest = np.maximum.reduce(values[: columns * block].reshape(block, columns))
    largest.partition(largest.size - count)
    rows: Rows = (values >= largest[-count]).nonzero()[0]
    return rows


def _top(values: Floats, count: int) -> Rows:
    """The positions of the `count` largest, ascending; of equal ones at the end, the last."""
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


def _read_cosines(index: Index, space_index: SpaceIndex, keys: NDArray[np.int64], query_vector: Floats) -> Floats:
    embedder = space_index.plan.embedder
    assert embedder is not None
    found = index.vectors(space_index.space_key.tenant, space_index.space_key.space, embedder, keys.tolist())
    products = widened_product(read_vectors(found.values(), embedder.dimensions), query_vector)
    by_key = dict(zip(found, products.tolist(), strict=True))
    return np.array([by_key.get(key, SIMILARITY_ASSUMED) for key in keys.tolist()], np.float32)
