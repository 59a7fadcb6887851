"""Disks that break or fill up: what was acknowledged is there, what failed is not half there, and it works again."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from faults import BROKEN, FULL, Disk
from plain import WAIT, insert, integrity, open_plain, plain_store, values

from afterturn.errors import StoreError, StoreFull

TEXT = "x" * 3000


@pytest.fixture
def disk() -> Iterator[Disk]:
    faulty = Disk("faulty")
    yield faulty
    faulty.unplug()


@pytest.mark.parametrize("error", [FULL, BROKEN])
@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize("after", range(0, 24, 3))
def test_a_fault_at_the_nth_call_loses_nothing_acknowledged(
    disk: Disk, tmp_path: Path, after: int, operation: str, error: Callable[[str], apsw.Error]
) -> None:
    """C2: every write either raised and is gone, or answered and is there; the store works when the disk does."""
    engine = open_plain(tmp_path / "memory.db", vfs=disk.name)
    disk.break_down(operation, after=after, error=error)
    acknowledged = _write_many(engine.write_now, range(30))
    assert disk.failures
    disk.mend()
    engine.write_now(insert(1000))
    assert engine.read_now(values) == [*acknowledged, 1000]
    assert engine.read_now(integrity) == "ok"
    engine.close()
    reopened = open_plain(tmp_path / "memory.db")
    assert reopened.read_now(values) == [*acknowledged, 1000]
    reopened.close()


def test_a_full_disk_says_so(disk: Disk, tmp_path: Path) -> None:
    """§6 of bad input: a full disk is a StoreFull that tells what to do."""
    engine = open_plain(tmp_path / "memory.db", vfs=disk.name)
    disk.break_down("write", after=0, error=FULL)
    with pytest.raises(StoreFull, match="Free some"):
        engine.write_now(insert(1, TEXT))
    disk.mend()
    engine.close()


def test_a_disk_that_fills_while_opening_says_so(disk: Disk, tmp_path: Path) -> None:
    """C2: a store that could not be set up is set up by the next opening."""
    disk.break_down("write", after=2, error=FULL)
    with pytest.raises(StoreFull):
        open_plain(tmp_path / "memory.db", vfs=disk.name)
    disk.mend()
    engine = open_plain(tmp_path / "memory.db", vfs=disk.name)
    assert engine.read_now(values) == []
    engine.close()


async def test_a_failed_commit_fails_every_write_of_its_group(disk: Disk, tmp_path: Path) -> None:
    """C2: nobody is told that a write is durable when its commit was not."""
    store = plain_store(tmp_path / "memory.db", vfs=disk.name)
    disk.break_down("sync", after=0, error=BROKEN)
    results = await asyncio.gather(*(store.write(insert(value), at=None) for value in range(5)), return_exceptions=True)
    assert all(isinstance(result, StoreError) for result in results)
    disk.mend()
    assert await store.read(values, at=None) == []
    await store.write(insert(7), at=None)
    assert await store.read(values, at=None) == [7]
    await store.close(within=WAIT)


async def test_a_write_that_loses_the_transaction_does_not_take_its_neighbours_along(
    disk: Disk, tmp_path: Path
) -> None:
    """C2: SQLite rolls everything back on a full disk; the others are run again and stand."""
    store = plain_store(tmp_path / "memory.db", vfs=disk.name)

    def fill_the_disk(unit: Any) -> None:
        # A file that may not grow is what SQLite itself reports as full, in the middle of a statement.
        pages = unit.session.row("PRAGMA page_count")[0]
        unit.session.rows(f"PRAGMA max_page_count={pages}")
        try:
            unit.session.run("INSERT INTO item VALUES (99, zeroblob(1000000))")
        finally:
            unit.session.rows("PRAGMA max_page_count=1000000")

    results = await asyncio.gather(
        store.write(insert(1), at=None),
        store.write(fill_the_disk, at=None),
        store.write(insert(2), at=None),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [int, StoreFull, int]
    assert await store.read(values, at=None) == [1, 2]
    await store.close(within=WAIT)


def _write_many(write_now: Callable[[Callable[[Any], int]], int], wanted: range) -> list[int]:
    acknowledged = []
    for value in wanted:
        try:
            write_now(insert(value, TEXT))
        except StoreError:
            continue
        acknowledged.append(value)
    return acknowledged
