"""Several writers, one commit: each unit of work succeeds or fails alone, and is told after it is durable."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest
from plain import WAIT, insert, open_plain, plain_store, values

from afterturn.errors import Conflict
from afterturn.stores.sqlite import engine
from afterturn.stores.sqlite.store import SqliteStore
from afterturn.stores.threaded_store import GROUP_WRITES_MAX


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One item for each commit on a connection that was opened after this."""
    seen: list[str] = []

    def watch(connection: apsw.Connection) -> None:
        connection.set_commit_hook(lambda: seen.append("commit") or False)

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, watch])
    return seen


async def test_concurrent_writes_share_commits(commits: list[str], tmp_path: Path) -> None:
    """C2: 32 writers at once need far fewer commits than writes."""
    store = plain_store(tmp_path / "memory.db")
    before = len(commits)

    async def add_ten(first: int) -> None:
        for value in range(first, first + 10):
            await store.write(insert(value), at=None)

    await asyncio.gather(*(add_ten(writer * 10) for writer in range(32)))
    assert await store.read(values, at=None) == list(range(320))
    assert len(commits) - before <= 40
    await store.close(within=WAIT)


async def test_a_failing_write_fails_alone(store: SqliteStore) -> None:
    """C2: units share a commit but each succeeds or fails alone."""

    def fail_halfway(unit: Any) -> None:
        insert(2)(unit)
        raise LookupError("changed my mind")

    results = await asyncio.gather(
        store.write(insert(1), at=None),
        store.write(fail_halfway, at=None),
        store.write(insert(3), at=None),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [int, LookupError, int]
    assert await store.read(values, at=None) == [1, 3]


async def test_a_broken_constraint_is_a_conflict(store: SqliteStore) -> None:
    """G6: a duplicate is found by constraint, and the error is of afterturn's tree."""
    await store.write(insert(1), at=None)
    with pytest.raises(Conflict):
        await store.write(insert(1), at=None)


async def test_a_unit_is_flushed_before_it_commits(store: SqliteStore) -> None:
    """C2: what a unit keeps back is written in its own transaction."""
    units: list[Any] = []
    await store.write(units.append, at=None)
    assert units[0].flushed


async def test_what_a_flush_refuses_is_not_committed(store: SqliteStore) -> None:
    """C2: an error while flushing undoes the whole unit."""

    def refuse_to_flush(unit: Any) -> None:
        insert(1)(unit)
        unit.flush = lambda: 1 // 0

    with pytest.raises(ZeroDivisionError):
        await store.write(refuse_to_flush, at=None)
    assert await store.read(values, at=None) == []


async def test_a_write_cancelled_before_its_turn_never_runs(store: SqliteStore) -> None:
    """§13: a write whose caller left before it began is skipped, though its group is under way."""
    begun, release = threading.Event(), threading.Event()

    def hold(unit: Any) -> None:
        begun.set()
        release.wait(WAIT)
        insert(1)(unit)

    first = asyncio.ensure_future(store.write(hold, at=None))
    second = asyncio.ensure_future(store.write(insert(2), at=None))
    await asyncio.to_thread(begun.wait, WAIT)
    second.cancel()
    await asyncio.wait([second])
    release.set()
    await first
    assert await store.read(values, at=None) == [1]


async def test_a_write_cancelled_after_it_began_commits(store: SqliteStore) -> None:
    """C2: cancelling the await does not undo a write that has begun."""
    begun, release = threading.Event(), threading.Event()

    def hold(unit: Any) -> None:
        begun.set()
        release.wait(WAIT)
        insert(1)(unit)

    write = asyncio.ensure_future(store.write(hold, at=None))
    await asyncio.to_thread(begun.wait, WAIT)
    write.cancel()
    release.set()
    await asyncio.wait([write])
    assert write.cancelled()
    await store.write(insert(2), at=None)
    assert await store.read(values, at=None) == [1, 2]


async def test_an_answer_comes_only_after_the_commit(store: SqliteStore, tmp_path: Path) -> None:
    """C2: whoever was told sees the row from any other connection."""
    other = open_plain(tmp_path / "memory.db")
    for value in range(20):
        await store.write(insert(value), at=None)
        assert value in other.read_now(values)
    other.close()


async def test_a_long_group_gives_the_lock_away_and_ends_all_the_same(
    commits: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§13: a group is bounded in time, what it left over goes into the next one."""
    monkeypatch.setattr(engine, "GROUP_SECONDS_MAX", 0.0)
    store = plain_store(tmp_path / "memory.db")
    before = len(commits)
    await asyncio.gather(*(store.write(insert(value), at=None) for value in range(10)))
    assert len(commits) - before == 10
    await store.close(within=WAIT)


async def test_more_writes_than_a_group_holds_all_arrive(store: SqliteStore) -> None:
    """§13: a group is bounded in number, and nobody is forgotten."""
    count = GROUP_WRITES_MAX * 2 + 1
    await asyncio.gather(*(store.write(insert(value), at=None) for value in range(count)))
    assert len(await store.read(values, at=None)) == count


def test_a_store_serves_one_loop_after_another(tmp_path: Path) -> None:
    """§2: memory may be opened, used and closed from different loops."""
    store = plain_store(tmp_path / "memory.db")
    asyncio.run(_write(store, 1))
    asyncio.run(_write(store, 2))
    assert store.read_now(values) == [1, 2]
    asyncio.run(store.close(within=WAIT))


def test_loops_in_two_threads_write_at_once(tmp_path: Path) -> None:
    """§2: each loop gets its own results, whoever's commit they were in."""
    store = plain_store(tmp_path / "memory.db")

    async def add(first: int) -> None:
        await asyncio.gather(*(store.write(insert(value), at=None) for value in range(first, first + 50)))

    threads = [threading.Thread(target=asyncio.run, args=(add(first),)) for first in (0, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert store.read_now(values) == list(range(100))
    store.close_now(within=WAIT)


async def test_writing_now_and_writing_later_do_not_disturb_each_other(store: SqliteStore) -> None:
    """§13: the blocking twin and the writing thread take turns on one connection."""
    later = asyncio.gather(*(store.write(insert(value), at=None) for value in range(0, 200, 2)))
    await asyncio.to_thread(lambda: [store.write_now(insert(value)) for value in range(1, 50, 2)])
    await later
    assert len(await store.read(values, at=None)) == 125


async def _write(store: SqliteStore, value: int) -> None:
    await store.write(insert(value), at=None)
