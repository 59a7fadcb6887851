"""The inverted index: which rows contain a term, and how often. Terms are kept as hashes, never as words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

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
    """One hash per occurrence, in order; equal in every process. Whoever hashes many texts passes `known`."""
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
    differs = _differs(packed)
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
        size_bytes = 0
        for part in self._parts:
            size_bytes += part.size_bytes
        return size_bytes

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
        while len(parts) > 1 and _worth_joining(*parts[-2:]):
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


def _differs(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a number differs from the one before it."""
    differs = np.ones(numbers.size, np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=differs[1:])
    return differs


def _part(form: PostingForm, packed: NDArray[np.int64], counts: NDArray[np.uint16]) -> PostingPart:
    """From sorted postings, which are overwritten with their terms."""
    rows, row_mask = np.empty(packed.size, np.int32), np.int64((1 << form.row_bits) - 1)
    for start in range(0, packed.size, _SLICE):
        rows[start : start + _SLICE] = packed[start : start + _SLICE] & row_mask
    packed &= np.int64(-1 << form.row_bits)
    starts = np.append(0, np.flatnonzero(packed[1:] != packed[:-1]) + 1)[: packed.size]
    return PostingPart(form, packed[starts], np.append(starts, packed.size), rows, counts)


def _worth_joining(older: PostingPart, newer: PostingPart) -> bool:
    size = older.rows.size + newer.rows.size
    return older.form == newer.form and older.rows.size <= _GROWTH * newer.rows.size and size <= _MERGED_MAX


def _join(older: PostingPart, newer: PostingPart) -> PostingPart:
    packed = np.concatenate([np.repeat(part.terms, np.diff(part.starts)) | part.rows for part in (older, newer)])
    order = np.argsort(packed)
    return _part(older.form, packed[order], np.concatenate([older.counts, newer.counts])[order])
