"""Vectors in memory, and what their sketches tell of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.recall.index.snapshot import Vectors, product, read_vectors, vector_bytes, widened


def unit_vectors(count: int, dimensions: int, seed: int = 0) -> np.ndarray:
    """Around a common direction, as embedders give them."""
    random = np.random.default_rng(seed)
    values = random.normal(0, 1, (count, dimensions)) + random.normal(0, 0.7, dimensions)
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float16)


def filled(vectors: np.ndarray, *, whole: bool = True, quantized: bool = True) -> Vectors:
    held = Vectors(vectors.shape[1], len(vectors), whole=whole, quantized=quantized)
    held.mean = vectors.mean(axis=0, dtype=np.float32)
    held.put(np.arange(len(vectors), dtype=np.int32), vectors)
    return held


@given(st.lists(st.floats(width=16, allow_nan=False, allow_infinity=False), min_size=1, max_size=40))
def test_widened_numbers_are_the_same_numbers(numbers):
    """L6: zeros, signs and the smallest numbers included."""
    halves = np.array(numbers, np.float16)
    assert widened(halves).tobytes() == halves.astype(np.float32).tobytes()


@pytest.mark.parametrize("rows", [1, 2, 7, 3000])
def test_what_a_row_comes_to_does_not_depend_on_the_others(rows):
    """L6: each is compared by itself, on the thread that asks, however many there are."""
    vectors = widened(unit_vectors(3000, 256))
    query = widened(unit_vectors(3001, 256)[-1:])[0]
    assert product(vectors[:rows], query).tobytes() == b"".join(product(row[None], query) for row in vectors[:rows])


@pytest.mark.parametrize("dimensions", [64, 100, 256, 384])
def test_estimates_are_near_the_cosines(dimensions):
    """L6: near enough to tell which are worth comparing, for any number of dimensions."""
    vectors = unit_vectors(2000, dimensions)
    query = widened(unit_vectors(2001, dimensions)[-1:])[0]
    held = filled(vectors)
    exact, estimated = held.cosines(query, slice(0, 2000)), held.estimate(query, 2000)
    assert exact == pytest.approx(vectors.astype(np.float32) @ query, abs=1e-6)
    assert np.abs(exact - estimated).mean() < 1 / np.sqrt(dimensions)
    assert np.corrcoef(exact, estimated)[0, 1] > 0.7


def test_the_same_vector_is_the_nearest_by_its_sketch():
    vectors = unit_vectors(500, 128)
    held = filled(vectors, whole=False)
    for row in (0, 77, 499):
        assert int(np.argmax(held.estimate(widened(vectors[row : row + 1])[0], 500))) == row


@pytest.mark.parametrize("rows", [100, 20_000])
def test_vectors_grow_without_a_change(rows):
    """L6: kept as they are compared, or as the store keeps them where there are many."""
    vectors = unit_vectors(100, 16)
    held = Vectors(16, rows, whole=True, quantized=True)
    held.put(np.arange(100, dtype=np.int32), vectors)
    query = widened(vectors[:1])[0]
    larger = held.grown(rows + 50)
    assert larger.cosines(query, slice(0, 100)).tolist() == held.cosines(query, slice(0, 100)).tolist()
    assert larger.estimate(query, 100).tolist() == held.estimate(query, 100).tolist()
    assert larger.capacity == rows + 50


def test_blank_rows_hold_nothing():
    """M2: what was forgotten is not in memory, neither whole nor as a sketch."""
    held = filled(unit_vectors(10, 64))
    held.blank(np.array([2, 5], np.int32))
    assert held.matrix is not None
    assert held.signs is not None
    assert np.flatnonzero(~held.matrix.any(axis=1)).tolist() == [2, 5]
    assert np.flatnonzero(~held.signs.any(axis=0)).tolist() == [2, 5]
    assert np.flatnonzero(held.norms == 0).tolist() == [2, 5]


@pytest.mark.parametrize("rows, whole", [(100, True), (5000, True), (20_000, True), (100, False)])
def test_what_a_row_takes_is_known_before(rows, whole):
    """L6: a bound is kept by not building what would not fit."""
    quantized = rows >= 4096 or not whole
    held = Vectors(256, rows, whole=whole, quantized=quantized)
    assert held.size_bytes - held.mean.nbytes == rows * vector_bytes(256, rows, whole=whole)


def test_vectors_are_read_as_a_store_keeps_them():
    vectors = unit_vectors(3, 8)
    assert np.array_equal(read_vectors([row.astype("<f2").tobytes() for row in vectors], 8), vectors)
    assert read_vectors([], 8).shape == (0, 8)
