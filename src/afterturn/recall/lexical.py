"""Which of the messages at hand stand next to each other: what is said around an entry is part of what it says."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from afterturn.ports import Index
from afterturn.recall.query import NO_WEIGHTS, Query, Weights
from afterturn.recall.scoring import (
    CONTEXT,
    EVEN_STATED,
    RECENT,
    SIMILARITY_ASSUMED,
    evidence,
    is_own,
    said_shortly,
    saturated,
    says_something,
    score,
    standing,
)
from afterturn.types import IndexedEntry, Kind, LaneQuery, Match, Origin

Place: TypeAlias = tuple[str, str, str]
# A message that was deleted, or that nobody recalls, leaves a gap; over a wider one nobody goes on talking.
GAP_MAX = 2


class NeighbourText(NamedTuple):
    """Messages next to one, and those behind them."""

    near: tuple[IndexedEntry, ...]
    far: tuple[IndexedEntry, ...]


class Neighbours:
    """Of the records in `entries`, each of its own conversation. Others have no neighbours, and what a tool answered is
    nobody's (C6)."""

    def __init__(self, entries: Iterable[IndexedEntry] = ()) -> None:
        self._at: dict[Place, dict[int, IndexedEntry]] = {}
        # Of two in one position the newer stands for both.
        for entry in sorted(entries, key=itemgetter(0)):
            place = _place(entry)
            if place is not None and entry.position is not None:
                self._at.setdefault(place, {})[entry.position] = entry
        self._positions = {place: sorted(records) for place, records in self._at.items()}
        self._beside: dict[int, tuple[IndexedEntry | None, IndexedEntry | None]] = {}

    def __iter__(self) -> Iterator[IndexedEntry]:
        return chain.from_iterable(records.values() for records in self._at.values())

    def __bool__(self) -> bool:
        return bool(self._at)

    def around(self, entry: IndexedEntry) -> NeighbourText:
        before, after = beside = self.beside(entry)
        beyond = (before and self.beside(before)[0], after and self.beside(after)[1])
        return NeighbourText(tuple(filter(None, beside)), tuple(filter(None, beyond)))

    def beside(self, entry: IndexedEntry) -> tuple[IndexedEntry | None, IndexedEntry | None]:
        """The one before it, and the one after."""
        beside = self._beside.get(entry.key)
        if beside is None:
            beside = self._beside[entry.key] = self._find(entry)
        return beside

    def _find(self, entry: IndexedEntry) -> tuple[IndexedEntry | None, IndexedEntry | None]:
        place, position = _place(entry), entry.position
        if place is None or position is None or place not in self._at:
            return None, None
        positions = self._positions[place]
        at = bisect_left(positions, position)
        here = at < len(positions) and positions[at] == position
        return self._near(place, position, at - 1), self._near(place, position, at + here)

    def _near(self, place: Place, position: int, at: int) -> IndexedEntry | None:
        positions = self._positions[place]
        if not 0 <= at < len(positions) or abs(positions[at] - position) > GAP_MAX:
            return None
        return self._at[place][positions[at]]


def _place(entry: IndexedEntry) -> Place | None:
    if entry.kind is not Kind.RECORD or entry.origin is Origin.TOOL or entry.conversation is None:
        return None
    return entry.space, entry.owner or entry.space, entry.conversation


# Search by words, entry by entry: candidates from the store, weighed with what is said around them (L6).
#
# The frequencies are each space's own, so that no space can reorder another's results. It serves until a space is in
# memory, and hooks, which have no time for that.

CANDIDATES_MAX = 256
# So many records of an ordinary length, or 32 of the longest: some 30 ms of Python.
TERMS_READ_MAX = 262_144
_CHECK_EVERY = 64
# Counting a few terms one by one is faster than looking at all; a page that is asked for with a page has many.
_COUNTED_ALONE_MAX = 6


def _never_given_up() -> None:
    """For callers whose matches are few."""


class RankedKey(NamedTuple):
    """An entry by key, as it was weighed. `share` is of the question's weight."""

    key: int
    score: float
    share: float


class ScoredMatch(NamedTuple):
    """`score` and `share` are 0 to 1, the share that of the query's weight; `terms` are those of the query in it."""

    match: Match
    score: float
    share: float
    terms: tuple[str, ...]


class _TermCounts(NamedTuple):
    """How often an entry holds each of the question's terms, in the question's order, so that sums are the same in
    every process; of how many terms; and how much it says of what is around it."""

    counts: Sequence[tuple[str, float]]
    length: float
    shortly: float


class LexicalScorer:
    """Of one question. `newer` has by key how many entries of the space are newer, where that is fewer than 1,000."""

    def __init__(self, asked: Query, newer: Mapping[int, int]) -> None:
        self.asked = asked
        self.newer = newer
        # Of each entry that was looked at, since most are looked at again as somebody's context; and of each speaker.
        self._read: dict[int, _TermCounts] = {}
        self._named: dict[str | None, float] = {}

    def weigh_all(
        self, entries: Iterable[IndexedEntry], threads: Neighbours, check: Callable[[], None] = _never_given_up
    ) -> Iterator[RankedKey]:
        """In the order given. `check` is called now and then, to raise when nobody waits for the rest."""
        for number, entry in enumerate(entries):
            if number % _CHECK_EVERY == 0:
                check()
            yield self.weigh(entry, threads)

    def weigh(self, entry: IndexedEntry, threads: Neighbours) -> RankedKey:
        """With what is said around it, as far as `threads` knows."""
        key, weights = entry.key, self.asked.spaces.get(entry.space, NO_WEIGHTS)
        said = self._said(entry)
        if threads and says_something(entry.terms):
            share = self._share(*self._in_context(said, threads.around(entry)), weights)
        else:
            share = self._share(said.counts, said.length, weights) if said.counts else 0.0
        even = EVEN_STATED if entry.kind is Kind.STATEMENT else weights.even
        own = float(is_own(entry.kind, entry.origin))
        rank = standing(self._names(entry.speaker), own, float(self.newer.get(key, RECENT)))
        likeness = SIMILARITY_ASSUMED if share else 0.0
        return RankedKey(key, score(evidence(share, weights.worth, likeness), rank, even), share)

    def _said(self, entry: IndexedEntry) -> _TermCounts:
        said = self._read.get(entry.key)
        if said is None:
            length = float(len(entry.terms))
            said = self._read[entry.key] = _TermCounts(self._count(entry.terms), length, said_shortly(length))
        return said

    def _count(self, terms: tuple[str, ...]) -> Sequence[tuple[str, float]]:
        held = self.asked.wanted.intersection(terms)
        if len(held) > _COUNTED_ALONE_MAX:
            counted = Counter(filter(held.__contains__, terms))
            return [(term, counted[term]) for term in self.asked.terms if term in held]
        return [(term, terms.count(term)) for term in self.asked.terms if term in held] if held else ()

    def _in_context(self, said: _TermCounts, around: NeighbourText) -> tuple[Collection[tuple[str, float]], float]:
        """Its counts, and the length that they are of, both with what is said around it."""
        counts, length = dict(said.counts), said.length
        for factor, others in zip(CONTEXT, (around.near, around.far), strict=True):
            for other in others:
                theirs, terms, shortly = self._said(other)
                length += factor * shortly * terms
                for term, count in theirs:
                    counts[term] = counts.get(term, 0.0) + factor * shortly * count
        return counts.items(), length

    def _share(self, counts: Collection[tuple[str, float]], length: float, weights: Weights) -> float:
        if not counts or not weights.total:
            return 0.0
        by_term = weights.by_term
        return sum(by_term[term] * saturated(count, length) for term, count in counts) / weights.total

    def _names(self, speaker: str | None) -> float:
        named = self._named.get(speaker)
        if named is None:
            named = self._named[speaker] = float(self.asked.names_speaker(speaker))
        return named


def shelved_of(match: Match) -> IndexedEntry:
    entry = match.entry
    place = (entry.conversation, entry.owner, entry.position)
    return IndexedEntry(match.key, entry.space, entry.kind, entry.origin, entry.speaker, *place, match.terms)


def with_terms(match: Match, row: RankedKey, asked: Query) -> ScoredMatch:
    """With the terms that it was found by."""
    held = asked.wanted.intersection(match.terms)
    found = tuple(term for term in asked.terms if term in held)
    return ScoredMatch(match, row.score, row.share, found)


def find_by_words(index: Index, query: LaneQuery, asked: Query) -> list[IndexedEntry]:
    """Common terms only weigh what rarer ones found, so that a long query costs no more than a short one."""
    searched = rarest_terms(asked)
    if not searched:
        return []
    return index.matches(query, searched, limit=CANDIDATES_MAX, terms_max=TERMS_READ_MAX)


def rarest_terms(asked: Query) -> tuple[str, ...]:
    """The terms to search by: from the rarest on, while the entries that hold them are few enough to weigh."""
    totals: Counter[str] = Counter()
    for weights in asked.spaces.values():
        totals.update({term: weights.documents.get(term, 0) for term in asked.terms})
    chosen: list[str] = []
    candidates = 0
    for term in sorted((term for term in asked.terms if totals[term]), key=lambda term: (totals[term], term)):
        candidates += totals[term]
        if chosen and candidates > CANDIDATES_MAX:
            break
        chosen.append(term)
    return tuple(chosen)
