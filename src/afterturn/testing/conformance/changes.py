"""Changes and withdrawals that were proposed: they wait beside what a memory says now, until somebody decides."""

import asyncio

import pytest

from afterturn.errors import Conflict, InvalidInput, NotFound
from afterturn.ports import Store, Unit
from afterturn.testing.conformance.inbox import WAITING, approve, listed, propose_change, withdraw
from afterturn.testing.conformance.scene import (
    ADA,
    NOW,
    SPACE,
    add,
    delete,
    forget,
    frequencies,
    get,
    record,
    texts,
    undo,
    update,
)
from afterturn.testing.drafts import admit, operation
from afterturn.types import Entry, Kind, LaneQuery, Selector, Status, Verb


class TestProposedChanges:
    async def test_a_proposed_change_waits_beside_the_active_version(self, store: Store) -> None:
        """V8: it is stored as the next version, and nothing that is recalled changes."""
        base = (await add(store, "Ada keeps bees")).entry
        change = await propose_change(store, base.id)
        assert (change.id, change.version, change.status) == (base.id, 2, Status.PROPOSED)
        assert await texts(store, "bees wasps") == ["Ada keeps bees"]
        assert await frequencies(store, ["bee", "wasp"]) == {SPACE: {"bee": 1}}
        assert await store.read(lambda unit: unit.memories.known_at(LaneQuery(ADA, NOW), NOW)) == [base]

    async def test_what_a_memory_says_now_comes_before_what_waits(self, store: Store) -> None:
        """V8: a change that waits is given when its version is asked for."""
        base = (await add(store, "Ada keeps bees")).entry
        change = await propose_change(store, base.id)
        assert await get(store, base.id) == base
        assert await get(store, base.id, version=2) == change
        assert await store.read(lambda unit: unit.memories.history(ADA, base.id)) == [base, change]

    async def test_the_inbox_lists_changes_of_all_three_kinds(self, store: Store) -> None:
        """V8: and whoever lists what is active sees it as it was."""
        first, second = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada likes tea")).entry
        new = (await add(store, "Ada sleeps late", proposed=True)).entry
        change, withdrawal = await propose_change(store, first.id), await withdraw(store, second.id)
        assert await listed(store, *WAITING) == [new, withdrawal, change]
        assert await listed(store, Status.WITHDRAWAL) == [withdrawal]
        assert await listed(store, Status.ACTIVE) == [second, first]
        assert await listed(store, *Status) == [new, second, first]

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
        """G6: a version is no duplicate of the one it replaces."""
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
        assert await listed(store, *WAITING) == []
        assert await listed(store, *Status) == [base]
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
        """V8: whoever decides decides about one."""
        base = (await add(store, "Ada keeps bees")).entry
        first = await (propose_change(store, base.id) if waiting == "change" else withdraw(store, base.id))
        with pytest.raises(Conflict):
            await propose_change(store, base.id, "Ada keeps ants")
        with pytest.raises(Conflict):
            await withdraw(store, base.id)
        assert await listed(store, *WAITING) == [first]

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
        assert await listed(store, *WAITING) == [again]

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
        """V4: whoever proposes several may go on with the next in the same unit."""
        base, other = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada likes tea")).entry
        stale = await propose_change(store, base.id, expires_at=200.0)
        waiting = await propose_change(store, other.id, "Ada keeps ants")
        late = admit("Ada keeps ants", at=300.0, proposed=True)

        def work(unit: Unit) -> None:
            with pytest.raises(Conflict):
                unit.memories.update(operation(Verb.UPDATE), base.id, late, expected_version=1)

        await store.write(work)
        assert await listed(store, *WAITING) == [waiting, stale]

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
        assert await listed(store, *WAITING) == [change]
        assert await listed(store, Status.ACTIVE) == [said.entry, base]

    async def test_a_memory_that_changed_since_is_not_changed_back(self, store: Store) -> None:
        """M1: an approval does not undo newer words, and says why."""
        base = (await add(store, "Ada keeps bees")).entry
        await propose_change(store, base.id)
        newer = await update(store, base.id, "Ada keeps many bees")
        with pytest.raises(Conflict, match="changed since"):
            await approve(store, base.id)
        assert await get(store, base.id) == newer
        assert [entry.version for entry in await listed(store, *WAITING)] == [2]

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
        """V8: nor is it changed, whoever took it away."""
        added = await add(store, "Ada keeps bees")
        change = await propose_change(store, added.entry.id)
        await undo(store, str(added.operation))
        with pytest.raises(Conflict):
            await approve(store, added.entry.id)
        assert await texts(store, "bees wasps") == []
        assert await listed(store, *WAITING) == [change]
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
        assert await store.read(lambda unit: unit.memories.counts(ADA)) == {}


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
        assert await listed(store, Status.ACTIVE, *WAITING) == []
        known = [await self._known(store, at) for at in (200.0, 400.0)]
        assert [[entry.version for entry in entries] for entries in known] == [[1], []]
        assert (await add(store, "Ada keeps bees")).created

    async def test_a_rejected_withdrawal_leaves_the_memory_as_it_is(self, store: Store) -> None:
        """V8: rejecting is deleting what waits."""
        base = (await add(store, "Ada keeps bees")).entry
        await withdraw(store, base.id)
        assert (await delete(store, base.id)).version == 2
        assert await get(store, base.id) == base
        assert await listed(store, *WAITING) == []

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
        assert await listed(store, Status.ACTIVE) == [again.entry, newer]

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
        assert await store.read(lambda unit: unit.memories.counts(ADA)) == {
            (SPACE, Kind.STATEMENT, Status.ACTIVE): 1,
            (SPACE, Kind.STATEMENT, Status.WITHDRAWAL): 1,
        }

    async def _known(self, store: Store, at: float) -> list[Entry]:
        return await store.read(lambda unit: unit.memories.known_at(LaneQuery(ADA, NOW), at))
