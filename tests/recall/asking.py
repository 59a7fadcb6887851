"""The ways in which a question is answered: by words alone from the store, and with vectors from a space in memory."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from afterturn.embedders.sentence_encoder import SentenceEncoder
from afterturn.ports import Embedder, Unit
from afterturn.recall.index.cache import IndexCache
from afterturn.recall.query import SPEAKERS_MAX, RecallRequest, named_in, without_names
from afterturn.recall.scoring import SEARCH_SCORE_MIN
from afterturn.recall.search import search
from afterturn.types import LaneQuery, Scope, SearchResults, UnitScope

R = TypeVar("R")

ADA = Scope("default", ("user:ada",))
STATIC = SentenceEncoder()
SCORE_MIN = SEARCH_SCORE_MIN
BYTES_MAX = 1 << 24


def request(text: str, **fields: Any) -> RecallRequest:
    """Fields of the request, or of the query for entries in it."""
    admitted = LaneQuery(ADA, 1000.0)
    admitted = admitted._replace(**{name: fields.pop(name) for name in admitted._fields if name in fields})
    return RecallRequest(text=text, admitted=admitted, **{"limit": 8, "score_min": SCORE_MIN, **fields})


def by_words(library: Any, text: str, **fields: Any) -> SearchResults:
    return library.read(lambda unit: search(unit, request(text, **fields)))


def with_vectors(library: Any, text: str, **fields: Any) -> SearchResults:
    asked = embedded(library, text, **fields)
    cache = IndexCache(STATIC.identity, BYTES_MAX)
    return library.read(lambda unit: search(unit, asked, cache))


def embedded(library: Any, text: str, **fields: Any) -> RecallRequest:
    """All that is stored has its vector, and so does the question."""
    asked = request(text, **fields)
    for space in asked.scope.spaces:
        library.embed(STATIC, space=space)
    return request(text, query_vector=query_vector(library, text, asked.scope), **fields)


def query_vector(library: Any, text: str, scope: Scope, embedder: Embedder = STATIC) -> np.ndarray:
    speakers = library.read(lambda unit: unit.index.speakers(scope, limit=SPEAKERS_MAX))
    return embedder.embed([without_names(text, named_in(text, speakers))])[0]


def indexed(library: Any, scope: Scope, embedder: Embedder = STATIC) -> IndexCache:
    """With every space of the scope that has something in it."""
    cache = IndexCache(embedder.identity, BYTES_MAX)
    for space in scope.spaces:
        library.read(lambda unit, space=space: cache.find(unit, scope.tenant, space))
    assert not cache.has_queued
    return cache


class Behind:
    """A library as the store that cache are built from."""

    def __init__(self, library: Any) -> None:
        self._library = library

    async def read(self, work: Callable[[Unit], R], *, at: UnitScope) -> R:
        return self._library.read(work)


def texts(found: SearchResults) -> list[str]:
    return [hit.entry.text for hit in found.hits]
