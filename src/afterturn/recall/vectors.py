"""Search by meaning: vectors of every space in use, held in memory, bounded, and never behind the store."""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from afterturn.base.ports import Index, Unit
from afterturn.base.types import EmbedderIdentity, LaneQuery, Match, Scope

_FIRST_PAGE = 64
_PAGE_GROWTH = 4
# What is resolved comes with its text and its terms, and hundreds of long records take long to read.
_PAGE_MAX = 256
# Resolving stops here: an entry that this many others resemble the query more than is no answer to it.
_RESOLVED_MAX = 10_000
_ROWS_MIN = 64
# Beside its vector, a row has its key in an array (8 bytes) and in a dictionary (measured: 116 to 122).
_ROW_BYTES = 130
# What a space takes before its first row, so that any number of spaces without vectors is bounded too.
_SPACE_BYTES = 2048

Part: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.float32]]"
_NOTHING: Part = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))


class VectorIndex:
    """Derived from the store and bounded by `bytes_max` over all spaces; the space unused for longest goes first.

    Safe to share between threads. A space that does not fit alone keeps its newest vectors. Answers say that they
    are incomplete then, and when an entry has no vector yet.
    """

    def __init__(self, embedder: EmbedderIdentity, bytes_max: int) -> None:
        self._embedder = embedder
        self._bytes_max = bytes_max
        self._spaces: OrderedDict[tuple[str, str], _Space] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(space.size_bytes for space in self._spaces.values())

    def compare(self, unit: Unit, scope: Scope, query_vector: NDArray[np.float32]) -> Similarities:
        """Exact, on what the unit's own snapshot holds: later changes of the spaces are applied first."""
        extents = unit.index.extents(scope)
        parts = [_NOTHING]
        complete = True
        for name in dict.fromkeys(scope.spaces):
            if name not in extents:
                self._release(scope.tenant, name)
                continue
            keys, cosines, whole = self._space(scope.tenant, name).compare(unit.index, query_vector)
            parts.append((keys, cosines))
            complete = complete and whole and len(keys) >= extents[name].documents
            self._shrink(keep=(scope.tenant, name))
        return Similarities(unit.index, parts, complete=complete)

    def _space(self, tenant: str, name: str) -> _Space:
        with self._lock:
            space = self._spaces.get((tenant, name))
            if space is None:
                space = self._spaces[tenant, name] = _Space(tenant, name, self._embedder, self._bytes_max)
            self._spaces.move_to_end((tenant, name))
            return space

    def _release(self, tenant: str, name: str) -> None:
        with self._lock:
            self._spaces.pop((tenant, name), None)

    def _shrink(self, *, keep: tuple[str, str]) -> None:
        with self._lock:
            size_bytes = sum(space.size_bytes for space in self._spaces.values())
            for key in list(self._spaces):
                if size_bytes <= self._bytes_max or key == keep:
                    break
                size_bytes -= self._spaces.pop(key).size_bytes


class Similarities:
    """One query's cosines with every vector of the scope. Valid only inside the unit it was made in."""

    def __init__(self, index: Index, parts: Sequence[Part], *, complete: bool) -> None:
        self.complete = complete
        self._index = index
        self._keys = np.concatenate([keys for keys, _ in parts])
        self._cosines = np.concatenate([cosines for _, cosines in parts])

    def of(self, keys: Sequence[int]) -> dict[int, float]:
        """Entries without a vector are absent."""
        rows = np.flatnonzero(np.isin(self._keys, np.asarray(keys, dtype=np.int64)))
        return {int(self._keys[row]): float(self._cosines[row]) for row in rows}

    def nearest(self, query: LaneQuery, *, limit: int, cosine_min: float) -> list[tuple[Match, float]]:
        """The best `limit` that the query admits: what it excludes is passed over before the cut."""
        rows = self._candidates(cosine_min)
        found: list[tuple[Match, float]] = []
        start, size = 0, max(_FIRST_PAGE, limit)
        while start < rows.size and len(found) < limit:
            page = rows[start : start + size]
            cosines = {int(self._keys[row]): float(self._cosines[row]) for row in page}
            admitted = self._index.resolve(query, list(cosines))
            found.extend(sorted(((match, cosines[match.key]) for match in admitted), key=_rank))
            start, size = start + size, max(size, min(_PAGE_MAX, size * _PAGE_GROWTH))
        return found[:limit]

    def _candidates(self, cosine_min: float) -> NDArray[np.intp]:
        above = np.flatnonzero(self._cosines >= cosine_min)
        if above.size > _RESOLVED_MAX:
            above = above[np.argpartition(-self._cosines[above], _RESOLVED_MAX)[:_RESOLVED_MAX]]
        return above[np.lexsort((-self._keys[above], -self._cosines[above]))]


def _rank(item: tuple[Match, float]) -> tuple[float, float, str]:
    match, cosine = item
    return (-cosine, -match.entry.occurred_at, match.entry.id)


class _Space:
    """One space's vectors as a matrix whose first `count` rows are in use, in no order."""

    def __init__(self, tenant: str, name: str, embedder: EmbedderIdentity, bytes_max: int) -> None:
        self._tenant = tenant
        self._name = name
        self._embedder = embedder
        self._row_bytes = embedder.dimensions * 4 + _ROW_BYTES
        self._rows_max = max(1, (bytes_max - _SPACE_BYTES) // self._row_bytes)
        self._lock = threading.Lock()
        self._generation = ""
        self._seq = 0
        self._clear()

    @property
    def capacity(self) -> int:
        return len(self._matrix)

    @property
    def size_bytes(self) -> int:
        return _SPACE_BYTES + self.capacity * self._row_bytes

    def compare(
        self, index: Index, query_vector: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], bool]:
        with self._lock:
            self._follow(index)
            count = len(self._rows)
            return self._keys[:count].copy(), self._matrix[:count] @ query_vector, self._complete

    def _follow(self, index: Index) -> None:
        changes = index.changes(self._tenant, self._name, since=self._seq)
        # Another thread's newer snapshot may have been applied already; what this one can't see, `resolve` leaves out.
        is_behind = changes.generation == self._generation and changes.seq < self._seq
        if changes.generation != self._generation or (changes.keys is None and not is_behind):
            self._rebuild(index)
        elif changes.keys:
            self._apply(index, changes.keys)
        self._generation, self._seq = changes.generation, changes.seq

    def _rebuild(self, index: Index) -> None:
        self._clear()
        self._put(index.vectors(self._tenant, self._name, self._embedder, None))

    def _apply(self, index: Index, keys: Iterable[int]) -> None:
        changed = list(dict.fromkeys(keys))
        for key in changed:
            self._remove(key)
        self._put(index.vectors(self._tenant, self._name, self._embedder, changed))

    def _clear(self) -> None:
        self._complete = True
        self._matrix = np.zeros((0, self._embedder.dimensions), dtype=np.float32)
        self._keys = np.zeros(0, dtype=np.int64)
        self._rows: dict[int, int] = {}

    def _put(self, vectors: Sequence[tuple[int, bytes]]) -> None:
        if len(self._rows) + len(vectors) > self._rows_max:
            self._complete = False
            vectors = sorted(vectors)[-self._rows_max :]
            self._make_room(len(vectors))
        if not vectors:
            return
        start, end = len(self._rows), len(self._rows) + len(vectors)
        self._reserve(end)
        data = np.frombuffer(b"".join(data for _, data in vectors), dtype="<f2")
        self._matrix[start:end] = data.reshape(len(vectors), self._embedder.dimensions)
        self._keys[start:end] = [key for key, _ in vectors]
        self._rows.update((key, start + at) for at, (key, _) in enumerate(vectors))

    def _make_room(self, rows: int) -> None:
        """Drops the oldest, and a sixteenth more than needed, so that not every new vector has to look for them."""
        surplus = len(self._rows) + rows - self._rows_max
        for key in heapq.nsmallest(surplus + self._rows_max // 16, self._rows):
            self._remove(key)

    def _remove(self, key: int) -> None:
        row = self._rows.pop(key, None)
        if row is None:
            return
        last = len(self._rows)
        if row != last:
            self._matrix[row] = self._matrix[last]
            self._keys[row] = self._keys[last]
            self._rows[int(self._keys[row])] = row
        # Forgotten text leaves memory too, not only the list of rows in use (M2).
        self._matrix[last] = 0

    def _reserve(self, rows: int) -> None:
        if rows <= self.capacity:
            return
        capacity = min(self._rows_max, max(_ROWS_MIN, rows, self.capacity * 3 // 2))
        matrix = np.zeros((capacity, self._embedder.dimensions), dtype=np.float32)
        keys = np.zeros(capacity, dtype=np.int64)
        count = len(self._rows)
        matrix[:count], keys[:count] = self._matrix[:count], self._keys[:count]
        self._matrix, self._keys = matrix, keys
