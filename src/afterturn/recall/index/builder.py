"""Builds a space's index: reads its rows page by page and puts them together at the end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afterturn.ports import Unit
from afterturn.recall.index.postings import Postings, TermNumbers, form_for, hashed, make_part
from afterturn.recall.index.snapshot import (
    Columns,
    Dictionary,
    IndexSnapshot,
    Vectors,
    grown,
    is_quantized,
    join_columns,
    link,
    read_columns,
    read_vectors,
    set_priors,
)
from afterturn.types import EmbedderIdentity, Scope, SpaceStats

# How many rows are read at a time: about 10 ms of Python. A read waits for its turn among all readers, of which there
# are many when a space is queued.
PAGE_ROWS = 2048
AT_ONCE_ROWS_MAX = 2048
"""A larger space is not built while a question waits for it: 1,000 rows take 14 ms."""
MEAN_ROWS = 4096
"""The mean of this many vectors is close enough to the mean of all to quantize around it."""
_ROOM_MIN = 16
_ROOM_SHARE = 16


class SpaceKey(NamedTuple):
    tenant: str
    space: str

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, (self.space,))


def find_stats(unit: Unit, space_key: SpaceKey) -> SpaceStats | None:
    """None for a space without entries."""
    return unit.index.stats(space_key.scope).get(space_key.space)


class BuildPlan(NamedTuple):
    """What to keep: `whole` vectors, or only quantized ones where memory is short. `stats` is the expected size."""

    embedder: EmbedderIdentity | None
    stats: SpaceStats
    whole: bool = True


class IndexBuilder:
    """Vectors are put in their final place as soon as they are read, so that they are never in memory twice."""

    def __init__(self, space_key: SpaceKey, plan: BuildPlan) -> None:
        self.space_key = space_key
        self.plan = plan
        self.dictionary = Dictionary(space_key.space)
        self.is_read = False
        self._count = 0
        self._after = 0
        self._numbers = TermNumbers()
        self._columns: list[Columns] = []
        self._form = form_for(plan.stats.documents)
        self._packed = np.empty(room_for(plan.stats.terms_total), np.int64)
        self._packed_count = 0
        self._waiting: list[tuple[NDArray[np.int32], NDArray[np.float16]]] = []
        self._embedded: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
        self._vectors: Vectors | None = None
        count = plan.stats.documents
        if plan.embedder is not None:
            quantized = is_quantized(count, whole=plan.whole)
            self._vectors = Vectors(plan.embedder.dimensions, room_for(count), whole=plan.whole, quantized=quantized)

    def read(self, unit: Unit) -> None:
        """Reads the next page. It changes the builder last, so a unit that runs again reads no page twice."""
        unit.check()
        index, embedder = unit.index, self.plan.embedder
        tenant, space = self.space_key.tenant, self.space_key.space
        entries = index.entries(tenant, space, after=self._after, limit=PAGE_ROWS)
        columns = read_columns(entries, self.dictionary)
        terms = hashed([entry.terms for entry in entries], self._numbers)
        if embedder is not None:
            found = index.vectors(tenant, space, embedder, columns.keys.tolist())
            rows = columns.keys.searchsorted(np.fromiter(found, np.int64, len(found))).astype(np.int32)
            if found:
                vectors = read_vectors(found.values(), embedder.dimensions)
                self._waiting.append((rows + np.int32(self._count), vectors))
        self._columns.append(columns)
        self._put_terms(terms, columns.lengths)
        self._count += columns.capacity
        self._after = int(columns.keys[-1]) if columns.capacity else self._after
        self.is_read = columns.capacity < PAGE_ROWS
        if self._embedded[1:] or sum(rows.size for rows, _ in self._waiting) >= MEAN_ROWS:
            self._put_vectors()

    @property
    def is_outgrown(self) -> bool:
        """Whether the space has grown so much that it needs another plan."""
        return not self._form.holds(self._count + PAGE_ROWS)

    def snapshot(self) -> IndexSnapshot:
        """A snapshot of all rows that were added."""
        self._put_vectors()
        columns = join_columns(self._columns)
        rows = np.arange(self._count)
        snapshot = IndexSnapshot(
            count=self._count,
            columns=columns.grown(max(room_for(self._count), self._vectors.capacity if self._vectors else 0)),
            is_alive=np.ones(self._count, np.bool_),
            has_vector=np.zeros(self._count, np.bool_),
            before=rows,
            after=rows.copy(),
            spans=columns.lengths.copy(),
            newer=np.zeros(self._count, np.float32),
            priors=np.zeros(self._count, np.float32),
            postings=Postings([make_part(self._form, self._packed[: self._packed_count])]),
            vectors=self._vectors,
        )
        snapshot.has_vector[np.concatenate(self._embedded)] = True
        link(snapshot, None)
        set_priors(snapshot)
        return snapshot

    def _put_terms(self, terms: NDArray[np.int64], lengths: NDArray[np.float32]) -> None:
        start, self._packed_count = self._packed_count, self._packed_count + terms.size
        if self._packed_count > self._packed.size:
            self._packed = grown(self._packed, room_for(self._packed_count))
        rows = np.arange(self._count, self._count + lengths.size, dtype=np.int32)
        of_terms = np.repeat(rows, lengths.astype(np.int64))
        self._packed[start : self._packed_count] = self._form.packed(terms, of_terms)

    def _put_vectors(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._vectors is None or not waiting:
            return
        if self._count > self._vectors.capacity:
            self._vectors = self._vectors.grown(room_for(self._count))
        if not self._embedded[1:]:
            self._vectors.mean = np.concatenate([found for _, found in waiting]).mean(axis=0, dtype=np.float32)
        for rows, found in waiting:
            self._vectors.put(rows, found)
            self._embedded.append(rows)


def room_for(count: int) -> int:
    """With spare room, so that not every new row moves all others."""
    return count + max(_ROOM_MIN, count // _ROOM_SHARE)
