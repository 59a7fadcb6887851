"""Search by terms, the trail of changes, and vectors."""

import pytest

from afterturn.ports import Store, Unit
from afterturn.testing.conformance.scene import (
    ADA,
    NOW,
    SMALL,
    SPACE,
    TENANT,
    add,
    delete,
    forget,
    found,
    frequencies,
    key_of,
    matches,
    texts,
    undo,
    update,
)
from afterturn.testing.drafts import admit, operation
from afterturn.text import terms
from afterturn.types import Changes, EmbedderIdentity, LaneQuery, Selector, SpaceStats

_VECTOR = bytes(range(8))


class TestSearch:
    async def test_any_of_the_terms_is_enough(self, store: Store) -> None:
        """L6: OR-based."""
        await add(store, "Ada keeps bees")
        await add(store, "Ada sells honey")
        await add(store, "Ada sleeps")
        assert await texts(store, "bees honey") == ["Ada sells honey", "Ada keeps bees"]

    async def test_without_terms_nothing_is_found(self, store: Store) -> None:
        """L5: recalling nothing is a good answer."""
        await add(store, "Ada keeps bees")
        assert await texts(store, "the") == []

    async def test_a_match_has_the_indexed_terms_with_repeats(self, store: Store) -> None:
        """L6: what scoring needs comes with the match."""
        text = "Bees, bees and más café 養蜂場 пчёлы Ünïcödé _under_ x_y"
        await add(store, text)
        match = (await found(store, "bees"))[0]
        assert sorted(match.terms) == sorted(terms(text))

    @pytest.mark.parametrize(
        "terms_max, sizes", [(63, [20, 2, 40, 1]), (62, [20, 2, 1]), (3, [2, 1]), (2, [1]), (0, [1])]
    )
    async def test_the_longest_matches_give_way(self, store: Store, terms_max: int, sizes: list[int]) -> None:
        """L6: what a recall has to read is bounded; the newest stay first."""
        for text in ("bees", "bees " * 40, "bees and honey", "bees " * 20):
            await add(store, text)
        query = LaneQuery(ADA, NOW)
        hits = await store.read(lambda unit: unit.index.matches(query, ["bee"], limit=9, terms_max=terms_max))
        assert [len(match.terms) for match in hits] == sizes

    @pytest.mark.parametrize(
        "text", ["養蜂場の蜂蜜", "пчёлы и мёд", "नमस्ते दुनिया", "mücken im Café", "نحل وعسل", "ผึ้งและน้ำผึ้ง", "𝐁𝐞𝐞𝐬 𝟜𝟚"]
    )
    async def test_every_script_is_found_by_each_of_its_terms(self, store: Store, text: str) -> None:
        """L5: all scripts work."""
        await add(store, text)
        analysed, query = terms(text), LaneQuery(ADA, NOW)
        hits = await store.read(lambda unit: [matches(unit, query, [term], limit=5) for term in analysed])
        assert [[match.entry.text for match in found] for found in hits] == [[text]] * len(analysed)

    @pytest.mark.parametrize("term", ['"', "bee OR x", "NEAR(bee)", "bee*", "_1", "-bee", "Bee", "be e", "\ud800"])
    async def test_a_term_is_never_read_as_a_query(self, store: Store, term: str) -> None:
        """L5: whatever is asked for matches itself and nothing else."""
        await add(store, "Ada keeps bees")
        hits = await store.read(lambda unit: unit.index.matches(LaneQuery(ADA, NOW), [term], limit=5))
        assert hits == []

    async def test_a_text_without_terms_counts_and_resolves(self, store: Store) -> None:
        """L6: a space's extent counts every active entry."""
        await add(store, "to be or not to be")
        extents = await store.read(lambda unit: unit.index.stats(ADA))
        assert extents[SPACE].documents == 1
        changes = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0))
        keys = changes.keys or ()
        resolved = await store.read(lambda unit: unit.index.resolve(LaneQuery(ADA, NOW), keys))
        assert [entry.text for entry in resolved.values()] == ["to be or not to be"]
        indexed = await store.read(lambda unit: unit.index.entries(TENANT, SPACE, limit=9))
        assert [entry.terms for entry in indexed] == [()]

    async def test_frequencies_count_entries_not_occurrences(self, store: Store) -> None:
        """L6: document frequencies are the space's own."""
        await add(store, "bees, bees and bees")
        await add(store, "bees and honey")
        assert await frequencies(store, ["bee", "honey", "wasp"]) == {SPACE: {"bee": 2, "honey": 1}}

    async def test_extents_count_documents_and_terms(self, store: Store) -> None:
        """L6: an average length needs both."""
        await add(store, "bees, bees and bees")
        await add(store, "bees and honey")
        extents = await store.read(lambda unit: unit.index.stats(ADA))
        assert extents == {SPACE: SpaceStats(documents=2, terms_total=5, seq=2)}

    async def test_a_unit_sees_its_own_writes(self, store: Store) -> None:
        def work(unit: Unit) -> tuple[list[str], dict[str, dict[str, int]], int]:
            unit.memories.add(unit.operations.start(operation()), admit("Ada keeps bees"))
            return (
                [match.entry.text for match in matches(unit, LaneQuery(ADA, NOW), ["bee"], limit=5)],
                unit.index.frequencies(ADA, ["bee"]),
                unit.index.stats(ADA)[SPACE].documents,
            )

        assert await store.write(work) == (["Ada keeps bees"], {SPACE: {"bee": 1}}, 1)


class TestChanges:
    async def test_nothing_has_changed_in_an_unknown_space(self, store: Store) -> None:
        changes = await self._changes(store, 0)
        assert (changes.seq, changes.keys) == (0, ())

    async def test_every_write_moves_the_sequence(self, store: Store) -> None:
        seen = [(await self._changes(store, 0)).seq]
        added = await add(store, "Ada keeps bees")
        seen.append((await self._changes(store, 0)).seq)
        await update(store, added.entry.id, "Ada keeps wasps")
        seen.append((await self._changes(store, 0)).seq)
        await delete(store, added.entry.id)
        seen.append((await self._changes(store, 0)).seq)
        assert seen == sorted(set(seen))

    async def test_only_what_changed_since_is_named(self, store: Store) -> None:
        await add(store, "Ada keeps bees")
        before = await self._changes(store, 0)
        await add(store, "Ada sells honey")
        after = await self._changes(store, before.seq)
        assert after.keys == (await key_of(store, "Ada sells honey"),)

    async def test_both_versions_of_an_update_are_named(self, store: Store) -> None:
        added = await add(store, "Ada keeps bees")
        first = await key_of(store, "Ada keeps bees")
        before = await self._changes(store, 0)
        await update(store, added.entry.id, "Ada keeps wasps")
        after = await self._changes(store, before.seq)
        assert set(after.keys or ()) == {first, await key_of(store, "Ada keeps wasps")}

    async def test_what_was_forgotten_is_named(self, store: Store) -> None:
        """M2: other processes learn of it before their next recall."""
        added = await add(store, "Ada keeps bees")
        key = await key_of(store, "Ada keeps bees")
        before = await self._changes(store, 0)
        await forget(store, Selector(memory=added.entry.id))
        assert (await self._changes(store, before.seq)).keys == (key,)

    async def test_what_rests_on_something_else_is_named(self, store: Store) -> None:
        """M2: said again, and when one of two sources is forgotten; whoever has it in memory reads it anew."""
        for source in ("s1", "s2"):
            await add(store, f"Something else that is called {source}", id=source)
        await add(store, "Ada keeps bees", sources=("s1",))
        key = await key_of(store, "Ada keeps bees")
        before = await self._changes(store, 0)
        await add(store, "Ada keeps bees", sources=("s2",))
        again = await self._changes(store, before.seq)
        forgotten = await key_of(store, "Something else that is called s1")
        await forget(store, Selector(memory="s1"))
        assert again.keys == (key,)
        assert set((await self._changes(store, again.seq)).keys or ()) == {key, forgotten}

    async def test_a_sequence_from_the_future_means_rebuild(self, store: Store) -> None:
        await add(store, "Ada keeps bees")
        assert (await self._changes(store, 999)).keys is None

    async def test_the_generation_stays(self, store: Store) -> None:
        before = await self._changes(store, 0)
        await add(store, "Ada keeps bees")
        after = await self._changes(store, 0)
        assert before.generation
        assert before.generation == after.generation

    async def _changes(self, store: Store, since: int) -> Changes:
        return await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=since))


class TestVectors:
    async def test_a_vector_comes_back_under_its_embedder(self, store: Store) -> None:
        """M3: two spaces of vectors never mix."""
        key = await self._embedded(store, "Ada keeps bees")
        newer = EmbedderIdentity("small", "2", 4)
        assert await self._vectors(store, SMALL) == {key: _VECTOR}
        assert await self._vectors(store, newer) == {}

    async def test_a_vector_of_the_wrong_size_is_refused(self, store: Store) -> None:
        """M3: dimensions are part of an embedder's identity."""
        await add(store, "Ada keeps bees")
        key = await key_of(store, "Ada keeps bees")
        with pytest.raises(ValueError, match="bytes"):
            await store.write(lambda unit: unit.index.put_vectors(SMALL, [(key, b"short")]))

    async def test_vectors_of_hidden_entries_are_not_given(self, store: Store) -> None:
        """L7: a deleted memory is not near anything."""
        added = await add(store, "Ada keeps bees")
        await self._embedded(store, "Ada keeps bees")
        await delete(store, added.entry.id)
        assert await self._vectors(store, SMALL) == {}

    async def test_a_memory_that_comes_back_still_has_its_vector(self, store: Store) -> None:
        """M2: undo brings back all of it."""
        added = await add(store, "Ada keeps bees")
        key = await self._embedded(store, "Ada keeps bees")
        removal = operation()
        await delete(store, added.entry.id, within=removal)
        await undo(store, removal.id)
        assert await self._vectors(store, SMALL) == {key: _VECTOR}

    async def test_the_vectors_of_some_keys_can_be_asked_for(self, store: Store) -> None:
        first = await self._embedded(store, "Ada keeps bees")
        await self._embedded(store, "Ada sells honey")
        assert await self._vectors(store, SMALL, [first, 999]) == {first: _VECTOR}

    async def test_a_late_vector_brings_nothing_back(self, store: Store) -> None:
        """M2: in-flight work can't bring back what was forgotten."""
        added = await add(store, "Ada keeps bees")
        key = await key_of(store, "Ada keeps bees")
        await forget(store, Selector(memory=added.entry.id))
        await add(store, "Ada sells honey")
        assert await store.write(lambda unit: unit.index.put_vectors(SMALL, [(key, _VECTOR)])) == 0
        assert await self._vectors(store, SMALL) == {}

    async def test_a_vector_that_arrives_is_a_change(self, store: Store) -> None:
        await add(store, "Ada keeps bees")
        before = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0))
        key = await self._embedded(store, "Ada keeps bees", exists=True)
        after = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=before.seq))
        assert after.keys == (key,)

    async def test_entries_without_a_vector_are_named_oldest_first(self, store: Store) -> None:
        """M3: a new embedder embeds everything anew."""
        for text in ("first bees", "second bees", "third bees"):
            await add(store, text)
        await self._embedded(store, "second bees", exists=True)
        assert await self._unembedded(store, SMALL) == ["first bees", "third bees"]
        assert await self._unembedded(store, EmbedderIdentity("other", "1", 4)) == [
            "first bees",
            "second bees",
            "third bees",
        ]

    async def test_an_entry_that_came_back_without_a_vector_is_named(self, store: Store) -> None:
        """M3: nothing is left unembedded because it was away."""
        added, removal = await add(store, "away bees"), operation()
        await delete(store, added.entry.id, within=removal)
        await self._embedded(store, "staying bees")
        assert await self._unembedded(store, SMALL) == []
        await undo(store, removal.id)
        assert await self._unembedded(store, SMALL) == ["away bees"]

    async def test_a_changed_embedder_is_noticed_once(self, store: Store) -> None:
        """M3: changing the embedder re-embeds every space that holds something."""
        await add(store, "Ada keeps bees")
        await add(store, "Bob keeps wasps", within=operation(space="user:bob"))
        other = EmbedderIdentity("other", "1", 4)
        spaces = [(TENANT, SPACE), (TENANT, "user:bob")]
        none = await store.read(lambda unit: unit.index.adopted())
        first = await store.write(lambda unit: unit.index.adopt(SMALL))
        again = await store.write(lambda unit: unit.index.adopt(SMALL))
        changed = await store.write(lambda unit: unit.index.adopt(other))
        assert [sorted(adopted) for adopted in (first, again, changed)] == [spaces, [], spaces]
        assert (none, await store.read(lambda unit: unit.index.adopted())) == (None, other)

    async def test_entries_that_wait_for_a_vector_are_counted(self, store: Store) -> None:
        """M3: in one space or in all of the tenant's; other tenants' are their own affair."""
        await self._embedded(store, "first bees")
        await add(store, "second bees")
        await add(store, "third wasps", within=operation(space="user:bob"))
        gone = await add(store, "away bees")
        await delete(store, gone.entry.id)
        other = EmbedderIdentity("other", "1", 4)
        asked = [(SMALL, None), (SMALL, SPACE), (SMALL, "user:bob"), (SMALL, "user:nobody"), (other, None)]
        counts = [await self._waiting(store, embedder, space) for embedder, space in asked]
        assert counts == [2, 1, 1, 0, 3]
        assert await store.read(lambda unit: unit.index.waiting("another", SMALL)) == 0

    async def test_vectors_of_an_abandoned_embedder_leave_when_the_stores_own_asks(self, store: Store) -> None:
        """M3: a few at a time, and only what others have made in that space."""
        other = EmbedderIdentity("other", "1", 4)
        keys = [await self._embedded(store, text) for text in ("first bees", "second bees", "third bees")]
        await store.write(lambda unit: unit.index.put_vectors(other, [(keys[0], _VECTOR)]))
        await store.write(lambda unit: unit.index.adopt(SMALL))
        assert await self._dropped(store, other) == 0
        await store.write(lambda unit: unit.index.adopt(other))
        assert await store.read(lambda unit: unit.index.has_abandoned(TENANT, SPACE, other))
        assert [await self._dropped(store, other) for _ in range(3)] == [2, 1, 0]
        assert not await store.read(lambda unit: unit.index.has_abandoned(TENANT, SPACE, other))
        assert await self._vectors(store, SMALL) == {}
        assert await self._vectors(store, other) == {keys[0]: _VECTOR}

    async def test_what_was_dropped_is_named_as_missing_again(self, store: Store) -> None:
        """M3: going back to an embedder finds nothing claimed that is not there."""
        other = EmbedderIdentity("other", "1", 4)
        keys = [await self._embedded(store, text) for text in ("first bees", "second bees", "third bees")]
        await store.write(lambda unit: unit.index.adopt(other))
        await store.write(lambda unit: unit.index.put_vectors(other, [(key, _VECTOR) for key in keys]))
        await self._dropped(store, other)
        left = set(await self._vectors(store, SMALL))
        assert len(left) == 1
        assert len(await self._unembedded(store, SMALL)) == 2
        assert await store.read(lambda unit: unit.index.waiting(TENANT, SMALL)) == 2

    async def _waiting(self, store: Store, embedder: EmbedderIdentity, space: str | None) -> int:
        return await store.read(lambda unit: unit.index.waiting(TENANT, embedder, space=space))

    async def _dropped(self, store: Store, embedder: EmbedderIdentity) -> int:
        return await store.write(lambda unit: unit.index.drop_abandoned(TENANT, SPACE, embedder, limit=2))

    async def _embedded(self, store: Store, text: str, *, exists: bool = False) -> int:
        if not exists:
            await add(store, text)
        key = await key_of(store, text)
        assert await store.write(lambda unit: unit.index.put_vectors(SMALL, [(key, _VECTOR)])) == 1
        return key

    async def _vectors(
        self, store: Store, embedder: EmbedderIdentity, keys: list[int] | None = None
    ) -> dict[int, bytes]:
        return await store.read(lambda unit: unit.index.vectors(TENANT, SPACE, embedder, keys))

    async def _unembedded(self, store: Store, embedder: EmbedderIdentity) -> list[str]:
        rows = await store.read(lambda unit: unit.index.unembedded(TENANT, SPACE, embedder, limit=10))
        return [text for _, text in rows]
