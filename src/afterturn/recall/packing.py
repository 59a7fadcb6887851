"""A shelf as bytes, to be saved, and back: what its rows are, who stands next to whom, and which hold which terms.

Vectors are not in it: they are read beside it, whatever the embedder. The dead are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from afterturn.base.digest import Digest
from afterturn.recall.assembly import AT_ONCE_ROWS_MAX, MEAN_ROWS, Place, Plan, room_for_vectors
from afterturn.recall.codes import Codes
from afterturn.recall.edition import Edition, Facts, stand
from afterturn.recall.postings import Form, Part, Postings
from afterturn.recall.sketches import read_vectors

FORM = 1
"""Whatever makes the same entries give other bytes, or other terms, needs another."""
_Kinds: TypeAlias = Mapping[str, "np.dtype[Any]"]
_Arrays: TypeAlias = Mapping[str, NDArray[Any]]
_SIZE = np.dtype("<u4")
# In the order in which they are written: what there is one of for each row, for each term, for each row that holds one.
_FACTS: _Kinds = {
    "keys": np.dtype("<u4"),
    "lengths": np.dtype("<u2"),
    "conversations": np.dtype("<i4"),
    "positions": np.dtype("<i8"),
    "speakers": np.dtype("<i4"),
    "is_record": np.dtype("?"),
    "is_own": np.dtype("?"),
    "hears": np.dtype("?"),
}
_LINKS: _Kinds = {"before": np.dtype("<u2"), "after": np.dtype("<u2"), "spans": np.dtype("<f4")}
_TERMS: _Kinds = {"terms": np.dtype("<i8"), "ends": _SIZE}
_HELD: _Kinds = {"rows": np.dtype("<u2"), "counts": np.dtype("<u2")}
_IN_MEMORY = Facts(
    keys=np.zeros(0, np.int64),
    lengths=np.zeros(0, np.float32),
    conversations=np.zeros(0, np.int32),
    positions=np.zeros(0, np.int64),
    speakers=np.zeros(0, np.int32),
    is_record=np.zeros(0, np.bool_),
    is_own=np.zeros(0, np.float32),
    hears=np.zeros(0, np.bool_),
)


def is_packable(edition: Edition) -> bool:
    keys = edition.facts.keys[: edition.count]
    return 0 < edition.alive_count <= AT_ONCE_ROWS_MAX and int(keys.max() - keys.min()) <= np.iinfo(_FACTS["keys"]).max


def pack(edition: Edition, codes: Codes) -> tuple[int, bytes]:
    """The smallest key, and all else in bytes."""
    alive = np.flatnonzero(edition.is_alive)
    alive = alive[np.argsort(edition.facts.keys[alive], kind="stable")]
    places = np.zeros(edition.count, np.int32)
    places[alive] = np.arange(alive.size)
    facts = {name: getattr(edition.facts, name)[alive] for name in _FACTS}
    first_key = int(facts["keys"][0])
    facts["keys"] = facts["keys"] - first_key
    links = {"before": places[edition.before[alive]], "after": places[edition.after[alive]]}
    part = edition.postings.moved(edition.is_alive, places)
    sizes = (alive.size, part.terms.size, part.rows.size)
    head = json.dumps({"sizes": sizes, "row_bits": part.form.row_bits, **codes.saved()}).encode()
    body = b"".join(
        [
            _number(len(head)),
            head,
            _written(facts, _FACTS),
            _written({**links, "spans": edition.spans[alive]}, _LINKS),
            _written({"terms": part.terms, "ends": part.starts[1:]}, _TERMS),
            _written({"rows": part.rows, "counts": part.counts}, _HELD),
        ]
    )
    return first_key, _number(crc32(body)) + body


def is_intact(digest: Digest) -> bool:
    """Whether this version made it, and all of it is there."""
    checksum, body = digest.data[: _SIZE.itemsize], memoryview(digest.data)[_SIZE.itemsize :]
    return digest.form == FORM and checksum == _number(crc32(body))


class Unpacked:
    """A saved shelf that is intact, for a `Stock`."""

    def __init__(self, place: Place, plan: Plan, digest: Digest) -> None:
        self.place = place
        self.plan = plan
        start = 2 * _SIZE.itemsize
        size = int(np.frombuffer(digest.data, _SIZE, 2)[1])
        head = json.loads(digest.data[start : start + size])
        self.codes = Codes(place.space)
        self.codes.restore(head["conversations"], head["speakers"])
        reader = _Reader(digest.data, start + size)
        self._count, terms, held = head["sizes"]
        self._facts = reader.read(self._count, _FACTS)
        self._links = reader.read(self._count, _LINKS)
        self._part = _part(Form(head["row_bits"]), reader.read(terms, _TERMS), reader.read(held, _HELD))
        self._keys = self._facts["keys"].astype(np.int64) + digest.first_key
        self._vectors = room_for_vectors(plan, rows=self._count)
        self._has_vector = np.zeros(self._count, np.bool_)

    def put_vectors(self, found: Mapping[int, bytes]) -> None:
        """By key. Those of other rows are left to whoever brings it up to date."""
        if self._vectors is None or not found:
            return
        keys = np.fromiter(found, np.int64, len(found))
        rows = self._keys.searchsorted(keys).astype(np.int32)
        vectors = read_vectors(found.values(), self._vectors.dimensions)
        is_known = self._keys.take(rows, mode="clip") == keys
        if not is_known.all():
            rows, vectors = rows[is_known], vectors[is_known]
        if self._vectors.is_sketched:
            self._vectors.mean = vectors[:MEAN_ROWS].mean(axis=0, dtype=np.float32)
        self._vectors.put(rows, vectors)
        self._has_vector[rows] = True

    def edition(self) -> Edition:
        count = self._count
        edition = Edition(
            count=count,
            facts=self._facts_with_room(),
            is_alive=np.ones(count, np.bool_),
            has_vector=self._has_vector,
            before=self._links["before"].astype(np.intp),
            after=self._links["after"].astype(np.intp),
            spans=self._links["spans"].astype(np.float32),
            newer=np.zeros(count, np.float32),
            plain=np.zeros(count, np.float32),
            postings=Postings([self._part]),
            vectors=self._vectors,
        )
        stand(edition)
        return edition

    def _facts_with_room(self) -> Facts:
        facts = _IN_MEMORY.grown(max(self._count, self._vectors.capacity if self._vectors else 0))
        for name, written in self._facts.items():
            getattr(facts, name)[: self._count] = written
        facts.keys[: self._count] = self._keys
        return facts


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def read(self, count: int, kinds: _Kinds) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {}
        for name, kind in kinds.items():
            found[name] = np.frombuffer(self._data, kind, count, self._at)
            self._at += found[name].nbytes
        return found


def _number(value: int) -> bytes:
    return _SIZE.type(value).tobytes()


def _written(arrays: _Arrays, kinds: _Kinds) -> bytes:
    return b"".join(arrays[name].astype(kind).tobytes() for name, kind in kinds.items())


def _part(form: Form, terms: _Arrays, held: _Arrays) -> Part:
    starts = np.zeros(terms["ends"].size + 1, np.int64)
    starts[1:] = terms["ends"]
    # Copies, since what is forgotten is blanked where it is.
    return Part(
        form, terms["terms"].astype(np.int64), starts, held["rows"].astype(np.int32), held["counts"].astype(np.uint16)
    )
