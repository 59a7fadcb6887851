"""The index: search by terms, the change log, vectors, neighbouring records, and statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afterturn.errors import Conflict, InvalidInput, NotFound
from afterturn.ports import Store, Unit
from afterturn.testing.conformance.actions import (
    ADA,
    ALL_SPACES,
    NOW,
    SMALL,
    SPACE,
    TENANT,
    add,
    around,
    delete,
    forget,
    found,
    frequencies,
    key_of,
    matches,
    record,
    texts,
    undo,
    update,
)
from afterturn.testing.entries import admit, operation
from afterturn.text import terms
from afterturn.types import (
    Changes,
    EmbedderIdentity,
    Filter,
    IndexedEntry,
    Kind,
    Lane,
    LaneQuery,
    Origin,
    Scope,
    Selector,
    SpaceStats,
    Status,
    Tenant,
    Verb,
    Verdict,
)

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
        hits = await store.read(
            lambda unit: unit.index.matches(query, ["bee"], limit=9, terms_max=terms_max), at=ALL_SPACES
        )
        assert [len(match.terms) for match in hits] == sizes

    @pytest.mark.parametrize(
        "at_least, found",
        [(1, ["bees and wasps", "honey", "bees, honey"]), (2, ["bees and wasps", "bees, honey"]), (3, []), (4, [])],
    )
    async def test_entries_with_several_of_the_terms_are_found(
        self, store: Store, at_least: int, found: list[str]
    ) -> None:
        """L6: and two occurrences of one term are not two terms."""
        for text in ("bees, honey", "honey", "butter", "bees and wasps"):
            await add(store, text)
        await add(store, "bees and honey and wasps", within=operation(space="user:bob"))
        query, wanted = LaneQuery(ADA, NOW), ["bee", "honey", "wasp"]

        def match(unit: Unit) -> list[str]:
            hits = unit.index.matches(query, wanted, limit=9, at_least=at_least)
            resolved = unit.index.resolve(query, [hit.key for hit in hits])
            return [resolved[hit.key].text for hit in hits]

        assert await store.read(match, at=ALL_SPACES) == found

    @pytest.mark.parametrize(
        "text", ["養蜂場の蜂蜜", "пчёлы и мёд", "नमस्ते दुनिया", "mücken im Café", "نحل وعسل", "ผึ้งและน้ำผึ้ง", "𝐁𝐞𝐞𝐬 𝟜𝟚"]
    )
    async def test_every_script_is_found_by_each_of_its_terms(self, store: Store, text: str) -> None:
        """L5: all scripts work."""
        await add(store, text)
        analysed, query = terms(text), LaneQuery(ADA, NOW)
        hits = await store.read(
            lambda unit: [matches(unit, query, [term], limit=5) for term in analysed], at=ALL_SPACES
        )
        assert [[match.entry.text for match in found] for found in hits] == [[text]] * len(analysed)

    @pytest.mark.parametrize("term", ['"', "bee OR x", "NEAR(bee)", "bee*", "_1", "-bee", "Bee", "be e", "\ud800"])
    async def test_a_term_is_never_read_as_a_query(self, store: Store, term: str) -> None:
        """L5: whatever is asked for matches itself and nothing else."""
        await add(store, "Ada keeps bees")
        hits = await store.read(lambda unit: unit.index.matches(LaneQuery(ADA, NOW), [term], limit=5), at=ALL_SPACES)
        assert hits == []

    async def test_a_text_without_terms_counts_and_resolves(self, store: Store) -> None:
        """L6: a space's extent counts every active entry."""
        await add(store, "to be or not to be")
        extents = await store.read(lambda unit: unit.index.stats(ADA), at=ALL_SPACES)
        assert extents[SPACE].documents == 1
        changes = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0), at=ALL_SPACES)
        keys = changes.keys or ()
        resolved = await store.read(lambda unit: unit.index.resolve(LaneQuery(ADA, NOW), keys), at=ALL_SPACES)
        assert [entry.text for entry in resolved.values()] == ["to be or not to be"]
        indexed = await store.read(lambda unit: unit.index.entries(TENANT, SPACE, limit=9), at=ALL_SPACES)
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
        extents = await store.read(lambda unit: unit.index.stats(ADA), at=ALL_SPACES)
        assert extents == {SPACE: SpaceStats(documents=2, terms_total=5, seq=2)}

    async def test_a_unit_sees_its_own_writes(self, store: Store) -> None:
        def work(unit: Unit) -> tuple[list[str], dict[str, dict[str, int]], int]:
            unit.memories.add(operation(), admit("Ada keeps bees"))
            return (
                [match.entry.text for match in matches(unit, LaneQuery(ADA, NOW), ["bee"], limit=5)],
                unit.index.frequencies(ADA, ["bee"]),
                unit.index.stats(ADA)[SPACE].documents,
            )

        assert await store.write(work, at=ALL_SPACES) == (["Ada keeps bees"], {SPACE: {"bee": 1}}, 1)


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
        """M2: after a repetition, and after one of two sources is forgotten, an index in memory reads it again."""
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
        return await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=since), at=ALL_SPACES)


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
            await store.write(
                lambda unit: unit.index.put_vectors(TENANT, SPACE, SMALL, [(key, b"short")]), at=ALL_SPACES
            )

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

    async def test_keys_are_found_by_id(self, store: Store) -> None:
        added, key = await add(store, "Ada keeps bees"), await key_of(store, "Ada keeps bees")
        ids = [added.entry.id, "unknown"]
        assert await store.read(lambda unit: unit.index.keys_of(TENANT, SPACE, ids), at=ALL_SPACES) == {ids[0]: key}

    async def test_a_late_vector_brings_nothing_back(self, store: Store) -> None:
        """M2: in-flight work can't bring back what was forgotten."""
        added = await add(store, "Ada keeps bees")
        key = await key_of(store, "Ada keeps bees")
        await forget(store, Selector(memory=added.entry.id))
        await add(store, "Ada sells honey")
        assert (
            await store.write(
                lambda unit: unit.index.put_vectors(TENANT, SPACE, SMALL, [(key, _VECTOR)]), at=ALL_SPACES
            )
            == 0
        )
        assert await self._vectors(store, SMALL) == {}

    async def test_a_vector_that_arrives_is_a_change(self, store: Store) -> None:
        await add(store, "Ada keeps bees")
        before = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0), at=ALL_SPACES)
        key = await self._embedded(store, "Ada keeps bees", exists=True)
        after = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=before.seq), at=ALL_SPACES)
        assert after.keys == (key,)

    async def test_entries_without_a_vector_are_named_oldest_first(self, store: Store) -> None:
        """M3: a new embedder embeds everything again."""
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

    async def test_a_recorded_tool_output_needs_no_vector(self, store: Store) -> None:
        """C6: it is kept as evidence and not recalled. A statement of a tool is recalled."""
        await record(store, "tool bees", conversation="talk", position=0, origin=Origin.TOOL)
        await add(store, "stated bees", origin=Origin.TOOL)
        await record(store, "spoken bees", conversation="talk", position=1)
        assert await self._unembedded(store, SMALL) == ["stated bees", "spoken bees"]
        assert await self._waiting(store, SMALL, SPACE) == 2
        for text in ("stated bees", "spoken bees"):
            await self._embedded(store, text, exists=True)
        assert await self._waiting(store, SMALL, None) == 0

    async def test_a_changed_embedder_is_noticed_once(self, store: Store) -> None:
        """M3: changing the embedder re-embeds every space that holds something."""
        await add(store, "Ada keeps bees")
        await add(store, "Bob keeps wasps", within=operation(space="user:bob"))
        other = EmbedderIdentity("other", "1", 4)
        spaces = [(TENANT, SPACE), (TENANT, "user:bob")]
        none = await store.read(lambda unit: unit.index.adopted(), at=None)
        first = await store.write(lambda unit: unit.index.adopt(SMALL), at=None)
        again = await store.write(lambda unit: unit.index.adopt(SMALL), at=None)
        changed = await store.write(lambda unit: unit.index.adopt(other), at=None)
        assert [sorted(adopted) for adopted in (first, again, changed)] == [spaces, [], spaces]
        assert (none, await store.read(lambda unit: unit.index.adopted(), at=None)) == (None, other)

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
        assert await store.read(lambda unit: unit.index.waiting("another", SMALL), at=Tenant("another")) == 0

    async def test_vectors_of_an_abandoned_embedder_leave_when_the_stores_own_asks(self, store: Store) -> None:
        """M3: a few at a time, and only what others have made in that space."""
        other = EmbedderIdentity("other", "1", 4)
        keys = [await self._embedded(store, text) for text in ("first bees", "second bees", "third bees")]
        await store.write(
            lambda unit: unit.index.put_vectors(TENANT, SPACE, other, [(keys[0], _VECTOR)]), at=ALL_SPACES
        )
        await store.write(lambda unit: unit.index.adopt(SMALL), at=None)
        assert await self._dropped(store, other) == 0
        await store.write(lambda unit: unit.index.adopt(other), at=None)
        assert await store.read(lambda unit: unit.index.has_abandoned(TENANT, SPACE, other), at=ALL_SPACES)
        assert [await self._dropped(store, other) for _ in range(3)] == [2, 1, 0]
        assert not await store.read(lambda unit: unit.index.has_abandoned(TENANT, SPACE, other), at=ALL_SPACES)
        assert await self._vectors(store, SMALL) == {}
        assert await self._vectors(store, other) == {keys[0]: _VECTOR}

    async def test_what_was_dropped_is_named_as_missing_again(self, store: Store) -> None:
        """M3: going back to an embedder finds nothing claimed that is not there."""
        other = EmbedderIdentity("other", "1", 4)
        keys = [await self._embedded(store, text) for text in ("first bees", "second bees", "third bees")]
        await store.write(lambda unit: unit.index.adopt(other), at=None)
        await store.write(
            lambda unit: unit.index.put_vectors(TENANT, SPACE, other, [(key, _VECTOR) for key in keys]), at=ALL_SPACES
        )
        await self._dropped(store, other)
        left = set(await self._vectors(store, SMALL))
        assert len(left) == 1
        assert len(await self._unembedded(store, SMALL)) == 2
        assert await store.read(lambda unit: unit.index.waiting(TENANT, SMALL), at=ALL_SPACES) == 2

    async def test_going_back_to_an_embedder_finds_what_changed_meanwhile(self, store: Store) -> None:
        """M3: entries that were added under the second embedder, and vectors of it that were dropped since."""
        other = EmbedderIdentity("other", "1", 4)
        await store.write(lambda unit: unit.index.adopt(SMALL), at=None)
        first = await self._embedded(store, "first bees")
        await store.write(lambda unit: unit.index.adopt(other), at=None)
        await self._put(store, other, first)
        await store.write(lambda unit: unit.index.adopt(SMALL), at=None)
        assert await self._dropped(store, SMALL) == 1
        await add(store, "second bees")
        assert await self._unembedded(store, SMALL) == ["second bees"]
        await store.write(lambda unit: unit.index.adopt(other), at=None)
        assert await self._unembedded(store, other) == ["first bees", "second bees"]
        assert await self._waiting(store, other, None) == 2

    async def test_a_unit_that_fills_two_embedders_leaves_the_second_what_it_lacks(self, store: Store) -> None:
        """M3: a vector of the first embedder does not count for the one that takes the space over."""
        other = EmbedderIdentity("other", "1", 4)
        first = await self._embedded(store, "first bees")
        await add(store, "second bees")

        def work(unit: Unit) -> None:
            waiting = unit.index.unembedded(TENANT, SPACE, SMALL, limit=10)
            unit.index.put_vectors(TENANT, SPACE, SMALL, [(key, _VECTOR) for key, _ in waiting])
            unit.index.put_vectors(TENANT, SPACE, other, [(first, _VECTOR)])

        await store.write(lambda unit: unit.index.adopt(other), at=None)
        await store.write(work, at=ALL_SPACES)
        assert await self._unembedded(store, other) == ["second bees"]

    async def test_an_embedder_that_is_not_the_stores_does_not_change_what_waits(self, store: Store) -> None:
        """M3: two processes that disagree do not disturb each other."""
        other = EmbedderIdentity("other", "1", 4)
        await store.write(lambda unit: unit.index.adopt(SMALL), at=None)
        key = await self._embedded(store, "first bees")
        await add(store, "second bees")
        await self._put(store, other, key)
        for embedder in (SMALL, other):
            assert await self._unembedded(store, embedder) == ["second bees"]
            assert await self._waiting(store, embedder, SPACE) == 1

    async def test_a_hidden_or_forgotten_entry_does_not_wait(self, store: Store) -> None:
        """M2, M3: neither by its text nor in a count."""
        await self._embedded(store, "first bees")
        hidden, gone = await add(store, "second bees"), await add(store, "third bees")
        await add(store, "fourth bees")
        await delete(store, hidden.entry.id)
        await forget(store, Selector(memory=gone.entry.id))
        assert await self._unembedded(store, SMALL) == ["fourth bees"]
        assert [await self._waiting(store, SMALL, space) for space in (SPACE, None)] == [1, 1]

    async def test_entries_of_a_unit_are_named_before_it_is_committed(self, store: Store) -> None:
        """M3: behind those that wait already. Those that get their vectors in the unit do not wait afterwards."""
        await self._embedded(store, "first bees")
        await add(store, "second bees")

        def work(unit: Unit) -> list[str]:
            unit.memories.add(operation(), admit("third bees"))
            unit.memories.add(operation(), admit("fourth bees"))
            found = unit.index.unembedded(TENANT, SPACE, SMALL, limit=10)
            vectors = [(key, _VECTOR) for key, text in found if text != "second bees"]
            assert unit.index.put_vectors(TENANT, SPACE, SMALL, vectors) == 2
            return [text for _, text in found]

        assert await store.write(work, at=ALL_SPACES) == ["second bees", "third bees", "fourth bees"]
        assert await self._unembedded(store, SMALL) == ["second bees"]

    async def _put(self, store: Store, embedder: EmbedderIdentity, key: int) -> None:
        await store.write(lambda unit: unit.index.put_vectors(TENANT, SPACE, embedder, [(key, _VECTOR)]), at=ALL_SPACES)

    async def _waiting(self, store: Store, embedder: EmbedderIdentity, space: str | None) -> int:
        return await store.read(lambda unit: unit.index.waiting(TENANT, embedder, space=space), at=ALL_SPACES)

    async def _dropped(self, store: Store, embedder: EmbedderIdentity) -> int:
        return await store.write(
            lambda unit: unit.index.drop_abandoned(TENANT, SPACE, embedder, limit=2), at=ALL_SPACES
        )

    async def _embedded(self, store: Store, text: str, *, exists: bool = False) -> int:
        if not exists:
            await add(store, text)
        key = await key_of(store, text)
        vectors = [(key, _VECTOR)]
        assert await store.write(lambda unit: unit.index.put_vectors(TENANT, SPACE, SMALL, vectors), at=ALL_SPACES) == 1
        return key

    async def _vectors(
        self, store: Store, embedder: EmbedderIdentity, keys: Sequence[int] = range(1, 100)
    ) -> dict[int, bytes]:
        return await store.read(lambda unit: unit.index.vectors(TENANT, SPACE, embedder, keys), at=ALL_SPACES)

    async def _unembedded(self, store: Store, embedder: EmbedderIdentity) -> list[str]:
        rows = await store.read(lambda unit: unit.index.unembedded(TENANT, SPACE, embedder, limit=10), at=ALL_SPACES)
        return [text for _, text in rows]


# The entries that an in-memory index reads


class TestIndexedEntries:
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
        bobs = await store.read(lambda unit: unit.index.entries(TENANT, "user:bob", limit=9), at=ALL_SPACES)
        assert [entry.terms for entry in await self._shelved(store)] == [terms("Ada keeps bees")]
        assert await self._shelved(store, keys=[entry.key for entry in bobs]) == []
        assert await store.read(lambda unit: unit.index.entries(TENANT, "user:nobody", limit=9), at=ALL_SPACES) == []

    async def test_a_unit_sees_its_own_writes(self, store: Store) -> None:
        def work(unit: Unit) -> list[IndexedEntry]:
            unit.memories.add(operation(), admit("Ada keeps bees"))
            return unit.index.entries(TENANT, SPACE, limit=9)

        assert [entry.terms for entry in await store.write(work, at=ALL_SPACES)] == [terms("Ada keeps bees")]

    async def _shelved(
        self, store: Store, *, keys: Sequence[int] | None = None, after: int = 0, limit: int = 9
    ) -> list[IndexedEntry]:
        return await store.read(
            lambda unit: unit.index.entries(TENANT, SPACE, keys=keys, after=after, limit=limit), at=ALL_SPACES
        )


# Neighbouring records, speakers, and the newest entries

BOTH = Scope(TENANT, (SPACE, "team:bees"))


class TestAround:
    async def test_messages_within_reach_come_with_the_one_itself(self, store: Store) -> None:
        """L6: the given number before and after it, and no more."""
        await self._talk(store, "zero", "one", "two", "three", "four", "five", "six")
        assert await self._around(store, "three", reach=2) == ["five", "four", "one", "three", "two"]
        assert await self._around(store, "zero", reach=1) == ["one", "zero"]
        assert await self._around(store, "six", reach=0) == ["six"]

    async def test_each_comes_once_with_its_place_and_terms(self, store: Store) -> None:
        """L6: of two that stand close to each other, what is around both."""
        await self._talk(store, "bees", "honey, honey", "wasps", "hives")
        keys = [await key_of(store, "bees"), await key_of(store, "wasps")]
        found = await store.read(lambda unit: unit.index.around(LaneQuery(ADA, NOW), keys, reach=1), at=ALL_SPACES)
        said = enumerate(("bees", "honey, honey", "wasps", "hives"))
        told = sorted((entry.position or 0, entry.conversation, entry.terms) for entry, _ in found)
        assert told == [(position, "talk", terms(text)) for position, text in said]
        assert len({entry.key for entry, _ in found}) == 4

    async def test_around_nothing_there_is_nothing(self, store: Store) -> None:
        await self._talk(store, "bees")
        query = LaneQuery(ADA, NOW)
        assert await store.read(lambda unit: unit.index.around(query, [], reach=3), at=ALL_SPACES) == []
        assert await store.read(lambda unit: unit.index.around(query, [987_654], reach=3), at=ALL_SPACES) == []

    async def test_conversations_do_not_mix(self, store: Store) -> None:
        """L2: neither those of another id, nor those of another owner."""
        await self._talk(store, "mine", "my answer")
        await self._talk(store, "other", "other answer", conversation="other")
        await self._talk(store, "bob's", "bob's answer", owner="user:bob")
        assert await self._around(store, "mine", reach=4) == ["mine", "my answer"]
        assert await self._around(store, "bob's", reach=4) == ["bob's", "bob's answer"]

    async def test_statements_are_no_context_and_have_none(self, store: Store) -> None:
        """L6: a statement may name the conversation that it was learned from."""
        await self._talk(store, "bees", "honey")
        await add(store, "Ada keeps bees", conversation="talk", position=1)
        await add(store, "Ada sells honey")
        assert await self._around(store, "bees", reach=4) == ["bees", "honey"]
        assert await self._around(store, "Ada sells honey", reach=4) == []

    @pytest.mark.parametrize(
        "lane, conversation, seen_since",
        [(Lane.LONG_TERM, None, None), (Lane.EPISODIC, "talk", None), (None, "talk", 1.0), (None, None, None)],
    )
    async def test_what_the_query_leaves_out_is_context_all_the_same(
        self, store: Store, lane: Lane | None, conversation: str | None, seen_since: float | None
    ) -> None:
        """L3, L6: a question that the model has seen still tells what its answer is about."""
        said = frozenset(await self._talk(store, "bees", "honey", "wasps"))
        query = LaneQuery(ADA, NOW, lane, conversation, excluded_refs=said, seen_since=seen_since)
        assert (
            await store.read(lambda unit: unit.index.matches(query, ["bee", "honey", "wasp"], limit=9), at=ALL_SPACES)
            == []
        )
        key = await key_of(store, "honey")
        assert await store.read(lambda unit: around(unit, query, [key], reach=1), at=ALL_SPACES) == [
            "bees",
            "honey",
            "wasps",
        ]

    async def test_it_is_told_what_of_the_context_the_query_admits(self, store: Store) -> None:
        """L3, L9: what may be given as an answer, and what only makes one."""
        shown, _, _ = await self._talk(store, "bees", "honey", "wasps")
        query = LaneQuery(ADA, NOW, Lane.EPISODIC, excluded_refs=frozenset([shown]))
        key = await key_of(store, "honey")
        found = await store.read(lambda unit: unit.index.around(query, [key], reach=1), at=ALL_SPACES)
        assert sorted((entry.position or 0, is_admitted) for entry, is_admitted in found) == [
            (0, False),
            (1, True),
            (2, True),
        ]

    async def test_a_tools_output_is_no_context(self, store: Store) -> None:
        """C6: what is not recalled makes nothing else an answer."""
        await record(store, "a wasp", conversation="talk", position=0, origin=Origin.TOOL)
        await record(store, "it stings", conversation="talk", position=1)
        assert await self._around(store, "it stings", reach=1) == ["it stings"]
        [output] = await found(store, "wasp", LaneQuery(ADA, NOW, evidence=True))
        assert await store.read(
            lambda unit: around(unit, LaneQuery(ADA, NOW), [output.key], reach=1), at=ALL_SPACES
        ) == ["it stings"]

    async def test_what_is_gone_is_no_context(self, store: Store) -> None:
        """L7, M2: deleted or forgotten, until it comes back."""
        entries = await self._talk(store, "bees", "honey", "wasps")
        removal = operation(Verb.DELETE)
        await delete(store, entries[0], within=removal)
        await forget(store, Selector(memory=entries[2]))
        assert await self._around(store, "honey", reach=2) == ["honey"]
        await undo(store, removal.id)
        assert await self._around(store, "honey", reach=2) == ["bees", "honey"]

    async def test_spaces_that_were_not_named_stay_out(self, store: Store) -> None:
        """L2: a key of another space, or a conversation of the same name, opens nothing."""
        await self._talk(store, "bees", "honey")
        await self._talk(store, "foreign bees", "foreign honey", space="team:bees")
        theirs = (await found(store, "foreign", LaneQuery(BOTH, NOW)))[0].key
        assert await self._around(store, "bees", reach=2) == ["bees", "honey"]
        query = LaneQuery(ADA, NOW)
        assert await store.read(lambda unit: unit.index.around(query, [theirs], reach=2), at=ALL_SPACES) == []
        both = await store.read(lambda unit: around(unit, LaneQuery(BOTH, NOW), [theirs], reach=2), at=ALL_SPACES)
        assert both == ["foreign bees", "foreign honey"]

    async def _talk(self, store: Store, *texts: str, space: str = SPACE, **draft: Any) -> list[str]:
        within = [operation(Verb.RECORD, space=space) for _ in texts]
        fields = {"conversation": "talk", **draft}
        entries = [
            await record(store, text, within=step, position=position, **fields)
            for position, (text, step) in enumerate(zip(texts, within, strict=True))
        ]
        return [entry.id for entry in entries]

    async def _around(self, store: Store, text: str, *, reach: int) -> list[str]:
        key = await key_of(store, text)
        return await store.read(lambda unit: around(unit, LaneQuery(ADA, NOW), [key], reach=reach), at=ALL_SPACES)


class TestSpeakers:
    async def test_everybody_who_spoke_is_named_once(self, store: Store) -> None:
        """L6: of records and statements, however often they spoke."""
        for text, speaker in (("one", "Ada"), ("two", "Bob"), ("three", "Ada"), ("four", None), ("five", "Élodie 李")):
            await record(store, text, conversation="talk", speaker=speaker)
        await add(store, "said by Carol", speaker="Carol")
        assert sorted(await self._speakers(store)) == ["Ada", "Bob", "Carol", "Élodie 李"]

    async def test_at_most_so_many_are_named_in_each_space(self, store: Store) -> None:
        """L6: a space of ten thousand speakers takes no longer than one of a few."""
        for number in range(5):
            await record(store, f"text {number}", conversation="talk", speaker=f"Ada {number}")
            within = operation(Verb.RECORD, space="team:bees")
            await record(store, f"text {number}", within=within, conversation="talk", speaker=f"Bob {number}")
        assert len(await self._speakers(store, ADA, limit=3)) == 3
        named = await self._speakers(store, BOTH, limit=3)
        assert sorted(name[:3] for name in named) == ["Ada"] * 3 + ["Bob"] * 3

    async def test_whoever_is_gone_is_not_named(self, store: Store) -> None:
        """L7, M2: not when nothing is left that they said."""
        entries = [await record(store, name, conversation="talk", speaker=name) for name in ("Ada", "Bob", "Carol")]
        await delete(store, entries[0].id)
        await forget(store, Selector(speaker="Bob"))
        assert await self._speakers(store) == ["Carol"]

    async def test_other_spaces_and_tenants_have_their_own(self, store: Store) -> None:
        """L2: who speaks elsewhere is nobody's business here."""
        await record(store, "one", conversation="talk", speaker="Ada")
        await record(store, "two", within=operation(Verb.RECORD, space="user:bob"), speaker="Bob")
        await record(store, "three", within=operation(Verb.RECORD, tenant="other"), speaker="Carol")
        assert await self._speakers(store) == ["Ada"]
        assert await self._speakers(store, Scope(TENANT, ("user:nobody",))) == []

    async def _speakers(self, store: Store, scope: Scope = ADA, *, limit: int = 10) -> list[str]:
        return await store.read(lambda unit: unit.index.speakers(scope, limit=limit), at=scope)


class TestNewest:
    async def test_the_newest_come_first(self, store: Store) -> None:
        """L6: statements and records alike, in the order in which they were stored."""
        texts = ["first bees", "second bees", "third bees"]
        for text in texts:
            await (add(store, text) if text.startswith("second") else record(store, text, conversation="talk"))
        keys = [await key_of(store, text) for text in texts]
        assert await self._newest(store) == keys[::-1]
        assert await self._newest(store, limit=2) == [keys[2], keys[1]]

    async def test_only_what_can_be_recalled_counts(self, store: Store) -> None:
        """L7: an old version, what was deleted and what was forgotten make nothing older."""
        kept = await add(store, "Ada keeps bees")
        gone, forgotten = await add(store, "Ada keeps cows"), await add(store, "Ada keeps dogs")
        newer = await update(store, kept.entry.id, "Ada keeps wasps")
        await delete(store, gone.entry.id)
        await forget(store, Selector(memory=forgotten.entry.id))
        assert newer.version == 2
        assert await self._newest(store) == [await key_of(store, "Ada keeps wasps")]

    async def test_a_space_has_its_own(self, store: Store) -> None:
        """L2: and one that nobody wrote to has none."""
        await add(store, "Bob keeps bees", within=operation(space="user:bob"))
        assert await self._newest(store) == []

    async def test_a_unit_sees_its_own_writes(self, store: Store) -> None:
        def work(unit: Unit) -> tuple[int, list[str], list[str]]:
            said = [
                admit(text, kind=Kind.RECORD, conversation="talk", position=position, speaker="Ada")
                for position, text in enumerate(("bees", "honey"))
            ]
            unit.records.add(operation(Verb.RECORD), said)
            keys = unit.index.newest(TENANT, SPACE, limit=5)
            texts = around(unit, LaneQuery(ADA, NOW), keys[:1], reach=1)
            return len(keys), unit.index.speakers(ADA, limit=5), texts

        assert await store.write(work, at=ALL_SPACES) == (2, ["Ada"], ["bees", "honey"])

    async def _newest(self, store: Store, *, limit: int = 10) -> list[int]:
        return await store.read(lambda unit: unit.index.newest(TENANT, SPACE, limit=limit), at=ALL_SPACES)


# The statistics for scoring stay exact, whatever happens to entries

_WORDS = ("bees", "honey", "wax", "蜂蜜", "мёд", "hive")
_BLANK = "nothing"
_VERBS = ("add", "doubt", "record", "update", "delete", "undo", "forget")
_spaces = count()

Action: TypeAlias = tuple[str, int, list[str], Origin]
_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(_VERBS),
        st.integers(0, 30),
        st.lists(st.sampled_from(_WORDS), max_size=4),
        st.sampled_from([Origin.USER, Origin.WEB]),
    ),
    max_size=25,
)


class _History:
    """Plays actions on one space, choosing among the ids and operations it has seen."""

    def __init__(self, space: str) -> None:
        self.space = space
        self.ids = ["unknown1"]
        self.operations = ["unknown2"]

    def play(self, unit: Unit, action: Action) -> None:
        verb, pick, words, origin = action
        chosen = operation(Verb.ADD, space=self.space)
        entry_id = self.ids[pick % len(self.ids)]
        draft: dict[str, Any] = {"text": " ".join(words) or _BLANK, "origin": origin}
        match verb:
            case "add" | "doubt":
                verdict = Verdict.QUARANTINE if verb == "doubt" else Verdict.ALLOW
                self.ids.append(unit.memories.add(chosen, admit(**draft, verdict=verdict)).entry.id)
            case "record":
                self.ids.append(unit.records.add(chosen, [admit(**draft, kind=Kind.RECORD)])[0].id)
            case "update":
                unit.memories.update(chosen, entry_id, admit(**draft), expected_version=None)
            case "delete":
                unit.memories.delete(chosen, entry_id)
            case "undo":
                unit.operations.undo(chosen, target=self.operations[pick % len(self.operations)])
            case "forget":
                unit.operations.forget(TENANT, self.space, Selector(memory=entry_id), at=NOW)
        self.operations.append(chosen.id)


class TestStats:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
    @given(actions=_ACTIONS, together=st.booleans())
    async def test_figures_equal_a_fresh_count(self, store: Store, actions: list[Action], *, together: bool) -> None:
        """L6: document frequencies are exact after any sequence of operations."""
        history = _History(f"user:{next(_spaces)}")
        if together:
            await store.write(partial(_play, history=history, actions=actions), at=ALL_SPACES)
        else:
            for action in actions:
                await store.write(partial(_play, history=history, actions=[action]), at=ALL_SPACES)
        await store.read(lambda unit: _compare(unit, Scope(TENANT, (history.space,))), at=ALL_SPACES)


def _play(unit: Unit, history: _History, actions: Sequence[Action]) -> None:
    for action in actions:
        # Whatever is refused is refused before anything was changed, so the unit may go on.
        with suppress(Conflict, InvalidInput, NotFound):
            history.play(unit, action)


def _compare(unit: Unit, scope: Scope) -> None:
    active = unit.memories.page(scope, Filter(), limit=1000)
    assert {entry.status for entry in active} <= {Status.ACTIVE}
    analysed = {entry.ref: terms(entry.text) for entry in active}
    documents = Counter(term for found in analysed.values() for term in set(found))
    vocabulary = list(dict.fromkeys(terms(" ".join((*_WORDS, _BLANK)))))
    space = scope.spaces[0]
    assert unit.index.frequencies(scope, vocabulary) == ({space: dict(documents)} if documents else {})
    extent = unit.index.stats(scope).get(space)
    counted = (extent.documents, extent.terms_total) if extent else (0, 0)
    assert counted == (len(active), sum(map(len, analysed.values())))
    found = matches(unit, LaneQuery(scope, NOW), vocabulary, limit=1000)
    assert {match.entry.ref: sorted(match.terms) for match in found} == {
        ref: sorted(found) for ref, found in analysed.items() if set(found) & set(vocabulary)
    }
