"""What a query admits of an entry that is in memory: the same as a store's conditions let through."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

from afterturn.errors import DeadlineExceeded, NotFound
from afterturn.ports import Unit
from afterturn.recall.dates import of_the_time
from afterturn.recall.lexical import (
    CANDIDATES_MAX,
    GAP_MAX,
    LexicalScorer,
    Neighbours,
    RankedKey,
    ScoredMatch,
    find_by_words,
    shelved_of,
    with_terms,
)
from afterturn.recall.query import Query, QueryTokens, TermStats, read_question, telling_terms, weigh, without_names
from afterturn.recall.scoring import FOLLOWS, NEAR_BEST, REACH, RECENT, in_order, without_repeats
from afterturn.text import read_words, terms
from afterturn.types import (
    ANYTHING,
    Entry,
    Filter,
    Hit,
    IndexedEntry,
    Kind,
    Lane,
    LaneQuery,
    Match,
    Origin,
    Scope,
    SearchResults,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def is_told_by_entries(query: LaneQuery) -> bool:
    """Whether `admits` knows what the query asks for. Filters are the store's."""
    return query.filter is ANYTHING or query.filter == ANYTHING


def admits(query: LaneQuery, entry: Entry) -> bool | None:
    """Of an active entry in the query's scope. None when it depends on other entries, which the store knows."""
    if not entry.is_valid(query.now) or entry.content_hash in query.visible_hashes:
        return False
    if query.excluded_refs and entry.ref in query.excluded_refs:
        return False
    if query.excluded_ids and entry.id in query.excluded_ids:
        return False
    if entry.origin is Origin.TOOL and not query.evidence and entry.kind is Kind.RECORD:
        return False
    seen_since = query.seen_since if query.conversation is not None else None
    if query.lane is None and seen_since is None:
        is_given = True
    else:
        lane = lane_of(entry, query)
        is_seen = lane is Lane.SHORT_TERM and seen_since is not None and entry.recorded_at > seen_since
        is_given = query.lane in (None, lane) and not is_seen
    is_learned = entry.sources and entry.kind is Kind.STATEMENT
    is_unsure = is_learned and (query.visible_hashes or seen_since is not None)
    return None if is_given and is_unsure else is_given


def lane_of(entry: Entry | IndexedEntry, query: LaneQuery) -> Lane:
    """As stores tell lanes apart."""
    if entry.kind is Kind.STATEMENT:
        return Lane.LONG_TERM
    is_here = query.conversation is not None and entry.conversation == query.conversation
    is_owned = query.owner is None or (entry.owner or entry.space) == query.owner
    return Lane.SHORT_TERM if is_here and is_owned else Lane.EPISODIC


# Whether the model sees what a statement was learned from: what a store's query leaves out, told of one entry (L9).


def is_learned_from_seen(unit: Unit, tenant: str, entry: Entry, is_seen: Callable[[Entry], bool]) -> bool:
    """Whether all that a statement rests on are records of its space, and each `is_seen`."""
    if entry.kind is not Kind.STATEMENT or not entry.sources:
        return False
    scope = Scope(tenant, (entry.space,))
    try:
        sources = (unit.memories.get(scope, source) for source in entry.sources)
        return all(source.kind is Kind.RECORD and is_seen(source) for source in sources)
    except NotFound:
        return False


# One lane, searched in memory or in the store: entries that the query admits, weighed and best first.

# Of so many of the best records the store is asked what was said around them.
_CONTEXT_MAX = 16
_PAGE_GROWTH = 4
# Where so many of the best are not admitted, a filter or a long history is to be reckoned with: SQL finds the others.
_RESOLVED_MAX = 1024
# What is resolved comes with its text and its terms, and hundreds of long records take long to read.
_PAGE_MAX = 256

Placed: TypeAlias = tuple[Lane, RankedKey]
Conversation: TypeAlias = tuple[str | None, str] | None
"""The one that is asked from: its owner, if only that one's is meant, and its id."""


class ScoredRow(NamedTuple):
    """A row of a space in memory, as it was weighed. `terms` are the question's that it holds, in that order."""

    key: int
    lane: Lane
    score: float
    share: float
    similarity: float | None
    terms: tuple[str, ...]


class SpaceSearch(Protocol):
    """One question asked of one space in memory."""

    def best(self, lane: Lane | None, conversation: Conversation, count: int) -> Sequence[ScoredRow]:
        """The best `count`, best first. Asked again for more, it does not start anew."""

    def best_of(self, lanes: Sequence[Lane], conversation: Conversation, count: int) -> Sequence[ScoredRow]:
        """The same of several lanes at once: the best `count` of all of them together, or more."""

    def entries(self, query: LaneQuery, keys: Sequence[int]) -> Mapping[int, Entry]:
        """Those of `keys` that the query admits."""


class MemorySearch(NamedTuple):
    """One question asked of one space in memory. What the query excludes is passed over before any cut (L3)."""

    query: LaneQuery
    reading: SpaceSearch

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

    def _hits(self, page: Sequence[ScoredRow]) -> list[Hit]:
        """An entry that has no vector yet is found by its words or not at all, as in the store."""
        entries = self.reading.entries(self.query, [row.key for row in page])
        return [
            Hit(entries[key], lane, score, share, similarity, terms)
            for key, lane, score, share, similarity, terms in page
            if key in entries and (share or similarity is not None)
        ]

    def _page(
        self, lanes: Sequence[Lane], short: Sequence[Lane], seen: Collection[int], size: int, lane_size: int
    ) -> Sequence[ScoredRow]:
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

    def __init__(self, unit: Unit, query: LaneQuery, asked: Query) -> None:
        self.unit = unit
        self.query = query
        self.asked = asked

    def search(self, lanes: Sequence[Lane], *, limit: int, lane_min: int) -> list[tuple[Lane, ScoredMatch]]:
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

    def _weighed(self, query: LaneQuery, lanes: Sequence[Lane], by_words: Sequence[IndexedEntry]) -> list[Placed]:
        """Candidates, the best of them weighed with what is said around them."""
        found = {entry.key: entry for entry in by_words}
        rows = {row.key: row for row in self._weigher.weigh_all(found.values(), Neighbours(), self.unit.check)}
        records = [row for row in rows.values() if found[row.key].kind is Kind.RECORD]
        best = heapq.nsmallest(_CONTEXT_MAX, records, key=_place)
        rows.update((row.key, row) for row in self._in_context(query, found, [row.key for row in best]))
        placed = ((lane_of(found[row.key], query), row) for row in rows.values())
        return _best_first((lane, row) for lane, row in placed if lane in lanes)

    def _in_context(self, query: LaneQuery, found: dict[int, IndexedEntry], keys: Sequence[int]) -> Iterable[RankedKey]:
        """These once more, and their neighbours, which are put to what was found where the query admits them."""
        context = self.unit.index.around(query, keys, reach=REACH * GAP_MAX)
        if not context:
            return ()
        threads = Neighbours((*found.values(), *(nearby.entry for nearby in context)))
        arounds = (threads.around(found[key]) for key in keys)
        around = {entry.key for one in arounds for entry in (*one.near, *one.far)}
        found.update((one.entry.key, one.entry) for one in context if one.is_admitted and one.entry.key in around)
        again = [found[key] for key in dict.fromkeys((*keys, *around)) if key in found]
        return self._weigher.weigh_all(again, threads, self.unit.check)

    @cached_property
    def _weigher(self) -> LexicalScorer:
        newest, scope = self.unit.index.newest, self.query.scope
        keys = (newest(scope.tenant, space, limit=RECENT) for space in scope.spaces)
        newer: dict[int, int] = {}
        for of_space in keys:
            newer.update(zip(of_space, range(RECENT), strict=False))
        return LexicalScorer(self.asked, newer)


def _place(row: RankedKey) -> tuple[float, int]:
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


# One recall: the lanes searched at once, or each on its own where that fails, by words and by meaning (L1).
#
# A space that is in memory is ranked there as a whole; of any other one, the store finds candidates.

logger = logging.getLogger(__name__)

VECTORS = "vectors"

R = TypeVar("R")
Embed: TypeAlias = "Callable[[str], NDArray[np.float32]]"


class SpaceIndexPort(TermStats, Protocol):
    """One space in memory. `complete` is False while many of its entries have no vector."""

    @property
    def complete(self) -> bool: ...

    def read(self, asked: Query, query_vector: NDArray[np.float32] | None) -> SpaceSearch: ...


class VectorSearch(Protocol):
    """The spaces that are in memory, as far as they are. All of it is as new as the unit's snapshot."""

    def find(self, unit: Unit, tenant: str, space: str) -> SpaceIndexPort | None: ...


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
    said = QueryTokens(*read_words(request.text))
    if not said.terms:
        return SearchResults(request.text, (), correlation=request.correlation)
    shelves = _find_shelves(unit, request, vectors)
    read = partial(read_question, unit.index, request.scope, request.text, shelves, said)
    asked = _attempt("its words", request, read)
    if asked is None:
        return _results(request, (), [VECTORS, *(lane.value for lane in request.searched_lanes)])
    search = _LaneSearch(unit, request, asked)
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
    weigher = LexicalScorer(asked, _newer_then(matches))
    entries = [shelved_of(match) for match in matches]
    rows = weigher.weigh_all(entries, Neighbours(entries), unit.check)
    weighed = [with_terms(match, row, asked) for match, row in zip(matches, rows, strict=True)]
    lanes = (lane for lane in known for _ in known[lane])
    hits = [_hit(item, lane) for item, lane in zip(weighed, lanes, strict=True)]
    return _results(request, hits, missing)


def _find_shelves(unit: Unit, request: RecallRequest, vectors: VectorSearch | None) -> dict[str, SpaceIndexPort]:
    found: dict[str, SpaceIndexPort] = {}
    for space in dict.fromkeys(request.scope.spaces) if vectors is not None else ():
        assert vectors is not None
        shelf = _attempt(VECTORS, request, partial(vectors.find, unit, request.scope.tenant, space))
        if shelf is not None:
            found[space] = shelf
    return found


def _query_vector(request: RecallRequest, asked: Query) -> NDArray[np.float32] | None:
    embed = request.embed
    if embed is None:
        return request.query_vector
    return _attempt(VECTORS, request, lambda: embed(without_names(request.text, asked.names)))


class _LaneSearch:
    """One question asked where each space is: in memory, or in the store."""

    def __init__(self, unit: Unit, request: RecallRequest, asked: Query) -> None:
        self._unit = unit
        self._request = request
        self._asked = asked
        self._readings: dict[str, SpaceSearch] = {}
        self._store: StoreSearch | None = None

    def prepare(
        self,
        shelves: Mapping[str, SpaceIndexPort],
        vectors: VectorSearch | None,
        query_vector: NDArray[np.float32] | None,
    ) -> bool:
        """Whether nearly every entry has a vector that the question is compared with."""
        request, tenant = self._request, self._request.scope.tenant
        complete = vectors is not None and query_vector is not None
        for space in self._asked.spaces:
            shelf = shelves.get(space)
            reading: SpaceSearch | None = None
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


def _hit(weighed: ScoredMatch, lane: Lane) -> Hit:
    return Hit(
        entry=weighed.match.entry,
        lane=lane,
        score=weighed.score,
        lexical=weighed.share,
        similarity=None,
        terms=weighed.terms,
    )


def _results(request: RecallRequest, hits: Iterable[Hit], missing: Sequence[str]) -> SearchResults:
    # In memory every row has a score, also one that has neither a word of the question nor a vector to compare.
    related = (hit for hit in hits if hit.lexical or hit.similarity is not None)
    ranked = in_order(of_the_time(related, request.text))
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


def _asked_then(wanted: tuple[str, ...], matches: Sequence[Match]) -> Query:
    distinct = frozenset(wanted)
    frequencies: defaultdict[str, Counter[str]] = defaultdict(Counter)
    documents: Counter[str] = Counter()
    for match in matches:
        frequencies[match.entry.space].update(distinct.intersection(match.terms))
        documents[match.entry.space] += 1
    chosen = telling_terms(wanted, frequencies.values())
    spaces = {space: weigh(chosen, frequencies[space], count) for space, count in documents.items()}
    return Query(chosen, frozenset(), spaces)
