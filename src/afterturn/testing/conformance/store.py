"""The store itself: what one unit committed the next one sees, and a life that ends once."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from afterturn.errors import MemoryClosed, NotFound
from afterturn.ports import Store, Unit
from afterturn.testing.conformance.scene import ADA, add, forget, get, texts
from afterturn.types import Filter, Selector


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

        assert await store.write(work) == []

    async def test_scrubbing_ends_when_nobody_reads(self, store: Store) -> None:
        """M2: with no reader in the way it is done, and what was kept is still there."""
        gone, _ = await add(store, "Ada keeps bees"), await add(store, "Ada likes tea")
        await forget(store, Selector(memory=gone.entry.id))
        assert await store.scrub() is True
        assert await texts(store, "tea bees") == ["Ada likes tea"]
        with pytest.raises(NotFound):
            await get(store, gone.entry.id)

    async def test_scrubbing_with_nothing_to_scrub_is_done(self, store: Store) -> None:
        """M2: whoever finds the job of another process finds it done."""
        assert [await store.scrub(), await store.scrub()] == [True, True]

    async def test_closing_twice_is_harmless(self, store: Store) -> None:
        """§13: one after the other, and both at once."""
        await add(store, "Ada keeps bees")
        await asyncio.gather(store.close(within=5.0), store.close(within=5.0))
        await store.close(within=5.0)

    @pytest.mark.parametrize(
        "verb",
        [lambda store: store.write(_nothing), lambda store: store.read(_nothing), lambda store: store.scrub()],
        ids=["write", "read", "scrub"],
    )
    async def test_a_closed_store_says_so(self, store: Store, verb: Callable[[Store], Awaitable[object]]) -> None:
        """§13: use after closing raises."""
        await store.close(within=5.0)
        with pytest.raises(MemoryClosed):
            await verb(store)
