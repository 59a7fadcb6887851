"""A space in plain dictionaries that answers what a shelf asks of a store, and shelves made from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from afterturn.base.types import Changes, EmbedderIdentity, Extent, Shelved
from afterturn.recall.assembly import Assembly, Place, Plan
from afterturn.recall.shelf import Shelf
from afterturn.recall.stock import Stock

IDENTITY = EmbedderIdentity("plain", "1", 16)
SPACE = "user:ada"


@dataclass
class PlainIndex:
    """Entries and vectors by key; every change is told."""

    entries: dict[int, Shelved] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)
    changed: list[int] = field(default_factory=list)
    generation: str = "first"

    def put(self, entry: Shelved) -> None:
        self.entries[entry.key] = entry
        self.changed.append(entry.key)

    def embed(self, key: int, vector: np.ndarray) -> None:
        self.data[key] = vector.astype("<f2").tobytes()
        self.changed.append(key)

    def remove(self, key: int) -> Shelved:
        self.changed.append(key)
        return self.entries.pop(key)

    def shelved(
        self, tenant: str, space: str, *, keys: Sequence[int] | None = None, after: int = 0, limit: int
    ) -> list[Shelved]:
        wanted = sorted(key for key in self.entries if (key > after if keys is None else key in set(keys)))
        return [self.entries[key] for key in wanted[:limit]]

    def extent(self) -> Extent:
        return Extent(len(self.entries), sum(len(entry.terms) for entry in self.entries.values()), len(self.changed))

    def changes(self, tenant: str, space: str, *, since: int) -> Changes:
        return Changes(self.generation, len(self.changed), tuple(dict.fromkeys(self.changed[since:])))

    def vectors(
        self, tenant: str, space: str, embedder: EmbedderIdentity, keys: Sequence[int] | None
    ) -> dict[int, bytes]:
        wanted = sorted(self.entries if keys is None else keys)
        return {key: self.data[key] for key in wanted if key in self.data and key in self.entries}

    def cosines(self, query: np.ndarray | None) -> dict[int, float]:
        if query is None:
            return {}
        return {
            key: float(np.frombuffer(data, "<f2").astype(np.float32) @ query)
            for key, data in self.data.items()
            if key in self.entries
        }


@dataclass
class PlainUnit:
    index: PlainIndex

    def check(self) -> None:
        """Nobody gives up."""


def stocked(index: PlainIndex, *, whole: bool = True, embedder: EmbedderIdentity | None = IDENTITY) -> Stock:
    changes = index.changes("default", SPACE, since=0)
    assembly = Assembly(Place("default", SPACE), Plan(embedder, index.extent(), whole=whole))
    while not assembly.is_read:
        for page in assembly.read(PlainUnit(index)):
            assembly.add(page)
    return Stock(assembly, changes)


def shelved(index: PlainIndex, *, exact: bool = False, whole: bool = True) -> Shelf:
    return Shelf(stocked(index, whole=whole), index, exact=exact)
