"""The entries behind a shelf's rows: those that a query admits, from memory where they were read before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from afterturn.ports import Index
from afterturn.recall.index.postings import Places
from afterturn.recall.index.snapshot import WEIGHED_ROWS_MAX, IndexSnapshot, among
from afterturn.recall.index.space_index import SpaceIndex
from afterturn.recall.index.vectors import Floats, read_vectors, widened_product
from afterturn.recall.query import NO_WEIGHTS, Query, TermWeights, admits, is_decidable
from afterturn.recall.scoring import SIMILARITY_ASSUMED, ScoredRow, evidence, in_context, prior, saturated, score
from afterturn.types import Entry, Lane, LaneQuery


def _uncounted(_: SpaceIndex) -> None:
    """For shelves that nobody bounds."""


class EntryResolver:
    """Valid only inside the unit whose index it was given."""

    def __init__(
        self,
        stock: SpaceIndex,
        index: Index,
        *,
        seq: int | None = None,
        grown: Callable[[SpaceIndex], None] = _uncounted,
    ) -> None:
        """`seq` is the newest change of the space that the unit sees; without it, nothing is remembered. `grown` is
        called when more is."""
        self._stock = stock
        self._index = index
        self._seq = seq
        self._grown = grown

    def entries(self, query: LaneQuery, keys: Sequence[int]) -> dict[int, Entry]:
        """Those of `keys` that the query admits."""
        known = self._stock.kept(keys, seq=self._seq) if is_decidable(query) else {}
        is_admitted = {key: admits(query, entry) for key, entry in known.items()}
        found = {key: entry for key, entry in known.items() if is_admitted[key]}
        unsure = [key for key in keys if is_admitted.get(key) is None]
        return found | self._read(query, unsure) if unsure else found

    def _read(self, query: LaneQuery, keys: Sequence[int]) -> dict[int, Entry]:
        read = self._index.resolve(query, keys)
        self._stock.keep(read, seq=self._seq)
        self._grown(self._stock)
        return read


# The formula of `ranking` over arrays: all rows of an edition estimated, or some of them weighed exactly.

Rows: TypeAlias = NDArray[np.intp]
Conversation: TypeAlias = tuple[str | None, str] | None
"""The conversation that is asked from: its owner, if only that one counts, and its id."""
ReadCosines: TypeAlias = Callable[[NDArray[np.int64]], Floats]
"""Of entries by key, from the store: where a shelf has sketches alone."""


class RowScores(NamedTuple):
    """Of some rows, in their order; `held` has a row for each of the terms that are held, above 0 where one is."""

    scores: Floats
    shares: Floats
    cosines: Floats
    held: Floats

    def take(self, at: NDArray[Any]) -> RowScores:
        values = (self.scores.take(at), self.shares.take(at), self.cosines.take(at))
        return RowScores(*values, self.held.take(at, axis=1))


class Occurrences(NamedTuple):
    """Of all terms, one after the other: the row, which of the terms it is, and how often it is there."""

    rows: NDArray[np.intp]
    terms: NDArray[np.intp]
    counts: Floats


class TermPlaces(NamedTuple):
    """Where a term is, and in how many living rows."""

    places: Sequence[Places]
    documents: int


class TermOccurrences:
    """Where those of the question's terms are that any row holds. `weights` are shares of the question's."""

    def __init__(self, weights: TermWeights, found: Mapping[str, TermPlaces]) -> None:
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

    def __init__(
        self,
        edition: IndexSnapshot,
        weights: TermWeights,
        vector: Floats | None,
        named: frozenset[int],
        held: TermOccurrences,
        read_cosines: ReadCosines,
    ) -> None:
        """`named` are the codes of the speakers that the question names."""
        self._edition = edition
        self._weights = weights
        self._vector = vector
        self._named = named
        self._held = held
        self._read_cosines = read_cosines

    @property
    def is_compared(self) -> bool:
        """By meaning too."""
        return self._vector is not None

    def found_terms(self, weighed: RowScores) -> list[tuple[str, ...]]:
        """The question's terms that each of these rows holds."""
        return [tuple(compress(self._held.names, is_held)) for is_held in (weighed.held.T > 0).tolist()]

    def estimated(self) -> Floats:
        """About the scores of all rows, from their sketches, and as if no two messages beside each other held the same
        term. The dead are weighed too."""
        edition, held = self._edition, self._held
        shares = np.zeros(edition.count, np.float32)
        if held.names:
            rows, terms, counts = held.occurrences
            reached = saturated(counts, edition.spans.take(rows, mode="clip"))
            reached *= held.weights.take(terms)
            np.add.at(shares, rows, reached)
            alone = shares.take(edition.deaf)
            edition.add_context(shares)
            shares[edition.deaf] = alone
        return self._scores(shares, self._likeness(), None)

    def weigh(self, rows: Rows | None) -> RowScores:
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
        return RowScores(self._scores(shares, likeness, rows), shares, compared, own)

    def _weigh_all(self) -> RowScores:
        edition = self._edition
        around, said, near = edition.whole_context
        held = self._held.table(edition.count)
        shares = self._shares(held, held, around, said, edition.spans)
        cosines = self._cosines(None)
        likeness = in_context(cosines, *cosines.take(near, mode="wrap"))
        return RowScores(self._scores(shares, likeness, None), shares, cosines, held)

    def _scores(self, shares: Floats, similarity: Floats, rows: Rows | None) -> Floats:
        known = evidence(shares, self._weights.worth, similarity)
        return score(known, self._priors(rows), self._midpoints(rows))

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

    def _priors(self, rows: Rows | None) -> Floats:
        edition, named = self._edition, self._named
        if not named:
            return edition.priors if rows is None else edition.priors.take(rows)
        chosen = slice(0, edition.count) if rows is None else rows
        is_named = among(edition.facts.speakers[chosen], named).astype(np.float32)
        return prior(is_named, edition.facts.is_own[chosen], edition.newer[chosen])

    def _midpoints(self, rows: Rows | None) -> Floats:
        midpoints = self._edition.midpoints(self._weights.midpoint)
        return midpoints if rows is None else midpoints.take(rows)

    def _likeness(self) -> Floats:
        """Estimated, where there are sketches."""
        edition, vector = self._edition, self._vector
        if vector is not None and edition.vectors is not None and edition.vectors.is_sketched:
            cosines = edition.vectors.estimated(vector, edition.count)
            cosines[edition.without_vector] = SIMILARITY_ASSUMED
        else:
            cosines = self._cosines(None)
        before, after = (cosines.take(towards, mode="wrap") for towards in (edition.before, edition.after))
        return in_context(cosines, before, after)

    def _cosines(self, rows: NDArray[np.intp] | None) -> Floats:
        """Exactly; None is all rows."""
        edition, vector = self._edition, self._vector
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


# A question asked of a whole space in memory: every row estimated, then the best of a lane weighed exactly.

# An estimate may be wrong by some places: so many more rows than are wanted are weighed exactly.
_SPARE = 128
_BLOCK = 64
# So many columns for each row that is wanted: of fewer, too many rows are left to choose from.
_COLUMNS = 4
_NOBODY: frozenset[int] = frozenset()

Choose: TypeAlias = Callable[[Floats, int], Rows]


class IndexSearcher:
    """One space as it stands now. Valid only inside the unit it was found in."""

    def __init__(
        self,
        stock: SpaceIndex,
        index: Index,
        resolver: EntryResolver | None = None,
        *,
        exact: bool = False,
    ) -> None:
        """`exact` weighs every row in full, whatever it takes."""
        self._stock = stock
        self._edition = edition = stock.edition
        self._index = index
        self._resolver = resolver or EntryResolver(stock, index)
        is_compared = edition.vectors is None or edition.vectors.matrix is not None
        self._exact = exact or (edition.count <= WEIGHED_ROWS_MAX and is_compared)
        self._found: dict[str, TermPlaces] = {}

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

    def read(self, asked: Query, query_vector: Floats | None) -> SearchCursor:
        weights = asked.spaces.get(self._stock.place.space, NO_WEIGHTS)
        named = frozenset(self._stock.codes.find_speakers(asked.names)) if asked.names else _NOBODY

        def read_cosines(keys: NDArray[np.int64]) -> Floats:
            assert query_vector is not None
            return _read_cosines(self._index, self._stock, keys, query_vector)

        held = TermOccurrences(weights, self._find(weights.by_term))
        scoring = Scoring(self._edition, weights, query_vector, named, held, read_cosines)
        return SearchCursor(self._stock, self._edition, scoring, self._resolver, exact=self._exact)

    def _find(self, terms: Collection[str]) -> Mapping[str, TermPlaces]:
        """Where each of the terms is: mostly known, since whoever reads has asked for their frequencies."""
        unknown = [term for term in terms if term not in self._found]
        if unknown:
            found = self._edition.postings.find(unknown)
            self._found.update(zip(unknown, map(TermPlaces, found, map(self._count, found)), strict=True))
        return self._found

    def _count(self, places: Sequence[Places]) -> int:
        # Where nothing has gone, nothing is blank.
        count = len if self._edition.alive_count == self._edition.count else np.count_nonzero
        return sum([int(count(counts)) for _, counts in places])


class SearchCursor:
    """One question's estimates of all rows, from which lane after lane takes its best."""

    def __init__(
        self, stock: SpaceIndex, edition: IndexSnapshot, scoring: Scoring, resolver: EntryResolver, *, exact: bool
    ) -> None:
        self.entries = resolver.entries
        self._codes = stock.codes
        self._edition = edition
        self._scoring = scoring
        self._given: defaultdict[tuple[Lane | None, Conversation], list[ScoredRow]] = defaultdict(list)
        self._exhausted: set[tuple[Lane | None, Conversation]] = set()
        self._weighed = scoring.weigh(None) if exact else None
        self._values = scoring.estimated() if self._weighed is None else self._weighed.scores

    def best(self, lane: Lane | None, conversation: Conversation, count: int) -> list[ScoredRow]:
        """The best `count`, best first; equal ones: the newer first. Asking for more goes on behind the earlier."""
        given = self._given[lane, conversation]
        if len(given) < count and (lane, conversation) not in self._exhausted:
            known = {one.key for one in given}
            ranked = self._rank(lane, self._find_codes(conversation), count)
            given += [one for one in ranked if one.key not in known][: count - len(given)]
            if len(given) < count:
                self._exhausted.add((lane, conversation))
        return given[:count]

    def best_of(self, lanes: Collection[Lane], conversation: Conversation, count: int) -> list[ScoredRow]:
        if frozenset(lanes).issuperset(_lanes(self._find_codes(conversation))):
            return self.best(None, conversation, count)
        found = [one for lane in lanes for one in self.best(lane, conversation, count)]
        return sorted(found, key=lambda one: (-one.score, -one.key))

    def _find_codes(self, conversation: Conversation) -> frozenset[int]:
        return _NOBODY if conversation is None else frozenset(self._codes.find_conversations(*conversation))

    def _rank(self, lane: Lane | None, codes: frozenset[int], count: int) -> Iterable[ScoredRow]:
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
        return map(ScoredRow, keys, lanes, *values, self._scoring.found_terms(weighed))

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

    def _similarities(self, rows: Rows, weighed: RowScores) -> list[float | None]:
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


def _rows(edition: IndexSnapshot, lane: Lane | None, conversations: frozenset[int]) -> Rows:
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


def _read_cosines(index: Index, stock: SpaceIndex, keys: NDArray[np.int64], query_vector: Floats) -> Floats:
    embedder = stock.plan.embedder
    assert embedder is not None
    found = index.vectors(stock.place.tenant, stock.place.space, embedder, keys.tolist())
    products = widened_product(read_vectors(found.values(), embedder.dimensions), query_vector)
    by_key = dict(zip(found, products.tolist(), strict=True))
    return np.array([by_key.get(key, SIMILARITY_ASSUMED) for key in keys.tolist()], np.float32)
