"""One lane, searched in memory or in the store: entries that the query admits, weighed and best first."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol, TypeAlias

from afterturn.base.ports import Unit
from afterturn.base.types import Entry, Hit, Kind, Lane, LaneQuery, Shelved
from afterturn.recall.admitting import lane_of
from afterturn.recall.asked import Asked
from afterturn.recall.lexical import CANDIDATES_MAX, Ranked, Weighed, Weigher, find_by_words, with_terms
from afterturn.recall.ranking import REACH, RECENT
from afterturn.recall.threads import GAP_MAX, Threads

# Of so many of the best records the store is asked what was said around them.
_CONTEXT_MAX = 16
_PAGE_GROWTH = 4
# Where so many of the best are not admitted, a filter or a long history is to be reckoned with: SQL finds the others.
_RESOLVED_MAX = 1024
# What is resolved comes with its text and its terms, and hundreds of long records take long to read.
_PAGE_MAX = 256

Placed: TypeAlias = tuple[Lane, Ranked]
Conversation: TypeAlias = tuple[str | None, str] | None
"""The one that is asked from: its owner, if only that one's is meant, and its id."""


class Candidate(NamedTuple):
    """A row of a space in memory, as it was weighed. `terms` are the question's that it holds, in that order."""

    key: int
    lane: Lane
    score: float
    share: float
    similarity: float | None
    terms: tuple[str, ...]


class SpaceReading(Protocol):
    """One question asked of one space in memory."""

    def best(self, lane: Lane | None, conversation: Conversation, count: int) -> Sequence[Candidate]:
        """The best `count`, best first. Asked again for more, it does not start anew."""

    def best_of(self, lanes: Sequence[Lane], conversation: Conversation, count: int) -> Sequence[Candidate]:
        """The same of several lanes at once: the best `count` of all of them together, or more."""

    def entries(self, query: LaneQuery, keys: Sequence[int]) -> Mapping[int, Entry]:
        """Those of `keys` that the query admits."""


class MemorySearch(NamedTuple):
    """One question asked of one space in memory. What the query excludes is passed over before any cut (L3)."""

    query: LaneQuery
    reading: SpaceReading

    def search(self, lanes: Sequence[Lane], *, limit: int, lane_min: int) -> tuple[list[Hit], bool]:
        """The best `limit` of all lanes, and the best `lane_min` of each. Lanes are disjoint, so that one look at the
        entries does for all of them.

        False when most of what was looked at is not admitted: then the store knows better where to look.
        """
        found: list[Hit] = []
        seen: set[int] = set()
        size, lane_size = limit, lane_min
        seen_max = _RESOLVED_MAX + len(self.query.excluded_refs) + len(self.query.excluded_ids)
        seen_max += len(self.query.visible_hashes)
        while len(seen) < seen_max:
            short = [lane for lane in lanes if lane_min and sum(hit.lane is lane for hit in found) < lane_min]
            is_full = len(found) >= limit
            if is_full and not short:
                break
            # A lane may have nothing more to give, which is no reason to look through all the others.
            page = self._page(lanes, short, seen, 0 if is_full else size, lane_size)
            if not page:
                break
            found += self._hits(page)
            seen.update([row.key for row in page])
            size = lane_size = min(_PAGE_MAX, size * _PAGE_GROWTH)
        return found, len(found) >= limit or len(seen) < seen_max

    def _hits(self, page: Sequence[Candidate]) -> list[Hit]:
        entries = self.reading.entries(self.query, [row.key for row in page])
        return [
            Hit(entries[key], lane, score, share, similarity, terms)
            for key, lane, score, share, similarity, terms in page
            if key in entries
        ]

    def _page(
        self, lanes: Sequence[Lane], short: Sequence[Lane], seen: Collection[int], size: int, lane_size: int
    ) -> Sequence[Candidate]:
        """The next so many by score, and the next of lanes that still have too few."""
        conversation = None if self.query.conversation is None else (self.query.owner, self.query.conversation)
        best = self.reading.best_of(lanes, conversation, len(seen) + size) if size else ()
        rows = [row for row in best if row.key not in seen]
        chosen = rows[:size]
        for lane in short:
            of_lane = [row for row in rows if row.lane is lane]
            if len(of_lane) < lane_size:
                further = self.reading.best(lane, conversation, len(seen) + lane_size)
                of_lane = [row for row in further if row.key not in seen]
            chosen += of_lane[:lane_size]
        return list({row.key: row for row in chosen}.values()) if short else chosen


class StoreSearch:
    """One question asked, by words alone, of spaces that are not in memory. `query` is for all lanes.

    Candidates are weighed by what a shelf knows of them too; only the best are read as entries.
    """

    def __init__(self, unit: Unit, query: LaneQuery, asked: Asked) -> None:
        self.unit = unit
        self.query = query
        self.asked = asked

    def search(self, lanes: Sequence[Lane], *, limit: int, lane_min: int) -> list[tuple[Lane, Weighed]]:
        """The best `limit` of all lanes, and the best `lane_min` of each."""
        chosen = _chosen(self._ranked(lanes), limit, lanes, lane_min)
        matches = self.unit.index.resolve(self._query(lanes), list(chosen))
        return [(chosen[match.key][0], with_terms(match, chosen[match.key][1], self.asked)) for match in matches]

    def _ranked(self, lanes: Sequence[Lane]) -> list[Placed]:
        """At once, unless so much was found that one lane may have taken another's place."""
        query = self._query(lanes)
        found = find_by_words(self.unit.index, query, self.asked)
        if len(found) < CANDIDATES_MAX or len(lanes) == 1:
            return self._weighed(query, lanes, found)
        return _best_first(row for lane in lanes for row in self._ranked((lane,)))

    def _query(self, lanes: Sequence[Lane]) -> LaneQuery:
        return self.query._replace(lane=lanes[0]) if len(lanes) == 1 else self.query

    def _weighed(self, query: LaneQuery, lanes: Sequence[Lane], by_words: Sequence[Shelved]) -> list[Placed]:
        """Candidates, the best of them weighed with what is said around them."""
        found = {entry.key: entry for entry in by_words}
        rows = {row.key: row for row in self._weigher.weigh_all(found.values(), Threads(), self.unit.check)}
        records = [row for row in rows.values() if found[row.key].kind is Kind.RECORD]
        best = heapq.nsmallest(_CONTEXT_MAX, records, key=_place)
        rows.update((row.key, row) for row in self._in_context(query, found, [row.key for row in best]))
        placed = ((lane_of(found[row.key], query), row) for row in rows.values())
        return _best_first((lane, row) for lane, row in placed if lane in lanes)

    def _in_context(self, query: LaneQuery, found: dict[int, Shelved], keys: Sequence[int]) -> Iterable[Ranked]:
        """These once more, and their neighbours, which are put to what was found where the query admits them."""
        context = self.unit.index.around(query, keys, reach=REACH * GAP_MAX)
        if not context:
            return ()
        threads = Threads((*found.values(), *(nearby.entry for nearby in context)))
        arounds = (threads.around(found[key]) for key in keys)
        around = {entry.key for one in arounds for entry in (*one.near, *one.far)}
        found.update((one.entry.key, one.entry) for one in context if one.is_admitted and one.entry.key in around)
        again = [found[key] for key in dict.fromkeys((*keys, *around)) if key in found]
        return self._weigher.weigh_all(again, threads, self.unit.check)

    @cached_property
    def _weigher(self) -> Weigher:
        newest, scope = self.unit.index.newest, self.query.scope
        keys = (newest(scope.tenant, space, limit=RECENT) for space in scope.spaces)
        newer: dict[int, int] = {}
        for of_space in keys:
            newer.update(zip(of_space, range(RECENT), strict=False))
        return Weigher(self.asked, newer)


def _place(row: Ranked) -> tuple[float, int]:
    """Best first; equal scores: the newer."""
    return -row.score, -row.key


def _best_first(rows: Iterable[Placed]) -> list[Placed]:
    return sorted(rows, key=lambda item: _place(item[1]))


def _chosen(rows: Sequence[Placed], size: int, lanes: Collection[Lane], lane_size: int) -> dict[int, Placed]:
    """By key: the first so many, and the first of each of these lanes."""
    chosen = list(rows[:size])
    for lane in lanes:
        chosen += [item for item in rows if item[0] is lane][:lane_size]
    return {row.key: (lane, row) for lane, row in chosen}
