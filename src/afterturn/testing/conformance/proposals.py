"""Proposed statements: listed for people, invisible to recall, until somebody approves or rejects them."""

import asyncio

import pytest

from afterturn.errors import Conflict, NotFound
from afterturn.ports import Store
from afterturn.testing.conformance.inbox import approve, listed
from afterturn.testing.conformance.scene import (
    ADA,
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
from afterturn.testing.drafts import operation
from afterturn.types import Added, Kind, LaneQuery, Operation, Selector, Status, Verb


class TestProposals:
    async def test_a_proposal_waits_and_is_not_recalled(self, store: Store) -> None:
        """L7: only what is active is found, by word, by key and by time."""
        added = await _propose(store)
        keys = (await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0))).keys or ()
        query = LaneQuery(ADA, NOW)
        assert (added.created, added.entry.status) == (True, Status.PROPOSED)
        assert await texts(store, "bees") == []
        assert await store.read(lambda unit: unit.index.resolve(query, keys)) == {}
        assert await store.read(lambda unit: unit.memories.known_at(query, NOW)) == []
        assert await frequencies(store, ["bee"]) == {}

    async def test_a_proposal_is_listed_by_its_status(self, store: Store) -> None:
        """V8: people see what waits; whoever asks for what is active does not."""
        added = await _propose(store)
        assert await listed(store, Status.PROPOSED) == [added.entry]
        assert await listed(store, Status.ACTIVE) == []
        counts = await store.read(lambda unit: unit.memories.counts(ADA))
        assert counts == {(SPACE, Kind.STATEMENT, Status.PROPOSED): 1}

    async def test_the_same_proposed_twice_waits_once(self, store: Store) -> None:
        """G6: a duplicate gives the existing one."""
        first, second = await _propose(store), await _propose(store)
        assert (second.created, second.entry, second.operation) == (False, first.entry, None)

    async def test_two_who_propose_the_same_at_once_propose_it_once(self, store: Store) -> None:
        """G6: by constraint, not by race."""
        added = await asyncio.gather(_propose(store), _propose(store))
        assert sorted(item.created for item in added) == [False, True]
        assert len(await listed(store, Status.PROPOSED)) == 1

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
        assert await listed(store, Status.PROPOSED) == [again.entry]

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
        assert await store.read(lambda unit: unit.memories.known_at(LaneQuery(ADA, NOW), NOW)) == [entry]

    async def test_a_proposal_gets_its_vector_when_it_is_approved(self, store: Store) -> None:
        """M3: nobody embeds what may never be recalled; what is approved late is not passed over."""
        added = await _propose(store)
        await add(store, "Ada likes tea")
        newer = await key_of(store, "Ada likes tea")
        await store.write(lambda unit: unit.index.put_vectors(SMALL, [(newer, bytes(8))]))
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
        """V8: an approval is no way to bring back what was deleted."""
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
        assert await listed(store, Status.PROPOSED) == []
        await undo(store, change.id)
        assert await listed(store, Status.PROPOSED) == [added.entry]

    async def test_a_rejection_is_not_undone_beside_the_same_proposal(self, store: Store) -> None:
        """G6: the same does not wait twice."""
        added, change = await _propose(store), operation(Verb.DELETE)
        await delete(store, added.entry.id, within=change)
        again = await _propose(store)
        with pytest.raises(Conflict):
            await undo(store, change.id)
        assert await listed(store, Status.PROPOSED) == [again.entry]

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
        assert await listed(store, Status.PROPOSED) == [waiting.entry]

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
    found = await store.read(lambda unit: unit.index.unembedded(TENANT, SPACE, SMALL, limit=9))
    return [text for _, text in found]


async def _known(store: Store, at: float) -> list[str]:
    entries = await store.read(lambda unit: unit.memories.known_at(LaneQuery(ADA, NOW), at))
    return [entry.id for entry in entries]
