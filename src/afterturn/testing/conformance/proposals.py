"""Proposals: new statements, changes and withdrawals that wait until they are approved or rejected."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

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
    delete,
    forget,
    frequencies,
    get,
    key_of,
    record,
    texts,
    undo,
    update,
)
from afterturn.testing.entries import admit, operation
from afterturn.types import Added, Entry, Filter, Kind, LaneQuery, Operation, Selector, Status, Tenant, Verb

WAITING = (Status.PROPOSED, Status.WITHDRAWAL)


async def propose_change(
    store: Store, entry_id: str, text: str = "Ada keeps wasps", *, expected: int | None = None, **fields: Any
) -> Entry:
    return await update(store, entry_id, text, expected=expected, proposed=True, **fields)


async def withdraw(
    store: Store, entry_id: str, *, expected: int | None = None, within: Operation | None = None
) -> Entry:
    chosen = within or operation(Verb.DELETE)
    return await store.write(
        lambda unit: unit.memories.propose_delete(chosen, entry_id, expected_version=expected), at=ALL_SPACES
    )


async def approve(store: Store, entry_id: str, *, within: Operation | None = None) -> Entry:
    chosen = within or operation(Verb.APPROVE)
    return await store.write(lambda unit: unit.memories.approve(chosen, entry_id), at=ALL_SPACES)


async def list_with_status(store: Store, *statuses: Status) -> list[Entry]:
    return await store.read(lambda unit: unit.memories.page(ADA, Filter(statuses=statuses), limit=10), at=ALL_SPACES)


# Proposed statements


class TestProposals:
    async def test_a_proposal_waits_and_is_not_recalled(self, store: Store) -> None:
        """L7: only what is active is found, by word, by key and by time."""
        added = await _propose(store)
        keys = (await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0), at=ALL_SPACES)).keys or ()
        query = LaneQuery(ADA, NOW)
        assert (added.created, added.entry.status) == (True, Status.PROPOSED)
        assert await texts(store, "bees") == []
        assert await store.read(lambda unit: unit.index.resolve(query, keys), at=ALL_SPACES) == {}
        assert await store.read(lambda unit: unit.memories.known_at(query, NOW), at=ALL_SPACES) == []
        assert await frequencies(store, ["bee"]) == {}

    async def test_a_proposal_is_listed_by_its_status(self, store: Store) -> None:
        """V8: people see what waits; a query for active entries does not."""
        added = await _propose(store)
        assert await list_with_status(store, Status.PROPOSED) == [added.entry]
        assert await list_with_status(store, Status.ACTIVE) == []
        counts = await store.read(lambda unit: unit.memories.counts(ADA), at=ALL_SPACES)
        assert counts == {(SPACE, Kind.STATEMENT, Status.PROPOSED): 1}

    async def test_old_proposals_are_found_in_all_spaces_of_a_tenant(self, store: Store) -> None:
        """V8: so that an inbox nobody opens does not grow for ever. What was decided does not wait."""
        added = await _propose(store)
        at = added.entry.recorded_at

        async def find(tenant: str, before: float) -> list[tuple[str, str]]:
            return await store.read(
                lambda unit: unit.memories.waiting_since(tenant, before, limit=10), at=Tenant(tenant)
            )

        found = [await find(*asked) for asked in ((TENANT, at + 1), (TENANT, at), ("another", at + 1))]
        await approve(store, added.entry.id)
        assert found == [[(SPACE, added.entry.id)], [], []]
        assert await find(TENANT, at + 1) == []

    async def test_the_same_proposed_twice_waits_once(self, store: Store) -> None:
        """G6: a duplicate gives the existing one."""
        first, second = await _propose(store), await _propose(store)
        assert (second.created, second.entry, second.operation) == (False, first.entry, None)

    async def test_two_who_propose_the_same_at_once_propose_it_once(self, store: Store) -> None:
        """G6: by constraint, not by race."""
        added = await asyncio.gather(_propose(store), _propose(store))
        assert sorted(item.created for item in added) == [False, True]
        assert len(await list_with_status(store, Status.PROPOSED)) == 1

    async def test_what_is_active_need_not_be_proposed(self, store: Store) -> None:
        """G6: the active one is given as it is, however trusted the proposal."""
        active = await add(store, "Ada keeps bees")
        proposed = await _propose(store)
        assert (proposed.created, proposed.entry) == (False, active.entry)

    async def test_what_has_ended_can_be_proposed_again(self, store: Store) -> None:
        """G6: an expired one gives way, whether it was active or waited."""
        await add(store, "Ada keeps bees", expires_at=50.0, at=10.0)
        waited = await _propose(store, expires_at=90.0, at=60.0)
        again = await _propose(store, at=100.0)
        assert (waited.created, again.created) == (True, True)
        assert (await get(store, waited.entry.id)).status is Status.EXPIRED
        assert await list_with_status(store, Status.PROPOSED) == [again.entry]

    async def test_another_space_s_proposal_is_another(self, store: Store) -> None:
        """L2: neither a duplicate nor within reach."""
        await _propose(store)
        bob = operation(space="user:bob")
        assert (await _propose(store, within=bob)).created
        with pytest.raises(NotFound):
            await approve(store, "nowhere", within=operation(Verb.APPROVE, space="user:bob"))

    async def test_an_approved_proposal_is_recalled(self, store: Store) -> None:
        """V8: from then on it is a memory like any other."""
        added = await _propose(store)
        entry = await approve(store, added.entry.id)
        assert (entry.id, entry.version, entry.status) == (added.entry.id, 1, Status.ACTIVE)
        assert await texts(store, "bees") == ["Ada keeps bees"]
        assert await frequencies(store, ["bee"]) == {SPACE: {"bee": 1}}
        assert await store.read(lambda unit: unit.memories.known_at(LaneQuery(ADA, NOW), NOW), at=ALL_SPACES) == [entry]

    async def test_a_proposal_gets_its_vector_when_it_is_approved(self, store: Store) -> None:
        """M3: nobody embeds what may never be recalled; what is approved late is not passed over."""
        added = await _propose(store)
        await add(store, "Ada likes tea")
        newer = await key_of(store, "Ada likes tea")
        await store.write(lambda unit: unit.index.put_vectors(TENANT, SPACE, SMALL, [(newer, bytes(8))]), at=ALL_SPACES)
        assert await _unembedded(store) == []
        await approve(store, added.entry.id)
        assert await _unembedded(store) == ["Ada keeps bees"]

    async def test_it_was_not_known_before_it_was_approved(self, store: Store) -> None:
        """M1: as of a time means what was active then."""
        added = await _propose(store, at=10.0, within=operation(at=10.0))
        await approve(store, added.entry.id, within=operation(Verb.APPROVE, at=50.0))
        known = [await _known(store, at) for at in (20.0, 60.0)]
        assert known == [[], [added.entry.id]]

    async def test_an_approval_meets_an_active_duplicate(self, store: Store) -> None:
        """G6: the same is not active twice; the proposal goes on waiting."""
        added = await _propose(store)
        await add(store, "Ada keeps bees")
        with pytest.raises(Conflict):
            await approve(store, added.entry.id)
        assert (await get(store, added.entry.id)).status is Status.PROPOSED

    async def test_an_approval_takes_the_place_of_what_has_ended(self, store: Store) -> None:
        """G6: an expired duplicate gives way, as it does to an addition."""
        added = await _propose(store)
        old = await add(store, "Ada keeps bees", expires_at=200.0)
        await approve(store, added.entry.id, within=operation(Verb.APPROVE, at=300.0))
        assert (await get(store, old.entry.id)).status is Status.EXPIRED
        assert await texts(store, "bees") == ["Ada keeps bees"]

    async def test_only_what_waits_is_approved(self, store: Store) -> None:
        """V8: an approval does not bring back a deleted entry."""
        active, gone = await add(store, "Ada keeps bees"), await add(store, "Ada keeps wasps")
        await delete(store, gone.entry.id)
        for entry_id in (active.entry.id, gone.entry.id):
            with pytest.raises(Conflict):
                await approve(store, entry_id)
        with pytest.raises(NotFound):
            await approve(store, "nowhere")

    async def test_of_two_approvals_one_is_told_that_it_came_late(self, store: Store) -> None:
        """V8: approved once, however many try."""
        added = await _propose(store)
        done = await asyncio.gather(*(approve(store, added.entry.id) for _ in range(2)), return_exceptions=True)
        assert sorted(type(item).__name__ for item in done) == ["Conflict", "Entry"]

    async def test_an_approval_is_undone(self, store: Store) -> None:
        """M1: it waits again, and can be approved again."""
        added, change = await _propose(store), operation(Verb.APPROVE)
        await approve(store, added.entry.id, within=change)
        [step] = await undo(store, change.id)
        assert (step.before, step.after) == (Status.ACTIVE, Status.PROPOSED)
        assert await texts(store, "bees") == []
        await approve(store, added.entry.id)
        assert await texts(store, "bees") == ["Ada keeps bees"]

    async def test_a_rejected_proposal_is_gone_until_that_is_undone(self, store: Store) -> None:
        """M1: rejecting is deleting."""
        added, change = await _propose(store), operation(Verb.DELETE)
        assert (await delete(store, added.entry.id, within=change)).status is Status.DELETED
        assert await list_with_status(store, Status.PROPOSED) == []
        await undo(store, change.id)
        assert await list_with_status(store, Status.PROPOSED) == [added.entry]

    async def test_a_rejection_is_not_undone_beside_the_same_proposal(self, store: Store) -> None:
        """G6: the same does not wait twice."""
        added, change = await _propose(store), operation(Verb.DELETE)
        await delete(store, added.entry.id, within=change)
        again = await _propose(store)
        with pytest.raises(Conflict):
            await undo(store, change.id)
        assert await list_with_status(store, Status.PROPOSED) == [again.entry]

    async def test_a_proposal_is_undone(self, store: Store) -> None:
        """M1: as if it had not been made."""
        added = await _propose(store)
        assert added.operation is not None
        await undo(store, added.operation)
        assert (await get(store, added.entry.id)).status is Status.UNDONE

    async def test_a_proposal_is_not_updated(self, store: Store) -> None:
        """V8: what waits is approved or rejected as it is."""
        waiting = await _propose(store)
        with pytest.raises(Conflict):
            await update(store, waiting.entry.id, "Ada keeps wasps")
        with pytest.raises(Conflict):
            await update(store, waiting.entry.id, "Ada keeps wasps", proposed=True)
        assert await list_with_status(store, Status.PROPOSED) == [waiting.entry]

    async def test_a_proposal_is_forgotten_like_any_memory(self, store: Store) -> None:
        """M2: waiting keeps nothing."""
        added = await _propose(store, conversation="talk")
        assert (await forget(store, Selector(conversation="talk"))).ids == (added.entry.id,)
        with pytest.raises(NotFound):
            await get(store, added.entry.id)

    async def test_a_recorded_message_is_never_proposed(self, store: Store) -> None:
        """C1: what was said was said."""
        assert (await record(store, "hello bees", proposed=True)).status is Status.ACTIVE


async def _propose(store: Store, *, within: Operation | None = None, **draft: object) -> Added:
    return await add(store, "Ada keeps bees", within=within, proposed=True, **draft)


async def _unembedded(store: Store) -> list[str]:
    found = await store.read(lambda unit: unit.index.unembedded(TENANT, SPACE, SMALL, limit=9), at=ALL_SPACES)
    return [text for _, text in found]


async def _known(store: Store, at: float) -> list[str]:
    entries = await store.read(lambda unit: unit.memories.known_at(LaneQuery(ADA, NOW), at), at=ALL_SPACES)
    return [entry.id for entry in entries]


# Proposed changes and withdrawals


class TestProposedChanges:
    async def test_a_proposed_change_waits_beside_the_active_version(self, store: Store) -> None:
        """V8: it is stored as the next version, and nothing that is recalled changes."""
        base = (await add(store, "Ada keeps bees")).entry
        change = await propose_change(store, base.id)
        assert (change.id, change.version, change.status) == (base.id, 2, Status.PROPOSED)
        assert await texts(store, "bees wasps") == ["Ada keeps bees"]
        assert await frequencies(store, ["bee", "wasp"]) == {SPACE: {"bee": 1}}
        assert await store.read(lambda unit: unit.memories.known_at(LaneQuery(ADA, NOW), NOW), at=ALL_SPACES) == [base]

    async def test_what_a_memory_says_now_comes_before_what_waits(self, store: Store) -> None:
        """V8: a change that waits is given when its version is asked for."""
        base = (await add(store, "Ada keeps bees")).entry
        change = await propose_change(store, base.id)
        assert await get(store, base.id) == base
        assert await get(store, base.id, version=2) == change
        assert await store.read(lambda unit: unit.memories.history(ADA, base.id), at=ALL_SPACES) == [base, change]

    async def test_the_inbox_lists_changes_of_all_three_kinds(self, store: Store) -> None:
        """V8: and a list of active entries shows it unchanged."""
        first, second = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada likes tea")).entry
        new = (await add(store, "Ada sleeps late", proposed=True)).entry
        change, withdrawal = await propose_change(store, first.id), await withdraw(store, second.id)
        assert await list_with_status(store, *WAITING) == [new, withdrawal, change]
        assert await list_with_status(store, Status.WITHDRAWAL) == [withdrawal]
        assert await list_with_status(store, Status.ACTIVE) == [second, first]
        assert await list_with_status(store, *Status) == [new, second, first]

    async def test_an_approved_change_takes_the_place_of_what_it_changes(self, store: Store) -> None:
        """V8, M1: the former version is superseded, as by any update."""
        base = (await add(store, "Ada keeps bees")).entry
        await propose_change(store, base.id)
        approved = await approve(store, base.id)
        assert (approved.version, approved.text, approved.status) == (2, "Ada keeps wasps", Status.ACTIVE)
        assert await get(store, base.id) == approved
        assert (await get(store, base.id, version=1)).status is Status.SUPERSEDED
        assert await texts(store, "bees wasps") == ["Ada keeps wasps"]
        assert await frequencies(store, ["bee", "wasp"]) == {SPACE: {"wasp": 1}}

    async def test_a_change_of_letters_or_of_what_is_around_the_words_can_be_approved(self, store: Store) -> None:
        """G6: a version is not a duplicate of the one it replaces."""
        base = (await add(store, "ada keeps bees")).entry
        await propose_change(store, base.id, "Ada keeps bees", pinned=True)
        await approve(store, base.id)
        now = await get(store, base.id)
        assert (now.version, now.text, now.pinned) == (2, "Ada keeps bees", True)

    async def test_a_rejected_change_leaves_the_memory_as_it_is(self, store: Store) -> None:
        """V8: `delete` rejects what waits first, and hides what is active only then."""
        base = (await add(store, "Ada keeps bees")).entry
        await propose_change(store, base.id)
        rejected = await delete(store, base.id)
        assert (rejected.version, rejected.status) == (2, Status.DELETED)
        assert await get(store, base.id) == base
        assert await texts(store, "bees wasps") == ["Ada keeps bees"]
        assert await list_with_status(store, *WAITING) == []
        assert await list_with_status(store, *Status) == [base]
        assert (await delete(store, base.id)).version == 1
        assert await texts(store, "bees") == []

    async def test_after_a_rejection_a_change_can_be_proposed_again(self, store: Store) -> None:
        """V8: the same words too."""
        base = (await add(store, "Ada keeps bees")).entry
        await propose_change(store, base.id)
        await delete(store, base.id)
        assert (await propose_change(store, base.id)).version == 3
        assert (await approve(store, base.id)).version == 3

    @pytest.mark.parametrize("waiting", ["change", "withdrawal"])
    async def test_one_change_of_a_memory_waits_at_a_time(self, store: Store, waiting: str) -> None:
        """V8: one decision is about one proposal."""
        base = (await add(store, "Ada keeps bees")).entry
        first = await (propose_change(store, base.id) if waiting == "change" else withdraw(store, base.id))
        with pytest.raises(Conflict):
            await propose_change(store, base.id, "Ada keeps ants")
        with pytest.raises(Conflict):
            await withdraw(store, base.id)
        assert await list_with_status(store, *WAITING) == [first]

    async def test_of_changes_proposed_at_once_one_waits(self, store: Store) -> None:
        """V8: by constraint, not by race."""
        base = (await add(store, "Ada keeps bees")).entry
        changes = [
            propose_change(store, base.id),
            propose_change(store, base.id, "Ada keeps ants"),
            withdraw(store, base.id),
        ]
        done = await asyncio.gather(*changes, return_exceptions=True)
        assert sorted(type(item).__name__ for item in done) == ["Conflict", "Conflict", "Entry"]

    async def test_a_change_that_expired_while_it_waited_gives_way(self, store: Store) -> None:
        """G6: as an expired proposal does."""
        base = (await add(store, "Ada keeps bees")).entry
        await propose_change(store, base.id, expires_at=200.0)
        again = await propose_change(store, base.id, at=300.0)
        assert (await get(store, base.id, version=2)).status is Status.EXPIRED
        assert await list_with_status(store, *WAITING) == [again]

    async def test_a_change_is_proposed_of_the_version_that_was_seen(self, store: Store) -> None:
        """M1: compare and swap, also for what waits."""
        base = (await add(store, "Ada keeps bees")).entry
        await update(store, base.id, "Ada keeps many bees")
        with pytest.raises(Conflict):
            await propose_change(store, base.id, expected=1)
        with pytest.raises(Conflict):
            await withdraw(store, base.id, expected=1)
        assert (await propose_change(store, base.id, expected=2)).version == 3

    async def test_a_change_to_another_memory_s_words_is_a_conflict(self, store: Store) -> None:
        """G6: whether those are active or wait themselves."""
        base = (await add(store, "Ada keeps bees")).entry
        await add(store, "Ada keeps ants")
        await add(store, "Ada keeps wasps", proposed=True)
        for text in ("Ada keeps ants", "Ada keeps wasps"):
            with pytest.raises(Conflict):
                await propose_change(store, base.id, text)
        assert await get(store, base.id) == base

    async def test_a_refused_change_has_written_nothing(self, store: Store) -> None:
        """V4: after a refusal, the same unit may propose the next one."""
        base, other = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada likes tea")).entry
        stale = await propose_change(store, base.id, expires_at=200.0)
        waiting = await propose_change(store, other.id, "Ada keeps ants")
        late = admit("Ada keeps ants", at=300.0, proposed=True)

        def work(unit: Unit) -> None:
            with pytest.raises(Conflict):
                unit.memories.update(operation(Verb.UPDATE), base.id, late, expected_version=1)

        await store.write(work, at=ALL_SPACES)
        assert await list_with_status(store, *WAITING) == [waiting, stale]

    async def test_what_waits_as_a_change_need_not_be_proposed(self, store: Store) -> None:
        """G6: the change that says the same is given instead."""
        base = (await add(store, "Ada keeps bees")).entry
        change = await propose_change(store, base.id)
        proposed = await add(store, "Ada keeps wasps", proposed=True)
        assert (proposed.created, proposed.entry) == (False, change)

    async def test_a_change_whose_words_were_said_meanwhile_is_not_approved(self, store: Store) -> None:
        """G6: the same is not active twice; both stay as they are."""
        base = (await add(store, "Ada keeps bees")).entry
        change, said = await propose_change(store, base.id), await add(store, "Ada keeps wasps")
        with pytest.raises(Conflict):
            await approve(store, base.id)
        assert await list_with_status(store, *WAITING) == [change]
        assert await list_with_status(store, Status.ACTIVE) == [said.entry, base]

    async def test_a_memory_that_changed_since_is_not_changed_back(self, store: Store) -> None:
        """M1: an approval does not undo newer words, and says why."""
        base = (await add(store, "Ada keeps bees")).entry
        await propose_change(store, base.id)
        newer = await update(store, base.id, "Ada keeps many bees")
        with pytest.raises(Conflict, match="changed since"):
            await approve(store, base.id)
        assert await get(store, base.id) == newer
        assert [entry.version for entry in await list_with_status(store, *WAITING)] == [2]

    async def test_a_memory_that_was_undone_or_put_back_since_has_changed_too(self, store: Store) -> None:
        """M1: what counts is which version is active, not how it came to be."""
        base, change = (await add(store, "Ada keeps bees")).entry, operation(Verb.UPDATE)
        await update(store, base.id, "Ada keeps many bees", within=change)
        await propose_change(store, base.id)
        back = operation(Verb.UNDO)
        await undo(store, change.id, within=back)
        with pytest.raises(Conflict, match="changed since"):
            await approve(store, base.id)
        await undo(store, back.id)
        assert (await approve(store, base.id)).version == 3

    async def test_a_memory_that_is_gone_is_not_brought_back_by_an_approval(self, store: Store) -> None:
        """V8: nor is it changed, no matter what removed it."""
        added = await add(store, "Ada keeps bees")
        change = await propose_change(store, added.entry.id)
        await undo(store, str(added.operation))
        with pytest.raises(Conflict):
            await approve(store, added.entry.id)
        assert await texts(store, "bees wasps") == []
        assert await list_with_status(store, *WAITING) == [change]
        assert await get(store, added.entry.id) == change

    async def test_a_record_s_words_are_never_proposed_otherwise(self, store: Store) -> None:
        """C1: what was said stays; it is neither changed nor withdrawn by proposal."""
        said = await record(store, "hello bees", conversation="talk")
        with pytest.raises(InvalidInput):
            await propose_change(store, said.id)
        with pytest.raises(InvalidInput):
            await withdraw(store, said.id)

    async def test_what_is_not_there_or_not_active_is_not_changed(self, store: Store) -> None:
        gone = (await add(store, "Ada keeps bees")).entry
        await delete(store, gone.id)
        for entry_id, error in (("nowhere", NotFound), (gone.id, Conflict)):
            with pytest.raises(error):
                await propose_change(store, entry_id)
            with pytest.raises(error):
                await withdraw(store, entry_id)

    async def test_what_waits_is_forgotten_with_its_memory(self, store: Store) -> None:
        """M2: with every version, whatever its status."""
        first, second = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada likes tea")).entry
        await propose_change(store, first.id)
        await withdraw(store, second.id)
        erased = await forget(store, Selector(memories=(first.id, second.id)))
        assert erased.versions == 4
        assert await store.read(lambda unit: unit.memories.counts(ADA), at=ALL_SPACES) == {}


class TestWithdrawals:
    async def test_a_withdrawal_waits_with_the_same_words(self, store: Store) -> None:
        """V8: the active version stays until it is approved."""
        source = await record(store, "I keep bees", conversation="talk")
        base = (await add(store, "Ada keeps bees", sources=(source.id,), pinned=True)).entry
        withdrawal = await withdraw(store, base.id, within=operation(Verb.DELETE, at=200.0))
        assert (withdrawal.version, withdrawal.status, withdrawal.recorded_at) == (2, Status.WITHDRAWAL, 200.0)
        assert (withdrawal.text, withdrawal.sources, withdrawal.pinned) == (base.text, base.sources, True)
        assert await get(store, base.id, version=2) == withdrawal
        assert await get(store, base.id) == base
        assert await texts(store, "Ada") == ["Ada keeps bees"]
        assert await frequencies(store, ["ada", "bee"]) == {SPACE: {"ada": 1, "bee": 2}}

    async def test_an_approved_withdrawal_deletes_the_memory(self, store: Store) -> None:
        """V8: it can be said again, and was known until then."""
        base = (await add(store, "Ada keeps bees")).entry
        await withdraw(store, base.id)
        approved = await approve(store, base.id, within=operation(Verb.APPROVE, at=300.0))
        assert (approved.id, approved.status) == (base.id, Status.DELETED)
        assert (await get(store, base.id)).status is Status.DELETED
        assert await texts(store, "bees") == []
        assert await list_with_status(store, Status.ACTIVE, *WAITING) == []
        known = [await self._known(store, at) for at in (200.0, 400.0)]
        assert [[entry.version for entry in entries] for entries in known] == [[1], []]
        assert (await add(store, "Ada keeps bees")).created

    async def test_a_rejected_withdrawal_leaves_the_memory_as_it_is(self, store: Store) -> None:
        """V8: rejecting is deleting what waits."""
        base = (await add(store, "Ada keeps bees")).entry
        await withdraw(store, base.id)
        assert (await delete(store, base.id)).version == 2
        assert await get(store, base.id) == base
        assert await list_with_status(store, *WAITING) == []

    async def test_a_withdrawal_of_what_changed_since_is_not_approved(self, store: Store) -> None:
        """M1: newer words are not deleted for what older ones said."""
        base = (await add(store, "Ada keeps bees")).entry
        await withdraw(store, base.id)
        newer = await update(store, base.id, "Ada keeps many bees")
        with pytest.raises(Conflict, match="changed since"):
            await approve(store, base.id)
        assert await get(store, base.id) == newer

    async def test_a_withdrawal_s_copy_stands_in_nobody_s_way(self, store: Store) -> None:
        """G6: it takes part neither in duplicates nor in the index, whatever is proposed or said."""
        base = (await add(store, "Ada keeps bees")).entry
        await withdraw(store, base.id)
        assert not (await add(store, "Ada keeps bees")).created
        assert (await add(store, "Ada keeps bees", proposed=True)).entry == base
        newer = await update(store, base.id, "Ada kept bees")
        again = await add(store, "Ada keeps bees")
        assert again.created
        assert await list_with_status(store, Status.ACTIVE) == [again.entry, newer]

    async def test_a_withdrawal_goes_with_what_its_memory_rests_on(self, store: Store) -> None:
        """M2: the copy keeps no word of what is forgotten."""
        source = await record(store, "I keep bees", conversation="talk")
        base = (await add(store, "Ada keeps bees", sources=(source.id,))).entry
        await withdraw(store, base.id)
        assert (await forget(store, Selector(memory=source.id))).versions == 3
        with pytest.raises(NotFound):
            await get(store, base.id, version=2)

    async def test_counts_tell_what_waits(self, store: Store) -> None:
        base = (await add(store, "Ada keeps bees")).entry
        await withdraw(store, base.id)
        assert await store.read(lambda unit: unit.memories.counts(ADA), at=ALL_SPACES) == {
            (SPACE, Kind.STATEMENT, Status.ACTIVE): 1,
            (SPACE, Kind.STATEMENT, Status.WITHDRAWAL): 1,
        }

    async def _known(self, store: Store, at: float) -> list[Entry]:
        return await store.read(lambda unit: unit.memories.known_at(LaneQuery(ADA, NOW), at), at=ALL_SPACES)


# Undo of proposals, approvals and rejections


class TestUndoneChanges:
    async def test_an_undone_proposal_is_gone(self, store: Store) -> None:
        """M1: whether it was a change or a withdrawal."""
        base = (await add(store, "Ada keeps bees")).entry
        for propose in (propose_change, withdraw):
            step = operation(Verb.UPDATE)
            await propose(store, base.id, within=step)
            await undo(store, step.id)
            assert await list_with_status(store, *WAITING) == []
            assert await get(store, base.id) == base

    async def test_an_undone_approval_of_a_change_waits_again(self, store: Store) -> None:
        """M1: exactly, with the former version active, and it can be approved once more."""
        base = (await add(store, "Ada keeps bees")).entry
        change, step = await propose_change(store, base.id), operation(Verb.APPROVE)
        await approve(store, base.id, within=step)
        steps = await undo(store, step.id)
        assert {(item.version, item.before, item.after) for item in steps} == {
            (1, Status.SUPERSEDED, Status.ACTIVE),
            (2, Status.ACTIVE, Status.PROPOSED),
        }
        assert await get(store, base.id) == base
        assert await list_with_status(store, *WAITING) == [change]
        assert await frequencies(store, ["bee", "wasp"]) == {SPACE: {"bee": 1}}
        assert (await approve(store, base.id)).version == 2

    async def test_an_undone_approval_of_a_withdrawal_waits_again(self, store: Store) -> None:
        """M1: exactly."""
        base = (await add(store, "Ada keeps bees")).entry
        withdrawal, step = await withdraw(store, base.id), operation(Verb.APPROVE)
        await approve(store, base.id, within=step)
        await undo(store, step.id)
        assert await get(store, base.id) == base
        assert await list_with_status(store, *WAITING) == [withdrawal]
        assert await texts(store, "bees") == ["Ada keeps bees"]
        assert (await approve(store, base.id)).status is Status.DELETED

    @pytest.mark.parametrize("text", ["Ada keeps wasps", "ADA keeps bees"])
    async def test_an_approval_undone_and_done_again_is_as_it_was(self, store: Store, text: str) -> None:
        """M1: there and back, also where both versions say the same."""
        base = (await add(store, "Ada keeps bees")).entry
        await propose_change(store, base.id, text)
        step, back = operation(Verb.APPROVE), operation(Verb.UNDO)
        approved = await approve(store, base.id, within=step)
        await undo(store, step.id, within=back)
        await undo(store, back.id)
        assert await get(store, base.id) == approved
        assert (await get(store, base.id, version=1)).status is Status.SUPERSEDED
        assert await list_with_status(store, *WAITING) == []

    async def test_an_undone_rejection_waits_again(self, store: Store) -> None:
        """M1: and can be approved."""
        base = (await add(store, "Ada keeps bees")).entry
        for propose, last in ((propose_change, Status.ACTIVE), (withdraw, Status.DELETED)):
            waiting, step = await propose(store, base.id), operation(Verb.DELETE)
            await delete(store, base.id, within=step)
            await undo(store, step.id)
            assert await list_with_status(store, *WAITING) == [waiting]
            assert (await approve(store, base.id)).status is last

    async def test_a_memory_deleted_with_its_change_comes_back_with_it(self, store: Store) -> None:
        """M1: one operation, two versions."""
        base, step = (await add(store, "Ada keeps bees")).entry, operation(Verb.DELETE)
        change = await propose_change(store, base.id)

        def work(unit: Unit) -> list[int]:
            return [unit.memories.delete(step, base.id).version for _ in range(2)]

        assert await store.write(work, at=ALL_SPACES) == [2, 1]
        assert await list_with_status(store, Status.ACTIVE, *WAITING) == []
        await undo(store, step.id)
        assert await get(store, base.id) == base
        assert await list_with_status(store, *WAITING) == [change]

    async def test_nothing_waits_again_beside_anotherpropose_change(self, store: Store) -> None:
        """V8: one change of a memory waits at a time, after an undo too; and nothing has changed."""
        base, step = (await add(store, "Ada keeps bees")).entry, operation(Verb.DELETE)
        for propose, other in ((propose_change, withdraw), (withdraw, propose_change)):
            await propose(store, base.id)
            step = operation(Verb.DELETE)
            await delete(store, base.id, within=step)
            waiting = await other(store, base.id)
            with pytest.raises(Conflict):
                await undo(store, step.id)
            assert await list_with_status(store, *WAITING) == [waiting]
            await delete(store, base.id)

    async def test_an_approval_is_not_undone_beside_a_newerpropose_change(self, store: Store) -> None:
        """M1: what was proposed of the approved version waits, so that one stays."""
        base, step = (await add(store, "Ada keeps bees")).entry, operation(Verb.APPROVE)
        await propose_change(store, base.id)
        approved = await approve(store, base.id, within=step)
        waiting = await withdraw(store, base.id)
        with pytest.raises(Conflict):
            await undo(store, step.id)
        assert await get(store, base.id) == approved
        assert await list_with_status(store, *WAITING) == [waiting]

    async def test_a_withdrawn_memory_does_not_come_back_beside_its_like(self, store: Store) -> None:
        """G6: undo makes no duplicates."""
        base, step = (await add(store, "Ada keeps bees")).entry, operation(Verb.APPROVE)
        await withdraw(store, base.id)
        await approve(store, base.id, within=step)
        again = await add(store, "Ada keeps bees")
        with pytest.raises(Conflict):
            await undo(store, step.id)
        assert await list_with_status(store, Status.ACTIVE, *WAITING) == [again.entry]

    async def test_a_group_of_proposals_is_undone_whole(self, store: Store) -> None:
        """V8, M1: a review is undone with one command, whatever it wrote and proposed."""
        first, second = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada likes tea")).entry
        third = (await add(store, "Ada sleeps late")).entry
        await propose_change(store, first.id, within=operation(Verb.UPDATE, group="review-1"))
        await withdraw(store, second.id, within=operation(Verb.DELETE, group="review-1"))
        await update(store, third.id, "Ada sleeps early", within=operation(Verb.UPDATE, group="review-1"))
        await add(store, "Ada sells honey", within=operation(group="review-1"), proposed=True)
        await undo(store, "review-1")
        assert await list_with_status(store, *WAITING) == []
        assert await list_with_status(store, Status.ACTIVE) == [third, second, first]

    async def test_a_group_whose_proposals_were_decided_is_not_undone(self, store: Store) -> None:
        """M1: undo never undoes somebody else's later word; with that undone first, it does."""
        base, step = (await add(store, "Ada keeps bees")).entry, operation(Verb.APPROVE)
        await propose_change(store, base.id, within=operation(Verb.UPDATE, group="review-1"))
        await approve(store, base.id, within=step)
        with pytest.raises(Conflict):
            await undo(store, "review-1")
        await undo(store, step.id)
        await undo(store, "review-1")
        assert await get(store, base.id) == base
        assert await list_with_status(store, *WAITING) == []

    async def test_several_approvals_of_one_group_are_undone_together(self, store: Store) -> None:
        """M1: whichever took whose words."""
        first, second = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada keeps ants")).entry
        withdrawal = await withdraw(store, second.id)
        await approve(store, second.id, within=operation(Verb.APPROVE, group="inbox"))
        change = await propose_change(store, first.id, "Ada keeps ants")
        await approve(store, first.id, within=operation(Verb.APPROVE, group="inbox"))
        await undo(store, "inbox")
        assert await list_with_status(store, Status.ACTIVE) == [second, first]
        assert await list_with_status(store, *WAITING) == [withdrawal, change]

    async def test_the_steps_of_a_group_are_listed_oldest_first(self, store: Store) -> None:
        """V8: a review is a diff that a person can read."""
        base = (await add(store, "Ada keeps bees")).entry
        done = [operation(Verb.UPDATE, group="review-1"), operation(group="review-1")]
        await propose_change(store, base.id, within=done[0])
        added = await add(store, "Ada sells honey", within=done[1])
        await add(store, "Ada likes tea", within=operation(group="review-2"))
        steps = await store.read(lambda unit: unit.operations.steps(ADA, group="review-1"), at=ALL_SPACES)
        assert [(step.operation, step.entry_id, step.version, step.before, step.after) for step in steps] == [
            (done[0], base.id, 2, None, Status.PROPOSED),
            (done[1], added.entry.id, 1, None, Status.ACTIVE),
        ]
        elsewhere = await store.read(
            lambda unit: unit.operations.steps(ADA, group="review-1", entry_id="nowhere"), at=ALL_SPACES
        )
        assert elsewhere == []
