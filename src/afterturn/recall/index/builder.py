"""How a space comes to memory: its rows are read page by page and put together at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afterturn.ports import Unit
from afterturn.recall.index.postings import Postings, form_for, hashed, make_part
from afterturn.recall.index.snapshot import (
    Columns,
    Dictionary,
    IndexSnapshot,
    grown,
    joined_facts,
    link,
    read_facts,
    stand,
)
from afterturn.recall.index.vectors import Vectors, is_sketched, read_vectors
from afterturn.types import EmbedderIdentity, Scope, SpaceStats

PAGE_ROWS = 256
"""So many rows are read at a time: about 3 ms of Python."""
AT_ONCE_ROWS_MAX = 2048
"""A larger space is not built while a question waits for it: 1,000 rows take 14 ms, and a turn waits 50 ms."""
# Whoever reads waits for its turn among all that read, which are many when a space is wanted.
_PAGES_AT_ONCE = 8
MEAN_ROWS = 4096
"""The mean of so many vectors is that of all, as far as sketches around it can tell."""
_ROOM_MIN = 16
_ROOM_SHARE = 16


class SpaceKey(NamedTuple):
    tenant: str
    space: str


def extent_of(unit: Unit, place: SpaceKey) -> SpaceStats | None:
    """None when nothing is there."""
    return unit.index.extents(Scope(place.tenant, (place.space,))).get(place.space)


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What to keep: `whole` vectors, or sketches of them alone where memory is short. So much is expected."""

    embedder: EmbedderIdentity | None
    extent: SpaceStats
    whole: bool = True


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows of a space as they were read: terms by occurrence, vectors and which of the rows they belong to."""

    facts: Columns
    terms: NDArray[np.int64]
    embedded: NDArray[np.int32]
    vectors: NDArray[np.float16] | None

    @property
    def is_last(self) -> bool:
        return self.facts.capacity < PAGE_ROWS


class IndexBuilder:
    """Vectors are put where they stay as soon as they are read: twice in memory they would be most of it."""

    def __init__(self, place: SpaceKey, plan: BuildPlan) -> None:
        self.place = place
        self.plan = plan
        self.codes = Dictionary(place.space)
        self.is_read = False
        self._count = 0
        self._after = 0
        self._facts: list[Columns] = []
        self._form = form_for(plan.extent.documents)
        self._packed = np.empty(room_for(plan.extent.terms_total), np.int64)
        self._packed_count = 0
        self._waiting: list[tuple[NDArray[np.int32], NDArray[np.float16]]] = []
        self._embedded: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
        self._vectors = _room_for_vectors(plan)

    def read(self, unit: Unit) -> list[RowPage]:
        """The next pages; `add` takes them one by one."""
        pages: list[RowPage] = []
        after = self._after
        for _ in range(_PAGES_AT_ONCE):
            unit.check()
            pages.append(self._read_page(unit, after))
            if pages[-1].is_last:
                break
            after = int(pages[-1].facts.keys[-1])
        return pages

    def _read_page(self, unit: Unit, after: int) -> RowPage:
        index, embedder = unit.index, self.plan.embedder
        tenant, space = self.place.tenant, self.place.space
        entries = index.shelved(tenant, space, after=after, limit=PAGE_ROWS)
        facts = read_facts(entries, self.codes)
        terms = hashed([entry.terms for entry in entries])
        if embedder is None:
            return RowPage(facts, terms, np.zeros(0, np.int32), None)
        found = index.vectors(tenant, space, embedder, facts.keys.tolist())
        rows = facts.keys.searchsorted(np.fromiter(found, np.int64, len(found))).astype(np.int32)
        return RowPage(facts, terms, rows, read_vectors(found.values(), embedder.dimensions))

    @property
    def is_outgrown(self) -> bool:
        """Whether the space has become so much larger than planned that it has to be planned anew."""
        return not self._form.holds(self._count + PAGE_ROWS * _PAGES_AT_ONCE)

    def add(self, page: RowPage) -> None:
        if page.vectors is not None and page.embedded.size:
            self._waiting.append((page.embedded + np.int32(self._count), page.vectors))
        self._facts.append(page.facts)
        self._put_terms(page)
        size = page.facts.capacity
        self._count += size
        self._after = int(page.facts.keys[-1]) if size else self._after
        self.is_read = page.is_last
        if self._embedded[1:] or sum(rows.size for rows, _ in self._waiting) >= MEAN_ROWS:
            self._put_vectors()

    def edition(self) -> IndexSnapshot:
        """Of all that was added."""
        self._put_vectors()
        facts = joined_facts(self._facts)
        rows = np.arange(self._count)
        edition = IndexSnapshot(
            count=self._count,
            facts=facts.grown(max(room_for(self._count), self._vectors.capacity if self._vectors else 0)),
            is_alive=np.ones(self._count, np.bool_),
            has_vector=np.zeros(self._count, np.bool_),
            before=rows,
            after=rows.copy(),
            spans=facts.lengths.copy(),
            newer=np.zeros(self._count, np.float32),
            priors=np.zeros(self._count, np.float32),
            postings=Postings([make_part(self._form, self._packed[: self._packed_count])]),
            vectors=self._vectors,
        )
        edition.has_vector[np.concatenate(self._embedded)] = True
        link(edition, None)
        stand(edition)
        return edition

    def _put_terms(self, page: RowPage) -> None:
        size = page.facts.capacity
        start, self._packed_count = self._packed_count, self._packed_count + page.terms.size
        if self._packed_count > self._packed.size:
            self._packed = grown(self._packed, room_for(self._packed_count))
        rows = np.arange(self._count, self._count + size, dtype=np.int32)
        of_terms = np.repeat(rows, page.facts.lengths.astype(np.int64))
        self._packed[start : self._packed_count] = self._form.packed(page.terms, of_terms)

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
    """For some rows more, so that not every one that comes moves all others."""
    return count + max(_ROOM_MIN, count // _ROOM_SHARE)


def _room_for_vectors(plan: BuildPlan) -> Vectors | None:
    if plan.embedder is None:
        return None
    count = plan.extent.documents
    sketched = is_sketched(count, whole=plan.whole)
    return Vectors(plan.embedder.dimensions, room_for(count), whole=plan.whole, sketched=sketched)
