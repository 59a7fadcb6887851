"""An index at one moment: its rows as arrays, the terms of rows, the dictionary that encodes conversations and
speakers, and the vectors of rows with their binary quantization: the signs around the mean, one bit per dimension.

Comparing quantized vectors takes a fortieth of the time and shows which rows are worth an exact comparison. Terms are
kept as hashes, never as words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from heapq import nsmallest
from itertools import chain
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from afterturn.recall.query import NOBODY, SPEAKERS_MAX, has_content, name_words
from afterturn.recall.scoring import CONTEXT, MIDPOINT_STATED, RECENT, context_weight, is_own, prior
from afterturn.recall.store_search import GAP_MAX
from afterturn.text import words
from afterturn.types import IndexedEntry, Kind, Origin

# Two parts are merged while the older is at most this many times as large: few parts, and rows move seldom.
_GROWTH = 3
# Merging more postings than this would delay the recall that waits for it; a rebuild merges them.
_MERGED_MAX = 200_000
# Up to this many rows, comparing each takes less time than looking up every posting.
_BLANK_ONE_BY_ONE_MAX = 6
# Temporary arrays are made in slices: a process returns little of the memory that it once used.
_SLICE = 8192
_CHECKSUM_BITS = 32
_UNSIGNED = 1 << 2 * _CHECKSUM_BITS

PostingList: TypeAlias = tuple[NDArray[np.int32], NDArray[np.uint16]]
"""Rows, and how often each contains a term."""


class TermNumbers(dict[str, int]):
    """The hash of each term, computed when it is first met."""

    def __missing__(self, term: str) -> int:
        letters = term.encode("utf-8", "surrogatepass")
        number = self[term] = crc32(letters) << _CHECKSUM_BITS | crc32(letters[::-1])
        return number


def hashed(terms: Sequence[Sequence[str]], known: TermNumbers | None = None) -> NDArray[np.int64]:
    """One hash per occurrence, in order; equal in every process. Pass `known` to hash many texts."""
    numbers = map((TermNumbers() if known is None else known).__getitem__, chain.from_iterable(terms))
    return np.fromiter(numbers, np.uint64, sum(map(len, terms))).view(np.int64)


def numbers(terms: Iterable[str]) -> list[int]:
    """The hashes of a few terms, as signed numbers."""
    known = TermNumbers()
    return [number - _UNSIGNED if number >= _UNSIGNED >> 1 else number for number in map(known.__getitem__, terms)]


class PostingForm(NamedTuple):
    """How a term and a row share 64 bits: the row has the lower ones. Two of a hundred thousand terms have the same
    upper bits about once in ten thousand spaces."""

    row_bits: int

    def packed(self, terms: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.int64]:
        return (terms & np.int64(-1 << self.row_bits)) | rows

    def holds(self, row: int) -> bool:
        return row < 1 << self.row_bits


def form_for(rows: int) -> PostingForm:
    """With room for four times as many rows."""
    return PostingForm((4 * rows + 4096).bit_length())


class PostingPart(NamedTuple):
    """Sorted by term, then row: term `i` is in `rows[starts[i] : starts[i + 1]]`, each row once."""

    form: PostingForm
    terms: NDArray[np.int64]
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.uint16]

    @property
    def size_bytes(self) -> int:
        return self.terms.nbytes + self.starts.nbytes + self.rows.nbytes + self.counts.nbytes

    def seek(self, numbers: Iterable[int]) -> Iterator[int | None]:
        """The position of each of these terms in `terms`, or None."""
        # Without numpy: for so few terms its overhead is larger than the search.
        terms, mask = self.terms.data, -1 << self.form.row_bits
        for number in numbers:
            wanted = number & mask
            at = bisect_left(terms, wanted)
            yield at if at < len(terms) and terms[at] == wanted else None

    def places(self, at: int) -> PostingList:
        start, end = self.starts[at : at + 2].tolist()
        return self.rows[start:end], self.counts[start:end]


def make_part(form: PostingForm, packed: NDArray[np.int64]) -> PostingPart:
    """From occurrences, which are sorted in place."""
    packed.sort()
    # Where a number differs from the one before it.
    differs = np.ones(packed.size, np.bool_)
    np.not_equal(packed[1:], packed[:-1], out=differs[1:])
    if packed.size <= _SLICE:
        begins = np.flatnonzero(differs)
        return _part(form, packed[begins], np.diff(begins, append=packed.size).astype(np.uint16))
    size = int(np.count_nonzero(differs))
    distinct, firsts = np.empty(size, np.int64), np.empty(size + 1, np.int32)
    done, firsts[-1] = 0, packed.size
    for start in range(0, packed.size, _SLICE):
        found = np.flatnonzero(differs[start : start + _SLICE]) + start
        firsts[done : done + found.size] = found
        distinct[done : done + found.size] = packed[found]
        done += found.size
    return _part(form, distinct, np.diff(firsts).astype(np.uint16))


class Postings:
    """Immutable except for `blank`. Later parts have later rows."""

    def __init__(self, parts: Sequence[PostingPart] = ()) -> None:
        self._parts = tuple(parts)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self._parts)

    def find(self, terms: Sequence[str]) -> list[list[PostingList]]:
        """The posting lists of each term. Rows are ascending and distinct."""
        wanted = numbers(terms)
        found: list[list[PostingList]] = [[] for _ in terms]
        for part in self._parts:
            for places, at in zip(found, part.seek(wanted), strict=True):
                if at is not None:
                    places.append(part.places(at))
        return found

    def with_rows(self, terms: NDArray[np.int64], rows: NDArray[np.int32]) -> Postings:
        """A copy with occurrences in rows after all others."""
        last = int(rows[-1]) if rows.size else 0
        form = next((part.form for part in self._parts if part.form.holds(last)), form_for(last))
        parts = [*self._parts, make_part(form, form.packed(terms, rows))]
        while len(parts) > 1 and parts[-2].form == parts[-1].form:
            older, newer = parts[-2].rows.size, parts[-1].rows.size
            if older > _GROWTH * newer or older + newer > _MERGED_MAX:
                break
            parts[-2:] = [_join(*parts[-2:])]
        return Postings(parts)

    def blank(self, rows: NDArray[np.int32]) -> None:
        """Sets the counts of these rows to 0 in place, so that nothing of a forgotten entry is left."""
        for part in self._parts:
            if rows.size > _BLANK_ONE_BY_ONE_MAX:
                is_blank = np.zeros(int(rows.max()) + 2, np.bool_)
                is_blank[rows] = True
                # All rows after the last one of these read the extra element at the end.
                part.counts[is_blank.take(part.rows, mode="clip")] = 0
                continue
            for row in rows.tolist():
                part.counts[part.rows == row] = 0


def _part(form: PostingForm, packed: NDArray[np.int64], counts: NDArray[np.uint16]) -> PostingPart:
    """From sorted postings, which are overwritten with their terms."""
    rows, row_mask = np.empty(packed.size, np.int32), np.int64((1 << form.row_bits) - 1)
    for start in range(0, packed.size, _SLICE):
        rows[start : start + _SLICE] = packed[start : start + _SLICE] & row_mask
    packed &= np.int64(-1 << form.row_bits)
    starts = np.append(0, np.flatnonzero(packed[1:] != packed[:-1]) + 1)[: packed.size]
    return PostingPart(form, packed[starts], np.append(starts, packed.size), rows, counts)


def _join(older: PostingPart, newer: PostingPart) -> PostingPart:
    packed = np.concatenate([np.repeat(part.terms, np.diff(part.starts)) | part.rows for part in (older, newer)])
    order = np.argsort(packed)
    return _part(older.form, packed[order], np.concatenate([older.counts, newer.counts])[order])


Floats: TypeAlias = NDArray[np.float32]
NOWHERE = -1
# Measured, for a conversation id and a speaker's name of two words: strings, tuples, dictionaries.
_NAME_BYTES = 450


class Dictionary:
    """Encodes conversations and speakers as numbers. Grows with new rows; `drop` removes codes without rows."""

    def __init__(self, space: str) -> None:
        self._space = space
        self._conversations: dict[tuple[str, str], int] = {}
        self._speakers: dict[str, int] = {}
        self._by_id: dict[str, set[int]] = {}
        self._by_word: dict[str, set[int]] = {}
        self._next = 0
        # How often speakers were added or removed, and the words of their names at that count.
        self._moves = 0
        self._named: tuple[int, frozenset[str]] = (0, NOBODY)

    @property
    def size_bytes(self) -> int:
        return (len(self._conversations) + len(self._speakers)) * _NAME_BYTES

    def conversation(self, owner: str | None, name: str | None) -> int:
        if name is None:
            return NOWHERE
        place = (owner or self._space, name)
        code = self._conversations.get(place)
        if code is None:
            code = self._next
            self._put_conversation(place, code)
        return code

    def speaker(self, name: str | None) -> int:
        if not name:
            return NOWHERE
        code = self._speakers.get(name)
        if code is None:
            code = self._next
            self._put_speaker(name, code)
        return code

    def find_conversations(self, owner: str | None, name: str) -> list[int]:
        """Without an owner, the codes of every owner's conversation of that name."""
        if owner is None:
            return sorted(self._by_id.get(name, ()))
        code = self._conversations.get((owner, name))
        return [] if code is None else [code]

    def name_words(self) -> frozenset[str]:
        """The words in the names of the same speakers that the store returns, as many of them."""
        moves, (then, named) = self._moves, self._named
        if moves != then:
            named = name_words(nsmallest(SPEAKERS_MAX, list(self._speakers)))
            self._named = (moves, named)
        return named

    def find_speakers(self, names: frozenset[str]) -> list[int]:
        """The speakers whose name contains one of these words."""
        # No iteration over a shared set: another thread may be adding to it.
        return sorted(set().union(*(self._by_word.get(name, ()) for name in names)))

    def drop(self, codes: set[int]) -> None:
        if not codes:
            return
        for place in [place for place, code in self._conversations.items() if code in codes]:
            code = self._conversations.pop(place)
            _discard(self._by_id, place[1], code)
        self._named = (-1, NOBODY)
        for name in [name for name, code in self._speakers.items() if code in codes]:
            code = self._speakers.pop(name)
            self._moves += 1
            for word in words(name):
                _discard(self._by_word, word, code)

    def _put_conversation(self, place: tuple[str, str], code: int) -> None:
        self._conversations[place] = code
        self._by_id.setdefault(place[1], set()).add(code)
        self._next = max(self._next, code + 1)

    def _put_speaker(self, name: str, code: int) -> None:
        self._speakers[name] = code
        self._moves += 1
        for word in words(name):
            self._by_word.setdefault(word, set()).add(code)
        self._next = max(self._next, code + 1)


def _discard(sets: dict[str, set[int]], name: str, code: int) -> None:
    # A new set: another thread may be iterating over the old one.
    left = sets.get(name, set()) - {code}
    if left:
        sets[name] = left
    else:
        sets.pop(name, None)


# Up to this many rows, vectors are kept in single precision; larger spaces keep half precision, as the store does.
_WHOLE_ROWS_MAX = 16_384
_WORD_BITS = 64
# Below this many rows every vector is compared: choosing some would take as long.
_QUANTIZED_ROWS_MIN = 4096
# Half precision is widened in slices that fit into a core's cache.
_WIDENED_ROWS = 1024
_VECTOR = np.dtype("<f2")
# Half and single precision differ by 13 bits of mantissa, and by 112 in the exponent's bias.
_MANTISSA_SHIFT = 13
_EXPONENT_SHIFT = np.float32(2.0**112)


class Vectors:
    """Rows are written once, after those that readers use; only `blank` changes a row that was read before."""

    def __init__(self, dimensions: int, capacity: int, *, whole: bool, quantized: bool) -> None:
        """`whole` keeps the vectors themselves. Otherwise they have to be quantized."""
        self.dimensions = dimensions
        self.capacity = capacity
        kind = np.float32 if capacity <= _WHOLE_ROWS_MAX else np.float16
        self.matrix = np.zeros((capacity, dimensions), kind) if whole else None
        self.mean: Floats = np.zeros(dimensions, np.float32)
        words = -(-dimensions // _WORD_BITS)
        self.signs = np.zeros((words, capacity), np.uint64) if quantized else None
        # Of each vector minus the mean: its length, and its product with the mean.
        self.norms = np.zeros(capacity if quantized else 0, np.float32)
        self.offsets = np.zeros(capacity if quantized else 0, np.float32)
        # The more signs differ, the larger the angle.
        bits = np.arange(dimensions + 1 if quantized else 0, dtype=np.float32)
        self._cosines_by_bits: Floats = np.cos(bits * np.float32(np.pi / dimensions))

    @property
    def is_quantized(self) -> bool:
        return self.signs is not None

    @property
    def size_bytes(self) -> int:
        arrays = (self.matrix, self.signs, self.norms, self.offsets, self.mean)
        return sum(array.nbytes for array in arrays if array is not None)

    def grown(self, capacity: int) -> Vectors:
        other = Vectors(self.dimensions, 0, whole=self.matrix is not None, quantized=self.is_quantized)
        other.capacity, other.mean = capacity, self.mean
        if self.matrix is not None:
            other.matrix = np.zeros((capacity, self.dimensions), self.matrix.dtype)
            other.matrix[: len(self.matrix)] = self.matrix
        if self.signs is not None:
            other.signs = np.zeros((len(self.signs), capacity), np.uint64)
            other.signs[:, : self.signs.shape[1]] = self.signs
            other.norms, other.offsets = np.zeros((2, capacity), np.float32)
            other.norms[: self.norms.size], other.offsets[: self.offsets.size] = self.norms, self.offsets
        return other

    def put(self, rows: NDArray[np.int32], vectors: NDArray[np.float16]) -> None:
        for start in range(0, rows.size, _WIDENED_ROWS):
            self._put(rows[start : start + _WIDENED_ROWS], widened(vectors[start : start + _WIDENED_ROWS]))

    def blank(self, rows: NDArray[np.int32]) -> None:
        """Clears the vectors of forgotten entries, so that they are no longer in memory."""
        if self.matrix is not None:
            self.matrix[rows] = 0
        if self.signs is not None:
            self.signs[:, rows] = 0
            self.norms[rows] = self.offsets[rows] = 0

    def estimate(self, query: Floats, count: int) -> Floats:
        """Estimated cosines of the first `count` rows; meaningless for rows without a vector."""
        assert self.signs is not None
        centred = query - self.mean
        signs = _signs(centred[None, :])[:, 0]
        differing = np.bitwise_count(self.signs[0, :count] ^ signs[0]).astype(np.uint16)
        for word, of_query in zip(self.signs[1:], signs[1:], strict=True):
            differing += np.bitwise_count(word[:count] ^ of_query)
        table = self._cosines_by_bits * np.float32(np.linalg.norm(centred))
        cosines: Floats = table.take(differing, mode="clip")
        cosines *= self.norms[:count]
        cosines += self.offsets[:count]
        cosines += np.float32(query @ self.mean)
        return cosines

    def cosines(self, query: Floats, rows: NDArray[Any] | slice) -> Floats:
        """Exact cosines."""
        assert self.matrix is not None
        chosen = self.matrix[rows]
        if chosen.dtype == np.float32:
            return product(chosen, query)
        return widened_product(chosen, query)

    def _put(self, rows: NDArray[np.int32], vectors: Floats) -> None:
        if self.matrix is not None:
            self.matrix[rows] = vectors
        if self.signs is not None:
            centred = vectors - self.mean
            self.signs[:, rows] = _signs(centred)
            self.norms[rows] = np.sqrt(np.einsum("ij,ij->i", centred, centred))
            self.offsets[rows] = product(centred, self.mean)


def is_quantized(rows: int, *, whole: bool) -> bool:
    return rows >= _QUANTIZED_ROWS_MIN or not whole


def vector_bytes(dimensions: int, rows: int, *, whole: bool) -> int:
    """The size of one of `rows` rows."""
    kept = dimensions * (4 if rows <= _WHOLE_ROWS_MAX else 2) if whole else 0
    return kept + (-(-dimensions // _WORD_BITS) * 8 + 8 if is_quantized(rows, whole=whole) else 0)


def read_vectors(data: Collection[bytes], dimensions: int) -> NDArray[np.float16]:
    """From the store's format, one vector per row. The array owns its memory and may be written to."""
    return np.frombuffer(bytearray().join(data), _VECTOR).reshape(len(data), dimensions)


def widened(vectors: NDArray[np.float16]) -> Floats:
    """Exactly these numbers in single precision, by shifting bits: six times as fast as numpy's conversion."""
    bits = vectors.view(np.int16).astype(np.int32)
    bits <<= _MANTISSA_SHIFT
    # Removes the copies of the sign bit; exponent and mantissa are in place.
    bits &= np.int32(~0x70000000)
    numbers = bits.view(np.float32)
    numbers *= _EXPONENT_SHIFT
    return numbers


def widened_product(vectors: NDArray[np.float16], query: Floats) -> Floats:
    products = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), _WIDENED_ROWS):
        products[start : start + _WIDENED_ROWS] = product(widened(vectors[start : start + _WIDENED_ROWS]), query)
    return products


def product(vectors: Floats, query: Floats) -> Floats:
    """Row by row on this thread. `@` shares a larger matrix among the threads of a BLAS and waits for all of them:
    10 ms instead of 0.1 ms when the host computes."""
    products: Floats = np.vecdot(vectors, query)
    return products


def _signs(vectors: Floats) -> NDArray[np.uint64]:
    """(words, rows)"""
    missing = -vectors.shape[1] % _WORD_BITS
    bits = np.pad(vectors > 0, ((0, 0), (0, missing))) if missing else vectors > 0
    return np.packbits(bits, axis=1).view(np.uint64).T


NO_POSITION = np.iinfo(np.int64).min
SCORED_ROWS_MAX = 1024
"""Below this many rows, scoring all of them takes no longer than choosing some."""
# Derived arrays: the context of each row in small spaces; in all, rows by lane and midpoints.
_CONTEXT_BYTES = 64
_LANE_BYTES = 12
# How many entries may lack a vector before results say so, at least, and in percent of a large space.
_MISSING_MAX = 64
_MISSING_PERCENT_MAX = 2
# Half an occurrence counts more than half of one (`saturated`). With this, estimates find 0.995 of the best ten.
_FIRST_OCCURRENCE = 1.6
# Temporary arrays are made in slices: a process returns little of the memory that it once used.
_WIDENED_SLICE = 4096
_FACTORS = np.repeat(np.array(CONTEXT, np.float32), 2)[:, None]
# Comparing one by one is faster than `isin` up to about here.
_COMPARED_MAX = 16


@dataclass(frozen=True, slots=True)
class Columns:
    """The properties of rows that never change. New rows are written after those in use."""

    keys: NDArray[np.int64]
    lengths: NDArray[np.float32]
    conversations: NDArray[np.int32]
    positions: NDArray[np.int64]
    speakers: NDArray[np.int32]
    is_record: NDArray[np.bool_]
    is_output: NDArray[np.bool_]
    is_own: NDArray[np.float32]
    has_content: NDArray[np.bool_]

    @property
    def capacity(self) -> int:
        return self.keys.size

    @property
    def size_bytes(self) -> int:
        return sum(getattr(self, field.name).nbytes for field in fields(self))

    def grown(self, capacity: int) -> Columns:
        return Columns(**{field.name: grown(getattr(self, field.name), capacity) for field in fields(self)})

    def put(self, start: int, other: Columns) -> None:
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            mine[start : start + theirs.size] = theirs

    def blank(self, rows: NDArray[np.int32]) -> None:
        """Clears all but the keys, by which rows are found."""
        self.lengths[rows] = 0
        self.conversations[rows] = self.speakers[rows] = NOWHERE
        self.positions[rows] = NO_POSITION

    def uses(self, code: int, count: int) -> bool:
        """Whether one of the first `count` rows, those in use, has this code."""
        return code in self.conversations[:count] or code in self.speakers[:count]


def read_columns(entries: Sequence[IndexedEntry], dictionary: Dictionary) -> Columns:
    kinds = [(entry.kind, entry.origin) for entry in entries]
    # Looking up the few that there are is faster than three calls for each entry.
    # The words of a recorded tool output count in the frequencies, but it is not recalled.
    output = (Kind.RECORD, Origin.TOOL)
    properties = {one: (one[0] is Kind.RECORD, one == output, is_own(*one)) for one in set(kinds)}
    is_record, is_output, own = np.array([properties[one] for one in kinds], np.bool_).reshape(-1, 3).T
    return Columns(
        keys=np.array([entry.key for entry in entries], np.int64),
        lengths=np.array([len(entry.terms) for entry in entries], np.float32),
        conversations=np.array(
            [dictionary.conversation(entry.owner, entry.conversation) for entry in entries], np.int32
        ),
        positions=np.array([_position(entry) for entry in entries], np.int64),
        speakers=np.array([dictionary.speaker(entry.speaker) for entry in entries], np.int32),
        is_record=is_record,
        is_output=is_output,
        is_own=own.astype(np.float32),
        has_content=np.array([has_content(entry.terms) for entry in entries], np.bool_),
    )


def join_columns(parts: Sequence[Columns]) -> Columns:
    columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(Columns)}
    return Columns(**{name: np.concatenate(column) for name, column in columns.items()})


class RowContext(NamedTuple):
    """The context of some rows. (4, rows): the neighbours whose words count, and the weight of a term in each;
    (2, rows): the next neighbours, whose similarity counts, or the row itself without content."""

    around: NDArray[np.intp]
    weighted: NDArray[np.float32]
    near: NDArray[np.intp]


@dataclass(frozen=True)
class IndexSnapshot:
    """One state of an index. A later one shares `columns`, `vectors` and most postings, so making it costs little.

    `before` and `after` are the rows next to each in its conversation, the row itself where there is none. `spans` are
    lengths with the context, `priors` are for questions that name nobody, `newer` how many are newer. Everything
    derived is computed once, so all rows must be filled in before.
    """

    count: int
    columns: Columns
    is_alive: NDArray[np.bool_]
    has_vector: NDArray[np.bool_]
    before: NDArray[np.intp]
    after: NDArray[np.intp]
    spans: NDArray[np.float32]
    newer: NDArray[np.float32]
    priors: NDArray[np.float32]
    postings: Postings
    vectors: Vectors | None

    @property
    def size_bytes(self) -> int:
        arrays = (self.is_alive, self.has_vector, self.before, self.after, self.spans, self.newer, self.priors)
        vectors_bytes = 0 if self.vectors is None else self.vectors.size_bytes
        context_bytes = _CONTEXT_BYTES if self.count <= SCORED_ROWS_MAX else 0
        derived_bytes = self.postings.size_bytes + vectors_bytes + self.count * (_LANE_BYTES + context_bytes)
        return sum(array.nbytes for array in arrays) + self.columns.size_bytes + derived_bytes

    def add_context(self, reached: Floats) -> None:
        """Adds to each row's share an estimate of what its neighbours contribute."""
        rows = (reached != 0).nonzero()[0]
        is_most = rows.size > self.count // 3
        if is_most:
            rows = np.arange(self.count)
        weighted = reached.take(rows, mode="wrap")
        weighted *= context_weight(self.columns.lengths.take(rows, mode="wrap"))
        weighted *= np.float32(_FIRST_OCCURRENCE)
        for towards in (self.before, self.after):
            (_gather_context if is_most else _scatter_context)(reached, weighted, rows, towards)

    @cached_property
    def alive_count(self) -> int:
        return int(np.count_nonzero(self.is_alive))

    @cached_property
    def vectors_count(self) -> int:
        return int(np.count_nonzero(self.has_vector))

    @cached_property
    def is_complete(self) -> bool:
        """Whether nearly every entry that is recalled has a vector."""
        lacking = self.is_alive[self.without_vector] & ~self.columns.is_output[self.without_vector]
        return is_nearly_all(self.recalled.size - int(np.count_nonzero(lacking)), self.recalled.size)

    @cached_property
    def without_vector(self) -> NDArray[np.intp]:
        return np.flatnonzero(~self.has_vector)

    @cached_property
    def statements(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.is_alive & ~self.columns.is_record[: self.count])

    @cached_property
    def records(self) -> NDArray[np.intp]:
        """Without tool outputs."""
        columns = self.columns
        return np.flatnonzero(self.is_alive & columns.is_record[: self.count] & ~columns.is_output[: self.count])

    @cached_property
    def recalled(self) -> NDArray[np.intp]:
        """The rows that a recall may return: all that are alive, without tool outputs."""
        return np.flatnonzero(self.is_alive & ~self.columns.is_output[: self.count])

    @cached_property
    def without_content(self) -> NDArray[np.intp]:
        """The rows without content, for which context does not count."""
        return np.flatnonzero(~self.columns.has_content[: self.count])

    def midpoints(self, of_messages: float) -> Floats:
        """The midpoint of each row; `of_messages` is the one for records. The last result is cached."""
        known = self._midpoints.get(of_messages)
        if known is None:
            known = np.full(self.count, of_messages, np.float32)
            known[self.statements] = MIDPOINT_STATED
            self._midpoints.clear()
            self._midpoints[of_messages] = known
        return known

    @cached_property
    def _midpoints(self) -> dict[float, Floats]:
        return {}

    @cached_property
    def all_context(self) -> RowContext:
        """The context of all rows."""
        return self.context(np.arange(self.count))

    def context(self, rows: NDArray[Any]) -> RowContext:
        around, there = self.around(rows)
        near = np.where(self.columns.has_content.take(rows), around[:2], rows)
        return RowContext(around, self.context_weights(around, there), near)

    def around(self, rows: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """(4, rows): the rows before and after, then those beyond them; and whether there is one."""
        found = np.empty((4, len(rows)), np.intp)
        found[0], found[1] = self.before.take(rows), self.after.take(rows)
        found[2], found[3] = self.before.take(found[0]), self.after.take(found[1])
        there = np.empty(found.shape, np.bool_)
        np.not_equal(found[:2], rows, out=there[:2])
        np.not_equal(found[2:], found[:2], out=there[2:])
        there[2:] &= there[:2]
        # A message without content must not become an answer by its context.
        there &= self.columns.has_content.take(rows)
        return found, there

    def context_weights(self, found: NDArray[np.intp], there: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The weight of a term in each of these neighbours."""
        weighted: NDArray[np.float32] = context_weight(self.columns.lengths.take(found))
        weighted *= _FACTORS
        weighted *= there
        return weighted


def extend_derived(snapshot: IndexSnapshot, before: IndexSnapshot) -> None:
    """Takes over what was derived of the snapshot `before`, of which no row has died, and adds the rows after it."""
    added = slice(before.count, snapshot.count)
    columns, known, derived = snapshot.columns, vars(before), vars(snapshot)
    is_record, is_output = columns.is_record[added], columns.is_output[added]
    for name, is_in in (
        ("statements", ~is_record),
        ("records", is_record & ~is_output),
        ("recalled", ~is_output),
        ("without_content", ~columns.has_content[added]),
    ):
        if name in known:
            rows = np.flatnonzero(is_in) + before.count
            derived[name] = np.append(known[name], rows) if rows.size else known[name]
    derived["alive_count"] = before.alive_count + snapshot.count - before.count


def is_nearly_all(present: int, documents: int) -> bool:
    """A message that was just recorded has no vector yet, which needs no warning."""
    missing = documents - present
    allowed = max(_MISSING_MAX, documents * _MISSING_PERCENT_MAX // 100)
    return missing <= 0 or missing <= min(allowed, present - 1)


def link(snapshot: IndexSnapshot, conversations: set[int] | None) -> None:
    """Finds the neighbours of records: in these conversations, or in all. Only on a snapshot without readers."""
    columns, count = snapshot.columns, snapshot.count
    of = columns.conversations[:count]
    chosen = snapshot.is_alive & columns.is_record[:count] & (columns.positions[:count] != NO_POSITION)
    chosen &= of >= 0 if conversations is None else among(of, conversations)
    rows = np.flatnonzero(chosen).astype(np.int32)
    if not rows.size:
        return
    rows = rows[np.lexsort((columns.keys[rows], columns.positions[rows], of[rows]))]
    snapshot.before[rows] = _previous(columns, rows, step=1)
    snapshot.after[rows] = _previous(columns, rows, step=-1)
    for start in range(0, rows.size, _WIDENED_SLICE):
        some = rows[start : start + _WIDENED_SLICE]
        found, there = snapshot.around(some)
        weighted = snapshot.context_weights(found, there)
        snapshot.spans[some] = columns.lengths[some] + (weighted * columns.lengths[found]).sum(axis=0)


def set_priors(snapshot: IndexSnapshot) -> None:
    """Computes recency and priors of all rows. Only on a snapshot without readers."""
    alive = np.flatnonzero(snapshot.is_alive)
    keys = snapshot.columns.keys[alive]
    if np.any(keys[1:] < keys[:-1]):
        alive = alive[np.argsort(keys, kind="stable")]
    newest = alive[-RECENT:]
    snapshot.newer[:] = RECENT
    snapshot.newer[newest] = np.arange(newest.size - 1, -1, -1)
    own = snapshot.columns.is_own[: snapshot.count]
    snapshot.priors[:] = prior(np.zeros(1, np.float32), own, snapshot.newer)


def set_appended_priors(snapshot: IndexSnapshot, added: int) -> None:
    """The same if the last `added` rows are newer than all others and no row has died since."""
    rows = np.append(
        np.flatnonzero(snapshot.newer[:-added] < RECENT), np.arange(snapshot.count - added, snapshot.count)
    )
    newer = snapshot.newer[rows] + np.float32(added)
    newer[-added:] = np.arange(added - 1, -1, -1)
    snapshot.newer[rows] = newer = np.minimum(newer, np.float32(RECENT))
    snapshot.priors[rows] = prior(np.zeros(1, np.float32), snapshot.columns.is_own[rows], newer)


def _scatter_context(reached: Floats, weighted: Floats, rows: NDArray[np.intp], towards: NDArray[np.intp]) -> None:
    """Adds the weighted shares of `rows` to their neighbours on one side."""
    for factor in CONTEXT:
        further = towards.take(rows, mode="wrap")
        # At the end of a conversation a row is its own neighbour.
        weighted = weighted * (further != rows)
        np.add.at(reached, further, weighted * np.float32(factor))
        rows = further


def _gather_context(reached: Floats, weighted: Floats, rows: NDArray[np.intp], towards: NDArray[np.intp]) -> None:
    """The same from the receiving side, which is faster if most rows have a share."""
    is_there = towards != rows
    nearest, furthest = CONTEXT
    received = weighted.take(towards, mode="wrap")
    received *= is_there
    received *= np.float32(furthest)
    received += weighted * np.float32(nearest)
    received = received.take(towards, mode="wrap")
    received *= is_there
    reached += received


def _previous(columns: Columns, rows: NDArray[np.int32], *, step: int) -> NDArray[np.int32]:
    """Each row's neighbour on one side, or the row itself. Of records in one position, the newest counts."""
    ordered = rows[::step]
    conversations, positions = columns.conversations[ordered], columns.positions[ordered]
    starts = np.ones(rows.size, np.bool_)
    starts[1:] = (conversations[1:] != conversations[:-1]) | (positions[1:] != positions[:-1])
    firsts = np.flatnonzero(starts)
    newest = np.append(firsts[1:], rows.size) - 1 if step > 0 else firsts
    near = conversations[firsts[1:]] == conversations[firsts[:-1]]
    near &= np.abs(positions[firsts[1:]] - positions[firsts[:-1]]) <= GAP_MAX
    neighbours = np.full(firsts.size, -1, np.int32)
    neighbours[1:][near] = ordered[newest[:-1]][near]
    of_rows = neighbours[np.cumsum(starts) - 1]
    return np.where(of_rows < 0, ordered, of_rows)[::step]


def among(codes: NDArray[np.int32], wanted: Collection[int]) -> NDArray[np.bool_]:
    if len(wanted) > _COMPARED_MAX:
        return np.isin(codes, np.fromiter(wanted, np.int32, len(wanted)))
    found = np.zeros(codes.shape, np.bool_)
    for code in wanted:
        found |= codes == code
    return found


def _position(entry: IndexedEntry) -> int:
    # A tool's output is not a context.
    return NO_POSITION if entry.position is None or entry.origin is Origin.TOOL else entry.position


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.empty(size, array.dtype)
    grown[: array.size] = array
    grown[array.size :] = 0
    return grown
