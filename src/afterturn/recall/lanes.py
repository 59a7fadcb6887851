"""One recall: the lanes searched at once, or each on its own where that fails, by words and by meaning (L1).

A space that is in memory is ranked there as a whole; of any other one, the store finds candidates.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

from afterturn.base.errors import DeadlineExceeded
from afterturn.base.ports import Unit
from afterturn.base.terms import read_words, terms
from afterturn.base.types import ANYTHING, Filter, Hit, Lane, LaneQuery, Match, Scope, SearchResults
from afterturn.recall.asked import Asked, Figures, Said, read_question, telling_terms, weigh, without_names
from afterturn.recall.lexical import Weighed, Weigher, shelved_of, with_terms
from afterturn.recall.periods import of_the_time
from afterturn.recall.ranking import FOLLOWS, NEAR_BEST, RECENT, in_order, without_repeats
from afterturn.recall.searching import MemorySearch, SpaceReading, StoreSearch
from afterturn.recall.threads import Threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

VECTORS = "vectors"

R = TypeVar("R")
Embed: TypeAlias = "Callable[[str], NDArray[np.float32]]"


class Shelf(Figures, Protocol):
    """One space in memory. `complete` is False while many of its entries have no vector."""

    @property
    def complete(self) -> bool: ...

    def read(self, asked: Asked, query_vector: NDArray[np.float32] | None) -> SpaceReading: ...


class VectorSearch(Protocol):
    """The spaces that are in memory, as far as they are. All of it is as new as the unit's snapshot."""

    def find(self, unit: Unit, tenant: str, space: str) -> Shelf | None: ...


class RecallRequest(NamedTuple):
    """What to recall. `limit` bounds all lanes together, but the best `lane_min` of each are among them (H9).

    Without `conversation` there is no short-term lane: every record is episodic. `embed` makes the `query_vector`, of
    the text without the names of those who spoke, where that takes no time.
    """

    text: str
    scope: Scope
    now: float
    limit: int
    score_min: float
    lane_min: int = 0
    query_vector: NDArray[np.float32] | None = None
    embed: Embed | None = None
    conversation: str | None = None
    owner: str | None = None
    lanes: tuple[Lane, ...] = tuple(Lane)
    excluded_refs: frozenset[str] = frozenset()
    visible_hashes: frozenset[str] = frozenset()
    excluded_ids: frozenset[str] = frozenset()
    seen_since: float | None = None
    filter: Filter = ANYTHING
    correlation: str = ""

    def lane_query(self, lane: Lane | None, scope: Scope | None = None) -> LaneQuery:
        """Of all spaces that are asked, or of those in `scope`."""
        return LaneQuery(
            scope=scope or self.scope,
            now=self.now,
            lane=lane,
            conversation=self.conversation,
            owner=self.owner,
            excluded_refs=self.excluded_refs,
            visible_hashes=self.visible_hashes,
            excluded_ids=self.excluded_ids,
            seen_since=self.seen_since,
            filter=self.filter,
        )

    @property
    def searched_lanes(self) -> tuple[Lane, ...]:
        if self.conversation is not None:
            return self.lanes
        return tuple([lane for lane in self.lanes if lane is not Lane.SHORT_TERM])


def recall(unit: Unit, request: RecallRequest, vectors: VectorSearch | None = None) -> SearchResults:
    """What the unit's snapshot holds on `request.text`. A part that fails is named in `missing`; the others are whole.

    Only DeadlineExceeded passes through: the caller has given up, and no lane is to blame for it.
    """
    said = Said(*read_words(request.text))
    if not said.terms:
        return SearchResults(request.text, (), correlation=request.correlation)
    shelves = _find_shelves(unit, request, vectors)
    read = partial(read_question, unit.index, request.scope, request.text, shelves, said)
    asked = _attempt("its words", request, read)
    if asked is None:
        return _results(request, (), [VECTORS, *(lane.value for lane in request.searched_lanes)])
    search = _Search(unit, request, asked)
    missing = [] if search.prepare(shelves, vectors, _query_vector(request, asked)) else [VECTORS]
    hits, broken = search.hits()
    return _results(request, hits, [*missing, *broken])


def recall_as_of(unit: Unit, request: RecallRequest, at: float) -> SearchResults:
    """What was known at `at`, weighed by the frequencies of that time. Goes through every entry, and by words alone."""
    _, said = read_words(request.text)
    if not said:
        return SearchResults(request.text, (), correlation=request.correlation)
    then = request._replace(now=at)
    missing = [VECTORS]
    known: dict[Lane, list[Match]] = {}
    keys = itertools.count(0, -1)
    for lane in request.searched_lanes:
        found = _attempt(lane.value, request, partial(_known_at, unit, then.lane_query(lane), at, keys))
        if found is None:
            missing.append(lane.value)
        known[lane] = found or []
    matches = [match for lane in known for match in known[lane]]
    asked = _asked_then(said, matches)
    weigher = Weigher(asked, _newer_then(matches))
    entries = [shelved_of(match) for match in matches]
    rows = weigher.weigh_all(entries, Threads(entries), unit.check)
    weighed = [with_terms(match, row, asked) for match, row in zip(matches, rows, strict=True)]
    lanes = (lane for lane in known for _ in known[lane])
    hits = [_hit(item, lane) for item, lane in zip(weighed, lanes, strict=True)]
    return _results(request, [hit for hit in hits if hit.lexical], missing)


def _find_shelves(unit: Unit, request: RecallRequest, vectors: VectorSearch | None) -> dict[str, Shelf]:
    found: dict[str, Shelf] = {}
    for space in dict.fromkeys(request.scope.spaces) if vectors is not None else ():
        assert vectors is not None
        shelf = _attempt(VECTORS, request, partial(vectors.find, unit, request.scope.tenant, space))
        if shelf is not None:
            found[space] = shelf
    return found


def _query_vector(request: RecallRequest, asked: Asked) -> NDArray[np.float32] | None:
    embed = request.embed
    if embed is None:
        return request.query_vector
    return _attempt(VECTORS, request, lambda: embed(without_names(request.text, asked.names)))


class _Search:
    """One question asked where each space is: in memory, or in the store."""

    def __init__(self, unit: Unit, request: RecallRequest, asked: Asked) -> None:
        self._unit = unit
        self._request = request
        self._asked = asked
        self._readings: dict[str, SpaceReading] = {}
        self._store: StoreSearch | None = None

    def prepare(
        self, shelves: Mapping[str, Shelf], vectors: VectorSearch | None, query_vector: NDArray[np.float32] | None
    ) -> bool:
        """Whether nearly every entry has a vector that the question is compared with."""
        request, tenant = self._request, self._request.scope.tenant
        complete = vectors is not None and query_vector is not None
        for space in self._asked.spaces:
            shelf = shelves.get(space)
            reading: SpaceReading | None = None
            if shelf is not None:
                reading = _attempt(VECTORS, request, partial(shelf.read, self._asked, query_vector))
            if shelf is not None and reading is not None:
                self._readings[space] = reading
                complete = complete and shelf.complete
            else:
                complete = False
        rest = tuple(space for space in self._asked.spaces if space not in self._readings)
        if rest:
            query = request.lane_query(None, Scope(tenant, rest))
            self._store = StoreSearch(self._unit, query, self._asked)
        return complete

    def hits(self) -> tuple[list[Hit], list[str]]:
        """And the lanes that could not be searched (L1): all are looked up at once; where that fails, one by one."""
        lanes = self._request.searched_lanes
        at_once = _attempt("all lanes at once", self._request, partial(self._at_once, lanes))
        if at_once is not None:
            return at_once, []
        found = {lane: _attempt(lane.value, self._request, partial(self._in_lane, lane)) for lane in lanes}
        hits = [hit for of_lane in found.values() for hit in of_lane or ()]
        return hits, [lane.value for lane, of_lane in found.items() if of_lane is None]

    def _at_once(self, lanes: tuple[Lane, ...]) -> list[Hit]:
        hits = self._in_memory(lanes, None)
        if self._store is not None:
            hits += self._in_store(self._store, lanes)
        return hits

    def _in_lane(self, lane: Lane) -> list[Hit]:
        hits = self._in_memory((lane,), lane)
        if self._store is not None:
            hits += self._in_store(self._store, (lane,))
        return hits

    def _in_store(self, store: StoreSearch, lanes: tuple[Lane, ...]) -> list[Hit]:
        found = store.search(lanes, limit=self._request.limit, lane_min=self._request.lane_min)
        return [_hit(item, lane) for lane, item in found]

    def _in_memory(self, lanes: tuple[Lane, ...], lane: Lane | None) -> list[Hit]:
        request = self._request
        hits: list[Hit] = []
        for space, reading in self._readings.items():
            query = request.lane_query(lane, Scope(request.scope.tenant, (space,)))
            found, is_done = MemorySearch(query, reading).search(lanes, limit=request.limit, lane_min=request.lane_min)
            hits += found
            if not is_done:
                hits += self._in_store(StoreSearch(self._unit, query, self._asked), lanes)
        return hits


def _attempt(part: str, request: RecallRequest, search: Callable[[], R]) -> R | None:
    try:
        return search()
    except DeadlineExceeded:
        raise
    except Exception:  # the boundary: one broken part must not cost the others; the caller reads it in `missing`
        logger.exception("Recall %s goes on without %s", request.correlation or "(uncorrelated)", part)
        return None


def _hit(weighed: Weighed, lane: Lane) -> Hit:
    return Hit(
        entry=weighed.match.entry,
        lane=lane,
        score=weighed.score,
        lexical=weighed.share,
        similarity=None,
        terms=weighed.terms,
    )


def _results(request: RecallRequest, hits: Iterable[Hit], missing: Sequence[str]) -> SearchResults:
    ranked = in_order(of_the_time(hits, request.text))
    return SearchResults(
        query=request.text,
        hits=tuple(_cut(worth_telling(without_repeats(ranked), request.score_min), request)),
        missing=tuple(missing),
        correlation=request.correlation,
    )


def _cut(hits: Sequence[Hit], request: RecallRequest) -> list[Hit]:
    """The best, among them the best of each lane."""
    if len(hits) <= request.limit:
        return list(hits)
    sure = {hit.entry.ref for lane in Lane for hit in [hit for hit in hits if hit.lane is lane][: request.lane_min]}
    others = [hit.entry.ref for hit in hits if hit.entry.ref not in sure]
    kept = sure.union(others[: max(0, request.limit - len(sure))])
    return [hit for hit in hits if hit.entry.ref in kept][: request.limit]


def worth_telling(hits: Sequence[Hit], score_min: float) -> list[Hit]:
    """Nothing when even the best is below the floor; else what is not far below it (L5). `hits` are best first."""
    if not hits or hits[0].score < score_min:
        return []
    least = max(score_min * FOLLOWS, hits[0].score * NEAR_BEST) if score_min else 0.0
    return [hit for hit in hits if hit.score >= least]


def _known_at(unit: Unit, query: LaneQuery, at: float, keys: Iterator[int]) -> list[Match]:
    matches = []
    for entry in unit.memories.known_at(query, at):
        unit.check()
        matches.append(Match(next(keys), entry, terms(entry.text)))
    return matches


def _newer_then(matches: Iterable[Match]) -> dict[int, int]:
    newer: dict[int, int] = {}
    passed: Counter[str] = Counter()
    for match in sorted(matches, key=lambda match: (match.entry.recorded_at, match.entry.id), reverse=True):
        newer[match.key] = min(RECENT, passed[match.entry.space])
        passed[match.entry.space] += 1
    return newer


def _asked_then(wanted: tuple[str, ...], matches: Sequence[Match]) -> Asked:
    distinct = frozenset(wanted)
    frequencies: defaultdict[str, Counter[str]] = defaultdict(Counter)
    documents: Counter[str] = Counter()
    for match in matches:
        frequencies[match.entry.space].update(distinct.intersection(match.terms))
        documents[match.entry.space] += 1
    chosen = telling_terms(wanted, frequencies.values())
    spaces = {space: weigh(chosen, frequencies[space], count) for space, count in documents.items()}
    return Asked(chosen, frozenset(), spaces)
