"""One recall: every lane searched on its own, by words and, where there are vectors, by meaning (L1)."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from afterturn.base.errors import DeadlineExceeded
from afterturn.base.ports import Unit
from afterturn.base.terms import is_acknowledgement, terms
from afterturn.base.types import Filter, Hit, Lane, LaneQuery, Match, Recollection, Scope
from afterturn.recall.lexical import Lexical, Scored, telling_terms, weigh_space, weigh_terms
from afterturn.recall.ranking import SIMILARITY_MIN, fuse, in_order, without_repeats

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

VECTORS = "vectors"
_NEAREST_MAX = 64

R = TypeVar("R")


class Similarities(Protocol):
    """One query compared with every vector of a scope; `complete` is False when some were left out."""

    complete: bool

    def of(self, keys: Sequence[int]) -> dict[int, float]: ...

    def nearest(self, query: LaneQuery, *, limit: int, cosine_min: float) -> list[tuple[Match, float]]: ...


class VectorSearch(Protocol):
    def compare(self, unit: Unit, scope: Scope, query_vector: NDArray[np.float32]) -> Similarities: ...


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
    wanted = _query_terms(request)
    if not wanted:
        return Recollection(request.text, (), correlation=request.correlation)
    missing: list[str] = []
    similarities = _compare(unit, request, vectors)
    if similarities is None or not similarities.complete:
        missing.append(VECTORS)
    lexical = _attempt("its words", request, partial(weigh_terms, unit.index, request.scope, wanted))
    hits: list[Hit] = []
    for lane in request.searched_lanes:
        search = _LaneSearch(unit, request, lane, similarities)
        found = _attempt(lane.value, request, partial(search.hits, lexical)) if lexical else None
        if found is None:
            missing.append(lane.value)
        hits.extend(found or ())
    return _recollection(request, hits, missing)


def recall_as_of(unit: Unit, request: RecallRequest, at: float) -> Recollection:
    """What was known at `at`, scored by the frequencies of that time. Goes through every entry, and by words alone."""
    wanted = _query_terms(request)
    if not wanted:
        return Recollection(request.text, (), correlation=request.correlation)
    then = replace(request, now=at)
    missing = [VECTORS]
    known: dict[Lane, list[Match]] = {}
    for lane in request.searched_lanes:
        found = _attempt(lane.value, request, partial(_known_at, unit, then.lane_query(lane), at))
        if found is None:
            missing.append(lane.value)
        known[lane] = found or []
    lexical = _weigh_matches(wanted, [match for matches in known.values() for match in matches])
    hits = [_hit(item, lane, None) for lane in known for item in lexical.scores(known[lane], unit.check)]
    return _recollection(request, [hit for hit in hits if hit.terms], missing)


@dataclass(frozen=True, slots=True)
class _LaneSearch:
    unit: Unit
    request: RecallRequest
    lane: Lane
    similarities: Similarities | None

    def hits(self, lexical: Lexical) -> list[Hit]:
        query = self.request.lane_query(self.lane)
        scored = {item.match.key: item for item in lexical.search(self.unit.index, query, self.unit.check)}
        cosines: dict[int, float] = {}
        if self.similarities is not None:
            cosines = self.similarities.of(list(scored))
            for match, cosine in self._nearest(query, self.similarities):
                cosines[match.key] = cosine
                scored.setdefault(match.key, lexical.score(match))
        return [_hit(item, self.lane, cosines.get(key)) for key, item in scored.items()]

    def _nearest(self, query: LaneQuery, similarities: Similarities) -> list[tuple[Match, float]]:
        limit = max(_NEAREST_MAX, self.request.limit)
        return similarities.nearest(query, limit=limit, cosine_min=SIMILARITY_MIN)


def _query_terms(request: RecallRequest) -> tuple[str, ...]:
    """None for stop words and acknowledgements: they would only find what sounds like them (L5)."""
    return () if is_acknowledgement(request.text) else terms(request.text)


def _compare(unit: Unit, request: RecallRequest, vectors: VectorSearch | None) -> Similarities | None:
    query_vector = request.query_vector
    if vectors is None or query_vector is None:
        return None
    return _attempt(VECTORS, request, partial(vectors.compare, unit, request.scope, query_vector))


def _attempt(part: str, request: RecallRequest, search: Callable[[], R]) -> R | None:
    try:
        return search()
    except DeadlineExceeded:
        raise
    except Exception:  # the boundary: one broken part must not cost the others; the caller reads it in `missing`
        logger.exception("Recall %s goes on without %s", request.correlation or "(uncorrelated)", part)
        return None


def _hit(scored: Scored, lane: Lane, similarity: float | None) -> Hit:
    return Hit(
        entry=scored.match.entry,
        lane=lane,
        score=fuse(scored.score, similarity),
        lexical=scored.score,
        similarity=similarity,
        terms=scored.terms,
    )


def _recollection(request: RecallRequest, hits: Iterable[Hit], missing: Sequence[str]) -> Recollection:
    ordered = in_order(hit for hit in hits if hit.score >= request.score_min)
    return Recollection(
        query=request.text,
        hits=tuple(without_repeats(ordered)[: request.limit]),
        missing=tuple(missing),
        correlation=request.correlation,
    )


def _known_at(unit: Unit, query: LaneQuery, at: float) -> list[Match]:
    matches = []
    for key, entry in enumerate(unit.memories.known_at(query, at)):
        unit.check()
        matches.append(Match(key, entry, terms(entry.text)))
    return matches


def _weigh_matches(wanted: tuple[str, ...], matches: Sequence[Match]) -> Lexical:
    asked = frozenset(wanted)
    frequencies: defaultdict[str, Counter[str]] = defaultdict(Counter)
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for match in matches:
        frequencies[match.entry.space].update(asked.intersection(match.terms))
        sizes[match.entry.space].append(len(match.terms))
    chosen = telling_terms(wanted, frequencies.values())
    spaces = {
        name: weigh_space(chosen, frequencies[name], len(lengths), sum(lengths)) for name, lengths in sizes.items()
    }
    return Lexical(chosen, spaces, ())
