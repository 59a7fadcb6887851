"""Proposals, approvals and rejections are undone exactly, one by one and by group."""

import pytest

from afterturn.errors import Conflict
from afterturn.ports import Store, Unit
from afterturn.testing.conformance.inbox import WAITING, approve, listed, propose_change, withdraw
from afterturn.testing.conformance.scene import ADA, SPACE, add, delete, frequencies, get, texts, undo, update
from afterturn.testing.drafts import operation
from afterturn.types import Status, Verb


class TestUndoneChanges:
    async def test_an_undone_proposal_is_gone(self, store: Store) -> None:
        """M1: whether it was a change or a withdrawal."""
        base = (await add(store, "Ada keeps bees")).entry
        for propose in (propose_change, withdraw):
            step = operation(Verb.UPDATE)
            await propose(store, base.id, within=step)
            await undo(store, step.id)
            assert await listed(store, *WAITING) == []
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
        assert await listed(store, *WAITING) == [change]
        assert await frequencies(store, ["bee", "wasp"]) == {SPACE: {"bee": 1}}
        assert (await approve(store, base.id)).version == 2

    async def test_an_undone_approval_of_a_withdrawal_waits_again(self, store: Store) -> None:
        """M1: exactly."""
        base = (await add(store, "Ada keeps bees")).entry
        withdrawal, step = await withdraw(store, base.id), operation(Verb.APPROVE)
        await approve(store, base.id, within=step)
        await undo(store, step.id)
        assert await get(store, base.id) == base
        assert await listed(store, *WAITING) == [withdrawal]
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
        assert await listed(store, *WAITING) == []

    async def test_an_undone_rejection_waits_again(self, store: Store) -> None:
        """M1: and can be approved."""
        base = (await add(store, "Ada keeps bees")).entry
        for propose, last in ((propose_change, Status.ACTIVE), (withdraw, Status.DELETED)):
            waiting, step = await propose(store, base.id), operation(Verb.DELETE)
            await delete(store, base.id, within=step)
            await undo(store, step.id)
            assert await listed(store, *WAITING) == [waiting]
            assert (await approve(store, base.id)).status is last

    async def test_a_memory_deleted_with_its_change_comes_back_with_it(self, store: Store) -> None:
        """M1: one operation, two versions."""
        base, step = (await add(store, "Ada keeps bees")).entry, operation(Verb.DELETE)
        change = await propose_change(store, base.id)

        def work(unit: Unit) -> list[int]:
            return [unit.memories.delete(step, base.id).version for _ in range(2)]

        assert await store.write(work) == [2, 1]
        assert await listed(store, Status.ACTIVE, *WAITING) == []
        await undo(store, step.id)
        assert await get(store, base.id) == base
        assert await listed(store, *WAITING) == [change]

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
            assert await listed(store, *WAITING) == [waiting]
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
        assert await listed(store, *WAITING) == [waiting]

    async def test_a_withdrawn_memory_does_not_come_back_beside_its_like(self, store: Store) -> None:
        """G6: undo makes no duplicates."""
        base, step = (await add(store, "Ada keeps bees")).entry, operation(Verb.APPROVE)
        await withdraw(store, base.id)
        await approve(store, base.id, within=step)
        again = await add(store, "Ada keeps bees")
        with pytest.raises(Conflict):
            await undo(store, step.id)
        assert await listed(store, Status.ACTIVE, *WAITING) == [again.entry]

    async def test_a_group_of_proposals_is_undone_whole(self, store: Store) -> None:
        """V8, M1: a review is undone with one command, whatever it wrote and proposed."""
        first, second = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada likes tea")).entry
        third = (await add(store, "Ada sleeps late")).entry
        await propose_change(store, first.id, within=operation(Verb.UPDATE, group="review-1"))
        await withdraw(store, second.id, within=operation(Verb.DELETE, group="review-1"))
        await update(store, third.id, "Ada sleeps early", within=operation(Verb.UPDATE, group="review-1"))
        await add(store, "Ada sells honey", within=operation(group="review-1"), proposed=True)
        await undo(store, "review-1")
        assert await listed(store, *WAITING) == []
        assert await listed(store, Status.ACTIVE) == [third, second, first]

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
        assert await listed(store, *WAITING) == []

    async def test_several_approvals_of_one_group_are_undone_together(self, store: Store) -> None:
        """M1: whichever took whose words."""
        first, second = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada keeps ants")).entry
        withdrawal = await withdraw(store, second.id)
        await approve(store, second.id, within=operation(Verb.APPROVE, group="inbox"))
        change = await propose_change(store, first.id, "Ada keeps ants")
        await approve(store, first.id, within=operation(Verb.APPROVE, group="inbox"))
        await undo(store, "inbox")
        assert await listed(store, Status.ACTIVE) == [second, first]
        assert await listed(store, *WAITING) == [withdrawal, change]

    async def test_the_steps_of_a_group_are_listed_oldest_first(self, store: Store) -> None:
        """V8: a review is a diff that a person can read."""
        base = (await add(store, "Ada keeps bees")).entry
        done = [operation(Verb.UPDATE, group="review-1"), operation(group="review-1")]
        await propose_change(store, base.id, within=done[0])
        added = await add(store, "Ada sells honey", within=done[1])
        await add(store, "Ada likes tea", within=operation(group="review-2"))
        steps = await store.read(lambda unit: unit.operations.steps(ADA, group="review-1"))
        assert [(step.operation, step.entry_id, step.version, step.before, step.after) for step in steps] == [
            (done[0], base.id, 2, None, Status.PROPOSED),
            (done[1], added.entry.id, 1, None, Status.ACTIVE),
        ]
        elsewhere = await store.read(lambda unit: unit.operations.steps(ADA, group="review-1", entry_id="nowhere"))
        assert elsewhere == []
