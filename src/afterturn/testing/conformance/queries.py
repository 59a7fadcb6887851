"""Queries: scopes, filters, lanes, exclusions and statuses."""

from __future__ import annotations

from typing import Any

import pytest

from afterturn.errors import NotFound
from afterturn.ports import Store
from afterturn.testing.conformance.actions import (
    ADA,
    ALL_SPACES,
    NOW,
    SPACE,
    TALK,
    TENANT,
    add,
    delete,
    found,
    frequencies,
    get,
    key_of,
    record,
    texts,
    undo,
    update,
)
from afterturn.testing.entries import operation
from afterturn.text import content_hash
from afterturn.types import (
    ConversationKey,
    Entry,
    Filter,
    Kind,
    Lane,
    LaneQuery,
    Origin,
    Scope,
    Target,
    TurnRow,
    TurnStatus,
    Verb,
    Verdict,
)

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
        assert await store.read(lambda unit: unit.index.stats(scope), at=scope) == {}

    @pytest.mark.parametrize("scope", [BOB, OTHER_TENANT], ids=["space", "tenant"])
    async def test_lists_and_history_of_another_scope_are_empty(self, store: Store, scope: Scope) -> None:
        """L2: there is no read across spaces that were not named."""
        await add(store, "Ada keeps bees")
        assert await store.read(lambda unit: unit.memories.page(scope, Filter(), limit=10), at=scope) == []
        assert await store.read(lambda unit: unit.memories.counts(scope), at=scope) == {}
        assert await store.read(lambda unit: unit.operations.page(scope, limit=10), at=scope) == []
        assert await store.read(lambda unit: unit.memories.known_at(LaneQuery(scope, NOW), NOW), at=scope) == []

    async def test_keys_from_another_space_are_not_resolved(self, store: Store) -> None:
        """L2: a handle opens nothing outside the scope."""
        await add(store, "Ada keeps bees")
        changes = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0), at=ALL_SPACES)
        assert changes.keys
        keys = changes.keys
        assert await store.read(lambda unit: unit.index.resolve(LaneQuery(BOB, NOW), keys), at=ALL_SPACES) == {}

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
        assert await store.write(lambda unit: unit.conversations.start_turn(TALK, turn), at=ALL_SPACES)
        assert await store.write(
            lambda unit: unit.conversations.start_turn(ConversationKey(TENANT, "user:bob", "talk"), turn), at=ALL_SPACES
        )
        await record(store, "hello bees", conversation="talk")
        assert await store.read(lambda unit: unit.records.of_conversation(BOB, "talk", limit=10), at=ALL_SPACES) == []

    async def test_an_operation_of_another_space_is_not_undone(self, store: Store) -> None:
        """L2: undo stays in its space too."""
        added = await add(store, "Ada keeps bees")
        with pytest.raises(NotFound):
            await undo(store, str(added.operation), within=operation(Verb.UNDO, space="user:bob"))


class TestFilters:
    async def test_a_filter_admits_what_has_no_project(self, store: Store) -> None:
        """L2: None among several projects stands for none."""
        for name in ("garden", "shed", None):
            await add(store, f"bees of {name}", project=name)
        wanted = Filter(project=("garden", None))
        listed = await store.read(lambda unit: unit.memories.page(ADA, wanted, limit=10), at=ALL_SPACES)
        assert {entry.project for entry in listed} == {"garden", None}
        assert await texts(store, "bees", LaneQuery(ADA, NOW, filter=wanted)) == ["bees of None", "bees of garden"]

    @pytest.mark.parametrize(
        "draft, wanted",
        [
            ({"target": Target.ENVIRONMENT}, Filter(target=Target.ENVIRONMENT)),
            ({"agent": "helper"}, Filter(agent="helper")),
            ({"project": "garden"}, Filter(project="garden")),
            ({"project": "garden"}, Filter(project=("garden", "shed"))),
            ({"conversation": "talk"}, Filter(conversation="talk")),
            ({"pinned": True}, Filter(pinned=True)),
            ({"firm": True}, Filter(firm=True)),
            ({"origin": Origin.WEB}, Filter(origin=Origin.WEB)),
            ({"origin": Origin.WEB}, Filter(trusted=False)),
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
        listed = await store.read(lambda unit: unit.memories.page(ADA, wanted, limit=10), at=ALL_SPACES)
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
        listed = await store.read(lambda unit: unit.memories.page(ADA, wanted, limit=10), at=ALL_SPACES)
        assert sorted(entry.text for entry in listed) == expected
        assert sorted(await texts(store, "bees", LaneQuery(ADA, NOW, filter=wanted))) == expected
        [first] = await found(store, "bees", LaneQuery(ADA, NOW, filter=wanted), limit=1)
        assert first.entry.text in expected

    async def test_a_filter_by_kind_tells_statements_from_records(self, store: Store) -> None:
        """L2: reads see records where the filter admits them."""
        await add(store, "stated bees")
        await record(store, "recorded bees", conversation="talk")
        stated = await store.read(
            lambda unit: unit.memories.page(ADA, Filter(kind=Kind.STATEMENT), limit=10), at=ALL_SPACES
        )
        recorded = await store.read(
            lambda unit: unit.memories.page(ADA, Filter(kind=Kind.RECORD), limit=10), at=ALL_SPACES
        )
        assert [[entry.text for entry in listed] for listed in (stated, recorded)] == [
            ["stated bees"],
            ["recorded bees"],
        ]


# Lanes, exclusions and statuses


class TestLanes:
    async def test_excluded_ids_hold_for_every_version_before_the_cut(self, store: Store) -> None:
        """L3: a memory that is not wanted is not found in a newer version either, nor does it take another's place."""
        unwanted, wanted = await add(store, "bees and bees"), await add(store, "a word about bees in a long text")
        await update(store, unwanted.entry.id, "bees, bees and bees")
        query = LaneQuery(ADA, NOW, excluded_ids=frozenset({unwanted.entry.id}))
        assert [match.entry.id for match in await found(store, "bees", query, limit=1)] == [wanted.entry.id]

    async def test_each_entry_is_in_one_lane(self, store: Store) -> None:
        """L1: lanes are disjoint."""
        await add(store, "stated bees", conversation="talk")
        await record(store, "bees here", conversation="talk")
        await record(store, "bees there", conversation="other")
        await record(store, "bees nowhere")
        in_lane = {
            lane: await texts(store, "bees", LaneQuery(ADA, NOW, lane=lane, conversation="talk")) for lane in Lane
        }
        assert in_lane == {
            Lane.LONG_TERM: ["stated bees"],
            Lane.SHORT_TERM: ["bees here"],
            Lane.EPISODIC: ["bees nowhere", "bees there"],
        }

    async def test_without_a_conversation_every_record_is_episodic(self, store: Store) -> None:
        """L1: short-term memory is of this conversation alone."""
        await record(store, "bees here", conversation="talk")
        assert await texts(store, "bees", LaneQuery(ADA, NOW, lane=Lane.SHORT_TERM)) == []
        assert await texts(store, "bees", LaneQuery(ADA, NOW, lane=Lane.EPISODIC)) == ["bees here"]

    async def test_without_a_lane_statements_and_records_are_searched_alike(self, store: Store) -> None:
        await add(store, "stated bees")
        await record(store, "recorded bees", conversation="talk")
        assert await texts(store, "bees") == ["recorded bees", "stated bees"]

    async def test_recorded_tool_outputs_are_given_only_as_evidence(self, store: Store) -> None:
        """C6: tool outputs are kept for a review, not recalled, unless asked for."""
        await record(store, "tool bees", conversation="talk", origin=Origin.TOOL)
        await add(store, "stated bees", origin=Origin.TOOL)
        assert await texts(store, "bees") == ["stated bees"]
        assert await texts(store, "bees", LaneQuery(ADA, NOW, evidence=True)) == ["stated bees", "tool bees"]

    async def test_what_belongs_to_other_projects_can_be_left_out(self, store: Store) -> None:
        """P1: what is trusted and about the user, or belongs to no project, is returned in all of them."""
        for project in (None, "here", "merged", "elsewhere"):
            await add(store, f"convened bees of {project}", target=Target.ENVIRONMENT, project=project)
            await add(store, f"reported bees of {project}", origin=Origin.TOOL, project=project)
            await add(store, f"stated bees of {project}", project=project)
        everywhere = {f"stated bees of {project}" for project in (None, "here", "merged", "elsewhere")} | {
            "reported bees of None",
            "convened bees of None",
        }
        here = await texts(store, "bees", LaneQuery(ADA, NOW, projects=("here", "merged")))
        of_here = {f"{kind} bees of {project}" for kind in ("reported", "convened") for project in ("here", "merged")}
        assert set(here) == everywhere | of_here
        assert set(await texts(store, "bees", LaneQuery(ADA, NOW, projects=()))) == everywhere
        assert len(await texts(store, "bees", limit=20)) == 12


class TestExclusion:
    async def test_what_was_shown_makes_room_for_the_next(self, store: Store) -> None:
        """L3: turn 1 gives A B C, turn 2 D E F, turn 3 G H."""
        for letter in "HGFEDCBA":
            await add(store, f"{letter} bees")
        shown: frozenset[str] = frozenset()
        turns = []
        for _ in range(3):
            matches = await found(store, "bees", LaneQuery(ADA, NOW, excluded_refs=shown), limit=3)
            turns.append("".join(match.entry.text[0] for match in matches))
            shown |= {match.entry.ref for match in matches}
        assert turns == ["ABC", "DEF", "GH"]

    async def test_a_new_version_has_not_been_shown(self, store: Store) -> None:
        """L3: a model that saw version 1 has not seen version 2."""
        added = await add(store, "Ada keeps bees")
        newer = await update(store, added.entry.id, "Ada kept bees")
        seen_first = LaneQuery(ADA, NOW, excluded_refs=frozenset({added.entry.ref}))
        seen_both = LaneQuery(ADA, NOW, excluded_refs=frozenset({added.entry.ref, newer.ref}))
        assert await texts(store, "bees", seen_first) == ["Ada kept bees"]
        assert await texts(store, "bees", seen_both) == []

    async def test_records_the_model_still_sees_are_left_out(self, store: Store) -> None:
        """L9: memory does not echo the conversation."""
        await record(store, "hello bees", conversation="talk")
        await record(store, "goodbye bees", conversation="talk")
        query = LaneQuery(ADA, NOW, visible_hashes=frozenset({content_hash("goodbye bees")}))
        assert await texts(store, "bees", query, limit=1) == ["hello bees"]

    async def test_filters_hold_before_the_cut(self, store: Store) -> None:
        """L3: a cut comes after everything that may leave an entry out."""
        await add(store, "old pinned bees", pinned=True)
        for number in range(5):
            await add(store, f"new bees {number}")
        query = LaneQuery(ADA, NOW, filter=Filter(pinned=True))
        assert await texts(store, "bees", query, limit=1) == ["old pinned bees"]

    async def test_many_exclusions_are_no_trouble(self, store: Store) -> None:
        """L3: exclusions are bound, not pasted."""
        await add(store, "Ada keeps bees")
        query = LaneQuery(ADA, NOW, excluded_refs=frozenset(f"other{number}" for number in range(40_000)))
        assert await texts(store, "bees", query) == ["Ada keeps bees"]


class TestSeenSince:
    async def test_what_was_recorded_since_is_still_seen(self, store: Store) -> None:
        """L9: of a hidden history, what is newer than the last compaction is before the model's eyes."""
        await self._said(store)
        await record(store, "bees at fifty", conversation="talk", at=50.0)
        assert sorted(await texts(store, "bees", self._query())) == ["bees at fifty", "early bees", "stated bees"]

    @pytest.mark.parametrize("lane", [*Lane, None])
    async def test_it_holds_in_every_lane(self, store: Store, lane: Lane | None) -> None:
        """L9: no lane gives it, by word, by key or by time."""
        await self._said(store)
        given = await _given(store, self._query(lane=lane))
        assert "late bees" not in given
        assert given == {*await texts(store, "bees", self._query(lane=lane))}

    async def test_other_conversations_are_not_seen(self, store: Store) -> None:
        """L9: what was said elsewhere, or in no conversation, is recalled however new it is."""
        for conversation in ("talk", "other", None):
            await record(store, f"bees in {conversation}", conversation=conversation, at=90.0)
        assert await texts(store, "bees", self._query()) == ["bees in None", "bees in other"]

    async def test_another_owner_s_conversation_of_the_same_id_is_not_seen(self, store: Store) -> None:
        """L2, L9: it is another conversation."""
        for owner in ("user:bob", SPACE):
            await record(store, f"bees of {owner}", conversation="talk", owner=owner, at=90.0)
        assert await texts(store, "bees", self._query(owner=SPACE)) == ["bees of user:bob"]
        assert await texts(store, "bees", self._query()) == []

    async def test_without_a_conversation_it_means_nothing(self, store: Store) -> None:
        """L9: there is no history that could be hidden."""
        await self._said(store)
        query = LaneQuery(ADA, NOW, seen_since=50.0)
        assert sorted(await texts(store, "bees", query)) == ["early bees", "late bees", "stated bees"]

    async def test_it_holds_before_the_cut(self, store: Store) -> None:
        """L3: what is left out makes room for the next."""
        await self._said(store)
        assert await texts(store, "bees", self._query(lane=Lane.SHORT_TERM), limit=1) == ["early bees"]

    async def _said(self, store: Store) -> None:
        await record(store, "early bees", conversation="talk", at=10.0)
        await add(store, "stated bees", conversation="talk", at=90.0)
        await record(store, "late bees", conversation="talk", at=90.0)

    def _query(self, *, lane: Lane | None = None, owner: str | None = None) -> LaneQuery:
        return LaneQuery(ADA, NOW, lane=lane, conversation="talk", owner=owner, seen_since=50.0)


class TestLearnedStatements:
    """What a statement was learned from may be before the model's eyes."""

    @pytest.mark.parametrize("lane", [Lane.LONG_TERM, None])
    async def test_what_was_learned_from_what_is_seen_is_left_out(self, store: Store, lane: Lane | None) -> None:
        """L9: memory does not echo the conversation in other words, by word, by key or by time."""
        said = await record(store, "hello", conversation="talk", at=90.0)
        await add(store, "learned bees", sources=(said.id,))
        await add(store, "stated bees")
        for query in _sights(said, lane):
            assert await texts(store, "bees", query) == ["stated bees"]
            assert await _given(store, query) == {"stated bees"}

    async def test_it_holds_before_the_cut(self, store: Store) -> None:
        """L3: what is left out makes room for the next."""
        await add(store, "stated bees")
        said = await record(store, "hello", conversation="talk", at=90.0)
        for number in range(3):
            await add(store, f"learned bees {number}", sources=(said.id,))
        for query in _sights(said):
            assert await texts(store, "bees", query, limit=1) == ["stated bees"]

    async def test_what_also_rests_on_something_else_is_given(self, store: Store) -> None:
        """L9: of what the model sees, it is not all."""
        said = await record(store, "hello", conversation="talk", at=90.0)
        unseen = await record(store, "goodbye", conversation="other", at=10.0)
        stated = (await add(store, "stated wasps")).entry
        for source in (unseen.id, stated.id, "erased"):
            await add(store, f"bees of {source}", sources=(said.id, source))
        for query in _sights(said):
            assert len(await texts(store, "bees", query)) == 3

    async def test_what_is_seen_in_two_ways_is_seen(self, store: Store) -> None:
        """L9: one message is shown, and another one is known to be."""
        shown = await record(store, "hello", conversation="talk", at=10.0)
        hidden = await record(store, "goodbye", conversation="talk", at=90.0)
        await add(store, "learned bees", sources=(shown.id, hidden.id))
        visible, since = _sights(shown)
        assert await texts(store, "bees", visible._replace(seen_since=since.seen_since)) == []
        assert await texts(store, "bees", visible) == await texts(store, "bees", since) == ["learned bees"]

    async def test_what_rests_on_a_record_of_another_space_is_given(self, store: Store) -> None:
        """L2, L9: nothing is looked up in a space that the statement is not of."""
        elsewhere = operation(Verb.RECORD, space="user:bob", at=90.0)
        said = await record(store, "hello", within=elsewhere, conversation="talk", at=90.0)
        await add(store, "learned bees", sources=(said.id,))
        for query in _sights(said):
            assert await texts(store, "bees", query) == ["learned bees"]

    async def test_another_owner_s_conversation_of_the_same_id_is_not_seen(self, store: Store) -> None:
        """L2, L9: nor is what was learned from it."""
        for owner in ("user:bob", SPACE):
            said = await record(store, "hello", conversation="talk", owner=owner, at=90.0)
            await add(store, f"bees of {owner}", sources=(said.id,))
        query = LaneQuery(ADA, NOW, conversation="talk", owner=SPACE, seen_since=50.0)
        assert await texts(store, "bees", query) == ["bees of user:bob"]


async def _given(store: Store, query: LaneQuery) -> set[str]:
    """All that the query admits, by key and by time alike."""
    keys = (await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0), at=ALL_SPACES)).keys or ()
    entries = await store.read(lambda unit: unit.index.resolve(query, keys), at=ALL_SPACES)
    resolved = {entry.text for entry in entries.values()}
    assert resolved == {
        entry.text for entry in await store.read(lambda unit: unit.memories.known_at(query, NOW), at=ALL_SPACES)
    }
    return resolved


def _sights(said: Entry, lane: Lane | None = None) -> tuple[LaneQuery, LaneQuery]:
    """Of a message that is shown to us, and of one that a host hides."""
    here = LaneQuery(ADA, NOW, lane=lane, conversation="talk")
    return here._replace(visible_hashes=frozenset({said.content_hash})), here._replace(seen_since=50.0)


class TestStatuses:
    @pytest.mark.parametrize(
        "draft",
        [
            {"expires_at": NOW},
            {"valid_to": NOW},
            {"valid_from": NOW + 1},
            {"verdict": Verdict.QUARANTINE},
        ],
        ids=["expired", "no longer valid", "not yet valid", "quarantined"],
    )
    async def test_what_does_not_hold_now_is_not_given(self, store: Store, draft: dict[str, Any]) -> None:
        """L7: expired and quarantined memories are never recalled."""
        await add(store, "Ada keeps bees", **draft)
        assert await texts(store, "bees") == []

    async def test_what_holds_until_later_is_given(self, store: Store) -> None:
        """L7: an end that lies ahead hides nothing."""
        await add(store, "Ada keeps bees", valid_from=NOW, valid_to=NOW + 1, expires_at=NOW + 1)
        assert await texts(store, "bees") == ["Ada keeps bees"]

    async def test_a_superseded_version_is_not_given(self, store: Store) -> None:
        """L7: superseded memories are never recalled."""
        added = await add(store, "Ada keeps bees")
        await update(store, added.entry.id, "Ada keeps wasps")
        assert await texts(store, "bees wasps") == ["Ada keeps wasps"]

    async def test_keys_that_left_are_not_resolved(self, store: Store) -> None:
        """L7: a handle on a hidden version gives nothing."""
        gone, stays = await add(store, "gone bees"), await add(store, "staying bees")
        keys = [await key_of(store, "gone bees"), await key_of(store, "staying bees")]
        await delete(store, gone.entry.id)
        resolved = await store.read(lambda unit: unit.index.resolve(LaneQuery(ADA, NOW), keys), at=ALL_SPACES)
        assert resolved == {keys[1]: stays.entry}
