"""A small space's vectors in memory, for questions asked before the space has a shelf."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from afterturn.base.ports import Index
from afterturn.base.types import EmbedderIdentity, Extent
from afterturn.recall.assembly import Place
from afterturn.recall.sketches import Floats, read_vectors, widened_product

# What a space takes before its first row, so that any number of spaces without vectors is bounded too.
_SPACE_BYTES = 2048


class Cosines:
    """One question compared with every vector of a space; `complete` is False while many entries have none."""

    def __init__(self, keys: NDArray[np.int64], cosines: Floats, *, complete: bool) -> None:
        """`keys` are in ascending order."""
        self.complete = complete
        self._keys = keys
        self._cosines = cosines

    def of(self, keys: Sequence[int]) -> dict[int, float]:
        """Entries without a vector are absent."""
        if not self._keys.size:
            return {}
        wanted = np.array(keys, np.int64)
        at = np.minimum(self._keys.searchsorted(wanted), self._keys.size - 1)
        found = self._keys[at] == wanted
        return dict(zip(wanted[found].tolist(), self._cosines[at[found]].tolist(), strict=True))

    def nearest_keys(self, count: int) -> list[int]:
        """Nearest first; equally near: the newer first."""
        order = np.lexsort((-self._keys, -self._cosines))[:count]
        nearest: list[int] = self._keys[order].tolist()
        return nearest


class Matrix:
    """Readers take both arrays at once and keep them; whoever changes anything makes others, under a lock.

    Vectors stay as narrow as the store has them: most spaces are asked once, and a second question finds a shelf.
    """

    def __init__(self, place: Place, embedder: EmbedderIdentity) -> None:
        self.place = place
        self._embedder = embedder
        self._lock = threading.Lock()
        self._generation = ""
        self._seq = 0
        self._clear()

    @property
    def size_bytes(self) -> int:
        keys, vectors = self._held
        return _SPACE_BYTES + keys.nbytes + vectors.nbytes

    def compare(self, index: Index, extent: Extent, query_vector: Floats) -> tuple[NDArray[np.int64], Floats]:
        """On what the snapshot of `index` holds, where the space has that extent: later changes are applied first."""
        with self._lock:
            self._follow(index, extent)
            keys, vectors = self._held
        return keys, widened_product(vectors, query_vector)

    def _clear(self) -> None:
        self._held = (np.zeros(0, np.int64), np.zeros((0, self._embedder.dimensions), np.float16))

    def _follow(self, index: Index, extent: Extent) -> None:
        # Nobody needs to be told what changed before the first look.
        since = self._seq if self._generation else extent.seq
        changes = index.changes(self.place.tenant, self.place.space, since=since)
        is_same = changes.generation == self._generation
        # Another thread's newer snapshot was applied already; what this one can't see, `resolve` leaves out.
        if is_same and changes.seq < self._seq:
            return
        if not is_same or changes.keys is None:
            self._clear()
            self._read(index, None)
        elif changes.keys:
            self._read(index, changes.keys)
        self._generation, self._seq = changes.generation, changes.seq

    def _read(self, index: Index, changed: Sequence[int] | None) -> None:
        found = index.vectors(self.place.tenant, self.place.space, self._embedder, changed)
        new_keys = np.fromiter(found, np.int64, len(found))
        new = read_vectors(found.values(), self._embedder.dimensions)
        keys, vectors = self._held
        gone = np.isin(keys, np.array(changed, np.int64)) if changed else np.zeros(keys.size, np.bool_)
        if keys.size:
            new_keys = np.concatenate([keys[~gone], new_keys])
            new = np.concatenate([vectors[~gone], new])
        if np.any(new_keys[1:] < new_keys[:-1]):
            order = np.argsort(new_keys)
            new_keys, new = new_keys[order], new[order]
        self._held = (new_keys, new)
        # Forgotten text leaves memory, for a reader that still holds these too.
        vectors[gone] = 0
