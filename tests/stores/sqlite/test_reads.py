"""Reads beside the writer: one snapshot each, ended by cancellation, never disturbing the next."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from plain import ENDLESS, WAIT, Plain, insert, values

from afterturn.errors import StoreReadOnly
from afterturn.stores.sqlite.engine import Read, Readers
from afterturn.stores.sqlite.store import SqliteStore


async def test_a_read_sees_one_state_while_others_write(store: SqliteStore) -> None:
    """L6: a unit that reads twice gets the same answer, whatever was committed in between."""
    await store.write(insert(1), at=None)
    looked, go_on = threading.Event(), threading.Event()

    def look_twice(unit: Any) -> tuple[list[int], list[int]]:
        before = values(unit)
        looked.set()
        go_on.wait(WAIT)
        return before, values(unit)

    read = asyncio.ensure_future(store.read(look_twice, at=None))
    await asyncio.to_thread(looked.wait, WAIT)
    await store.write(insert(2), at=None)
    go_on.set()
    assert await read == ([1], [1])
    assert await store.read(values, at=None) == [1, 2]


async def test_cancelling_interrupts_a_read_and_its_connection_stays_usable(store: SqliteStore) -> None:
    """R4: cancelling the await ends the query; later reads are whole."""
    for _ in range(5):
        begun = [threading.Event() for _ in range(2)]

        def endless(unit: Any, mark: threading.Event) -> None:
            mark.set()
            unit.session.rows(ENDLESS)

        reads = [
            asyncio.ensure_future(store.read(lambda unit, mark=mark: endless(unit, mark), at=None)) for mark in begun
        ]
        for mark in begun:
            await asyncio.to_thread(mark.wait, WAIT)
        for read in reads:
            read.cancel()
        await asyncio.wait(reads)
        # Both reading threads were busy without end: this read is only possible because they were freed.
        assert await asyncio.wait_for(store.read(values, at=None), WAIT) == []


async def test_a_read_of_many_short_statements_is_cancelled_too(store: SqliteStore) -> None:
    """R4: an interrupt that falls between two statements is not lost."""
    begun, ended = threading.Event(), threading.Event()

    def many(unit: Any) -> None:
        try:
            while True:
                unit.session.rows("SELECT 1")
                begun.set()
        finally:
            ended.set()

    read = asyncio.ensure_future(store.read(many, at=None))
    await asyncio.to_thread(begun.wait, WAIT)
    read.cancel()
    assert await asyncio.to_thread(ended.wait, WAIT)


async def test_cancelled_reads_never_hit_the_reads_that_follow(store: SqliteStore) -> None:
    """R4: 200 reads, every other one cancelled at once; the rest are all answered."""
    await store.write(insert(1), at=None)
    for _ in range(100):
        doomed = asyncio.ensure_future(store.read(lambda unit: unit.session.rows(ENDLESS), at=None))  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        doomed.cancel()
        assert await store.read(values, at=None) == [1]


async def test_a_read_can_not_write(store: SqliteStore) -> None:
    """§13: recall never writes, and its connections could not."""
    with pytest.raises(StoreReadOnly):
        await store.read(insert(1), at=None)


async def test_an_error_in_a_read_reaches_its_caller_only(store: SqliteStore) -> None:
    """L1: one broken read leaves the others whole."""
    results = await asyncio.gather(
        store.read(lambda unit: 1 // 0, at=None),
        store.read(values, at=None),
        store.read(values, at=None),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [ZeroDivisionError, list, list]


class Visitors:
    """Reads on threads of their own, each of which stays until it is let go."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self.inside: SimpleQueue[int] = SimpleQueue()
        self.go = [threading.Event() for _ in range(3)]
        self.threads = [threading.Thread(target=self._visit, args=(number,), daemon=True) for number in range(3)]

    def _visit(self, number: int) -> None:
        def stay(_: Any) -> None:
            self.inside.put(number)
            self.go[number].wait(WAIT)

        self._readers.run(Read(stay))

    def leave(self) -> None:
        for number, thread in enumerate(self.threads):
            self.go[number].set()
            if thread.ident is not None:
                thread.join(WAIT)


@pytest.fixture
def visitors(store: SqliteStore) -> Iterator[Visitors]:
    visitors = Visitors(Readers(store.engine.place, 2, Plain))  # type: ignore[arg-type]
    yield visitors
    visitors.leave()


def test_one_more_than_the_limit_waits_for_a_connection(visitors: Visitors) -> None:
    """G5: and has the first that comes back."""
    for thread in visitors.threads[:2]:
        thread.start()
    assert {visitors.inside.get(timeout=WAIT) for _ in range(2)} == {0, 1}
    visitors.threads[2].start()
    with pytest.raises(Empty):
        visitors.inside.get(timeout=0.2)
    visitors.go[0].set()
    assert visitors.inside.get(timeout=WAIT / 2) == 2


def test_none_begins_while_readers_pause(visitors: Visitors) -> None:
    """M4: a file is put in another's place while nobody reads it."""
    readers = visitors._readers
    assert readers.pause(within=WAIT)
    visitors.threads[0].start()
    with pytest.raises(Empty):
        visitors.inside.get(timeout=0.2)
    readers.resume()
    assert visitors.inside.get(timeout=WAIT) == 0


def test_the_engine_loads_neither_asyncio_nor_numpy() -> None:
    """§2: a hook process answers in milliseconds; its store needs no event loop."""
    code = "import sys, afterturn.stores.sqlite.engine; print({'asyncio', 'numpy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=WAIT)
    assert found.stdout.strip() == "set()"
