"""One recall: every lane searched on its own, by words and, where there are vectors, by meaning (L1).

A space that is in memory is ranked there as a whole; of any other one, the store finds candidates.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from afterturn.base.errors import DeadlineExceeded
from afterturn.base.ports import Index, Unit
from afterturn.base.terms import terms
from afterturn.base.types import Filter, Hit, Lane, LaneQuery, Match, Recollection, Scope
from afterturn.recall.asked import Asked, is_askable, read_question, telling_terms, weigh
from afterturn.recall.lexical import Weighed, Weigher
from afterturn.recall.ranking import FOLLOWS, RECENT, in_order, without_repeats
from afterturn.recall.searching import Cosines, SpaceReading, StoreSearch, search_memory
from afterturn.recall.threads import Threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

VECTORS = "vectors"

R = TypeVar("R")


class Shelf(Protocol):
    """One space in memory. `complete` is False while many of its entries have no vector."""

    @property
    def complete(self) -> bool: ...

    def read(self, asked: Asked, query_vector: NDArray[np.float32] | None) -> SpaceReading: ...


class VectorSearch(Protocol):
    """The spaces that are in memory, as far as they are. All of it is as new as the unit's snapshot."""

    def find(self, unit: Unit, tenant: str, space: str) -> Shelf | None: ...

    def cosines(self, unit: Unit, tenant: str, space: str, query_vector: NDArray[np.float32]) -> Cosines | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """What to recall. `limit` bounds all lanes together: ask for more than a block holds when lanes must not starve.

    Without `conversation` there is no short-term lane: every record is episodic.
    """

    text: str
    scope: Scope
    now: float
    limit: int
    score_min: float
    query_vector: NDArray[np.float32] | None = None
    conversation: str | None = None
    owner: str | None = None
    lanes: tuple[Lane, ...] = tuple(Lane)
    excluded_refs: frozenset[str] = frozenset()
    visible_hashes: frozenset[str] = frozenset()
    seen_since: float | None = None
    filter: Filter = Filter()
    correlation: str = ""

    def lane_query(self, lane: Lane) -> LaneQuery:
        return LaneQuery(
            scope=self.scope,
            now=self.now,
            lane=lane,
            conversation=self.conversation,
            owner=self.owner,
            excluded_refs=self.excluded_refs,
            visible_hashes=self.visible_hashes,
            seen_since=self.seen_since,
            filter=self.filter,
        )

    @property
    def searched_lanes(self) -> tuple[Lane, ...]:
        return tuple(lane for lane in self.lanes if lane is not Lane.SHORT_TERM or self.conversation is not None)


def recall(unit: Unit, request: RecallRequest, vectors: VectorSearch | None = None) -> Recollection:
    """What the unit's snapshot holds on `request.text`. A part that fails is named in `missing`; the others are whole.

    Only DeadlineExceeded passes through: the caller has given up, and no lane is to blame for it.
    """
    if not is_askable(request.text):
        return Recollection(request.text, (), correlation=request.correlation)
    asked = _attempt("its words", request, partial(read_question, unit.index, request.scope, request.text))
    if asked is None:
        return _recollection(request, (), [VECTORS, *(lane.value for lane in request.searched_lanes)])
    parts = _parts(unit, request, asked, vectors)
    missing = [] if parts.complete else [VECTORS]
    hits: list[Hit] = []
    for lane in request.searched_lanes:
        search = partial(parts.search, unit.index, request.lane_query(lane), asked, limit=request.limit)
        found = _attempt(lane.value, request, search)
        if found is None:
            missing.append(lane.value)
        hits.extend(_hit(item, lane) for item in found or ())
    return _recollection(request, hits, missing)


def recall_as_of(unit: Unit, request: RecallRequest, at: float) -> Recollection:
    """What was known at `at`, weighed by the frequencies of that time. Goes through every entry, and by words alone."""
    if not is_askable(request.text):
        return Recollection(request.text, (), correlation=request.correlation)
    then = replace(request, now=at)
    missing = [VECTORS]
    known: dict[Lane, list[Match]] = {}
    keys = itertools.count(0, -1)
    for lane in request.searched_lanes:
        found = _attempt(lane.value, request, partial(_known_at, unit, then.lane_query(lane), at, keys))
        if found is None:
            missing.append(lane.value)
        known[lane] = found or []
    matches = [match for lane in known for match in known[lane]]
    weigher = Weigher(_asked_then(terms(request.text), matches), _newer_then(matches), {})
    threads = Threads(matches)
    hits = [_hit(item, lane) for lane in known for item in weigher.weigh_all(known[lane], threads, unit.check)]
    return _recollection(request, [hit for hit in hits if hit.lexical], missing)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Where a question is asked: spaces that are in memory, and the others in the store."""

    readings: Mapping[str, SpaceReading]
    store: StoreSearch | None
    complete: bool

    def search(self, index: Index, query: LaneQuery, asked: Asked, *, limit: int) -> list[Weighed]:
        found: list[Weighed] = []
        for space, reading in self.readings.items():
            narrowed = replace(query, scope=Scope(query.scope.tenant, (space,)))
            found += search_memory(index, narrowed, asked, reading, limit=limit)
        if self.store is not None:
            found += self.store.search(replace(query, scope=self.store.scope))
        return found


def _parts(unit: Unit, request: RecallRequest, asked: Asked, vectors: VectorSearch | None) -> _Parts:
    tenant, query_vector = request.scope.tenant, request.query_vector
    readings: dict[str, SpaceReading] = {}
    compared: list[Cosines] = []
    complete = vectors is not None and query_vector is not None
    for space in asked.spaces if vectors is not None else ():
        assert vectors is not None
        shelf = _attempt(VECTORS, request, partial(vectors.find, unit, tenant, space))
        reading = None if shelf is None else _attempt(VECTORS, request, partial(shelf.read, asked, query_vector))
        if shelf is not None and reading is not None:
            readings[space] = reading
            complete = complete and shelf.complete
        elif query_vector is not None:
            cosines = _attempt(VECTORS, request, partial(vectors.cosines, unit, tenant, space, query_vector))
            complete = complete and cosines is not None and cosines.complete
            compared += [] if cosines is None else [cosines]
    rest = tuple(space for space in asked.spaces if space not in readings)
    store = StoreSearch(unit, Scope(tenant, rest), asked, compared) if rest else None
    return _Parts(readings, store, complete)


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
        similarity=weighed.similarity,
        terms=weighed.terms,
    )


def _recollection(request: RecallRequest, hits: Iterable[Hit], missing: Sequence[str]) -> Recollection:
    return Recollection(
        query=request.text,
        hits=tuple(worth_telling(without_repeats(in_order(hits)), request.score_min)[: request.limit]),
        missing=tuple(missing),
        correlation=request.correlation,
    )


def worth_telling(hits: Sequence[Hit], score_min: float) -> list[Hit]:
    """Nothing when even the best is below the floor; else what is not far below it (L5). `hits` are best first."""
    if not hits or hits[0].score < score_min:
        return []
    return [hit for hit in hits if hit.score >= score_min * FOLLOWS]


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
