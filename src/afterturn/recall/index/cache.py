"""A cache of the spaces in memory, bounded in bytes, and the queue of spaces to build in the background."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections import OrderedDict
from functools import partial
from typing import Any

from afterturn.errors import DeadlineExceeded, StoreError
from afterturn.log import logger
from afterturn.ports import Store, Unit
from afterturn.recall.index.searcher import EntryResolver, IndexSearcher
from afterturn.recall.index.snapshot import vector_bytes
from afterturn.recall.index.space_index import (
    AT_ONCE_ROWS_MAX,
    CHANGES_MAX,
    BuildPlan,
    IndexBuilder,
    SpaceIndex,
    SpaceKey,
    find_stats,
    room_for,
)
from afterturn.types import Changes, EmbedderIdentity, Scope, SpaceStats

_QUEUE_MAX = 256
# Some milliseconds, for which a search of that space waits.
_APPLIED_AT_ONCE = 256
# Longer than a turn waits for its block.
_BUILD_AFTER = 0.1
# Building an index of 100,000 entries leaves 20 MB of free memory in the process.
_LARGE_BYTES = 1 << 23
_TOO_LARGE_MAX = 4096
# The size of a row without its vector, and of an occurrence of a term, measured on conversations.
_ROW_BYTES = 72
_TERM_BYTES = 8


class IndexCache:
    """The indexes of spaces, derived from the store. Above `bytes_max` the least recently used leaves first.

    Thread-safe. Without an embedder, indexes rank by words alone.
    """

    def __init__(self, embedder: EmbedderIdentity | None, bytes_max: int, *, exact: bool = False) -> None:
        """`exact` scores every row exactly for every question, however long it takes."""
        self._embedder = embedder
        self._bytes_max = bytes_max
        self._exact = exact
        self._lock = threading.Lock()
        self._spaces: OrderedDict[SpaceKey, SpaceIndex] = OrderedDict()
        self._sizes: dict[SpaceKey, int] = {}
        self._size_bytes = 0
        self._asked = asyncio.Event()
        self._queue: OrderedDict[SpaceKey, None] = OrderedDict()
        self._changed: dict[SpaceKey, None] = {}
        # Spaces that were too large for `bytes_max`, and how many entries they had.
        self._too_large: OrderedDict[SpaceKey, int] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    @property
    def has_queued(self) -> bool:
        """Whether a space waits for `build_next`."""
        return bool(self._queue)

    def find(self, unit: Unit, tenant: str, space: str) -> IndexSearcher | None:
        """The space as of the unit's snapshot. Builds a small space that is not in memory; queues a larger one.

        None when it is not in memory, or has no entries."""
        space_key = SpaceKey(tenant, space)
        with self._lock:
            space_index = self._spaces.get(space_key)
        if space_index is None:
            space_index = self._build_small(unit, space_key)
        if space_index is None:
            return None
        try:
            changes = space_index.update(unit.index)
        except DeadlineExceeded:
            raise
        except Exception:
            # Drop it: it must not keep what was forgotten. It is built again.
            with self._lock:
                self._drop(space_key)
            self._enqueue(space_key)
            raise
        if changes is None:
            # An entry of it may be forgotten by now, and a rebuild may take a while.
            space_index.drop_cached_entries()
            self._enqueue(space_key)
            return None
        if not space_index.snapshot.alive_count:
            self._remove(space_key)
            return None
        if space_index.needs_rebuild or space_index.index_bytes > self._bytes_max:
            self._enqueue(space_key)
        self._keep(space_index)
        resolver = EntryResolver(space_index, unit.index, seq=changes.seq, grown=self._count_entries)
        return IndexSearcher(space_index, unit.index, resolver, exact=self._exact)

    def _build_small(self, unit: Unit, space_key: SpaceKey) -> SpaceIndex | None:
        """None when it is empty, or too large for one question or for the cache."""
        stats = find_stats(unit, space_key)
        if stats is None:
            self._remove(space_key)
            return None
        # A space that was too large may fit after it has shrunk.
        with self._lock:
            if stats.documents < self._too_large.get(space_key, 0):
                del self._too_large[space_key]
        if stats.documents > AT_ONCE_ROWS_MAX or self._expected_bytes(stats, whole=True) > self._bytes_max:
            self._enqueue(space_key)
            return None
        try:
            space_index = build_at_once(unit, space_key, BuildPlan(self._embedder, stats))
            with self._lock:
                self._queue.pop(space_key, None)
            return space_index
        except DeadlineExceeded:
            self._enqueue(space_key)
            raise

    def load(self, scope: Scope) -> None:
        """`run_builder` builds the indexes of these spaces, unless they are in memory. Call it on that loop."""
        for space in scope.spaces:
            space_key = SpaceKey(scope.tenant, space)
            if space_key not in self._spaces:
                self._enqueue(space_key)
        self._asked.set()

    def wake_builder(self) -> None:
        """A question is about to be asked, which may queue a space. Call it on the loop of `run_builder`."""
        self._asked.set()

    def note_changes(self, tenant: str, space: str) -> None:
        """Entries of the space were written: `run_builder` updates its index, so that the next question does not have
        to. Call it on that loop."""
        self._changed[SpaceKey(tenant, space)] = None
        self._asked.set()

    async def run_builder(self, store: Store) -> None:
        """Builds queued spaces, and updates changed ones, until it is cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            # The question is answered first; the next one finds the space in memory.
            await asyncio.sleep(_BUILD_AFTER)
            await self._update_changed(store)
            while self.has_queued:
                size_bytes = self.size_bytes
                try:
                    await self.build_next(store)
                    if self.size_bytes > size_bytes + _LARGE_BYTES:
                        await store.read(lambda _: _release_free_memory(), at=None)
                except StoreError as error:
                    logger.warning("a space is not in memory yet, because the store cannot be read: %s", error)
                except Exception:  # the boundary: what cannot be built is still found in the store
                    logger.exception("a space could not be built in memory; recall continues in the store")
                # A space that changes faster than it can be read is queued again and again.
                await asyncio.sleep(_BUILD_AFTER)

    async def _update_changed(self, store: Store) -> None:
        while self._changed:
            space_key, _ = self._changed.popitem()
            with self._lock:
                space_index = self._spaces.get(space_key)
            if space_index is not None:
                try:
                    await store.read(partial(_update, space_index=space_index), at=space_key.scope)
                except Exception:  # the boundary: the next question tries it again, and rebuilds the index
                    logger.warning("a space in memory could not be updated yet", exc_info=True)
                # It may have been dropped meanwhile.
                if self._spaces.get(space_key) is space_index:
                    self._keep(space_index)

    async def build_next(self, store: Store) -> SpaceKey | None:
        """Builds the next queued space page by page and returns its key; None when none is queued. Errors of the store
        are raised."""
        with self._lock:
            if not self._queue:
                return None
            space_key, _ = self._queue.popitem(last=False)
            space_index = self._spaces.get(space_key)
        if space_index is not None and not space_index.needs_rebuild and await _catch_up(store, space_index):
            return space_key
        plan, changes = await store.read(partial(self._plan, space_key), at=space_key.scope)
        if plan is not None:
            self._make_room(self._expected_bytes(plan.stats, whole=plan.whole))
            space_index = await build(store, space_key, plan, changes)
            if space_index is None:
                self._enqueue(space_key)
            else:
                with self._lock:
                    self._queue.pop(space_index.space_key, None)
                    self._drop(space_index.space_key)
                self._keep(space_index)
                if space_index.size_bytes > self._bytes_max:
                    self._mark_too_large(space_index.space_key, space_index.snapshot.alive_count)
        return space_key

    def _plan(self, space_key: SpaceKey, unit: Unit) -> tuple[BuildPlan | None, Changes]:
        """Without a plan: the space is empty or does not fit."""
        stats = find_stats(unit, space_key)
        changes = unit.index.changes(space_key.tenant, space_key.space, since=0 if stats is None else stats.seq)
        if stats is None:
            self._remove(space_key)
            return None, changes
        for whole in (True, False):
            if self._expected_bytes(stats, whole=whole) <= self._bytes_max:
                return BuildPlan(self._embedder, stats, whole=whole), changes
        self._mark_too_large(space_key, stats.documents)
        return None, changes

    def _expected_bytes(self, stats: SpaceStats, *, whole: bool) -> int:
        row_bytes = _ROW_BYTES
        if self._embedder is not None:
            row_bytes += vector_bytes(self._embedder.dimensions, stats.documents, whole=whole)
        return room_for(stats.documents) * row_bytes + stats.terms_total * _TERM_BYTES

    def _keep(self, space_index: SpaceIndex) -> None:
        """Makes it the most recently used. It evicts the others first, then itself if it is too large alone."""
        space_key = space_index.space_key
        with self._lock:
            if self._spaces.setdefault(space_key, space_index) is not space_index:
                # Another thread has built it meanwhile.
                return
            self._spaces.move_to_end(space_key)
            size_bytes = space_index.size_bytes
            self._size_bytes += size_bytes - self._sizes.get(space_key, 0)
            self._sizes[space_key] = size_bytes
            while self._size_bytes > self._bytes_max:
                self._drop(next(iter(self._spaces)))

    def _count_entries(self, space_index: SpaceIndex) -> None:
        """After entries were cached. No space is evicted for them: they are quick to read again."""
        grown_bytes = space_index.size_bytes - self._sizes.get(space_index.space_key, 0)
        if self._size_bytes + grown_bytes > self._bytes_max:
            space_index.drop_cached_entries()
        if self._spaces.get(space_index.space_key) is space_index:
            self._keep(space_index)

    def drop_cached_entries(self) -> None:
        """In all spaces: they are read again when needed."""
        with self._lock:
            space_indexes = list(self._spaces.values())
        for space_index in space_indexes:
            space_index.drop_cached_entries()

    def _make_room(self, size_bytes: int) -> None:
        """Before a build, so that two versions of an index do not exceed the bound together."""
        with self._lock:
            while self._spaces and self._size_bytes + size_bytes > self._bytes_max:
                self._drop(next(iter(self._spaces)))

    def _drop(self, space_key: SpaceKey) -> None:
        self._spaces.pop(space_key, None)
        self._size_bytes -= self._sizes.pop(space_key, 0)

    def _enqueue(self, space_key: SpaceKey) -> None:
        with self._lock:
            if space_key not in self._too_large:
                self._queue.setdefault(space_key)
                _trim(self._queue, _QUEUE_MAX)

    def _mark_too_large(self, space_key: SpaceKey, documents: int) -> None:
        with self._lock:
            self._too_large[space_key] = documents
            _trim(self._too_large, _TOO_LARGE_MAX)

    def _remove(self, space_key: SpaceKey) -> None:
        with self._lock:
            self._drop(space_key)
            for known in (self._queue, self._too_large):
                known.pop(space_key, None)


async def _catch_up(store: Store, space_index: SpaceIndex) -> bool:
    """Applies more changes than a recall may wait for. False when the index has to be built again."""
    scope = space_index.space_key.scope
    changes = await store.read(space_index.changes, at=scope)
    if changes.generation != space_index.generation or changes.keys is None:
        return False
    if len(changes.keys) > max(CHANGES_MAX, space_index.snapshot.count):
        return False
    for start in range(0, len(changes.keys), _APPLIED_AT_ONCE):
        await store.read(partial(space_index.apply, keys=changes.keys[start : start + _APPLIED_AT_ONCE]), at=scope)
    space_index.advance(changes)
    return True


def _update(unit: Unit, *, space_index: SpaceIndex) -> None:
    space_index.update(unit.index)


def build_at_once(unit: Unit, space_key: SpaceKey, plan: BuildPlan) -> SpaceIndex:
    """In the unit's snapshot, whose stats are in `plan`."""
    changes = unit.index.changes(space_key.tenant, space_key.space, since=plan.stats.seq)
    builder = IndexBuilder(space_key, plan)
    while not builder.is_read:
        builder.read(unit)
    return SpaceIndex(builder, changes)


async def build(store: Store, space_key: SpaceKey, plan: BuildPlan, changes: Changes) -> SpaceIndex | None:
    """None when the store was restored meanwhile, or changed more than it can list or than was planned for."""
    builder, scope = IndexBuilder(space_key, plan), space_key.scope
    while not builder.is_read:
        if builder.is_outgrown:
            return None
        await store.read(builder.read, at=scope)
    # Tens of milliseconds of numpy: not on the loop.
    space_index = await store.read(lambda _: SpaceIndex(builder, changes), at=scope)
    is_current = await store.read(lambda unit: space_index.update(unit.index, changed_max=None), at=scope)
    return space_index if is_current else None


def _trim(known: OrderedDict[SpaceKey, Any], count: int) -> None:
    while len(known) > count:
        known.popitem(last=False)


def _release_free_memory() -> None:
    """Returns free memory of the C library's heap to the system, where that is possible. Takes some milliseconds,
    without Python's lock."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return
    trim(0)
