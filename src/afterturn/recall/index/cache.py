"""The spaces that are in memory: which are, within one bound, and which are wanted there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from typing import Any

from afterturn.errors import DeadlineExceeded
from afterturn.ports import Store, Unit
from afterturn.recall.index.builder import (
    AT_ONCE_ROWS_MAX,
    PAGE_ROWS,
    BuildPlan,
    IndexBuilder,
    SpaceKey,
    extent_of,
    room_for,
)
from afterturn.recall.index.searcher import EntryResolver, IndexSearcher
from afterturn.recall.index.space_index import FOLLOWED_MAX, SpaceIndex
from afterturn.recall.index.vectors import vector_bytes
from afterturn.types import Changes, EmbedderIdentity, SpaceStats

_WANTED_MAX = 256
_REFUSED_MAX = 4096
# A row without its vector, and on conversations an occurrence of a term.
_ROW_BYTES = 72
_TERM_BYTES = 8


class IndexCache:
    """Derived from the store and bounded by `bytes_max`; the space unused for longest goes first.

    Safe to share between threads. Without an embedder, shelves rank by words alone.
    """

    def __init__(self, embedder: EmbedderIdentity | None, bytes_max: int, *, exact: bool = False) -> None:
        """`exact` weighs every entry in full at every question, which takes its time."""
        self._embedder = embedder
        self._bytes_max = bytes_max
        self._exact = exact
        self._lock = threading.Lock()
        self._held: OrderedDict[SpaceKey, SpaceIndex] = OrderedDict()
        self._sizes: dict[SpaceKey, int] = {}
        self._size_bytes = 0
        self._wanted: OrderedDict[SpaceKey, None] = OrderedDict()
        # Too large for `bytes_max` when they had so many entries.
        self._refused: OrderedDict[SpaceKey, int] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """As far as it is known: what grew since it was last used is counted when it is used again."""
        return self._size_bytes

    @property
    def is_wanted(self) -> bool:
        """Whether there is something for `build_wanted` to do."""
        return bool(self._wanted)

    def find(self, unit: Unit, tenant: str, space: str) -> IndexSearcher | None:
        """The space as the unit's snapshot has it. A small space that is not in memory is built here; a larger one is
        built in the background, and None until then."""
        place = SpaceKey(tenant, space)
        with self._lock:
            held = self._held.get(place)
        if held is None:
            held = self._build_small(unit, place)
        if held is None:
            return None
        changes = self._follow(held, unit)
        if changes is None:
            # Something of it may be forgotten by now, and who builds it anew may take a while.
            held.let_entries_go()
            self._want(place)
            return None
        if not held.edition.alive_count:
            self._release(place)
            return None
        if held.is_worn or held.shelf_bytes > self._bytes_max:
            self._want(place)
        self._keep(held)
        resolver = EntryResolver(held, unit.index, seq=changes.seq, grown=self._keep_entries)
        return IndexSearcher(held, unit.index, resolver, exact=self._exact)

    def _build_small(self, unit: Unit, place: SpaceKey) -> SpaceIndex | None:
        """None when nothing is there, or too much for one question or for the bound."""
        extent = extent_of(unit, place)
        if extent is None:
            self._release(place)
            return None
        self._reconsider(place, extent.documents)
        if extent.documents > AT_ONCE_ROWS_MAX or self._expected_bytes(extent, whole=True) > self._bytes_max:
            self._want(place)
            return None
        try:
            return build_at_once(unit, place, BuildPlan(self._embedder, extent))
        except DeadlineExceeded:
            self._want(place)
            raise

    def _follow(self, stock: SpaceIndex, unit: Unit) -> Changes | None:
        try:
            return stock.follow(unit.index)
        except DeadlineExceeded:
            raise
        except Exception:
            # Whatever is wrong with it stays with it: it must not keep what was forgotten, and another is built.
            with self._lock:
                self._drop(stock.place)
            self._want(stock.place)
            raise

    async def build_wanted(self, store: Store) -> SpaceKey | None:
        """Builds one shelf that is wanted, page by page, and says which. None when none is. What the store raises
        passes through."""
        with self._lock:
            if not self._wanted:
                return None
            place, _ = self._wanted.popitem(last=False)
            held = self._held.get(place)
        if held is not None and not held.is_worn and await _catch_up(store, held):
            return place
        plan, changes = await store.read(partial(self._plan, place))
        if plan is not None:
            self._make_room(self._expected_bytes(plan.extent, whole=plan.whole))
            stock = await build(store, place, plan, changes)
            if stock is None:
                self._want(place)
            else:
                self._publish(stock)
        return place

    def _plan(self, place: SpaceKey, unit: Unit) -> tuple[BuildPlan | None, Changes]:
        """None: nothing is there, or it does not fit."""
        extent = extent_of(unit, place)
        changes = unit.index.changes(place.tenant, place.space, since=0 if extent is None else extent.seq)
        if extent is None:
            self._release(place)
            return None, changes
        for whole in (True, False):
            if self._expected_bytes(extent, whole=whole) <= self._bytes_max:
                return BuildPlan(self._embedder, extent, whole=whole), changes
        self._refuse(place, extent.documents)
        return None, changes

    def _expected_bytes(self, extent: SpaceStats, *, whole: bool) -> int:
        row_bytes = _ROW_BYTES
        if self._embedder is not None:
            row_bytes += vector_bytes(self._embedder.dimensions, extent.documents, whole=whole)
        return room_for(extent.documents) * row_bytes + extent.terms_total * _TERM_BYTES

    def _publish(self, stock: SpaceIndex) -> None:
        with self._lock:
            self._wanted.pop(stock.place, None)
            self._drop(stock.place)
        self._keep(stock)
        if stock.size_bytes > self._bytes_max:
            self._refuse(stock.place, stock.edition.alive_count)

    def _keep(self, held: SpaceIndex) -> None:
        """As the one used last. The others go before it does, but it goes too when it is too large alone."""
        place = held.place
        with self._lock:
            if self._held.setdefault(place, held) is not held:
                # A shelf was built meanwhile.
                return
            self._held.move_to_end(place)
            size_bytes = held.size_bytes
            self._size_bytes += size_bytes - self._sizes.get(place, 0)
            self._sizes[place] = size_bytes
            while self._size_bytes > self._bytes_max:
                self._drop(next(iter(self._held)))

    def _keep_entries(self, stock: SpaceIndex) -> None:
        """Once it has more of them. No space goes for their sake: they are read again in no time."""
        grown_bytes = stock.size_bytes - self._sizes.get(stock.place, 0)
        if self._size_bytes + grown_bytes > self._bytes_max:
            stock.let_entries_go()
        if self._held.get(stock.place) is stock:
            self._keep(stock)

    def let_entries_go(self) -> None:
        """Of all spaces: what was read for answers is read again."""
        with self._lock:
            held = list(self._held.values())
        for stock in held:
            stock.let_entries_go()

    def _make_room(self, size_bytes: int) -> None:
        """Before something is built: nothing is in memory twice at the cost of the bound."""
        with self._lock:
            while self._held and self._size_bytes + size_bytes > self._bytes_max:
                self._drop(next(iter(self._held)))

    def _drop(self, place: SpaceKey) -> None:
        self._held.pop(place, None)
        self._size_bytes -= self._sizes.pop(place, 0)

    def _want(self, place: SpaceKey) -> None:
        with self._lock:
            if place not in self._refused:
                self._wanted.setdefault(place)
                _trim(self._wanted, _WANTED_MAX)

    def _refuse(self, place: SpaceKey, documents: int) -> None:
        with self._lock:
            self._refused[place] = documents
            _trim(self._refused, _REFUSED_MAX)

    def _reconsider(self, place: SpaceKey, documents: int) -> None:
        """What did not fit may do so once it has shrunk."""
        with self._lock:
            if documents < self._refused.get(place, 0):
                del self._refused[place]

    def _release(self, place: SpaceKey) -> None:
        with self._lock:
            self._drop(place)
            for known in (self._wanted, self._refused):
                known.pop(place, None)


async def _catch_up(store: Store, stock: SpaceIndex) -> bool:
    """Applies what is too much for one recall. False when building it anew is less work, or the only way."""
    changes = await store.read(stock.changes)
    if changes.generation != stock.generation or changes.keys is None:
        return False
    if len(changes.keys) > max(FOLLOWED_MAX, stock.edition.count):
        return False
    for start in range(0, len(changes.keys), PAGE_ROWS):
        await store.read(partial(stock.apply, keys=changes.keys[start : start + PAGE_ROWS]))
    stock.advance(changes)
    return True


def build_at_once(unit: Unit, place: SpaceKey, plan: BuildPlan) -> SpaceIndex:
    """In the unit's snapshot, of which `plan` has the extent."""
    changes = unit.index.changes(place.tenant, place.space, since=plan.extent.seq)
    assembly = IndexBuilder(place, plan)
    while not assembly.is_read:
        for page in assembly.read(unit):
            assembly.add(page)
    return SpaceIndex(assembly, changes)


async def build(store: Store, place: SpaceKey, plan: BuildPlan, changes: Changes) -> SpaceIndex | None:
    """None when the store was restored meanwhile, or changed more than it can tell, or than was planned for."""
    assembly = IndexBuilder(place, plan)
    while not assembly.is_read:
        if assembly.is_outgrown:
            return None
        for page in await store.read(assembly.read):
            assembly.add(page)
    # Tens of milliseconds of numpy: not on the loop that everybody waits for.
    stock = await store.read(lambda _: SpaceIndex(assembly, changes))
    return stock if await store.read(lambda unit: stock.follow(unit.index, changed_max=None)) else None


def _trim(known: OrderedDict[SpaceKey, Any], count: int) -> None:
    while len(known) > count:
        known.popitem(last=False)
