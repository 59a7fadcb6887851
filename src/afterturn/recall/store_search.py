"""Search in the store, by words alone: the store finds candidates, which are scored one by one with their context.

It serves spaces that are not in memory and `recall_once`. Frequencies are each space's own, so that no space can
reorder another's results.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from afterturn.recall.query import NO_WEIGHTS, Query, TermWeights, has_content, lane_of
from afterturn.recall.scoring import (
    CONTEXT,
    MIDPOINT_STATED,
    REACH,
    RECENT,
    SIMILARITY_ASSUMED,
    ScoredRow,
    context_weight,
    evidence,
    is_own,
    prior,
    saturated,
    score,
)
from afterturn.types import Entry, Hit, IndexedEntry, Kind, Lane, LaneQuery, Origin

if TYPE_CHECKING:
    from afterturn.ports import Index, Unit

CANDIDATES_MAX = 256
# Of how many of the rarest terms an entry may have two to be a candidate.
PAIRED_TERMS_MAX = 4
# The terms of this many records of ordinary length, or of 32 of the longest: some 30 ms of Python.
TERMS_READ_MAX = 262_144
# A deleted message leaves a gap in its conversation. Messages further apart are not neighbours.
GAP_MAX = 2
# For how many of the best records the store is asked for their context.
_CONTEXT_MAX = 16
_CHECK_EVERY = 64
# Counting a few terms one by one is faster than counting all.
_COUNTED_ALONE_MAX = 6

_Talk: TypeAlias = tuple[str, str, str]


class StoreSearch:
    """One question to spaces that are not in memory. `lane_query` is for all lanes.

    Candidates are scored without reading their texts; only the best are read as entries.
    """

    def __init__(self, unit: Unit, lane_query: LaneQuery, query: Query) -> None:
        self.unit = unit
        self.lane_query = lane_query
        self.query = query

    def search(self, lanes: Sequence[Lane], *, limit: int) -> list[Hit]:
        """The best `limit` of all lanes."""
        chosen = {row.key: row for row in self._ranked(lanes)[:limit]}
        entries = self.unit.index.resolve(self._of_lanes(lanes), list(chosen))
        return [chosen[key].hit(entry) for key, entry in entries.items()]

    def _ranked(self, lanes: Sequence[Lane], found: Sequence[IndexedEntry] | None = None) -> list[ScoredRow]:
        """All lanes in one search, unless it finds so much that one lane may have displaced another."""
        lane_query = self._of_lanes(lanes)
        if found is None:
            found = find_by_words(self.unit.index, lane_query, self.query)
        if len(found) < CANDIDATES_MAX or len(lanes) == 1:
            rows = self._score(lane_query, found)
            return sorted((row for row in rows if row.lane in lanes), key=_rank)
        # If all are of one lane, a search of that lane would find the same.
        of_lanes = {lane_of(entry, lane_query) for entry in found}
        by_lane = [self._ranked((lane,), found if of_lanes == {lane} else None) for lane in lanes]
        return sorted(chain.from_iterable(by_lane), key=_rank)

    def _of_lanes(self, lanes: Sequence[Lane]) -> LaneQuery:
        return self.lane_query._replace(lane=lanes[0]) if len(lanes) == 1 else self.lane_query

    def _score(self, lane_query: LaneQuery, by_words: Sequence[IndexedEntry]) -> Iterable[ScoredRow]:
        """Scores the candidates, then the best records again with their context.

        Neighbours that the query admits become candidates too.
        """
        found = {entry.key: entry for entry in by_words}
        rows = {row.key: row for row in self._scorer.score_all(found.values(), Neighbours(), self.unit.check)}
        records = [row for row in rows.values() if found[row.key].kind is Kind.RECORD]
        keys = [row.key for row in heapq.nsmallest(_CONTEXT_MAX, records, key=_rank)]
        context = self.unit.index.around(lane_query, keys, reach=REACH * GAP_MAX)
        if context:
            neighbours = Neighbours((*found.values(), *(entry for entry, _ in context)))
            around = {other.key for key in keys for others in neighbours.around(found[key]) for other in others}
            found.update((entry.key, entry) for entry, is_admitted in context if is_admitted and entry.key in around)
            again = [found[key] for key in dict.fromkeys((*keys, *around)) if key in found]
            rows.update((row.key, row) for row in self._scorer.score_all(again, neighbours, self.unit.check))
        return rows.values()

    @cached_property
    def _scorer(self) -> LexicalScorer:
        scope = self.lane_query.scope
        newer: dict[int, int] = {}
        for space in scope.spaces:
            newest = self.unit.index.newest(scope.tenant, space, limit=RECENT)
            newer.update(zip(newest, range(RECENT), strict=False))
        return LexicalScorer(self.lane_query, self.query, newer)


def _rank(row: ScoredRow) -> tuple[float, int]:
    """Best first; for equal scores the newer."""
    return -row.score, -row.key


def find_by_words(index: Index, lane_query: LaneQuery, query: Query) -> list[IndexedEntry]:
    """The newest entries that contain one of the rarest terms. Common terms only affect the scores of what rarer ones
    find, so a long question costs no more than a short one.

    In a large space, which has more of them than can be scored, also the newest that contain two of the rarest: among
    100,000 memories, the ten best then have the answer to 67 % of the questions instead of 60 %.
    """
    known = known_terms(query)
    searched = rarest_terms(known)
    if not searched:
        return []
    find = partial(index.matches, lane_query, limit=CANDIDATES_MAX, terms_max=TERMS_READ_MAX)
    found = find(searched)
    if sum(known.values()) > CANDIDATES_MAX and len(known) > 1:
        pairs = find(tuple(known)[:PAIRED_TERMS_MAX], at_least=2)
        found = list({entry.key: entry for entry in (*found, *pairs)}.values())
    return found


def known_terms(query: Query) -> dict[str, int]:
    """The terms that the spaces contain, the rarest first, and in how many entries."""
    totals: Counter[str] = Counter()
    for weights in query.spaces.values():
        totals.update({term: weights.documents.get(term, 0) for term in query.terms})
    return {term: total for total, term in sorted((total, term) for term, total in totals.items() if total)}


def rarest_terms(known: Mapping[str, int]) -> tuple[str, ...]:
    """The terms to search by: the rarest first, while the entries that contain them are few enough to score."""
    chosen: list[str] = []
    candidates = 0
    for term, total in known.items():
        candidates += total
        if chosen and candidates > CANDIDATES_MAX:
            break
        chosen.append(term)
    return tuple(chosen)


class _TermCounts(NamedTuple):
    """How often an entry contains each of the question's terms, its length in terms, and its weight as a context.

    Terms are in the question's order, so that sums are equal in every process.
    """

    counts: Sequence[tuple[str, float]]
    length: float
    weight: float


class LexicalScorer:
    """Scores entries for one question by words. `newer` has by key how many entries of the space are newer, if fewer
    than `RECENT`."""

    def __init__(self, lane_query: LaneQuery, query: Query, newer: Mapping[int, int]) -> None:
        self._lane_query = lane_query
        self._query = query
        self._newer = newer
        # Most entries are looked at again as the context of another.
        self._term_counts: dict[int, _TermCounts] = {}
        self._named: dict[str | None, float] = {}

    def score_all(
        self, entries: Iterable[IndexedEntry], neighbours: Neighbours, check: Callable[[], None]
    ) -> Iterator[ScoredRow]:
        """In the order given. `check` is called regularly and raises when the caller has given up."""
        for number, entry in enumerate(entries):
            if number % _CHECK_EVERY == 0:
                check()
            yield self.score(entry, neighbours)

    def score(self, entry: IndexedEntry, neighbours: Neighbours) -> ScoredRow:
        """Together with its context, as far as `neighbours` knows it."""
        weights = self._query.spaces.get(entry.space, NO_WEIGHTS)
        own = self._count(entry)
        if neighbours and has_content(entry.terms):
            share = _share(*self._in_context(own, neighbours.around(entry)), weights)
        else:
            share = _share(own.counts, own.length, weights)
        middle = MIDPOINT_STATED if entry.kind is Kind.STATEMENT else weights.midpoint
        newer = float(self._newer.get(entry.key, RECENT))
        factor = prior(self._is_named(entry.speaker), float(is_own(entry.kind, entry.origin)), newer)
        value = score(evidence(share, weights.worth, SIMILARITY_ASSUMED), factor, middle)
        terms = tuple(term for term, _ in own.counts)
        return ScoredRow(entry.key, lane_of(entry, self._lane_query), value, share, None, terms)

    def _count(self, entry: IndexedEntry) -> _TermCounts:
        counted = self._term_counts.get(entry.key)
        if counted is None:
            length = float(len(entry.terms))
            counted = _TermCounts(self._count_terms(entry.terms), length, context_weight(length))
            self._term_counts[entry.key] = counted
        return counted

    def _count_terms(self, terms: tuple[str, ...]) -> Sequence[tuple[str, float]]:
        present = self._query.term_set.intersection(terms)
        if len(present) > _COUNTED_ALONE_MAX:
            counted = Counter(filter(present.__contains__, terms))
            return [(term, counted[term]) for term in self._query.terms if term in present]
        return [(term, terms.count(term)) for term in self._query.terms if term in present] if present else ()

    def _in_context(self, own: _TermCounts, around: NeighbourText) -> tuple[Collection[tuple[str, float]], float]:
        """Its counts and its length, both with its context."""
        counts, length = dict(own.counts), own.length
        for factor, others in zip(CONTEXT, around, strict=True):
            for other in others:
                theirs, their_length, weight = self._count(other)
                length += factor * weight * their_length
                for term, count in theirs:
                    counts[term] = counts.get(term, 0.0) + factor * weight * count
        return counts.items(), length

    def _is_named(self, speaker: str | None) -> float:
        named = self._named.get(speaker)
        if named is None:
            named = self._named[speaker] = float(self._query.names_speaker(speaker))
        return named


def _share(counts: Collection[tuple[str, float]], length: float, weights: TermWeights) -> float:
    if not counts or not weights.total:
        return 0.0
    return sum(weights.by_term[term] * saturated(count, length) for term, count in counts) / weights.total


class NeighbourText(NamedTuple):
    """The messages next to one, and those after them."""

    near: tuple[IndexedEntry, ...]
    far: tuple[IndexedEntry, ...]


class Neighbours:
    """Which of the records in `entries` are next to each other in their conversations.

    Other entries have no neighbours, and a tool's output is not a context.
    """

    def __init__(self, entries: Iterable[IndexedEntry] = ()) -> None:
        self._talks: dict[_Talk, dict[int, IndexedEntry]] = {}
        # Of two records in one position, the newer counts.
        for entry in sorted(entries, key=itemgetter(0)):
            talk = _talk(entry)
            if talk is not None and entry.position is not None:
                self._talks.setdefault(talk, {})[entry.position] = entry
        self._positions = {talk: sorted(records) for talk, records in self._talks.items()}
        self._adjacent: dict[int, tuple[IndexedEntry | None, IndexedEntry | None]] = {}

    def __iter__(self) -> Iterator[IndexedEntry]:
        return chain.from_iterable(records.values() for records in self._talks.values())

    def __bool__(self) -> bool:
        return bool(self._talks)

    def around(self, entry: IndexedEntry) -> NeighbourText:
        before, after = adjacent = self.adjacent(entry)
        beyond = (before and self.adjacent(before)[0], after and self.adjacent(after)[1])
        return NeighbourText(tuple(filter(None, adjacent)), tuple(filter(None, beyond)))

    def adjacent(self, entry: IndexedEntry) -> tuple[IndexedEntry | None, IndexedEntry | None]:
        """The record before it and the record after it."""
        adjacent = self._adjacent.get(entry.key)
        if adjacent is None:
            adjacent = self._adjacent[entry.key] = self._find(entry)
        return adjacent

    def _find(self, entry: IndexedEntry) -> tuple[IndexedEntry | None, IndexedEntry | None]:
        talk, position = _talk(entry), entry.position
        if talk is None or position is None or talk not in self._talks:
            return None, None
        positions = self._positions[talk]
        at = bisect_left(positions, position)
        is_here = at < len(positions) and positions[at] == position
        return self._near(talk, position, at - 1), self._near(talk, position, at + is_here)

    def _near(self, talk: _Talk, position: int, at: int) -> IndexedEntry | None:
        positions = self._positions[talk]
        if not 0 <= at < len(positions) or abs(positions[at] - position) > GAP_MAX:
            return None
        return self._talks[talk][positions[at]]


def _talk(entry: IndexedEntry) -> _Talk | None:
    if entry.kind is not Kind.RECORD or entry.origin is Origin.TOOL or entry.conversation is None:
        return None
    return entry.space, entry.owner or entry.space, entry.conversation


def indexed_entry(key: int, entry: Entry, terms: tuple[str, ...]) -> IndexedEntry:
    talk = (entry.conversation, entry.owner, entry.position)
    return IndexedEntry(key, entry.space, entry.kind, entry.origin, entry.speaker, *talk, terms)
