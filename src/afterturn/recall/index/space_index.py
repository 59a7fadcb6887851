"""One space's index in memory: built page by page, updated from the store's change log, with a cache of the entries
that it returned.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afterturn.ports import Index, Unit
from afterturn.recall.features import STATEMENT_CHARS_MAX
from afterturn.recall.index.snapshot import (
    NOWHERE,
    Columns,
    Dictionary,
    IndexSnapshot,
    Postings,
    TermNumbers,
    Vectors,
    extend_derived,
    form_for,
    grown,
    hashed,
    is_quantized,
    join_columns,
    link,
    make_part,
    read_columns,
    read_vectors,
    set_appended_priors,
    set_priors,
)
from afterturn.types import Changes, EmbedderIdentity, Entry, IndexedEntry, Scope, SpaceStats

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
    """Options of an index: `whole` vectors, or only quantized ones to save memory. `stats` is the expected size."""

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


CACHE_BYTES_MIN = 4 << 20
"""All entries of a space of 1,000: a turn weighs 128 of them, and one that is not cached takes 0.2 ms."""
CACHE_SHARE = 2
"""The entries of a larger space may take this many times the memory of its index."""
# Measured: an entry with the strings that each has, and its slot in the dictionary.
_ENTRY_BYTES = 1200
# Measured: what recall computes from an entry (recall/features.py), and from one that may be a statement, by character.
_FEATURES_BYTES = 600
_FORM_BYTES, _FORM_BYTES_PER_CHAR = 1100, 7
# A larger share of the room would evict too much that is asked for more often.
_SHARE = 16


class EntryCache:
    """A cache of entries by key; the least recently used leave first. Not thread-safe: the caller holds a lock."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, tuple[Entry, int]] = OrderedDict()
        self.size_bytes = 0

    def find(self, keys: Iterable[int]) -> dict[int, Entry]:
        found: dict[int, Entry] = {}
        for key in keys:
            cached = self._entries.get(key)
            if cached is not None:
                found[key] = cached[0]
                self._entries.move_to_end(key)
        return found

    def put(self, entries: Mapping[int, Entry], *, bytes_max: int) -> None:
        self.drop(entries)
        for key, entry in entries.items():
            size_bytes = _size(entry)
            if size_bytes <= bytes_max // _SHARE:
                self._entries[key] = entry, size_bytes
                self.size_bytes += size_bytes
        while self.size_bytes > bytes_max:
            self.size_bytes -= self._entries.popitem(last=False)[1][1]

    def drop(self, keys: Iterable[int]) -> None:
        for key in keys:
            cached = self._entries.pop(key, None)
            if cached is not None:
                self.size_bytes -= cached[1]

    def clear(self) -> None:
        self._entries.clear()
        self.size_bytes = 0


def _size(entry: Entry) -> int:
    details = (*entry.metadata, *entry.metadata.values(), *entry.sources)
    text_bytes = sys.getsizeof(entry.text)
    has_form = len(entry.text) <= STATEMENT_CHARS_MAX
    form_bytes = _FORM_BYTES + _FORM_BYTES_PER_CHAR * len(entry.text) if has_form else 0
    # Twice the text: as it is stored, and as a line of a block.
    return _ENTRY_BYTES + _FEATURES_BYTES + form_bytes + 2 * text_bytes + sum(map(sys.getsizeof, details))


CHANGES_MAX = 1024
"""A recall that finds more changes than this does without the index, which is updated in the background."""
_REBUILD_MIN = 1024
# Measured: objects around the arrays 4,000 to 5,000, a row in a dictionary 116 to 122.
_OBJECTS_BYTES = 5120
_ADDED_BYTES = 130


class SpaceIndex:
    """One space in memory. Readers take `snapshot` and keep it; a change makes another one, under a lock."""

    def __init__(self, builder: IndexBuilder, changes: Changes) -> None:
        """From a builder that has read at least what the space held at `changes`."""
        self.space_key = builder.space_key
        self.plan = builder.plan
        self.dictionary = builder.dictionary
        self.generation = changes.generation
        self.seq = changes.seq
        self.snapshot = builder.snapshot()
        self._lock = threading.Lock()
        # Rows up to here are sorted by key; later ones are in `_added`.
        self._sorted = self.snapshot.count
        self._added: dict[int, int] = {}
        self._newest_key = int(self.snapshot.columns.keys[: self.snapshot.count].max(initial=0))
        self._arrays = _GrowingArrays()
        self._vectors_at_first = self.snapshot.vectors_count
        self._is_quantized = self.snapshot.vectors is not None and self.snapshot.vectors.is_quantized
        self.index_bytes = self._size()
        self._entries = EntryCache()

    @property
    def size_bytes(self) -> int:
        return self.index_bytes + self._entries.size_bytes

    @property
    def needs_rebuild(self) -> bool:
        """Many rows are dead or were added late, or vectors are quantized around a mean of few."""
        snapshot = self.snapshot
        return (
            snapshot.count - snapshot.alive_count > _share(snapshot.count)
            or snapshot.count - self._sorted > _share(self._sorted)
            or (self._is_quantized and snapshot.vectors_count > 2 * self._vectors_at_first + MEAN_ROWS)
        )

    def changes(self, unit: Unit) -> Changes:
        return unit.index.changes(self.space_key.tenant, self.space_key.space, since=self.seq)

    def update(self, index: Index, *, changed_max: int | None = CHANGES_MAX) -> Changes | None:
        """Applies the changes up to the snapshot of `index`. None, and nothing applied, when they are too many."""
        with self._lock:
            changes = index.changes(self.space_key.tenant, self.space_key.space, since=self.seq)
            if changes.generation != self.generation:
                return None
            # Another thread has applied a newer snapshot. `resolve` leaves out what this one cannot see.
            if changes.seq < self.seq:
                return changes
            if changes.keys is None or (changed_max is not None and len(changes.keys) > changed_max):
                return None
            if changes.keys:
                self._apply(index, changes.keys)
            self.seq = changes.seq
            return changes

    def apply(self, unit: Unit, *, keys: Sequence[int]) -> None:
        """Reads these keys again. Call `advance` after the last keys of a change list."""
        with self._lock:
            self._apply(unit.index, keys)

    def advance(self, changes: Changes) -> None:
        with self._lock:
            # A reader of an older snapshot may have cached an entry that was dropped meanwhile.
            self._entries.clear()
            self.seq = max(self.seq, changes.seq)

    def cached_entries(self, keys: Sequence[int], *, seq: int | None) -> dict[int, Entry]:
        """Those of `keys` that are cached, as of a snapshot whose newest change is `seq`."""
        with self._lock:
            return self._entries.find(keys) if seq == self.seq else {}

    def cache_entries(self, entries: Mapping[int, Entry], *, seq: int | None) -> None:
        """Caches entries that were read in such a snapshot, up to twice the size of the index, or 4 MiB."""
        with self._lock:
            if seq == self.seq:
                self._entries.put(entries, bytes_max=max(CACHE_BYTES_MIN, CACHE_SHARE * self.index_bytes))

    def drop_cached_entries(self) -> None:
        with self._lock:
            self._entries.clear()

    def _size(self) -> int:
        arrays_bytes = self.snapshot.size_bytes + self._arrays.spare_bytes(self.snapshot.count)
        return _OBJECTS_BYTES + arrays_bytes + self.dictionary.size_bytes + len(self._added) * _ADDED_BYTES

    def _apply(self, index: Index, keys: Sequence[int]) -> None:
        self._entries.drop(keys)
        space_key, known = self.space_key, self._rows(self.snapshot, keys)
        place, embedder = (space_key.tenant, space_key.space), self.plan.embedder
        vectors = index.vectors(*place, embedder, keys) if embedder is not None else {}
        # An entry with a vector is active, and nothing else about an entry changes.
        unsure = [key for key in keys if key not in known or key not in vectors]
        entries = index.entries(*place, keys=unsure, limit=len(unsure)) if unsure else []
        there = {entry.key for entry in entries}
        fresh = [entry for entry in entries if entry.key not in known]
        gone = np.array([known[key] for key in unsure if key in known and key not in there], np.int32)
        if fresh or gone.size:
            snapshot = self._with_changes(fresh, gone)
        else:
            snapshot = replace(self.snapshot, has_vector=self.snapshot.has_vector.copy())
        if not gone.size:
            extend_derived(snapshot, self.snapshot)
        self._put_vectors(snapshot, vectors)
        self.snapshot = snapshot
        self.index_bytes = self._size()

    def _with_changes(self, fresh: Sequence[IndexedEntry], gone: NDArray[np.int32]) -> IndexSnapshot:
        columns = read_columns(fresh, self.dictionary)
        touched = {*self.snapshot.columns.conversations[gone].tolist(), *columns.conversations.tolist()} - {NOWHERE}
        is_behind = not gone.size and fresh[0].key > self._newest_key
        if gone.size or touched:
            # Readers of the current snapshot must not see these arrays change.
            self._arrays.clear()
            snapshot = _next_snapshot(self.snapshot, len(fresh), grown)
        else:
            snapshot = _next_snapshot(self.snapshot, len(fresh), self._arrays.extend)
        if fresh:
            start = snapshot.count - len(fresh)
            rows = np.arange(start, snapshot.count, dtype=np.int32)
            snapshot.columns.put(start, columns)
            snapshot.is_alive[start:] = True
            snapshot.before[start:] = snapshot.after[start:] = rows
            snapshot.spans[start:] = columns.lengths
            self._added.update(zip(columns.keys.tolist(), rows.tolist(), strict=True))
            self._newest_key = max(self._newest_key, int(columns.keys[-1]))
            occurrences = np.repeat(rows, columns.lengths.astype(np.int64))
            postings = snapshot.postings.with_rows(hashed([entry.terms for entry in fresh]), occurrences)
            snapshot = replace(snapshot, postings=postings)
        if gone.size:
            self._without_rows(snapshot, gone)
        if touched:
            link(snapshot, touched)
        if is_behind:
            set_appended_priors(snapshot, len(fresh))
        else:
            set_priors(snapshot)
        return snapshot

    def _rows(self, snapshot: IndexSnapshot, keys: Sequence[int]) -> dict[int, int]:
        """The rows of those keys that are alive. A key that returned has a second row."""
        by_key = snapshot.columns.keys[: self._sorted]
        found: dict[int, int] = {}
        for key, at in zip(keys, by_key.searchsorted(np.array(keys, np.int64)).tolist(), strict=True):
            row = self._added.get(key, at if at < by_key.size and by_key[at] == key else None)
            if row is not None and snapshot.is_alive[row]:
                found[key] = row
        return found

    def _without_rows(self, snapshot: IndexSnapshot, gone: NDArray[np.int32]) -> None:
        columns = snapshot.columns
        codes = {*columns.conversations[gone].tolist(), *columns.speakers[gone].tolist()}
        for key in columns.keys[gone].tolist():
            self._added.pop(key, None)
        snapshot.is_alive[gone] = snapshot.has_vector[gone] = False
        snapshot.before[gone] = snapshot.after[gone] = gone
        snapshot.spans[gone] = 0
        snapshot.postings.blank(gone)
        columns.blank(gone)
        if snapshot.vectors is not None:
            snapshot.vectors.blank(gone)
        self.dictionary.drop({code for code in codes if not columns.uses(code, snapshot.count)})

    def _put_vectors(self, snapshot: IndexSnapshot, found: Mapping[int, bytes]) -> None:
        rows = self._rows(snapshot, list(found))
        if snapshot.vectors is not None and rows:
            at = np.fromiter(rows.values(), np.int32, len(rows))
            snapshot.vectors.put(at, read_vectors([found[key] for key in rows], snapshot.vectors.dimensions))
            snapshot.has_vector[at] = True


class _GrowingArrays:
    """Arrays with room after their last row: a snapshot that only adds rows shares the memory of the one before."""

    def __init__(self) -> None:
        self._arrays: dict[int, NDArray[Any]] = {}

    def clear(self) -> None:
        self._arrays.clear()

    def extend(self, array: NDArray[Any], count: int) -> NDArray[Any]:
        """The last snapshot's `array` with `count` rows. The caller fills in the new ones."""
        array_with_room = array.base if id(array.base) in self._arrays else None
        if array_with_room is None or array_with_room.size < count:
            self._arrays.pop(id(array_with_room), None)
            array_with_room = grown(array, room_for(count))
            self._arrays[id(array_with_room)] = array_with_room
        return array_with_room[:count]

    def spare_bytes(self, count: int) -> int:
        return sum(
            (array_with_room.size - count) * array_with_room.itemsize for array_with_room in self._arrays.values()
        )


def _next_snapshot(
    snapshot: IndexSnapshot, added: int, extend: Callable[[NDArray[Any], int], NDArray[Any]]
) -> IndexSnapshot:
    """A copy with `added` more rows, to be filled in. `extend` decides whether arrays are shared or copied."""
    count = snapshot.count + added
    columns, vectors = snapshot.columns, snapshot.vectors
    # Vectors have room for the planned rows, columns for those that were read.
    if count > min(columns.capacity, columns.capacity if vectors is None else vectors.capacity):
        room = max(room_for(count), columns.capacity)
        columns, vectors = columns.grown(room), vectors and vectors.grown(room)
    return replace(
        snapshot,
        count=count,
        columns=columns,
        vectors=vectors,
        is_alive=extend(snapshot.is_alive, count),
        has_vector=grown(snapshot.has_vector, count),
        before=extend(snapshot.before, count),
        after=extend(snapshot.after, count),
        spans=extend(snapshot.spans, count),
        newer=grown(snapshot.newer, count),
        priors=grown(snapshot.priors, count),
    )


def _share(count: int) -> int:
    """How many rows may be dead or unsorted before a rebuild is worth it."""
    return max(_REBUILD_MIN, count // 4)
