"""What an index in memory reads of a space: every active entry, by key, in pages or by name."""

from collections.abc import Sequence

from afterturn.ports import Store, Unit
from afterturn.testing.conformance.scene import SPACE, TENANT, add, delete, forget, key_of, record, undo, update
from afterturn.testing.drafts import admit, operation
from afterturn.text import terms
from afterturn.types import IndexedEntry, Kind, Origin, Selector


class TestShelved:
    async def test_an_entry_comes_with_its_place_and_terms(self, store: Store) -> None:
        """L6: all that ranking needs beside the vector."""
        text = "Bees, bees and más café 養蜂場"
        await record(
            store,
            text,
            origin=Origin.AGENT,
            speaker="Ada",
            conversation="talk",
            owner="user:bob",
            position=3,
        )
        await add(store, "Ada keeps wasps")
        [said, kept] = await self._shelved(store)
        assert said[1:8] == (SPACE, Kind.RECORD, Origin.AGENT, "Ada", "talk", "user:bob", 3)
        assert sorted(said.terms) == sorted(terms(text))
        assert kept[1:8] == (SPACE, Kind.STATEMENT, Origin.USER, None, None, None, None)

    async def test_pages_follow_one_another_by_key(self, store: Store) -> None:
        for number in range(5):
            await add(store, f"bees of hive {number}")
        keys = [entry.key for entry in await self._shelved(store)]
        paged: list[int] = []
        while page := await self._shelved(store, after=paged[-1] if paged else 0, limit=2):
            paged += [entry.key for entry in page]
        assert len(keys) == 5
        assert paged == keys == sorted(keys)

    async def test_some_can_be_asked_for_by_key(self, store: Store) -> None:
        await add(store, "Ada keeps bees")
        await add(store, "Ada sells honey")
        key = await key_of(store, "Ada sells honey")
        assert [entry.key for entry in await self._shelved(store, keys=[key, 999])] == [key]
        assert await self._shelved(store, keys=[]) == []

    async def test_only_what_is_active_is_given(self, store: Store) -> None:
        """L7, M2: not what was superseded, deleted or forgotten; what came back is there again."""
        changed = await add(store, "Ada keeps bees")
        await update(store, changed.entry.id, "Ada keeps wasps")
        gone = await add(store, "Ada sells honey")
        await forget(store, Selector(memory=gone.entry.id))
        hidden, removal = await add(store, "Ada sleeps"), operation()
        await delete(store, hidden.entry.id, within=removal)
        before = [entry.terms for entry in await self._shelved(store)]
        await undo(store, removal.id)
        after = [entry.terms for entry in await self._shelved(store)]
        assert before == [terms("Ada keeps wasps")]
        assert after == [*before, terms("Ada sleeps")]

    async def test_another_space_is_not_looked_into(self, store: Store) -> None:
        """L2: neither by pages nor by key."""
        await add(store, "Ada keeps bees")
        await add(store, "Bob keeps wasps", within=operation(space="user:bob"))
        bobs = await store.read(lambda unit: unit.index.entries(TENANT, "user:bob", limit=9))
        assert [entry.terms for entry in await self._shelved(store)] == [terms("Ada keeps bees")]
        assert await self._shelved(store, keys=[entry.key for entry in bobs]) == []
        assert await store.read(lambda unit: unit.index.entries(TENANT, "user:nobody", limit=9)) == []

    async def test_a_unit_sees_its_own_writes(self, store: Store) -> None:
        def work(unit: Unit) -> list[IndexedEntry]:
            unit.memories.add(unit.operations.start(operation()), admit("Ada keeps bees"))
            return unit.index.entries(TENANT, SPACE, limit=9)

        assert [entry.terms for entry in await store.write(work)] == [terms("Ada keeps bees")]

    async def _shelved(
        self, store: Store, *, keys: Sequence[int] | None = None, after: int = 0, limit: int = 9
    ) -> list[IndexedEntry]:
        return await store.read(lambda unit: unit.index.entries(TENANT, SPACE, keys=keys, after=after, limit=limit))
