"""One lane, searched in memory or in the store: entries that the query admits, weighed and best first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

from afterturn.base.ports import Index, Unit
from afterturn.base.types import Entry, Kind, Lane, LaneQuery, Match
from afterturn.recall.asked import Asked
from afterturn.recall.lexical import CANDIDATES_MAX, Weighed, Weigher, find_by_words, ranked, records_of
from afterturn.recall.ranking import REACH, RECENT
from afterturn.recall.threads import GAP_MAX, Threads

# Of each space so many of the nearest are looked up, and so many more for a lane that has few of them: what is nearer
# may be in another lane, or in sight already, and of that there are hundreds.
_NEAREST_MAX = 64
_FURTHER_MAX = 256
_LANE_MIN = 16
# Of so many of the best records the store is asked what was said around them.
_CONTEXT_MAX = 16
_PAGE_GROWTH = 4
# Where so many of the best are not admitted, a filter or a long history is to be reckoned with: SQL finds the others.
_RESOLVED_MAX = 1024
# What is resolved comes with its text and its terms, and hundreds of long records take long to read.
_PAGE_MAX = 256


class Ranked(NamedTuple):
    """An entry by key, as a shelf has ranked it. `share` is of the question's weight."""

    key: int
    score: float
    share: float
    similarity: float | None


class SpaceReading(Protocol):
    """One question asked of one space in memory."""

    def best(self, lane: Lane | None, conversation: tuple[str | None, str] | None, count: int) -> Sequence[Ranked]:
        """The best `count`, best first. Asked again for more, it does not start anew."""


class Cosines(Protocol):
    """One question compared with every vector of a space; `complete` is False while many have none."""

    @property
    def complete(self) -> bool: ...

    def of(self, keys: Sequence[int]) -> dict[int, float]: ...

    def nearest_keys(self, count: int) -> list[int]: ...


@dataclass(frozen=True)
class MemorySearch:
    """One question asked of one space in memory. What the query excludes is passed over before any cut (L3)."""

    index: Index
    query: LaneQuery
    asked: Asked
    reading: SpaceReading

    def search(self, lanes: Sequence[Lane], *, limit: int, lane_min: int) -> tuple[list[tuple[Lane, Weighed]], bool]:
        """The best `limit` of all lanes, and the best `lane_min` of each. Lanes are disjoint, so that one look into the
        store does for all of them.

        False when most of what was looked up is not admitted: then the store knows better where to look.
        """
        found: dict[Lane, list[Weighed]] = {lane: [] for lane in lanes}
        seen: set[int] = set()
        size = limit
        seen_max = _RESOLVED_MAX + len(self.query.excluded_refs) + len(self.query.visible_hashes)
        while len(seen) < seen_max:
            short = [lane for lane in lanes if len(found[lane]) < lane_min]
            if not short and sum(map(len, found.values())) >= limit:
                break
            page = self._page(lanes, short, seen, size, lane_min)
            if not page:
                break
            for match in self.index.resolve(self.query, list(page)):
                lane, row = page[match.key]
                found[lane].append(_weighed(match, row, self.asked))
            seen.update(page)
            size = min(_PAGE_MAX, size * _PAGE_GROWTH)
        total = sum(map(len, found.values()))
        return [(lane, item) for lane in lanes for item in found[lane]], total >= limit or len(seen) < seen_max

    def _page(
        self, lanes: Sequence[Lane], short: Sequence[Lane], seen: Collection[int], size: int, lane_size: int
    ) -> dict[int, tuple[Lane, Ranked]]:
        """The next so many by score, and the next of lanes that still have too few."""
        conversation = None if self.query.conversation is None else (self.query.owner, self.query.conversation)
        count = len(seen) + size
        unseen = {
            lane: [row for row in self.reading.best(lane, conversation, count) if row.key not in seen] for lane in lanes
        }
        rows = [(lane, row) for lane in lanes for row in unseen[lane]]
        rows.sort(key=lambda item: (-item[1].score, -item[1].key))
        chosen = rows[:size] + [(lane, row) for lane in short for row in unseen[lane][:lane_size]]
        return {row.key: (lane, row) for lane, row in chosen}


@dataclass(frozen=True)
class StoreSearch:
    """One question asked of spaces that are not in memory. `query` is for all lanes."""

    unit: Unit
    query: LaneQuery
    asked: Asked
    compared: Sequence[Cosines]

    def search_all(self, lanes: Sequence[Lane]) -> list[tuple[Lane, Weighed]]:
        """At once, unless so much was found that one lane may have taken another's place."""
        found = find_by_words(self.unit.index, self.query, self.asked)
        if len(found) >= CANDIDATES_MAX:
            return [(lane, item) for lane in lanes for item in self.search(lane)]
        searched = self._searched(self.query, lanes, found)
        weighed = ((lane_of(item.match.entry, self.query), item) for item in searched)
        return [(lane, item) for lane, item in weighed if lane in lanes]

    def search(self, lane: Lane) -> list[Weighed]:
        query = replace(self.query, lane=lane)
        return self._searched(query, (lane,), find_by_words(self.unit.index, query, self.asked))

    def _searched(self, query: LaneQuery, lanes: Sequence[Lane], by_words: Sequence[Match]) -> list[Weighed]:
        """Candidates by words and by vectors, the best of them weighed with what is said around them."""
        index = self.unit.index
        found = {match.key: match for match in by_words}
        for cosines in self.compared:
            keys = [key for key in cosines.nearest_keys(_NEAREST_MAX + _FURTHER_MAX) if key not in found]
            found.update((match.key, match) for match in self._nearest(query, lanes, keys))
        alone = self._weighed(found.values(), Threads())
        context = index.around(query, records_of(alone, limit=_CONTEXT_MAX), reach=REACH * GAP_MAX)
        if not context:
            return alone
        beside = index.resolve(query, [match.key for match in context if match.key not in found])
        told = {match.key for match in context}
        again = [*(match for match in found.values() if match.key in told), *beside]
        weighed = self._weighed(again, Threads((*found.values(), *context)))
        return ranked([*weighed, *(item for item in alone if item.match.key not in told)])

    def _nearest(self, query: LaneQuery, lanes: Sequence[Lane], keys: Sequence[int]) -> list[Match]:
        """What the query does not admit is passed over before the cut (L3), and no lane hides another (L1)."""
        index = self.unit.index
        admitted = index.resolve(query, keys[:_NEAREST_MAX])
        reached = Counter(lane_of(match.entry, query) for match in admitted)
        for lane in lanes:
            if reached[lane] < _LANE_MIN:
                admitted += index.resolve(replace(query, lane=lane), keys[_NEAREST_MAX:])
        return admitted

    def _weighed(self, matches: Collection[Match], threads: Threads) -> list[Weighed]:
        keys = [match.key for match in (*matches, *threads)]
        cosines = {key: cosine for one in self.compared for key, cosine in one.of(keys).items()}
        weigher = Weigher(self.asked, self._newer, cosines)
        return ranked(weigher.weigh_all(matches, threads, self.unit.check))

    @cached_property
    def _newer(self) -> dict[int, int]:
        newest, scope = self.unit.index.newest, self.query.scope
        keys = (newest(scope.tenant, space, limit=RECENT) for space in scope.spaces)
        return {key: place for of_space in keys for place, key in enumerate(of_space)}


def _weighed(match: Match, row: Ranked, asked: Asked) -> Weighed:
    held = asked.wanted.intersection(match.terms)
    found = tuple(term for term in asked.terms if term in held)
    return Weighed(match, row.score, row.share, row.similarity, found)


def lane_of(entry: Entry, query: LaneQuery) -> Lane:
    """As stores tell lanes apart."""
    if entry.kind is Kind.STATEMENT:
        return Lane.LONG_TERM
    is_here = query.conversation is not None and entry.conversation == query.conversation
    is_owned = query.owner is None or (entry.owner or entry.space) == query.owner
    return Lane.SHORT_TERM if is_here and is_owned else Lane.EPISODIC
