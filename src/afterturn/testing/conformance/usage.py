"""What models cost: summed by space, day and purpose, and never mixed between tenants."""

import asyncio
from dataclasses import replace
from typing import Any

from afterturn.ports import Store
from afterturn.testing.conformance.scene import SPACE, TENANT, forget
from afterturn.types import Purpose, Selector, UsageRow

BOB = "user:bob"
_CALL = UsageRow(SPACE, "2026-01-02", Purpose.REVIEW, calls=1, tokens_in=30, tokens_out=5, estimated=4)


class TestUsage:
    async def test_calls_of_one_kind_are_one_sum(self, store: Store) -> None:
        """V12: all model calls pass one meter."""
        await _spend(store)
        await _spend(store, calls=2, tokens_in=10, tokens_out=1, estimated=0)
        assert await _page(store) == [replace(_CALL, calls=3, tokens_in=40, tokens_out=6, estimated=4)]

    async def test_calls_at_once_are_all_summed(self, store: Store) -> None:
        """V12: none is lost to another."""
        await asyncio.gather(*(_spend(store) for _ in range(8)))
        assert [(spent.calls, spent.tokens) for spent in await _page(store)] == [(8, 280)]

    async def test_the_day_s_tokens_are_of_every_purpose(self, store: Store) -> None:
        """V12: in one space, or in all of the tenant's."""
        await _spend(store)
        await _spend(store, purpose=Purpose.RECALL, tokens_in=100)
        await _spend(store, space=BOB, tokens_in=1000)
        await _spend(store, day="2026-01-03", tokens_in=10_000)
        await store.write(lambda unit: unit.usage.add("acme", replace(_CALL, tokens_in=100_000)))
        assert [await _tokens(store, space=space) for space in (SPACE, BOB, None)] == [140, 1005, 1145]
        assert await _tokens(store, day="2026-01-03") == 10_005
        assert await _tokens(store, tenant="acme") == 100_005

    async def test_where_nothing_was_spent_it_is_nothing(self, store: Store) -> None:
        assert [await _tokens(store), await _tokens(store, space="user:nobody")] == [0, 0]
        assert await _page(store, space="user:nobody") == []

    async def test_the_newest_day_comes_first_then_space_and_purpose(self, store: Store) -> None:
        """V12: `afterturn usage` shows it."""
        for fields in (
            {"day": "2026-01-01"},
            {"space": BOB},
            {"purpose": Purpose.RECALL},
            {},
            {"day": "2026-01-10"},
        ):
            await _spend(store, **fields)
        listed = [(spent.day, spent.space, spent.purpose.value) for spent in await _page(store)]
        assert listed == [
            ("2026-01-10", SPACE, "review"),
            ("2026-01-02", SPACE, "recall"),
            ("2026-01-02", SPACE, "review"),
            ("2026-01-02", BOB, "review"),
            ("2026-01-01", SPACE, "review"),
        ]
        assert [spent.day for spent in await _page(store, space=BOB)] == ["2026-01-02"]
        assert len(await _page(store, limit=2)) == 2
        assert await store.read(lambda unit: unit.usage.page("acme", limit=9)) == []

    async def test_it_goes_with_the_whole_space_and_with_nothing_less(self, store: Store) -> None:
        """M2: figures hold no text, but everything is everything."""
        await _spend(store)
        await _spend(store, space=BOB)
        await forget(store, Selector(conversation="talk"))
        await forget(store, Selector(speaker="ada"))
        assert len(await _page(store)) == 2
        await forget(store, Selector(everything=True))
        assert [spent.space for spent in await _page(store)] == [BOB]


async def _spend(store: Store, **fields: Any) -> None:
    await store.write(lambda unit: unit.usage.add(TENANT, replace(_CALL, **fields)))


async def _tokens(store: Store, *, day: str = "2026-01-02", space: str | None = None, tenant: str = TENANT) -> int:
    return await store.read(lambda unit: unit.usage.tokens(tenant, day, space=space))


async def _page(store: Store, *, space: str | None = None, limit: int = 9) -> list[UsageRow]:
    return await store.read(lambda unit: unit.usage.page(TENANT, space=space, limit=limit))
