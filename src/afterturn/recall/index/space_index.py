"""Entries that answers were made of, kept beside a shelf: most of what is asked for next was asked for before."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afterturn.ports import Index, Unit
from afterturn.recall.index.builder import MEAN_ROWS, IndexBuilder, room_for
from afterturn.recall.index.postings import hashed
from afterturn.recall.index.snapshot import (
    NOWHERE,
    Columns,
    IndexSnapshot,
    grown,
    link,
    read_facts,
    stand,
    stand_behind,
)
from afterturn.recall.index.vectors import read_vectors
from afterturn.types import Changes, Entry, IndexedEntry

KEPT_BYTES_LEAST = 65_536
"""Some entries of a small space may take more than its shelf."""
# Measured: an entry with the strings that every one has, its place in the dictionary included.
_ENTRY_BYTES = 1200
# What is larger than such a share of the room would drive out too much that is asked for more often.
_SHARE = 16


class EntryCache:
    """By key, as they were last read; those unused for longest go first. Whoever shares it holds a lock."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, tuple[Entry, int]] = OrderedDict()
        self.size_bytes = 0

    def find(self, keys: Iterable[int]) -> dict[int, Entry]:
        found: dict[int, Entry] = {}
        for key in keys:
            kept = self._entries.get(key)
            if kept is not None:
                found[key] = kept[0]
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
            kept = self._entries.pop(key, None)
            if kept is not None:
                self.size_bytes -= kept[1]

    def clear(self) -> None:
        self._entries.clear()
        self.size_bytes = 0


def _size(entry: Entry) -> int:
    told = (*entry.metadata, *entry.metadata.values(), *entry.sources)
    return _ENTRY_BYTES + sys.getsizeof(entry.text) + sum(map(sys.getsizeof, told))


# What a shelf holds, kept level with its space by the changes there.

FOLLOWED_MAX = 1024
"""A recall that finds more changes than this does without the shelf, and somebody else brings it up to date."""
_WORN_MIN = 1024
# Measured: objects around the arrays 4,000 to 5,000, a row in a dictionary 116 to 122.
_STOCK_BYTES = 5120
_LATE_BYTES = 130


class SpaceIndex:
    """One space in memory. Readers take `edition` and keep it; whoever changes anything makes another, under a lock."""

    def __init__(self, assembly: IndexBuilder, changes: Changes) -> None:
        """Of all of a space, which holds at least what that held at `changes`."""
        self.place = assembly.place
        self.plan = assembly.plan
        self.codes = assembly.codes
        self.generation = changes.generation
        self.seq = changes.seq
        self.edition = assembly.edition()
        self._lock = threading.Lock()
        # Rows up to here are sorted by key; later ones are looked up by name.
        self._sorted = self.edition.count
        self._late: dict[int, int] = {}
        self._newest_key = int(self.edition.facts.keys[: self.edition.count].max(initial=0))
        self._columns = _Columns()
        self._vectors_at_first = self.edition.vectors_count
        self._is_sketched = self.edition.vectors is not None and self.edition.vectors.is_sketched
        self.shelf_bytes = self._size()
        self._kept = EntryCache()

    @property
    def size_bytes(self) -> int:
        return self.shelf_bytes + self._kept.size_bytes

    @property
    def is_worn(self) -> bool:
        """Whether it should be built anew: many rows are dead or came late, or sketches are around a mean of few."""
        edition = self.edition
        return (
            edition.count - edition.alive_count > _share(edition.count)
            or edition.count - self._sorted > _share(self._sorted)
            or (self._is_sketched and edition.vectors_count > 2 * self._vectors_at_first + MEAN_ROWS)
        )

    def changes(self, unit: Unit) -> Changes:
        return unit.index.changes(self.place.tenant, self.place.space, since=self.seq)

    def follow(self, index: Index, *, changed_max: int | None = FOLLOWED_MAX) -> Changes | None:
        """Brings it to the snapshot of `index`. None when that is too far away, and nothing was done."""
        with self._lock:
            changes = index.changes(self.place.tenant, self.place.space, since=self.seq)
            if changes.generation != self.generation:
                return None
            # Another thread's newer snapshot was applied already; what this one can't see, `resolve` leaves out.
            if changes.seq < self.seq:
                return changes
            if changes.keys is None or (changed_max is not None and len(changes.keys) > changed_max):
                return None
            if changes.keys:
                self._apply(index, changes.keys)
            self.seq = changes.seq
            return changes

    def apply(self, unit: Unit, *, keys: Sequence[int]) -> None:
        """Reads these anew. `advance` says when that was all up to some change."""
        with self._lock:
            self._apply(unit.index, keys)

    def advance(self, changes: Changes) -> None:
        with self._lock:
            # A reader of an older snapshot may have put something back that was dropped on the way.
            self._kept.clear()
            self.seq = max(self.seq, changes.seq)

    def kept(self, keys: Sequence[int], *, seq: int | None) -> dict[int, Entry]:
        """Those of them that are in memory, as a snapshot with its newest change at `seq` has them."""
        with self._lock:
            return self._kept.find(keys) if seq == self.seq else {}

    def keep(self, entries: Mapping[int, Entry], *, seq: int | None) -> None:
        """As they were read in such a snapshot. All of them take no more room than the shelf does, or very little."""
        with self._lock:
            if seq == self.seq:
                self._kept.put(entries, bytes_max=max(KEPT_BYTES_LEAST, self.shelf_bytes))

    def let_entries_go(self) -> None:
        with self._lock:
            self._kept.clear()

    def _size(self) -> int:
        arrays_bytes = self.edition.size_bytes + self._columns.spare_bytes(self.edition.count)
        return _STOCK_BYTES + arrays_bytes + self.codes.size_bytes + len(self._late) * _LATE_BYTES

    def _apply(self, index: Index, keys: Sequence[int]) -> None:
        self._kept.drop(keys)
        place, known = self.place, self._rows(self.edition, keys)
        vectors = self._read_vectors(index, keys)
        # What has a vector is active, and all else of an entry never changes.
        unsure = [key for key in keys if key not in known or key not in vectors]
        entries = index.shelved(place.tenant, place.space, keys=unsure, limit=len(unsure)) if unsure else []
        there = {entry.key for entry in entries}
        fresh = [entry for entry in entries if entry.key not in known]
        gone = np.array([known[key] for key in unsure if key in known and key not in there], np.int32)
        if fresh or gone.size:
            edition = self._with_changes(fresh, gone)
        else:
            edition = replace(self.edition, has_vector=self.edition.has_vector.copy())
        self._put_vectors(edition, vectors)
        self.edition = edition
        self.shelf_bytes = self._size()

    def _with_changes(self, fresh: Sequence[IndexedEntry], gone: NDArray[np.int32]) -> IndexSnapshot:
        facts = read_facts(fresh, self.codes)
        touched = {*self.edition.facts.conversations[gone].tolist(), *facts.conversations.tolist()} - {NOWHERE}
        is_behind = not gone.size and fresh[0].key > self._newest_key
        if gone.size or touched:
            # What is read by others now would change below their eyes.
            self._columns.clear()
            edition = _next_edition(self.edition, len(fresh), grown)
        else:
            edition = _next_edition(self.edition, len(fresh), self._columns.extended)
        if fresh:
            edition = self._with_rows(edition, facts, fresh)
        if gone.size:
            self._without_rows(edition, gone)
        if touched:
            link(edition, touched)
        if is_behind:
            stand_behind(edition, len(fresh))
        else:
            stand(edition)
        return edition

    def _rows(self, edition: IndexSnapshot, keys: Sequence[int]) -> dict[int, int]:
        """Of those that are alive. A key that came back has a second row."""
        by_key = edition.facts.keys[: self._sorted]
        found: dict[int, int] = {}
        for key, at in zip(keys, by_key.searchsorted(np.array(keys, np.int64)).tolist(), strict=True):
            row = self._late.get(key, at if at < by_key.size and by_key[at] == key else None)
            if row is not None and edition.is_alive[row]:
                found[key] = row
        return found

    def _with_rows(self, edition: IndexSnapshot, facts: Columns, entries: Sequence[IndexedEntry]) -> IndexSnapshot:
        start = edition.count - len(entries)
        rows = np.arange(start, edition.count, dtype=np.int32)
        edition.facts.put(start, facts)
        edition.is_alive[start:] = True
        edition.before[start:] = edition.after[start:] = rows
        edition.spans[start:] = facts.lengths
        self._late.update(zip(facts.keys.tolist(), rows.tolist(), strict=True))
        self._newest_key = max(self._newest_key, int(facts.keys[-1]))
        terms = hashed([entry.terms for entry in entries])
        postings = edition.postings.with_rows(terms, np.repeat(rows, facts.lengths.astype(np.int64)))
        return replace(edition, postings=postings)

    def _without_rows(self, edition: IndexSnapshot, gone: NDArray[np.int32]) -> None:
        facts = edition.facts
        codes = {*facts.conversations[gone].tolist(), *facts.speakers[gone].tolist()}
        for key in facts.keys[gone].tolist():
            self._late.pop(key, None)
        edition.is_alive[gone] = edition.has_vector[gone] = False
        edition.before[gone] = edition.after[gone] = gone
        edition.spans[gone] = 0
        edition.postings.blank(gone)
        facts.blank(gone)
        if edition.vectors is not None:
            edition.vectors.blank(gone)
        self.codes.drop({code for code in codes if not facts.uses(code, edition.count)})

    def _read_vectors(self, index: Index, keys: Sequence[int]) -> dict[int, bytes]:
        if self.plan.embedder is None:
            return {}
        return index.vectors(self.place.tenant, self.place.space, self.plan.embedder, keys)

    def _put_vectors(self, edition: IndexSnapshot, found: Mapping[int, bytes]) -> None:
        rows = self._rows(edition, list(found))
        if edition.vectors is not None and rows:
            at = np.fromiter(rows.values(), np.int32, len(rows))
            edition.vectors.put(at, read_vectors([found[key] for key in rows], edition.vectors.dimensions))
            edition.has_vector[at] = True


class _Columns:
    """Arrays with room behind their last row: where nothing changes, a later edition sees more of the same memory."""

    def __init__(self) -> None:
        self._columns: dict[int, NDArray[Any]] = {}

    def clear(self) -> None:
        self._columns.clear()

    def extended(self, array: NDArray[Any], count: int) -> NDArray[Any]:
        """The same, with so many rows, of which nobody has filled in the new. To be called for the last edition's."""
        column = array.base if id(array.base) in self._columns else None
        if column is None or column.size < count:
            self._columns.pop(id(column), None)
            column = grown(array, room_for(count))
            self._columns[id(column)] = column
        return column[:count]

    def spare_bytes(self, count: int) -> int:
        return sum((column.size - count) * column.itemsize for column in self._columns.values())


def _next_edition(
    edition: IndexSnapshot, added: int, extended: Callable[[NDArray[Any], int], NDArray[Any]]
) -> IndexSnapshot:
    """The same with so many more rows, which nobody has filled in; in arrays of its own where something may change."""
    count = edition.count + added
    facts, vectors = edition.facts, edition.vectors
    # Vectors were given room for what was planned, facts for what came.
    if count > min(facts.capacity, facts.capacity if vectors is None else vectors.capacity):
        room = max(room_for(count), facts.capacity)
        facts, vectors = facts.grown(room), vectors and vectors.grown(room)
    return replace(
        edition,
        count=count,
        facts=facts,
        vectors=vectors,
        is_alive=extended(edition.is_alive, count),
        has_vector=grown(edition.has_vector, count),
        before=extended(edition.before, count),
        after=extended(edition.after, count),
        spans=extended(edition.spans, count),
        newer=grown(edition.newer, count),
        priors=grown(edition.priors, count),
    )


def _share(count: int) -> int:
    """What may be out of place among so many before it is worth putting everything in place."""
    return max(_WORN_MIN, count // 4)
