"""Closing: bounded, drained, nothing left behind; and what a forked child may not touch."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from plain import ENDLESS, WAIT, insert, integrity, open_plain, plain_store, values

from afterturn.errors import AfterturnError, DeadlineExceeded, ForkedProcess, MemoryClosed
from afterturn.stores.sqlite.store import SqliteStore


async def test_closing_drains_the_writes_that_wait(tmp_path: Path) -> None:
    """C4: what was accepted before closing is committed."""
    store = plain_store(tmp_path / "memory.db")
    writes = [asyncio.ensure_future(store.write(insert(value), at=None)) for value in range(300)]
    await asyncio.sleep(0)
    await store.close(within=WAIT)
    await asyncio.gather(*writes)
    engine = open_plain(tmp_path / "memory.db")
    assert len(engine.read_now(values)) == 300
    engine.close()


async def test_closing_leaves_no_thread_and_no_log(tmp_path: Path) -> None:
    """§2: closing leaves nothing behind but the store."""
    before = threading.active_count()
    store = plain_store(tmp_path / "memory.db")
    await store.write(insert(1), at=None)
    await asyncio.gather(*(store.read(values, at=None) for _ in range(4)))
    await store.check()
    await store.close(within=WAIT)
    assert threading.active_count() == before
    assert [item.name for item in tmp_path.iterdir()] == ["memory.db"]


async def test_closing_twice_is_harmless_also_at_once(tmp_path: Path) -> None:
    """§13: closing twice is harmless."""
    store = plain_store(tmp_path / "memory.db")
    await asyncio.gather(store.close(within=WAIT), store.close(within=WAIT))
    await store.close(within=WAIT)
    store.close_now(within=WAIT)
    assert [item.name for item in tmp_path.iterdir()] == ["memory.db"]


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.write(insert(1), at=None),
        lambda store: store.read(values, at=None),
        lambda store: store.scrub(),
        lambda store: store.check(),
        lambda store: store.backup(Path("/nowhere/copy"), progress=print),
        lambda store: store.restore(Path("/nowhere/copy"), progress=print),
        lambda store: asyncio.to_thread(store.write_now, insert(1)),
        lambda store: asyncio.to_thread(store.read_now, values),
    ],
)
async def test_use_after_closing_raises(tmp_path: Path, use: Callable[[SqliteStore], Any]) -> None:
    """§13: use after closing raises MemoryClosed, from every method."""
    store = plain_store(tmp_path / "memory.db")
    await store.close(within=WAIT)
    with pytest.raises(MemoryClosed):
        await use(store)


async def test_a_write_without_end_is_rolled_back_when_the_bound_has_passed(tmp_path: Path) -> None:
    """§13: after `within`, the transaction under way is undone whole and its caller is told."""
    store = plain_store(tmp_path / "memory.db")
    begun = threading.Event()

    def endless(unit: Any) -> None:
        insert(1)(unit)
        begun.set()
        unit.session.rows(ENDLESS)

    write = asyncio.ensure_future(store.write(endless, at=None))
    await asyncio.to_thread(begun.wait, WAIT)
    await store.close(within=0.05)
    with pytest.raises(DeadlineExceeded):
        await write
    engine = open_plain(tmp_path / "memory.db")
    assert engine.read_now(values) == []
    engine.close()


async def test_reads_without_end_do_not_keep_a_store_open(tmp_path: Path) -> None:
    """§13: the running read and the one that waits behind it both end with an error of the tree."""
    store = plain_store(tmp_path / "memory.db")
    begun = threading.Semaphore(0)

    def endless(unit: Any) -> None:
        begun.release()
        unit.session.rows(ENDLESS)

    reads = [asyncio.ensure_future(store.read(endless, at=None)) for _ in range(3)]
    await asyncio.to_thread(lambda: [begun.acquire(timeout=WAIT) for _ in range(2)])
    await store.close(within=0.05)
    results = await asyncio.gather(*reads, return_exceptions=True)
    assert all(isinstance(result, AfterturnError) for result in results)
    assert [item.name for item in tmp_path.iterdir()] == ["memory.db"]


async def test_reading_threads_end_also_if_the_writing_thread_does_not(tmp_path: Path) -> None:
    """§13: closing is bounded, and leaves only the thread that does not end."""
    store = plain_store(tmp_path / "memory.db")
    begun, over, readers = threading.Event(), threading.Event(), set[threading.Thread]()

    def stuck(unit: Any) -> None:
        begun.set()
        over.wait(WAIT)

    await store.read(lambda unit: readers.add(threading.current_thread()), at=None)
    write = asyncio.ensure_future(store.write(stuck, at=None))
    await asyncio.to_thread(begun.wait, WAIT)
    await store.close(within=0.0)
    for reader in readers:
        reader.join(WAIT)
    assert [reader.is_alive() for reader in readers] == [False]
    over.set()
    with pytest.raises(DeadlineExceeded):
        await write


async def test_a_lock_of_another_process_does_not_hold_closing_up(tmp_path: Path) -> None:
    """§13: closing is bounded even while the writer waits for somebody's lock."""
    store = plain_store(tmp_path / "memory.db", busy_timeout=600.0)
    other = apsw.Connection(str(tmp_path / "memory.db"))
    other.set_busy_timeout(10_000)
    other.execute("BEGIN IMMEDIATE")
    write = asyncio.ensure_future(store.write(insert(1), at=None))
    await asyncio.sleep(0)
    await asyncio.wait_for(store.close(within=0.05), WAIT)
    with pytest.raises(AfterturnError):
        await write
    other.close()


def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    """§2: a child gets ForkedProcess from the parent's store, and closing it there changes nothing."""
    store = plain_store(tmp_path / "memory.db")

    def use() -> int:
        for call in (lambda: store.write_now(insert(1)), lambda: store.read_now(values), store.engine.scrub):
            try:
                call()
            except ForkedProcess:
                continue
            return 1
        asyncio.run(store.close(within=WAIT))
        store.close_now(within=WAIT)
        return 0

    assert _in_child(use) == 0
    store.write_now(insert(2))
    assert store.read_now(values) == [2]
    store.close_now(within=WAIT)


_FORKING = """
import os, sys
from pathlib import Path
from plain import open_plain, place_at
from afterturn.stores.sqlite.connection import connect, run

path = Path(sys.argv[1])
open_plain(path).close()
connection = connect(place_at(path))
run(connection, "PRAGMA cache_size=1")  # so that uncommitted pages are in the shared log already
run(connection, "INSERT INTO item VALUES (-1, 'committed')")
run(connection, "BEGIN IMMEDIATE")
connection.executemany("INSERT INTO item VALUES (?, ?)", [(value, "x" * 3000) for value in range(400)])
child = os.fork()
if not child:
    del connection
    sys.exit(0)
os.waitpid(child, 0)
connection.executemany("INSERT INTO item VALUES (?, ?)", [(value, "x" * 3000) for value in range(400, 800)])
run(connection, "COMMIT")
"""


def test_a_child_that_ends_amid_a_write_does_not_harm_the_parent(tmp_path: Path) -> None:
    """§2: what a child inherits is never freed there, so nothing is rolled back or unlocked under the parent."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    path = tmp_path / "memory.db"
    subprocess.run([sys.executable, "-c", _FORKING, str(path)], check=True, timeout=WAIT, env=environment)
    engine = open_plain(path)
    assert engine.read_now(values) == list(range(-1, 800))
    assert engine.read_now(integrity) == "ok"
    engine.close()


def test_a_child_may_open_the_store_anew(tmp_path: Path) -> None:
    """§2: a forked child opens its own, beside the parent's."""
    engine = open_plain(tmp_path / "memory.db")
    engine.write_now(insert(1))

    def write_own() -> int:
        own = open_plain(tmp_path / "memory.db")
        own.write_now(insert(2))
        own.close()
        return 0

    assert _in_child(write_own) == 0
    engine.write_now(insert(3))
    assert engine.read_now(values) == [1, 2, 3]
    engine.close()


def _in_child(work: Callable[[], int]) -> int:
    """The exit code of a forked child that runs `work`."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    code = 70
    try:
        code = work()
    finally:
        sys.stdout.flush()
        os._exit(code)
