"""The vectors of a shelf's rows, and a sketch of each: its signs around the mean, a bit a dimension.

Comparing sketches is a fortieth of the work of comparing vectors, and tells which rows are worth that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
# Up to here vectors are kept as they are compared; larger shelves keep them as the store does, at half the size.
_WHOLE_ROWS_MAX = 16_384
_WORD_BITS = 64
# Below, every vector is compared: that takes no longer than choosing which.
_SKETCHED_ROWS_MIN = 4096
# Half precision is widened in slices that fit into a core's cache.
_SLICE = 1024
_VECTOR = np.dtype("<f2")
# Half and single precision differ by 13 bits of mantissa, and by 112 in what the exponent starts from.
_MANTISSA_SHIFT = 13
_EXPONENT_SHIFT = np.float32(2.0**112)


class Vectors:
    """Rows are written once, below the count of whoever reads; only blanking touches a row that was read before."""

    def __init__(self, dimensions: int, capacity: int, *, whole: bool, sketched: bool) -> None:
        """`whole`: the vectors themselves are kept. Without, and without sketches, there is nothing to compare."""
        self.dimensions = dimensions
        self.capacity = capacity
        kind = np.float32 if capacity <= _WHOLE_ROWS_MAX else np.float16
        self.matrix = np.zeros((capacity, dimensions), kind) if whole else None
        self.mean: Floats = np.zeros(dimensions, np.float32)
        words = -(-dimensions // _WORD_BITS)
        self.signs = np.zeros((words, capacity), np.uint64) if sketched else None
        # What a vector is apart from its direction around the mean: the length of that, and what the mean says of it.
        self.spreads = np.zeros(capacity if sketched else 0, np.float32)
        self.leanings = np.zeros(capacity if sketched else 0, np.float32)
        # The more of the signs differ, the larger is the angle.
        bits = np.arange(dimensions + 1 if sketched else 0, dtype=np.float32)
        self._cosines_by_bits: Floats = np.cos(bits * np.float32(np.pi / dimensions))

    @property
    def is_sketched(self) -> bool:
        return self.signs is not None

    @property
    def size_bytes(self) -> int:
        arrays = (self.matrix, self.signs, self.spreads, self.leanings, self.mean)
        return sum(array.nbytes for array in arrays if array is not None)

    def grown(self, capacity: int) -> Vectors:
        other = Vectors(self.dimensions, 0, whole=self.matrix is not None, sketched=self.is_sketched)
        other.capacity, other.mean = capacity, self.mean
        if self.matrix is not None:
            other.matrix = np.zeros((capacity, self.dimensions), self.matrix.dtype)
            other.matrix[: len(self.matrix)] = self.matrix
        if self.signs is not None:
            other.signs = np.zeros((len(self.signs), capacity), np.uint64)
            other.signs[:, : self.signs.shape[1]] = self.signs
            other.spreads, other.leanings = np.zeros((2, capacity), np.float32)
            other.spreads[: self.spreads.size], other.leanings[: self.leanings.size] = self.spreads, self.leanings
        return other

    def put(self, rows: NDArray[np.int32], vectors: NDArray[np.float16]) -> None:
        for start in range(0, rows.size, _SLICE):
            self._put(rows[start : start + _SLICE], widened(vectors[start : start + _SLICE]))

    def blank(self, rows: NDArray[np.int32]) -> None:
        """What was forgotten leaves memory, not only the list of rows in use (M2)."""
        if self.matrix is not None:
            self.matrix[rows] = 0
        if self.signs is not None:
            self.signs[:, rows] = 0
            self.spreads[rows] = self.leanings[rows] = 0

    def estimated(self, query: Floats, count: int) -> Floats:
        """About the cosines of the first `count` rows. Where nothing was put, it means nothing."""
        assert self.signs is not None
        apart = query - self.mean
        signs = _signs(apart[None, :])[:, 0]
        differing = np.bitwise_count(self.signs[0, :count] ^ signs[0]).astype(np.uint16)
        for word, of_query in zip(self.signs[1:], signs[1:], strict=True):
            differing += np.bitwise_count(word[:count] ^ of_query)
        table = self._cosines_by_bits * np.float32(np.linalg.norm(apart))
        cosines: Floats = table.take(differing, mode="clip")
        cosines *= self.spreads[:count]
        cosines += self.leanings[:count]
        cosines += np.float32(query @ self.mean)
        return cosines

    def cosines(self, query: Floats, rows: NDArray[Any] | slice) -> Floats:
        """Exact."""
        assert self.matrix is not None
        chosen = self.matrix[rows]
        if chosen.dtype == np.float32:
            return product(chosen, query)
        return widened_product(chosen, query)

    def _put(self, rows: NDArray[np.int32], vectors: Floats) -> None:
        if self.matrix is not None:
            self.matrix[rows] = vectors
        if self.signs is not None:
            apart = vectors - self.mean
            self.signs[:, rows] = _signs(apart)
            self.spreads[rows] = np.sqrt(np.einsum("ij,ij->i", apart, apart))
            self.leanings[rows] = product(apart, self.mean)


def is_sketched(rows: int, *, whole: bool) -> bool:
    return rows >= _SKETCHED_ROWS_MIN or not whole


def vector_bytes(dimensions: int, rows: int, *, whole: bool) -> int:
    """What each of so many rows takes."""
    kept = dimensions * (4 if rows <= _WHOLE_ROWS_MAX else 2) if whole else 0
    return kept + (-(-dimensions // _WORD_BITS) * 8 + 8 if is_sketched(rows, whole=whole) else 0)


def read_vectors(data: Collection[bytes], dimensions: int) -> NDArray[np.float16]:
    """As a store keeps them, one a row. Nobody else has this memory, so it may be written to."""
    return np.frombuffer(bytearray().join(data), _VECTOR).reshape(len(data), dimensions)


def widened(vectors: NDArray[np.float16]) -> Floats:
    """Exactly those numbers. numpy's own way takes six times as long: it goes one by one, this by shifting bits."""
    bits = vectors.view(np.int16).astype(np.int32)
    bits <<= _MANTISSA_SHIFT
    # What the sign left on the way; below it, exponent and mantissa are where they belong.
    bits &= np.int32(~0x70000000)
    numbers = bits.view(np.float32)
    numbers *= _EXPONENT_SHIFT
    return numbers


def widened_product(vectors: NDArray[np.float16], query: Floats) -> Floats:
    products = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), _SLICE):
        products[start : start + _SLICE] = product(widened(vectors[start : start + _SLICE]), query)
    return products


def product(vectors: Floats, query: Floats) -> Floats:
    """Row by row on this thread. `@` shares a larger matrix out among the threads of a BLAS, and then waits for all of
    them: beside a host that computes, 10 ms instead of a tenth of one."""
    products: Floats = np.vecdot(vectors, query)
    return products


def _signs(vectors: Floats) -> NDArray[np.uint64]:
    """(words, rows)"""
    missing = -vectors.shape[1] % _WORD_BITS
    bits = np.pad(vectors > 0, ((0, 0), (0, missing))) if missing else vectors > 0
    return np.packbits(bits, axis=1).view(np.uint64).T
