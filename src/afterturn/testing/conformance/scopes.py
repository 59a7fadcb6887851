"""No query reads across a tenant or a space that it did not name; filters narrow inside them."""

from typing import Any

import pytest

from afterturn.errors import NotFound
from afterturn.ports import Store
from afterturn.testing.conformance.scene import (
    ADA,
    NOW,
    SPACE,
    TALK,
    TENANT,
    add,
    found,
    frequencies,
    get,
    record,
    texts,
    undo,
)
from afterturn.testing.drafts import operation
from afterturn.types import ConversationKey, Filter, Kind, LaneQuery, Scope, Target, TurnRow, TurnStatus, Verb

BOB = Scope(TENANT, ("user:bob",))
OTHER_TENANT = Scope("acme", (SPACE,))


class TestScopes:
    @pytest.mark.parametrize("scope", [BOB, OTHER_TENANT], ids=["space", "tenant"])
    async def test_an_id_outside_the_scope_is_not_found(self, store: Store, scope: Scope) -> None:
        """L2: every query carries tenant and spaces."""
        added = await add(store, "Ada keeps bees")
        with pytest.raises(NotFound):
            await get(store, added.entry.id, scope=scope)

    @pytest.mark.parametrize("scope", [BOB, OTHER_TENANT], ids=["space", "tenant"])
    async def test_a_search_outside_the_scope_finds_nothing(self, store: Store, scope: Scope) -> None:
        """L2: inside the store, not after it."""
        await add(store, "Ada keeps bees")
        assert await texts(store, "bees", LaneQuery(scope, NOW)) == []

    @pytest.mark.parametrize("scope", [BOB, OTHER_TENANT], ids=["space", "tenant"])
    async def test_figures_of_another_scope_are_untouched(self, store: Store, scope: Scope) -> None:
        """L6: one user's rows never reorder another's results."""
        await add(store, "Ada keeps bees")
        assert await frequencies(store, ["bee"], scope) == {}
        assert await store.read(lambda unit: unit.index.stats(scope)) == {}

    @pytest.mark.parametrize("scope", [BOB, OTHER_TENANT], ids=["space", "tenant"])
    async def test_lists_and_history_of_another_scope_are_empty(self, store: Store, scope: Scope) -> None:
        """L2: there is no read across spaces that were not named."""
        await add(store, "Ada keeps bees")
        assert await store.read(lambda unit: unit.memories.page(scope, Filter(), limit=10)) == []
        assert await store.read(lambda unit: unit.memories.counts(scope)) == {}
        assert await store.read(lambda unit: unit.operations.page(scope, limit=10)) == []
        assert await store.read(lambda unit: unit.memories.known_at(LaneQuery(scope, NOW), NOW)) == []

    async def test_keys_from_another_space_are_not_resolved(self, store: Store) -> None:
        """L2: a handle opens nothing outside the scope."""
        await add(store, "Ada keeps bees")
        changes = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0))
        assert changes.keys
        keys = changes.keys
        assert await store.read(lambda unit: unit.index.resolve(LaneQuery(BOB, NOW), keys)) == {}

    async def test_several_spaces_are_searched_together(self, store: Store) -> None:
        """L2: a conversation may read more than one space."""
        await add(store, "Ada keeps bees")
        await add(store, "The team keeps bees", within=operation(space="team:bees"))
        await add(store, "Bob keeps bees", within=operation(space="user:bob"))
        both = Scope(TENANT, (SPACE, "team:bees"))
        assert await texts(store, "bees", LaneQuery(both, NOW)) == ["The team keeps bees", "Ada keeps bees"]

    async def test_an_id_may_be_used_in_two_spaces(self, store: Store) -> None:
        """L2: what one space holds says nothing about another."""
        await add(store, "Ada keeps bees", id="same1")
        await add(store, "Bob keeps wasps", id="same1", within=operation(space="user:bob"))
        assert (await get(store, "same1", scope=BOB)).text == "Bob keeps wasps"

    async def test_a_conversation_id_under_another_owner_is_another_conversation(self, store: Store) -> None:
        """L2: a conversation's key is tenant, owner and id."""
        turn = TurnRow("turn-1", TurnStatus.OPEN, 1.0, "hash")
        assert await store.write(lambda unit: unit.conversations.start_turn(TALK, turn))
        assert await store.write(
            lambda unit: unit.conversations.start_turn(ConversationKey(TENANT, "user:bob", "talk"), turn)
        )
        await record(store, "hello bees", conversation="talk")
        assert await store.read(lambda unit: unit.records.of_conversation(BOB, "talk", limit=10)) == []

    async def test_an_operation_of_another_space_is_not_undone(self, store: Store) -> None:
        """L2: undo stays in its space too."""
        added = await add(store, "Ada keeps bees")
        with pytest.raises(NotFound):
            await undo(store, str(added.operation), within=operation(Verb.UNDO, space="user:bob"))


class TestFilters:
    @pytest.mark.parametrize(
        "draft, wanted",
        [
            ({"target": Target.ENVIRONMENT}, Filter(target=Target.ENVIRONMENT)),
            ({"agent": "helper"}, Filter(agent="helper")),
            ({"project": "garden"}, Filter(project="garden")),
            ({"conversation": "talk"}, Filter(conversation="talk")),
            ({"pinned": True}, Filter(pinned=True)),
            ({"metadata": {"hive": 2}}, Filter(metadata={"hive": 2})),
            ({"metadata": {"hive": "two"}}, Filter(metadata={"hive": ("one", "two")})),
            ({"metadata": {"wild": True}}, Filter(metadata={"wild": True})),
            ({"metadata": {"note": None}}, Filter(metadata={"note": None})),
            ({"metadata": {'odd "key" $.é': 'a "b" \\ ü'}}, Filter(metadata={'odd "key" $.é': 'a "b" \\ ü'})),
        ],
    )
    async def test_a_filter_admits_what_it_names_alone(
        self, store: Store, draft: dict[str, Any], wanted: Filter
    ) -> None:
        """L2: fields and flat metadata narrow inside a space."""
        await add(store, "plain bees", metadata={"hive": 1, "wild": 1})
        await add(store, "chosen bees", **draft)
        listed = await store.read(lambda unit: unit.memories.page(ADA, wanted, limit=10))
        assert [entry.text for entry in listed] == ["chosen bees"]
        assert await texts(store, "bees", LaneQuery(ADA, NOW, filter=wanted)) == ["chosen bees"]

    @pytest.mark.parametrize(
        "wanted, expected",
        [
            (Filter(since=20.0), ["bees at 20", "bees at 30"]),
            (Filter(until=20.0), ["bees at 10"]),
            (Filter(since=20.0, until=30.0), ["bees at 20"]),
            (Filter(since="1970-01-01T00:00:30Z"), ["bees at 30"]),
        ],
    )
    async def test_a_filter_by_time_holds_before_any_cut(
        self, store: Store, wanted: Filter, expected: list[str]
    ) -> None:
        """L2: `since` is inclusive, `until` is not; what is outside takes no place among the best."""
        for at in (10, 20, 30):
            await add(store, f"bees at {at}", occurred_at=float(at))
        listed = await store.read(lambda unit: unit.memories.page(ADA, wanted, limit=10))
        assert sorted(entry.text for entry in listed) == expected
        assert sorted(await texts(store, "bees", LaneQuery(ADA, NOW, filter=wanted))) == expected
        [first] = await found(store, "bees", LaneQuery(ADA, NOW, filter=wanted), limit=1)
        assert first.entry.text in expected

    async def test_a_filter_by_kind_tells_statements_from_records(self, store: Store) -> None:
        """L2: reads see records where the filter admits them."""
        await add(store, "stated bees")
        await record(store, "recorded bees", conversation="talk")
        stated = await store.read(lambda unit: unit.memories.page(ADA, Filter(kind=Kind.STATEMENT), limit=10))
        recorded = await store.read(lambda unit: unit.memories.page(ADA, Filter(kind=Kind.RECORD), limit=10))
        assert [[entry.text for entry in listed] for listed in (stated, recorded)] == [
            ["stated bees"],
            ["recorded bees"],
        ]
