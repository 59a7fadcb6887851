"""A store's index in plain dictionaries, and the index in memory that is built from it.

Tests of the index in memory use `MemoryIndex`, and do not depend on the classes that it is made of.
"""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from afterturn.recall.index.searcher import IndexSearcher, SearchCursor
from afterturn.recall.index.space_index import BuildPlan, IndexBuilder, SpaceIndex, SpaceKey
from afterturn.recall.query import Query
from afterturn.recall.scoring import ScoredRow
from afterturn.types import Changes, EmbedderIdentity, IndexedEntry, Lane, SpaceStats

IDENTITY = EmbedderIdentity("plain", "1", 16)
SPACE = "user:ada"


@dataclass
class FakeIndex:
    """Entries and vectors by key, with a log of every change."""

    by_key: dict[int, IndexedEntry] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)
    changed: list[int] = field(default_factory=list)
    generation: str = "first"

    def put(self, entry: IndexedEntry) -> None:
        self.by_key[entry.key] = entry
        self.changed.append(entry.key)

    def embed(self, key: int, vector: np.ndarray) -> None:
        self.data[key] = vector.astype("<f2").tobytes()
        self.changed.append(key)

    def remove(self, key: int) -> IndexedEntry:
        self.changed.append(key)
        return self.by_key.pop(key)

    def entries(
        self, tenant: str, space: str, *, keys: Sequence[int] | None = None, after: int = 0, limit: int
    ) -> list[IndexedEntry]:
        chosen = (key for key in self.by_key if key > after) if keys is None else self.by_key.keys() & set(keys)
        return [self.by_key[key] for key in sorted(chosen)[:limit]]

    def extent(self) -> SpaceStats:
        return SpaceStats(len(self.by_key), sum(len(entry.terms) for entry in self.by_key.values()), len(self.changed))

    def changes(self, tenant: str, space: str, *, since: int) -> Changes:
        return Changes(self.generation, len(self.changed), tuple(dict.fromkeys(self.changed[since:])))

    def vectors(self, tenant: str, space: str, embedder: EmbedderIdentity, keys: Sequence[int]) -> dict[int, bytes]:
        wanted = sorted(keys)
        return {key: self.data[key] for key in wanted if key in self.data and key in self.by_key}

    def cosines(self, query: np.ndarray | None) -> dict[int, float]:
        if query is None:
            return {}
        return {
            key: float(np.frombuffer(data, "<f2").astype(np.float32) @ query)
            for key, data in self.data.items()
            if key in self.by_key
        }


@dataclass
class _Unit:
    index: FakeIndex

    def check(self) -> None:
        """Nobody gives up."""


class MemoryIndex:
    """One space's index in memory, built from all that `index` holds now; `follow` applies what has changed since.

    With `whole` it keeps vectors, otherwise only their binary quantization.
    """

    def __init__(
        self, index: FakeIndex, *, whole: bool = True, exact: bool = False, embedder: EmbedderIdentity | None = IDENTITY
    ) -> None:
        changes = index.changes("default", SPACE, since=0)
        builder = IndexBuilder(SpaceKey("default", SPACE), BuildPlan(embedder, index.extent(), whole=whole))
        while not builder.is_read:
            builder.read(_Unit(index))
        self.root = SpaceIndex(builder, changes)
        self._index = index
        self._exact = exact

    @property
    def size_bytes(self) -> int:
        return self.root.size_bytes

    @property
    def needs_rebuild(self) -> bool:
        """Whether it should be built again."""
        return self.root.needs_rebuild

    def follow(self) -> None:
        assert self.root.update(self._index, changed_max=None)

    def searcher(self, *, exact: bool | None = None) -> IndexSearcher:
        return IndexSearcher(self.root, self._index, exact=self._exact if exact is None else exact)

    def ask(self, asked: Query, query: np.ndarray | None, *, exact: bool | None = None) -> SearchCursor:
        return self.searcher(exact=exact).search(asked, query)

    def search(self, asked: Query, query: np.ndarray | None, *, lane: Lane | None = None) -> list[ScoredRow]:
        return self.ask(asked, query).best(lane, None, 100_000)


def reachable(root: object) -> Iterator[Any]:
    """Every object that `root` keeps in memory, without code. An array gives the whole memory that it is a part of."""
    seen = {id(root)}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        yield one
        for other in _held_by(one):
            if id(other) not in seen and not isinstance(other, type | ModuleType | FunctionType):
                seen.add(id(other))
                waiting.append(other)


def _held_by(one: object) -> Sequence[Any]:
    if isinstance(one, np.ndarray) and one.base is not None:
        return [one.base]
    # The garbage collector passes over keys that are strings.
    return [*one, *one.values()] if isinstance(one, dict) else gc.get_referents(one)
