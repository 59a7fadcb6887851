"""What a shelf holds: built from a store page by page, then kept level with it by its changes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from afterturn.base.ports import Index, Unit
from afterturn.base.types import Changes, EmbedderIdentity, Shelved
from afterturn.recall.codes import Codes
from afterturn.recall.edition import Edition, Facts, grown, joined_facts, link, read_facts, stand
from afterturn.recall.postings import Postings, hashed, make_part
from afterturn.recall.sketches import Vectors, is_sketched, read_vectors

PAGE_ROWS = 256
"""So many rows are read at a time: about 3 ms of Python."""
FOLLOWED_MAX = 1024
"""A recall that finds more changes than this does without the shelf, and somebody else brings it up to date."""
_ROOM_MIN = 16
_ROOM_SHARE = 16
_WORN_MIN = 1024
# Measured: objects around the arrays 4,000 to 5,000, a row in a dictionary 116 to 122.
_STOCK_BYTES = 5120
_LATE_BYTES = 130


@dataclass(frozen=True, slots=True)
class Place:
    tenant: str
    space: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to keep: `whole` vectors, or sketches of them alone where memory is short."""

    embedder: EmbedderIdentity | None
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a space as they were read: terms by occurrence, vectors with the keys they belong to."""

    facts: Facts
    terms: NDArray[np.int64]
    vector_keys: NDArray[np.int64]
    vectors: NDArray[np.float16] | None


def read_page(unit: Unit, *, place: Place, plan: Plan, codes: Codes, after: int) -> Page:
    """The next rows behind key `after`; fewer than `PAGE_ROWS` are the last."""
    entries = unit.index.shelved(place.tenant, place.space, after=after, limit=PAGE_ROWS)
    facts = read_facts(entries, codes)
    terms = hashed([entry.terms for entry in entries])
    if plan.embedder is None:
        return Page(facts, terms, np.zeros(0, np.int64), None)
    found = unit.index.vectors(place.tenant, place.space, plan.embedder, facts.keys.tolist())
    vectors = read_vectors([data for _, data in found], plan.embedder.dimensions)
    return Page(facts, terms, np.array([key for key, _ in found], np.int64), vectors)


class Stock:
    """One space in memory. Readers take `edition` and keep it; whoever changes anything makes another, under a lock."""

    def __init__(self, place: Place, plan: Plan, codes: Codes, pages: Sequence[Page], changes: Changes) -> None:
        """Of all pages of a space, which hold at least what it held at `changes`."""
        self.place = place
        self.plan = plan
        self.codes = codes
        self.generation = changes.generation
        self.seq = changes.seq
        self.edition = _first_edition(pages, plan)
        self._lock = threading.Lock()
        # Rows up to here are sorted by key; later ones are looked up by name.
        self._sorted = self.edition.count
        self._late: dict[int, int] = {}
        self._vectors_at_first = self.edition.vectors_count
        self.size_bytes = self._size()

    @property
    def is_worn(self) -> bool:
        """Whether it should be built anew: many rows are dead, came late or got their vectors late."""
        edition = self.edition
        late, late_vectors = edition.count - self._sorted, edition.vectors_count - self._vectors_at_first
        return (
            edition.count - edition.alive_count > _share(edition.count)
            or late > _share(self._sorted)
            or late_vectors > _share(self._vectors_at_first)
        )

    def changes(self, unit: Unit) -> Changes:
        return unit.index.changes(self.place.tenant, self.place.space, since=self.seq)

    def follow(self, index: Index, *, changed_max: int | None = FOLLOWED_MAX) -> bool:
        """Brings it to the snapshot of `index`. False when that is too far away, and nothing was done."""
        with self._lock:
            changes = index.changes(self.place.tenant, self.place.space, since=self.seq)
            if changes.generation != self.generation:
                return False
            # Another thread's newer snapshot was applied already; what this one can't see, `resolve` leaves out.
            if changes.seq < self.seq:
                return True
            if changes.keys is None or (changed_max is not None and len(changes.keys) > changed_max):
                return False
            if changes.keys:
                self._apply(index, changes.keys)
            self.seq = changes.seq
            return True

    def apply(self, unit: Unit, *, keys: Sequence[int]) -> None:
        """Reads these anew. `advance` says when that was all up to some change."""
        with self._lock:
            self._apply(unit.index, keys)

    def advance(self, changes: Changes) -> None:
        with self._lock:
            self.seq = max(self.seq, changes.seq)

    def _size(self) -> int:
        return _STOCK_BYTES + self.edition.size_bytes + self.codes.size_bytes + len(self._late) * _LATE_BYTES

    def _apply(self, index: Index, keys: Sequence[int]) -> None:
        place = self.place
        entries = index.shelved(place.tenant, place.space, keys=keys, limit=len(keys))
        known = self._rows(self.edition, keys)
        there = {entry.key for entry in entries}
        gone = np.array([row for key, row in known.items() if key not in there], np.int32)
        fresh = [entry for entry in entries if entry.key not in known]
        touched = set(self.edition.facts.conversations[gone].tolist())
        edition = _next_edition(self.edition, len(fresh))
        if fresh:
            facts = read_facts(fresh, self.codes)
            touched |= set(facts.conversations.tolist())
            edition = self._with_rows(edition, facts, fresh)
        if gone.size:
            self._without_rows(edition, gone)
        self._put_vectors(edition, index, keys)
        if fresh or gone.size:
            link(edition, touched)
            stand(edition)
        self.edition = edition
        self.size_bytes = self._size()

    def _rows(self, edition: Edition, keys: Sequence[int]) -> dict[int, int]:
        """Of those that are alive. A key that came back has a second row."""
        by_key = edition.facts.keys[: self._sorted]
        found: dict[int, int] = {}
        for key, at in zip(keys, by_key.searchsorted(np.array(keys, np.int64)).tolist(), strict=True):
            row = self._late.get(key, at if at < by_key.size and by_key[at] == key else None)
            if row is not None and edition.is_alive[row]:
                found[key] = row
        return found

    def _with_rows(self, edition: Edition, facts: Facts, entries: Sequence[Shelved]) -> Edition:
        start = edition.count - len(entries)
        rows = np.arange(start, edition.count, dtype=np.int32)
        edition.facts.put(start, facts)
        edition.is_alive[start:] = True
        edition.before[start:] = edition.after[start:] = rows
        edition.spans[start:] = facts.lengths
        self._late.update(zip(facts.keys.tolist(), rows.tolist(), strict=True))
        part = make_part(hashed([entry.terms for entry in entries]), np.repeat(rows, facts.lengths.astype(np.int64)))
        return replace(edition, postings=edition.postings.with_part(part))

    def _without_rows(self, edition: Edition, gone: NDArray[np.int32]) -> None:
        facts = edition.facts
        codes = {*facts.conversations[gone].tolist(), *facts.speakers[gone].tolist()}
        for key in facts.keys[gone].tolist():
            self._late.pop(key, None)
        edition.is_alive[gone] = edition.has_vector[gone] = False
        edition.before[gone] = edition.after[gone] = gone
        edition.spans[gone] = 0
        dead = np.zeros(edition.count, np.bool_)
        dead[gone] = True
        edition.postings.blank(dead)
        facts.blank(gone)
        if edition.vectors is not None:
            edition.vectors.blank(gone)
        self.codes.drop({code for code in codes if not facts.uses(code, edition.count)})

    def _put_vectors(self, edition: Edition, index: Index, keys: Sequence[int]) -> None:
        embedder = self.plan.embedder
        if edition.vectors is None or embedder is None:
            return
        found = dict(index.vectors(self.place.tenant, self.place.space, embedder, keys))
        rows = self._rows(edition, list(found))
        if rows:
            at = np.fromiter(rows.values(), np.int32, len(rows))
            edition.vectors.put(at, read_vectors([found[key] for key in rows], embedder.dimensions))
            edition.has_vector[at] = True


def _first_edition(pages: Sequence[Page], plan: Plan) -> Edition:
    """`pages` are by key, so their rows are too."""
    facts = joined_facts([page.facts for page in pages])
    count = facts.capacity
    rows = np.arange(count, dtype=np.int32)
    terms = np.concatenate([page.terms for page in pages])
    part = make_part(terms, np.repeat(rows, facts.lengths.astype(np.int64)))
    room = room_for(count)
    edition = Edition(
        count=count,
        facts=facts.grown(room),
        is_alive=np.ones(count, np.bool_),
        has_vector=np.zeros(count, np.bool_),
        before=rows.astype(np.intp),
        after=rows.astype(np.intp),
        spans=facts.lengths.copy(),
        newer=np.zeros(count, np.float32),
        plain=np.zeros(count, np.float32),
        postings=Postings([part]),
        vectors=_vectors(pages, plan, room, sketched=is_sketched(count, whole=plan.whole)),
    )
    _place_vectors(edition, pages)
    link(edition, None)
    stand(edition)
    return edition


def _vectors(pages: Sequence[Page], plan: Plan, room: int, *, sketched: bool) -> Vectors | None:
    if plan.embedder is None:
        return None
    vectors = Vectors(plan.embedder.dimensions, room, whole=plan.whole, sketched=sketched)
    total = sum(page.vector_keys.size for page in pages)
    if total:
        sums = [page.vectors.sum(axis=0, dtype=np.float32) for page in pages if page.vectors is not None]
        vectors.mean = np.asarray(np.sum(sums, axis=0) / total, np.float32)
    return vectors


def _place_vectors(edition: Edition, pages: Sequence[Page]) -> None:
    if edition.vectors is None:
        return
    keys = edition.facts.keys[: edition.count]
    for page in pages:
        rows = keys.searchsorted(page.vector_keys).astype(np.int32)
        if page.vectors is not None and rows.size:
            edition.vectors.put(rows, page.vectors)
            edition.has_vector[rows] = True


def _next_edition(edition: Edition, added: int) -> Edition:
    """The same with so many more rows, which nobody has filled in; in arrays of its own where something may change."""
    count = edition.count + added
    facts, vectors = edition.facts, edition.vectors
    if count > facts.capacity:
        room = room_for(count)
        facts, vectors = facts.grown(room), vectors and vectors.grown(room)
    return replace(
        edition,
        count=count,
        facts=facts,
        vectors=vectors,
        is_alive=grown(edition.is_alive, count),
        has_vector=grown(edition.has_vector, count),
        before=grown(edition.before, count),
        after=grown(edition.after, count),
        spans=grown(edition.spans, count),
        newer=grown(edition.newer, count),
        plain=grown(edition.plain, count),
    )


def room_for(count: int) -> int:
    """For some rows more, so that not every one that comes moves all others."""
    return count + max(_ROOM_MIN, count // _ROOM_SHARE)


def _share(count: int) -> int:
    """What may be out of place among so many before it is worth putting everything in place."""
    return max(_WORN_MIN, count // 4)
