"""Recall: finds the statements and records that answer a question, best first, by words and by vectors.

`search` is the only way in: turns, `Space.search`, tools and `recall_once` all call it inside a unit of the store. A
space that is in memory is searched there as a whole (index/); the store searches any other (store_search.py). Then
all hits go through the same steps: dates, order, duplicates, floor, limit.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from afterturn.errors import DeadlineExceeded
from afterturn.recall.duplicates import replace_sources
from afterturn.recall.query import Query, RecallRequest, choose_terms, read_query, weigh_terms, without_names
from afterturn.recall.scoring import RECENT, SEARCH_SCORE_MIN, ScoredRow, above_floor, best_first
from afterturn.recall.store_search import LexicalScorer, Neighbours, StoreSearch, indexed_entry
from afterturn.recall.times import time_asked
from afterturn.recall.what_holds import show_what_holds
from afterturn.text import read_words, terms
from afterturn.types import Entry, Hit, IndexedEntry, Lane, LaneQuery, Scope, SearchResults

if TYPE_CHECKING:
    from afterturn.ports import Unit
    from afterturn.recall.index.cache import IndexCache
    from afterturn.recall.index.searcher import IndexSearcher, SearchCursor


VECTORS = "vectors"
# If the query admits none of this many of the best rows, SQL finds the others faster.
_RESOLVED_MAX = 1024
_PAGE_GROWTH = 4
# Entries are read with their texts, and hundreds of long ones take long to read. The second page is small, because
# often only a few are missing, and what it reads leaves less room for others in the cache.
_PAGE_MAX = 256


def search(unit: Unit, request: RecallRequest, cache: IndexCache | None = None) -> SearchResults:
    """Searches the unit's snapshot. A part that fails is named in `missing`; the others are complete.

    Without a `cache` it searches the store, by words alone. Raises only DeadlineExceeded: the caller has given up.
    """
    words, asked = read_words(request.text)
    if not asked:
        return SearchResults(request.text, (), correlation=request.correlation)
    tenant, lanes, missing = request.scope.tenant, request.searched_lanes, []
    searchers: dict[str, IndexSearcher] = {}
    # Indexes in memory do not return tool outputs.
    cache = None if request.admitted.evidence else cache
    for space in dict.fromkeys(request.scope.spaces) if cache is not None else ():
        with _Tolerated(VECTORS, request):
            searcher = cache.find(unit, tenant, space) if cache is not None else None
            if searcher is not None:
                searchers[space] = searcher
    query: Query | None = None
    with _Tolerated("its words", request):
        query = read_query(unit.index, request.scope, words, asked, searchers)
    if query is None:
        return _results(request, (), [VECTORS, *(lane.value for lane in lanes)])
    vector = request.query_vector
    if callable(vector):
        embed, vector = vector, None
        with _Tolerated(VECTORS, request):
            vector = embed(without_names(request.text, query.names))
    cursors: dict[str, SearchCursor] = {}
    for space in [space for space in query.spaces if space in searchers]:
        with _Tolerated(VECTORS, request):
            cursors[space] = searchers[space].search(query, vector)
    is_complete = all(space in cursors and searchers[space].complete for space in query.spaces)
    if cache is None or vector is None or not is_complete:
        missing.append(VECTORS)
    with _Tolerated("all lanes at once", request):
        found = _results(request, _find_hits(unit, request, query, cursors, lanes), missing, query)
        return _show_what_holds(unit, request, found)
    hits: list[Hit] = []
    for lane in lanes:
        missing.append(lane.value)
        with _Tolerated(lane.value, request):
            hits += _find_hits(unit, request, query, cursors, (lane,))
            missing.remove(lane.value)
    return _show_what_holds(unit, request, _results(request, hits, missing, query))


def _show_what_holds(unit: Unit, request: RecallRequest, found: SearchResults) -> SearchResults:
    """A question about the past finds what was so then."""
    asked = time_asked(request.text, request.now)
    if asked is None or not asked.is_past:
        with _Tolerated("what holds now", request):
            hits = show_what_holds(unit, request.admitted, found.hits)
            return replace(found, hits=tuple(hits[: request.limit]))
    return found


class _Tolerated:
    """A boundary: logs an error inside and continues after it. The caller lists in `missing` what is lost."""

    def __init__(self, part: str, request: RecallRequest) -> None:
        self._part = part
        self._correlation = request.correlation or "(uncorrelated)"

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, DeadlineExceeded):
            return False
        from afterturn.log import logger  # here: `logging` takes 3 ms, and a hook seldom logs

        logger.error("recall %s continues without %s", self._correlation, self._part, exc_info=error)
        return True


def _find_hits(
    unit: Unit, request: RecallRequest, query: Query, cursors: dict[str, SearchCursor], lanes: tuple[Lane, ...]
) -> list[Hit]:
    """Of every space the best `limit` of all lanes together."""
    limit = request.limit
    lane_query = request.admitted._replace(lane=lanes[0] if len(lanes) == 1 else None)
    hits: list[Hit] = []
    in_store: list[LaneQuery] = []
    for space, cursor in cursors.items():
        of_space = lane_query._replace(scope=Scope(request.scope.tenant, (space,)))
        found, is_done = search_in_memory(cursor, of_space, lanes, limit=limit)
        hits += found
        if not is_done:
            in_store.append(of_space)
    rest = tuple(space for space in query.spaces if space not in cursors)
    if rest:
        in_store.append(lane_query._replace(scope=Scope(request.scope.tenant, rest)))
    for one in in_store:
        hits += StoreSearch(unit, one, query).search(lanes, limit=limit)
    return hits


def search_in_memory(
    cursor: SearchCursor, lane_query: LaneQuery, lanes: Sequence[Lane], *, limit: int
) -> tuple[list[Hit], bool]:
    """The best `limit` of all lanes, each with the other message of its exchange, and whether that is all of them.

    Reads page by page, so that entries which the query does not admit take no place of others. False when it admits
    few of the best: then the store has to search too.
    """
    conversation = None if lane_query.conversation is None else (lane_query.owner, lane_query.conversation)
    rows: list[ScoredRow] = []
    entries: dict[int, Entry] = {}
    seen: set[int] = set()
    excluded = len(lane_query.excluded_refs) + len(lane_query.excluded_ids) + len(lane_query.visible_hashes)
    # Entries that the query excludes are often among the best, and a second page takes another round trip.
    size, more = limit + min(limit, excluded), 0
    seen_max = _RESOLVED_MAX + excluded
    while len(rows) < limit and len(seen) < seen_max:
        page = [row for row in cursor.best_of(lanes, conversation, len(seen) + size) if row.key not in seen][:size]
        if not page:
            break
        # Partners too: on a server, reading them later takes another round trip.
        partners = [row.partner for row in page if row.partner is not None and row.partner not in entries]
        entries |= cursor.entries(lane_query, list(dict.fromkeys([*[row.key for row in page], *partners])))
        # An entry without a vector is found by its words or not at all, as in the store.
        rows += [row for row in page if row.key in entries and (row.share or row.similarity is not None)]
        seen.update([row.key for row in page])
        size = more = min(_PAGE_MAX, max(more, limit - len(rows)) * _PAGE_GROWTH)
    is_done = len(rows) >= limit or len(seen) < seen_max
    hits = [row.hit(entries[row.key], entries.get(row.partner) if row.partner else None) for row in rows[:limit]]
    return hits, is_done


def _results(
    request: RecallRequest,
    hits: Iterable[Hit],
    missing: Sequence[str],
    query: Query | None = None,
) -> SearchResults:
    score_min = SEARCH_SCORE_MIN if request.score_min is None else request.score_min
    kept = above_floor(replace_sources(best_first(hits)), score_min)[: request.limit]
    weights = query.weights if query is not None else {}
    names = query.names if query is not None else frozenset()
    return SearchResults(request.text, tuple(kept), tuple(missing), request.correlation, weights, names)


def search_as_of(unit: Unit, request: RecallRequest, at: float) -> SearchResults:
    """Searches what was known at `at`, with the frequencies of that time. Reads every entry, by words alone."""
    missing: list[str] = []
    lane_query = request.admitted._replace(now=at)
    known: list[Entry] = []
    for lane in request.searched_lanes:
        missing.append(lane.value)
        with _Tolerated(lane.value, request):
            for entry in unit.memories.known_at(lane_query._replace(lane=lane), at):
                unit.check()
                known.append(entry)
            missing.remove(lane.value)
    found = search_among(request._replace(admitted=lane_query), known, unit.check)
    return replace(found, missing=(*found.missing, *missing))


def search_among(
    request: RecallRequest, known: Sequence[Entry], check: Callable[[], None] = lambda: None
) -> SearchResults:
    """Answers a question from the entries in `known`, with their frequencies, by words alone."""
    _, asked = read_words(request.text)
    if not asked:
        return SearchResults(request.text, (), correlation=request.correlation)
    by_key = dict(zip(itertools.count(0, -1), known, strict=False))
    entries = [indexed_entry(key, entry, terms(entry.text)) for key, entry in by_key.items()]
    query = _query_as_of(asked, entries)
    newer: dict[int, int] = {}
    passed: Counter[str] = Counter()
    for key, entry in sorted(by_key.items(), key=lambda item: (item[1].recorded_at, item[1].id), reverse=True):
        newer[key] = min(RECENT, passed[entry.space])
        passed[entry.space] += 1
    scorer = LexicalScorer(request.admitted, query, newer)
    rows = scorer.score_all(entries, Neighbours(entries), check)
    return _results(request, [row.hit(by_key[row.key]) for row in rows if row.share], [VECTORS], query)


def _query_as_of(asked: tuple[str, ...], entries: Sequence[IndexedEntry]) -> Query:
    distinct = frozenset(asked)
    frequencies: defaultdict[str, Counter[str]] = defaultdict(Counter)
    documents: Counter[str] = Counter()
    for entry in entries:
        frequencies[entry.space].update(distinct.intersection(entry.terms))
        documents[entry.space] += 1
    chosen = choose_terms(asked, frequencies.values())
    spaces = {space: weigh_terms(chosen, frequencies[space], count) for space, count in documents.items()}
    return Query(chosen, frozenset(), spaces)
