"""The vectors of an index's rows, and their binary quantization: the signs around the mean, one bit per dimension.

Comparing quantized vectors takes a fortieth of the time and shows which rows are worth an exact comparison.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
# Up to this many rows, vectors are kept in single precision; larger spaces keep half precision, as the store does.
_WHOLE_ROWS_MAX = 16_384
_WORD_BITS = 64
# Below this many rows every vector is compared: choosing some would take as long.
_QUANTIZED_ROWS_MIN = 4096
# Half precision is widened in slices that fit into a core's cache.
_SLICE = 1024
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
        for start in range(0, rows.size, _SLICE):
            self._put(rows[start : start + _SLICE], widened(vectors[start : start + _SLICE]))

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
    for start in range(0, len(vectors), _SLICE):
        products[start : start + _SLICE] = product(widened(vectors[start : start + _SLICE]), query)
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
