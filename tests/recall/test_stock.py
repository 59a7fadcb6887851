"""How a space in memory grows: what comes costs what it is, and whoever reads is not disturbed."""

from dataclasses import fields

import numpy as np
import pytest
from bookshelf import SPACE, PlainIndex, stocked

from afterturn.base.types import Kind, Origin, Shelved
from afterturn.recall import edition as edition_module
from afterturn.recall import stock as stock_module
from afterturn.recall.edition import Edition

ARRAYS = [field.name for field in fields(Edition) if "NDArray" in field.type]


def put(index: PlainIndex, key: int, *, conversation: str | None = None) -> None:
    kind = Kind.STATEMENT if conversation is None else Kind.RECORD
    origin = Origin.USER if key % 3 else Origin.AGENT
    position = None if conversation is None else key
    index.put(Shelved(key, SPACE, kind, origin, None, conversation, None, position, ("apple",) * (key % 4)))


def filled(count: int) -> PlainIndex:
    index = PlainIndex()
    for key in range(1, 1 + count):
        put(index, key)
    return index


@pytest.mark.parametrize("at_a_time", [1, 3, 11])
def test_recency_is_as_if_all_had_come_at_once(monkeypatch: pytest.MonkeyPatch, at_a_time: int):
    """L6: also of those that are too old to be told apart, and behind gaps that others have left."""
    monkeypatch.setattr(edition_module, "RECENT", 7)
    index = filled(10)
    stock = stocked(index)
    for key in range(100, 130, at_a_time):
        for one in range(key, key + at_a_time):
            put(index, one)
        assert stock.follow(index)
        if key % 2:
            index.remove(key)
            assert stock.follow(index)
    edition, expected = stock.edition, stocked(index).edition
    keys = edition.facts.keys[: edition.count][edition.is_alive]
    assert keys.tolist() == expected.facts.keys[: expected.count].tolist()
    assert edition.newer[edition.is_alive].tolist() == expected.newer.tolist()
    assert np.array_equal(edition.plain[edition.is_alive], expected.plain)


def test_a_key_that_comes_back_is_as_old_as_it_is():
    """L6: its row is the last, and it is not the newest."""
    index = filled(4)
    stock = stocked(index)
    gone = index.remove(2)
    assert stock.follow(index)
    index.put(gone)
    assert stock.follow(index)
    assert stock.edition.newer[stock.edition.is_alive].tolist() == [3, 1, 0, 2]


def test_what_comes_later_changes_nothing_for_whoever_reads():
    """L6: statements, messages beside each other, and what goes."""
    index = filled(5)
    stock = stocked(index)
    seen: list[tuple[Edition, dict[str, np.ndarray]]] = []
    for key in range(100, 160):
        put(index, key, conversation="c" if key % 5 == 0 else None)
        if key % 7 == 0:
            index.remove(key - 1)
        assert stock.follow(index)
        edition = stock.edition
        seen.append((edition, {name: getattr(edition, name).copy() for name in ARRAYS}))
    for edition, arrays in seen:
        assert all(np.array_equal(getattr(edition, name), array) for name, array in arrays.items())


def test_rows_share_memory_while_only_statements_come():
    """L7: following one change takes as long in a large space as in a small one."""
    index = filled(400)
    stock = stocked(index)
    put(index, 1000)
    assert stock.follow(index)
    first = stock.edition
    put(index, 1001)
    assert stock.follow(index)
    shared = [name for name in ARRAYS if np.shares_memory(getattr(first, name), getattr(stock.edition, name))]
    assert shared == ["is_alive", "before", "after", "spans"]


def test_room_for_what_may_come_is_counted():
    """L7: the bound on memory is one on what is taken, used or not; what a later edition does without is let go."""
    index = filled(400)
    stock = stocked(index)
    spare = []
    for key in range(1000, 1003):
        if key == 1001:
            index.remove(7)
        else:
            put(index, key)
        assert stock.follow(index)
        edition = stock.edition
        arrays = [getattr(edition, name) for name in ARRAYS]
        taken = sum(array.nbytes if array.base is None else array.base.nbytes for array in arrays)
        assert stock.shelf_bytes >= taken + edition.facts.size_bytes + edition.postings.size_bytes
        assert stock._columns.spare_bytes(edition.count) == taken - sum(array.nbytes for array in arrays)
        spare.append(taken > sum(array.nbytes for array in arrays))
    assert spare == [True, False, True]


def test_a_shelf_is_worn_by_what_came_late(monkeypatch: pytest.MonkeyPatch):
    """L6: rows that are not in order are looked up one by one, so there is an end to them."""
    monkeypatch.setattr(stock_module, "_WORN_MIN", 4)
    index = filled(10)
    stock = stocked(index)
    worn = []
    for key in range(100, 105):
        put(index, key)
        assert stock.follow(index)
        worn.append(stock.is_worn)
    assert worn == [False] * 4 + [True]
    assert not stocked(index).is_worn
