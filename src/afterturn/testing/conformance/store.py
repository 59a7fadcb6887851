"""The store and its units of work: visibility of commits, atomicity, closing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from afterturn.errors import DeadlineExceeded, MemoryClosed, NotFound
from afterturn.ports import Store, Unit
from afterturn.testing.conformance.actions import (
    ADA,
    ALL_SPACES,
    SPACE,
    TALK,
    TENANT,
    add,
    forget,
    frequencies,
    get,
    texts,
)
from afterturn.testing.entries import admit, operation
from afterturn.types import BlockRow, Filter, Job, Selector


def _nothing(unit: Unit) -> None:
    """A unit that asks for nothing."""


class TestStore:
    async def test_a_read_sees_what_a_write_committed(self, store: Store) -> None:
        """C2: a write that returned can be read."""
        added = await add(store, "Ada keeps bees")
        assert (await get(store, added.entry.id)).text == "Ada keeps bees"

    async def test_a_write_sees_what_it_wrote_itself(self, store: Store) -> None:
        """C2: one unit is one transaction."""
        await add(store, "Ada keeps bees")

        def work(unit: Unit) -> list[str]:
            [entry] = unit.memories.page(ADA, Filter(), limit=9)
            unit.operations.forget("default", "user:ada", Selector(memory=entry.id), at=1.0)
            return [left.id for left in unit.memories.page(ADA, Filter(), limit=9)]

        assert await store.write(work, at=ALL_SPACES) == []

    async def test_scrubbing_ends_when_nobody_reads(self, store: Store) -> None:
        """M2: with no reader in the way it is done, and what was kept is still there."""
        gone, _ = await add(store, "Ada keeps bees"), await add(store, "Ada likes tea")
        await forget(store, Selector(memory=gone.entry.id))
        assert not any(remaining.retry for remaining in await store.scrub())
        assert await texts(store, "tea bees") == ["Ada likes tea"]
        with pytest.raises(NotFound):
            await get(store, gone.entry.id)

    async def test_scrubbing_with_nothing_to_scrub_is_done(self, store: Store) -> None:
        """M2: a process that claims the job later finds it done."""
        for _ in range(2):
            assert not any(remaining.retry for remaining in await store.scrub())

    async def test_closing_twice_is_harmless(self, store: Store) -> None:
        """§13: one after the other, and both at once."""
        await add(store, "Ada keeps bees")
        await asyncio.gather(store.close(within=5.0), store.close(within=5.0))
        await store.close(within=5.0)

    @pytest.mark.parametrize(
        "verb",
        [
            lambda store: store.write(_nothing, at=ALL_SPACES),
            lambda store: store.read(_nothing, at=ALL_SPACES),
            lambda store: store.scrub(),
        ],
        ids=["write", "read", "scrub"],
    )
    async def test_a_closed_store_says_so(self, store: Store, verb: Callable[[Store], Awaitable[object]]) -> None:
        """§13: use after closing raises."""
        await store.close(within=5.0)
        with pytest.raises(MemoryClosed):
            await verb(store)


# A unit of work succeeds or fails as a whole and alone, and may be run again


class _Broken(Exception):
    pass


def _add_then_break(unit: Unit) -> None:
    unit.memories.add(operation(), admit("half done bees"))
    unit.jobs.add(Job("j1", "embed", TENANT, SPACE, "{}", 1.0))
    unit.conversations.add_block(TALK, BlockRow("hash", "turn-1", (), 4, 1.0))
    raise _Broken


class TestUnits:
    async def test_an_exception_leaves_nothing(self, store: Store) -> None:
        """C2: one transaction, whole or not at all."""
        with pytest.raises(_Broken):
            await store.write(_add_then_break, at=ALL_SPACES)
        assert await texts(store, "bees") == []
        assert await frequencies(store, ["bee"]) == {}
        assert await store.read(lambda unit: unit.memories.page(ADA, Filter(), limit=10), at=ALL_SPACES) == []
        assert await store.read(lambda unit: unit.operations.page(ADA, limit=10), at=ALL_SPACES) == []
        assert await store.read(lambda unit: unit.jobs.page(TENANT), at=ALL_SPACES) == []
        assert await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=10), at=ALL_SPACES) == []
        assert (await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0), at=ALL_SPACES)).seq == 0

    async def test_a_failing_unit_does_not_take_others_with_it(self, store: Store) -> None:
        """C2: units that share a commit succeed or fail alone."""
        outcomes = await asyncio.gather(
            add(store, "first bees"),
            store.write(_add_then_break, at=ALL_SPACES),
            add(store, "last bees"),
            return_exceptions=True,
        )
        assert isinstance(outcomes[1], _Broken)
        assert sorted(await texts(store, "bees")) == ["first bees", "last bees"]

    async def test_what_was_acknowledged_is_seen_by_the_next_read(self, store: Store) -> None:
        """C2: no stale recall after a commit was seen."""
        for number in range(20):
            await add(store, f"bees number{number}")
            assert await texts(store, f"number{number}") == [f"bees number{number}"]

    async def test_a_read_sees_one_state(self, store: Store) -> None:
        """Reads run on a consistent snapshot, whatever is written meanwhile."""

        def work(unit: Unit) -> list[int]:
            return [len(unit.memories.page(ADA, Filter(), limit=1000)) for _ in range(20)]

        writes = asyncio.gather(*(add(store, f"bees number{number}") for number in range(20)))
        counts = await store.read(work, at=ALL_SPACES)
        await writes
        assert len(set(counts)) == 1

    async def test_a_cancelled_read_stops_where_it_checks(self, store: Store) -> None:
        """L1: work in Python between two calls of the store ends as well."""
        begun, stopped = threading.Event(), threading.Event()

        def work(unit: Unit) -> None:
            begun.set()
            try:
                while True:
                    unit.check()
            except DeadlineExceeded:
                stopped.set()
                raise

        async def give_up() -> None:
            await asyncio.to_thread(begun.wait, 10)
            raise _Broken

        async def read() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(give_up())
                await store.read(work, at=ALL_SPACES)

        with pytest.raises(ExceptionGroup):
            await read()
        assert await asyncio.to_thread(stopped.wait, 10)

    async def test_a_value_comes_back_from_both_kinds_of_work(self, store: Store) -> None:
        assert await store.write(lambda unit: "written", at=ALL_SPACES) == "written"
        assert await store.read(lambda unit: "read", at=ALL_SPACES) == "read"
