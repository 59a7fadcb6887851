"""Adding, updating, deleting and reading back."""

import asyncio
from dataclasses import asdict
from typing import Any

import pytest

from afterturn.errors import Conflict, InvalidInput, NotFound
from afterturn.ports import Store
from afterturn.testing.conformance.actions import (
    ADA,
    ALL_SPACES,
    NOW,
    SPACE,
    TENANT,
    add,
    delete,
    draft_fields,
    forget,
    get,
    record,
    texts,
    undo,
    update,
)
from afterturn.testing.entries import admit, operation
from afterturn.types import (
    ANYTHING,
    SOURCES_MAX,
    Admitted,
    Entry,
    Filter,
    Kind,
    Operation,
    Origin,
    Scope,
    Selector,
    SpaceSummary,
    Status,
    Target,
    Tenant,
    Verb,
    Verdict,
)


class TestMemories:
    async def test_every_field_comes_back_as_it_was_stored(self, store: Store) -> None:
        fields = asdict(draft_fields())
        fields.pop("id")
        fields.pop("proposed")
        added = await add(store, **fields)
        stored = await get(store, added.entry.id)
        assert stored == added.entry
        assert {name: getattr(stored, name) for name in fields} == fields

    async def test_versions_are_found_by_their_references(self, store: Store) -> None:
        """Whatever their status, and only in the scope."""
        first = (await add(store, "Ada keeps bees")).entry
        second = await update(store, first.id, "Ada keeps two hives")
        other = (await add(store, "Ada plays chess")).entry
        wanted = (first.ref, second.ref, other.ref, f"{other.id}.7", "unknown")
        found = await store.read(lambda unit: unit.memories.versions(ADA, wanted), at=ADA)
        assert {ref: entry.text for ref, entry in found.items()} == {
            first.ref: "Ada keeps bees",
            second.ref: "Ada keeps two hives",
            other.ref: "Ada plays chess",
        }
        nobody = Scope(TENANT, ("user:nobody",))
        assert await store.read(lambda unit: unit.memories.versions(nobody, wanted), at=nobody) == {}

    async def test_what_was_not_said_when_happened_when_it_was_recorded(self, store: Store) -> None:
        added = await add(store, "Ada keeps bees", at=70.0)
        assert (await get(store, added.entry.id)).occurred_at == 70.0

    async def test_the_same_statement_again_gives_the_existing_one(self, store: Store) -> None:
        """G6: a duplicate add returns the existing memory."""
        first = await add(store, "Ada keeps bees")
        again = await add(store, "ada  keeps BEES")
        assert (again.created, again.entry, again.operation) == (False, first.entry, None)

    async def test_what_is_said_again_rests_on_that_too(self, store: Store) -> None:
        """G6, M2: no new version; the message that repeats it becomes one more source, once."""
        first = await add(store, "Ada keeps bees", sources=("one",))
        again = await add(store, "Ada keeps bees", sources=("one", "two"))
        await add(store, "Ada keeps bees", sources=("two",))
        assert (again.created, again.operation, again.entry.version) == (False, None, 1)
        assert again.entry == await get(store, first.entry.id)
        assert again.entry.sources == ("one", "two")

    async def test_what_rests_on_nothing_goes_on_doing_so(self, store: Store) -> None:
        """G6, M2: a message that repeats what somebody has stated does not take it along when it goes."""
        first = await add(store, "Ada keeps bees")
        await add(store, "Ada keeps bees", sources=("one",))
        assert (await get(store, first.entry.id)).sources == ()

    async def test_a_less_trusted_word_adds_nothing_that_a_statement_rests_on(self, store: Store) -> None:
        """G6, G2: else a trusted statement could come to rest on a tool's output alone."""
        first = await add(store, "Ada keeps bees", sources=("one",), origin=Origin.BACKGROUND_REVIEW)
        await add(store, "Ada keeps bees", sources=("two",), origin=Origin.TOOL)
        assert (await get(store, first.entry.id)).sources == ("one",)

    async def test_the_sources_of_a_statement_are_bounded(self, store: Store) -> None:
        """G6, G5: however often it is said."""
        first = await add(store, "Ada keeps bees", sources=tuple(f"s{n}" for n in range(SOURCES_MAX - 1)))
        again = await add(store, "Ada keeps bees", sources=("one", "two"))
        assert len((await get(store, first.entry.id)).sources) == len(again.entry.sources) == SOURCES_MAX

    async def test_a_duplicate_leaves_no_operation_behind(self, store: Store) -> None:
        """G6: nothing was done, so there is nothing to undo."""
        first = await add(store, "Ada keeps bees")
        await add(store, "Ada keeps bees")
        operations = await store.read(lambda unit: unit.operations.page(ADA, limit=10), at=ALL_SPACES)
        assert [item.id for item in operations] == [first.operation]

    @pytest.mark.parametrize("other", [{"agent": "b"}, {"project": "b"}, {"target": Target.ENVIRONMENT}])
    async def test_about_something_else_it_is_another_statement(self, store: Store, other: dict[str, Any]) -> None:
        """G6: agent, project and target belong to what a duplicate is."""
        await add(store, "Ada keeps bees")
        assert (await add(store, "Ada keeps bees", **other)).created

    async def test_in_another_space_it_is_another_statement(self, store: Store) -> None:
        """G6: spaces never share a memory."""
        await add(store, "Ada keeps bees")
        elsewhere = operation(space="user:bob")
        assert (await add(store, "Ada keeps bees", within=elsewhere)).created

    async def test_concurrent_adds_of_one_statement_store_it_once(self, store: Store) -> None:
        """G6: by constraint, not by race."""
        added = await asyncio.gather(*(add(store, "Ada keeps bees") for _ in range(16)))
        assert [item.created for item in added].count(True) == 1
        assert len({item.entry.id for item in added}) == 1

    async def test_a_more_trusted_origin_promotes_the_statement(self, store: Store) -> None:
        """G6: the same id, a new version, the higher trust."""
        first = await add(store, "Ada keeps bees", origin=Origin.WEB)
        again = await add(store, "Ada keeps bees", origin=Origin.USER)
        assert (again.created, again.entry.id, again.entry.version) == (False, first.entry.id, 2)
        assert (await get(store, first.entry.id)).trust == Origin.USER.trust

    async def test_a_promotion_keeps_what_it_does_not_say(self, store: Store) -> None:
        """G6: saying it again takes nothing away from a memory."""
        first = await add(
            store,
            "Ada keeps bees",
            origin=Origin.AGENT,
            pinned=True,
            metadata={"hive": 1, "wild": True},
            sources=("r1", "r2"),
            valid_from=10.0,
            valid_to=900.0,
            expires_at=950.0,
        )
        await add(store, "Ada keeps bees", metadata={"hive": 2}, sources=("r3", "r1"), expires_at=800.0)
        kept = await get(store, first.entry.id)
        assert (kept.version, kept.trust, kept.pinned) == (2, Origin.USER.trust, True)
        assert kept.metadata == {"hive": 2, "wild": True}
        assert kept.sources == ("r3", "r1", "r2")
        assert (kept.valid_from, kept.valid_to, kept.expires_at) == (10.0, 900.0, 800.0)

    async def test_what_is_said_again_on_ones_own_account_rests_on_nothing_else(self, store: Store) -> None:
        """G6, M2: the user's own word stays when what a tool had it from is forgotten."""
        source = (await record(store, "Ada keeps bees, says the page")).id
        await add(store, "Ada keeps bees", origin=Origin.WEB, sources=(source,))
        said = await add(store, "Ada keeps bees")
        await forget(store, Selector(memory=source))
        assert (await get(store, said.entry.id)).text == "Ada keeps bees"

    async def test_a_promotion_stays_within_the_bounds_of_a_draft(self, store: Store) -> None:
        """G6: what is older gives way, or the next update would be refused for what nobody wrote."""
        sources = [tuple(f"{name}{at}" for at in range(SOURCES_MAX - 1)) for name in ("old", "new")]
        first = await add(store, "Ada keeps bees", origin=Origin.WEB, metadata={"old": "x" * 3000}, sources=sources[0])
        await add(store, "Ada keeps bees", metadata={"new": "y" * 3000}, sources=sources[1])
        kept = await get(store, first.entry.id)
        assert kept.metadata == {"new": "y" * 3000}
        assert kept.sources == (*sources[1], "old0")

    async def test_a_promotion_never_ends_before_it_begins(self, store: Store) -> None:
        """G6: an old end does not hold for what begins after it."""
        first = await add(store, "Ada is away", origin=Origin.WEB, valid_from=10.0, valid_to=500.0)
        await add(store, "Ada is away", valid_from=600.0)
        kept = await get(store, first.entry.id)
        assert (kept.valid_from, kept.valid_to) == (600.0, None)

    async def test_a_promotion_is_named_as_one(self, store: Store) -> None:
        """G6: history tells a promotion from an addition."""
        await add(store, "Ada keeps bees", origin=Origin.WEB)
        again = await add(store, "Ada keeps bees", origin=Origin.USER)
        newest = (await store.read(lambda unit: unit.operations.page(ADA, limit=1), at=ALL_SPACES))[0]
        assert (newest.id, newest.verb) == (again.operation, Verb.PROMOTE)

    async def test_a_less_trusted_origin_changes_nothing(self, store: Store) -> None:
        """G6: trust is never lost by repetition."""
        first = await add(store, "Ada keeps bees", origin=Origin.USER)
        assert (await add(store, "Ada keeps bees", origin=Origin.WEB)).entry == first.entry

    async def test_an_expired_duplicate_gives_way(self, store: Store) -> None:
        """G6: inactive rows take no part, and an expired one is as good as inactive."""
        first = await add(store, "Ada is away", expires_at=200.0)
        again = await add(store, "Ada is away", at=300.0)
        assert again.created
        assert (await get(store, first.entry.id)).status is Status.EXPIRED

    async def test_a_deleted_statement_can_be_said_again(self, store: Store) -> None:
        """G6: inactive rows take no part."""
        first = await add(store, "Ada keeps bees")
        await delete(store, first.entry.id)
        assert (await add(store, "Ada keeps bees")).created

    async def test_a_quarantined_draft_is_kept_out_of_sight(self, store: Store) -> None:
        """L7: quarantined memories are never recalled."""
        added = await add(store, "Ada keeps bees", verdict=Verdict.QUARANTINE)
        assert (await get(store, added.entry.id)).status is Status.QUARANTINED
        assert await texts(store, "bees") == []

    async def test_an_id_that_is_taken_is_refused(self, store: Store) -> None:
        await add(store, "Ada keeps bees", id="taken1")
        with pytest.raises(Conflict):
            await add(store, "Ada sells honey", id="taken1")

    async def test_an_update_supersedes(self, store: Store) -> None:
        """M1: nothing is overwritten."""
        added = await add(store, "Ada keeps bees")
        await update(store, added.entry.id, "Ada kept bees")
        versions = await store.read(lambda unit: unit.memories.history(ADA, added.entry.id), at=ALL_SPACES)
        assert [(item.version, item.text, item.status) for item in versions] == [
            (1, "Ada keeps bees", Status.SUPERSEDED),
            (2, "Ada kept bees", Status.ACTIVE),
        ]

    async def test_versions_of_statements_are_found_by_their_sources(self, store: Store) -> None:
        """L12: the message that a superseded one was learned from is outdated."""
        added = await add(store, "Ada keeps bees", sources=("r1", "r2"))
        await add(store, "Ada keeps wasps", sources=("r1",))
        await update(store, added.entry.id, "Ada keeps ants")
        gone, bob = (Status.SUPERSEDED,), Scope("default", ("user:bob",))
        found = await store.read(lambda unit: unit.memories.learned_from(ADA, ("r2", "r3"), gone), at=ALL_SPACES)
        every = await store.read(lambda unit: unit.memories.learned_from(ADA, ("r1",), tuple(Status)), at=ALL_SPACES)
        assert [[one.text for one in some] for some in (found, every[1:])] == [["Ada keeps bees"], ["Ada keeps wasps"]]
        assert await store.read(lambda unit: unit.memories.learned_from(bob, ("r2",), gone), at=ALL_SPACES) == []

    async def test_an_update_of_an_old_version_is_a_conflict(self, store: Store) -> None:
        """M1: nobody overwrites what they have not seen."""
        added = await add(store, "Ada keeps bees")
        await update(store, added.entry.id, "Ada kept bees", expected=1)
        with pytest.raises(Conflict):
            await update(store, added.entry.id, "Ada keeps wasps", expected=1)

    async def test_an_update_to_another_memory_s_text_is_a_conflict(self, store: Store) -> None:
        """G6: an update does not make a duplicate either."""
        added = await add(store, "Ada keeps bees")
        await add(store, "Ada keeps wasps")
        with pytest.raises(Conflict):
            await update(store, added.entry.id, "Ada keeps wasps")
        assert (await get(store, added.entry.id)).text == "Ada keeps bees"

    async def test_an_update_that_changes_only_letters_is_no_duplicate_of_itself(self, store: Store) -> None:
        added = await add(store, "ada keeps bees")
        assert (await update(store, added.entry.id, "Ada keeps bees")).version == 2

    async def test_a_quarantined_update_leaves_the_active_version(self, store: Store) -> None:
        """L7: what waits for a person's look replaces nothing yet."""
        added = await add(store, "Ada keeps bees")
        await update(store, added.entry.id, "Ada keeps wasps", verdict=Verdict.QUARANTINE)
        assert await texts(store, "bees wasps") == ["Ada keeps bees"]

    async def test_updating_what_is_deleted_is_a_conflict(self, store: Store) -> None:
        added = await add(store, "Ada keeps bees")
        await delete(store, added.entry.id)
        with pytest.raises(Conflict):
            await update(store, added.entry.id, "Ada kept bees")

    async def test_updating_or_deleting_an_unknown_id_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await update(store, "nowhere", "Ada kept bees")
        with pytest.raises(NotFound):
            await delete(store, "nowhere")

    async def test_deleting_hides(self, store: Store) -> None:
        """M2: `delete` hides; the version stays in the history."""
        added = await add(store, "Ada keeps bees")
        assert (await delete(store, added.entry.id)).status is Status.DELETED
        assert await texts(store, "bees") == []
        assert (await get(store, added.entry.id)).status is Status.DELETED

    async def test_what_was_deleted_can_be_added_again_under_its_id(self, store: Store) -> None:
        """M1: as its next version, which undo takes back without a trace of the delete being lost."""
        added = await add(store, "Ada keeps bees")
        await delete(store, added.entry.id)
        again = operation(Verb.ADD)
        entry = await self._add_again(store, admit("Ada keeps wasps", id=added.entry.id), again)
        assert (entry.version, entry.status, await texts(store, "bees wasps")) == (
            2,
            Status.ACTIVE,
            ["Ada keeps wasps"],
        )
        await undo(store, again.id)
        assert await texts(store, "bees wasps") == []
        assert (await get(store, added.entry.id, version=1)).status is Status.DELETED

    async def test_what_is_active_or_unknown_is_not_added_again(self, store: Store) -> None:
        added = await add(store, "Ada keeps bees")
        with pytest.raises(Conflict):
            await self._add_again(store, admit("Ada keeps wasps", id=added.entry.id), operation(Verb.ADD))
        with pytest.raises(NotFound):
            await self._add_again(store, admit("Ada keeps wasps", id="nowhere"), operation(Verb.ADD))
        assert await texts(store, "bees wasps") == ["Ada keeps bees"]

    async def test_an_expiry_is_postponed_in_the_same_version(self, store: Store) -> None:
        """L7: and others notice it, since the index in their memory follows the changes."""
        added = await add(store, "Ada keeps bees", expires_at=NOW - 1.0)
        assert await texts(store, "bees") == []
        before = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0), at=ALL_SPACES)
        await store.write(
            lambda unit: unit.memories.postpone(operation(Verb.UPDATE), added.entry.id, expires_at=NOW + 60.0),
            at=ALL_SPACES,
        )
        after = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=before.seq), at=ALL_SPACES)
        assert await texts(store, "bees") == ["Ada keeps bees"]
        assert (await get(store, added.entry.id)).version == 1
        assert after.keys is not None
        assert len(after.keys) == 1

    async def test_names_of_spaces_are_found_by_their_beginning(self, store: Store) -> None:
        """L2: within the tenant, also of a space whose memories are all deleted."""
        for space in ("store:a", "store:a.b", "store:ab", "store:ä", "user:ada"):
            await add(store, "Ada keeps bees", within=operation(space=space))
        await add(store, "Ada keeps bees", within=operation(space="store:a.c", tenant="other"))
        gone = await add(store, "Ada keeps ants", within=operation(space="store:a.d"))
        await delete(store, gone.entry.id, within=operation(Verb.DELETE, space="store:a.d"))
        assert await self._space_names(store, "store:a") == ["store:a", "store:a.b", "store:a.d", "store:ab"]
        assert await self._space_names(store, "store:a.") == ["store:a.b", "store:a.d"]
        assert await self._space_names(store, "store:a%") == []

    async def test_a_version_can_be_asked_for(self, store: Store) -> None:
        added = await add(store, "Ada keeps bees")
        await update(store, added.entry.id, "Ada kept bees")
        assert (await get(store, added.entry.id, version=1)).text == "Ada keeps bees"
        with pytest.raises(NotFound):
            await get(store, added.entry.id, version=3)

    async def test_pages_follow_one_another_newest_first(self, store: Store) -> None:
        ids = [(await add(store, f"fact number {number}")).entry.id for number in range(5)]
        first = await store.read(lambda unit: unit.memories.page(ADA, Filter(), limit=3), at=ALL_SPACES)
        rest = await store.read(
            lambda unit: unit.memories.page(ADA, Filter(), limit=3, before=first[-1].id), at=ALL_SPACES
        )
        assert [entry.id for entry in [*first, *rest]] == ids[::-1]

    async def test_the_newest_are_listed_by_the_time_they_hold(self, store: Store) -> None:
        """M1: whatever order they were stored in; equal times by id; and page after page, each once."""
        times = [50.0, 10.0, 40.0, 40.0, 20.0, 40.0]
        added = [await add(store, f"fact number {at}", occurred_at=time) for at, time in enumerate(times)]
        expected = sorted((one.entry for one in added), key=lambda one: (one.occurred_at, one.id), reverse=True)
        for limit in (1, 2, 4, 10):
            listed: list[Entry] = []
            before: str | None = None
            while page := await _newest(store, limit, before):
                listed += page
                before = page[-1].id
            assert [entry.id for entry in listed] == [entry.id for entry in expected]
        with pytest.raises(NotFound):
            await store.read(lambda unit: unit.memories.newest(ADA, Filter(), limit=3, before="nowhere"), at=ALL_SPACES)

    async def test_a_page_continues_after_a_memory_that_was_deleted_meanwhile(self, store: Store) -> None:
        """M1: the id still marks the place."""
        added = [await add(store, f"fact {at}", occurred_at=float(at)) for at in (3, 1, 2)]
        first = await store.read(lambda unit: unit.memories.newest(ADA, Filter(), limit=2), at=ALL_SPACES)
        await delete(store, first[-1].id)
        rest = await store.read(
            lambda unit: unit.memories.newest(ADA, Filter(), limit=2, before=first[-1].id), at=ALL_SPACES
        )
        assert [entry.id for entry in rest] == [added[1].entry.id]

    async def test_spaces_are_counted_by_tenant(self, store: Store) -> None:
        """L2: what is active counts; a space whose memories are all deleted is still listed."""
        await add(store, "Ada keeps bees", occurred_at=5.0)
        await record(store, "hello", conversation="talk", occurred_at=9.0)
        hidden = operation(Verb.ADD, space="user:bob")
        gone = await add(store, "Bob keeps ants", within=hidden)
        await delete(store, gone.entry.id, within=operation(Verb.DELETE, space="user:bob"))
        listed = await store.read(lambda unit: unit.memories.spaces(ADA.tenant), at=ALL_SPACES)
        assert listed == [SpaceSummary("user:ada", 1, 1, 9.0), SpaceSummary("user:bob", 0, 0, None)]
        assert await store.read(lambda unit: unit.memories.spaces("another"), at=Tenant("another")) == []

    async def test_a_page_of_every_status_shows_an_id_once(self, store: Store) -> None:
        added = await add(store, "Ada keeps bees")
        await update(store, added.entry.id, "Ada kept bees")
        every = Filter(statuses=tuple(Status))
        shown = await store.read(lambda unit: unit.memories.page(ADA, every, limit=10), at=ALL_SPACES)
        assert [(entry.id, entry.version) for entry in shown] == [(added.entry.id, 2)]

    async def test_a_memory_is_what_it_says_now(self, store: Store) -> None:
        """M1: not what was undone, nor what waits for a person's look."""
        added, change = await add(store, "Ada keeps bees"), operation(Verb.UPDATE)
        await update(store, added.entry.id, "Ada keeps wasps", within=change)
        await undo(store, change.id)
        await update(store, added.entry.id, "Ada keeps ants", verdict=Verdict.QUARANTINE)
        every = Filter(statuses=tuple(Status))
        shown = await store.read(lambda unit: unit.memories.page(ADA, every, limit=10), at=ALL_SPACES)
        assert [await get(store, added.entry.id), *shown] == [added.entry, added.entry]

    async def test_what_is_active_is_weighed_by_target_in_bytes(self, store: Store) -> None:
        """G4: what a space may hold about a target counts statements that hold now, and the bytes of their texts."""
        assert await self._weigh(store, Target.USER) == (0, 0)
        changed, gone = await add(store, "Ada keeps bees"), await add(store, "Ada likes tea")
        await update(store, changed.entry.id, "Ada keeps 蜂")
        await delete(store, gone.entry.id)
        await add(store, "Ada sings", proposed=True)
        await add(store, "Ada hides", verdict=Verdict.QUARANTINE)
        await record(store, "Ada said more than that", conversation="talk")
        await add(store, "Make runs the tests", target=Target.ENVIRONMENT)
        await add(store, "Bob keeps bees", within=operation(space="user:bob"))
        assert await self._weigh(store, Target.USER) == (1, 13)
        assert await self._weigh(store, Target.ENVIRONMENT) == (1, 19)
        both = Scope(TENANT, (SPACE, "user:bob"))
        assert await store.read(lambda unit: unit.memories.size(both, Target.USER), at=ALL_SPACES) == (2, 27)

    async def _weigh(self, store: Store, target: Target) -> tuple[int, int]:
        return await store.read(lambda unit: unit.memories.size(ADA, target), at=ALL_SPACES)

    async def test_counts_are_by_space_kind_and_status(self, store: Store) -> None:
        added = await add(store, "Ada keeps bees")
        await update(store, added.entry.id, "Ada kept bees")
        await record(store, "hello bees", conversation="talk")
        assert await store.read(lambda unit: unit.memories.counts(ADA), at=ALL_SPACES) == {
            (SPACE, Kind.STATEMENT, Status.SUPERSEDED): 1,
            (SPACE, Kind.STATEMENT, Status.ACTIVE): 1,
            (SPACE, Kind.RECORD, Status.ACTIVE): 1,
        }

    async def _add_again(self, store: Store, admitted: Admitted, within: Operation) -> Entry:
        return await store.write(lambda unit: unit.memories.add_again(within, admitted), at=ALL_SPACES)

    async def _space_names(self, store: Store, prefix: str) -> list[str]:
        return await store.read(lambda unit: unit.memories.space_names(TENANT, prefix), at=ALL_SPACES)


class TestRecords:
    async def test_equal_messages_are_two_records(self, store: Store) -> None:
        """C3: equal text is never taken for the same message."""
        await record(store, "hello bees", conversation="talk", position=0)
        await record(store, "hello bees", conversation="talk", position=1)
        assert await texts(store, "hello") == ["hello bees", "hello bees"]

    async def test_a_record_is_no_duplicate_of_a_statement(self, store: Store) -> None:
        """G6: records take no part."""
        await record(store, "Ada keeps bees", conversation="talk")
        assert (await add(store, "Ada keeps bees")).created

    async def test_a_record_is_never_updated(self, store: Store) -> None:
        entry = await record(store, "hello bees", conversation="talk")
        with pytest.raises(InvalidInput):
            await update(store, entry.id, "hello wasps")

    async def test_a_record_can_be_deleted(self, store: Store) -> None:
        entry = await record(store, "hello bees", conversation="talk")
        await delete(store, entry.id)
        assert await self._conversation(store, limit=10) == []

    async def test_a_conversation_gives_its_newest_records_oldest_first(self, store: Store) -> None:
        for position in range(4):
            await record(store, f"message {position}", conversation="talk", position=position)
        await record(store, "elsewhere", conversation="other", position=9)
        assert [entry.text for entry in await self._conversation(store, limit=3)] == [
            "message 1",
            "message 2",
            "message 3",
        ]

    async def test_positions_go_on_where_the_conversation_ended(self, store: Store) -> None:
        assert await self._next_position(store) == 0
        await record(store, "hello", conversation="talk", position=4)
        assert await self._next_position(store) == 5

    async def test_a_deleted_record_s_position_is_not_given_again(self, store: Store) -> None:
        entry = await record(store, "hello", conversation="talk", position=4)
        await delete(store, entry.id)
        assert await self._next_position(store) == 5

    async def test_records_past_their_retention_are_named_oldest_first(self, store: Store) -> None:
        """M4: records have a retention, statements have none."""
        newer = await record(store, "second", conversation="talk", at=20.0)
        older = await record(store, "first", conversation="talk", at=10.0)
        await record(store, "third", conversation="talk", at=30.0)
        await add(store, "Ada keeps bees", at=5.0)
        named = await store.read(lambda unit: unit.records.older_than(TENANT, 30.0, limit=10), at=ALL_SPACES)
        assert named == [(SPACE, older.id), (SPACE, newer.id)]

    async def test_the_most_telling_records_are_read_first(self, store: Store) -> None:
        """L14: newest first where they tell as much; what tells nothing, or was deleted, is not read."""
        told = {"bees": 3, "goats": 7, "hello": 0, "geese": 7, "ducks": 9}
        entries = {text: await record(store, text, telling=telling) for text, telling in told.items()}
        await add(store, "Ada keeps hens")
        await delete(store, entries["ducks"].id)
        assert await self._telling(store, limit=10) == ["geese", "goats", "bees"]
        assert await self._telling(store, limit=2) == ["geese", "goats"]

    async def test_the_most_telling_records_respect_the_filter(self, store: Store) -> None:
        await record(store, "bees", telling=9, project="api")
        await record(store, "goats", telling=2)
        assert await self._telling(store, limit=1, filter=Filter(project=(None,))) == ["goats"]

    async def test_records_of_one_turn_share_an_operation(self, store: Store) -> None:
        chosen = operation(Verb.RECORD)
        admitted = [admit(text, kind=Kind.RECORD, conversation="talk") for text in ("question", "answer")]
        await store.write(lambda unit: unit.records.add(chosen, admitted), at=ALL_SPACES)
        steps = await store.read(lambda unit: unit.operations.steps(ADA, operation_id=chosen.id), at=ALL_SPACES)
        assert [step.entry_id for step in steps] == [item.id for item in admitted]

    async def _telling(self, store: Store, *, limit: int, filter: Filter = ANYTHING) -> list[str]:
        found = await store.read(lambda unit: unit.records.most_telling(ADA, filter, limit=limit), at=ALL_SPACES)
        return [entry.text for entry in found]

    async def _conversation(self, store: Store, *, limit: int) -> list[Entry]:
        return await store.read(lambda unit: unit.records.of_conversation(ADA, "talk", limit=limit), at=ALL_SPACES)

    async def _next_position(self, store: Store) -> int:
        return await store.read(lambda unit: unit.records.next_position(TENANT, SPACE, "talk"), at=ALL_SPACES)


async def _newest(store: Store, limit: int, before: str | None) -> list[Entry]:
    return await store.read(lambda unit: unit.memories.newest(ADA, Filter(), limit=limit, before=before), at=ALL_SPACES)
