"""Saved shelves: one a space, as it was given, and gone with the first thing that is forgotten."""

from dataclasses import replace
from functools import partial

import pytest

from afterturn.base.digest import Digest, Moment
from afterturn.base.ports import Store, Unit
from afterturn.base.types import Selector
from afterturn.testing.conformance.scene import SPACE, TENANT, add, forget, record

BOB = "user:bob"
_SAVED = Digest(seq=1, first_key=7, form=1, data=b"\x00shelf\xff")


class TestDigests:
    async def test_what_was_saved_is_found(self, store: Store) -> None:
        """L6: byte by byte; a later one takes its place."""
        await add(store, "I like tea.")
        assert await _put(store, _SAVED)
        assert await _find(store) == _SAVED
        later = replace(_SAVED, seq=9, first_key=8, data=b"")
        assert await _put(store, later)
        assert await _find(store) == later

    async def test_where_none_was_saved_there_is_none(self, store: Store) -> None:
        """G1: another space's or another tenant's is nobody else's."""
        await add(store, "I like tea.")
        await _put(store, _SAVED)
        assert [await _find(store, space=BOB), await _find(store, tenant="acme")] == [None, None]

    @pytest.mark.parametrize("what", ["memory", "conversation", "speaker", "everything"])
    async def test_forgetting_takes_it_away(self, store: Store, what: str) -> None:
        """M2: what a shelf was saved as holds names and what the words were."""
        said = await record(store, "I like tea.", conversation="talk", speaker="Ada")
        await _put(store, _SAVED)
        selectors = {
            "memory": Selector(memory=said.id),
            "conversation": Selector(conversation="talk"),
            "speaker": Selector(speaker="Ada"),
            "everything": Selector(everything=True),
        }
        await forget(store, selectors[what])
        assert await _find(store) is None

    async def test_it_stays_where_another_space_forgets(self, store: Store) -> None:
        """M2: one that has nothing to do with this one."""
        await add(store, "I like tea.")
        await _put(store, _SAVED)
        await store.write(lambda unit: unit.operations.forget(TENANT, BOB, Selector(everything=True), at=1.0))
        assert await _find(store) == _SAVED

    async def test_one_that_was_begun_before_a_forget_is_not_kept(self, store: Store) -> None:
        """M2: it may hold what was forgotten meanwhile."""
        said = await add(store, "I like tea.")
        begun = await store.read(lambda unit: unit.digests.moment())
        await forget(store, Selector(memory=said.entry.id))
        assert not await _put(store, _SAVED, begun=begun)
        assert await _find(store) is None

    async def test_one_of_another_generation_is_not_kept(self, store: Store) -> None:
        """M2, L6: what it was made of was there before a restore."""
        await add(store, "I like tea.")
        begun = await store.read(lambda unit: unit.digests.moment())
        assert not await _put(store, _SAVED, begun=begun._replace(generation="another"))
        assert await _find(store) is None

    async def test_it_can_be_taken_away(self, store: Store) -> None:
        """L6: this space's alone; where there is none, nothing happens."""
        await add(store, "I like tea.")
        await _put(store, _SAVED)
        found = []
        for space in (BOB, SPACE, SPACE, "user:nobody"):
            await store.write(partial(_drop, space))
            found.append(await _find(store))
        assert found == [_SAVED, None, None, None]


def _drop(space: str, unit: Unit) -> None:
    unit.digests.drop(TENANT, space)


async def _put(store: Store, digest: Digest, *, begun: Moment | None = None) -> bool:
    return await store.write(lambda unit: unit.digests.put(TENANT, SPACE, digest, begun=begun or unit.digests.moment()))


async def _find(store: Store, *, tenant: str = TENANT, space: str = SPACE) -> Digest | None:
    return await store.read(lambda unit: unit.digests.find(tenant, space))
