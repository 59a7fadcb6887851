"""Two owners' conversations of one id are two, in a space that both write to as well."""

import pytest

from afterturn.ports import Store
from afterturn.testing.conformance.scene import NOW, SPACE, TENANT, forget, record, texts
from afterturn.testing.drafts import operation
from afterturn.types import Entry, Event, Lane, LaneQuery, Scope, Selector, Verb

BOB, TEAM = "user:bob", "team:bees"
_TEAM = Scope(TENANT, (TEAM,))
_BOTH = Scope(TENANT, (SPACE, TEAM))


class TestOwners:
    async def test_a_record_keeps_the_owner_of_its_conversation(self, store: Store) -> None:
        """L2: the space that holds a record need not be the one whose conversation it is."""
        entry = await _said(store, "ada's bees", SPACE)
        read = await store.read(lambda unit: unit.memories.get(_TEAM, entry.id))
        assert (entry.owner, read.owner) == (SPACE, SPACE)

    async def test_the_space_itself_is_the_owner_of_what_names_none(self, store: Store) -> None:
        """L2: naming the space that holds it says the same as naming none."""
        entry = await _said(store, "the team's bees", TEAM)
        read = await store.read(lambda unit: unit.memories.get(_TEAM, entry.id))
        assert (entry.owner, read.owner) == (None, None)
        assert [item.id for item in await _conversation(store, TEAM)] == [entry.id]

    async def test_each_owner_s_conversation_has_positions_of_its_own(self, store: Store) -> None:
        """L2: the same id under another owner is another conversation."""
        await _said(store, "ada's bees", SPACE, position=4)
        await _said(store, "the team's bees", TEAM, position=1)
        assert [await _next(store, owner) for owner in (SPACE, BOB, TEAM, None)] == [5, 0, 2, 2]

    async def test_a_conversation_gives_the_records_of_its_owner(self, store: Store) -> None:
        """L2: by owner, or of every owner when none is named."""
        for owner in (SPACE, BOB, TEAM):
            await _said(store, f"bees of {owner}", owner)
        found = [[entry.owner for entry in await _conversation(store, owner)] for owner in (SPACE, BOB, None)]
        assert found == [[SPACE], [BOB], [SPACE, BOB, None]]

    async def test_short_term_is_this_owner_s_conversation_and_episodic_every_other(self, store: Store) -> None:
        """L1: another owner's conversation of the same id is episodic."""
        await _said(store, "bob's bees", BOB)
        await _said(store, "ada's bees", SPACE)
        await record(store, "ada's own bees", conversation="talk")
        await record(store, "bees elsewhere", conversation="other")
        in_lane = {lane: await _in_lane(store, lane, SPACE) for lane in (Lane.SHORT_TERM, Lane.EPISODIC)}
        assert in_lane == {
            Lane.SHORT_TERM: ["ada's own bees", "ada's bees"],
            Lane.EPISODIC: ["bees elsewhere", "bob's bees"],
        }

    @pytest.mark.parametrize("lane", [Lane.SHORT_TERM, Lane.EPISODIC])
    async def test_a_handle_is_resolved_in_its_owner_s_lane_alone(self, store: Store, lane: Lane) -> None:
        """L1: by key as by word."""
        await _said(store, "bob's bees", BOB)
        keys = (await store.read(lambda unit: unit.index.changes(TENANT, TEAM, since=0))).keys or ()
        query = LaneQuery(_TEAM, NOW, lane=lane, conversation="talk", owner=SPACE)
        resolved = await store.read(lambda unit: unit.index.resolve(query, keys))
        assert [entry.text for entry in resolved.values()] == (["bob's bees"] if lane is Lane.EPISODIC else [])

    async def test_a_shared_space_forgets_a_conversation_of_every_owner(self, store: Store) -> None:
        """M2: whoever owns it, nothing of that id stays in the space."""
        for owner in (SPACE, BOB, TEAM):
            await _said(store, f"bees of {owner}", owner)
        assert (await forget(store, Selector(conversation="talk"), space=TEAM)).versions == 3

    async def test_an_owner_s_forget_does_not_reach_into_a_shared_space(self, store: Store) -> None:
        """M2: what was written into another space is forgotten there."""
        await _said(store, "ada's bees", SPACE)
        await forget(store, Selector(conversation="talk"))
        assert await texts(store, "bees", LaneQuery(_TEAM, NOW)) == ["ada's bees"]

    async def test_the_owners_timelines_forget_the_conversation_too(self, store: Store) -> None:
        """M2: what happened in it is noted in its owner's space, and goes with its records."""
        await _said(store, "ada's bees", SPACE)
        events = [
            Event("recorded", 1.0, TENANT, TEAM, "talk"),
            Event("started", 2.0, TENANT, SPACE, "talk"),
            Event("started", 3.0, TENANT, SPACE, "other"),
            Event("started", 4.0, TENANT, BOB, "talk"),
            Event("started", 5.0, "acme", SPACE, "talk"),
        ]
        await store.write(lambda unit: unit.timeline.add(events, entries_max=10))
        await forget(store, Selector(conversation="talk"), space=TEAM)
        assert await _timeline(store, Scope(TENANT, (SPACE, TEAM, BOB))) == [3.0, 4.0]
        assert await _timeline(store, Scope("acme", (SPACE,))) == [5.0]


async def _said(store: Store, text: str, owner: str, *, position: int | None = None) -> Entry:
    """A message of the owner's conversation `talk`, recorded into the shared space."""
    within = operation(Verb.RECORD, space=TEAM)
    return await record(store, text, within=within, conversation="talk", owner=owner, position=position)


async def _conversation(store: Store, owner: str | None) -> list[Entry]:
    return await store.read(lambda unit: unit.records.of_conversation(_TEAM, "talk", limit=10, owner=owner))


async def _next(store: Store, owner: str | None) -> int:
    return await store.read(lambda unit: unit.records.next_position(TENANT, TEAM, "talk", owner=owner))


async def _timeline(store: Store, scope: Scope) -> list[float]:
    return [event.at for event in await store.read(lambda unit: unit.timeline.page(scope, limit=10))]


async def _in_lane(store: Store, lane: Lane, owner: str) -> list[str]:
    return await texts(store, "bees", LaneQuery(_BOTH, NOW, lane=lane, conversation="talk", owner=owner))
