"""What a conversation takes along to its next turn: a recall that came too late, and the standing block."""

import asyncio
from dataclasses import replace

import pytest

from afterturn.ports import Store, Unit
from afterturn.testing.conformance.scene import SPACE, TALK, TENANT, add, candidate, delete, forget_memory, update
from afterturn.testing.drafts import operation
from afterturn.types import Candidate, CarriedRow, ConversationKey, Decision, Entry, Phase, StandingRow

TEAM = "team:bees"
_ELSEWHERE = pytest.mark.parametrize(
    "elsewhere",
    [
        ConversationKey(TENANT, SPACE, "other"),
        ConversationKey(TENANT, "user:bob", "talk"),
        ConversationKey("acme", SPACE, "talk"),
    ],
    ids=["conversation", "owner", "tenant"],
)


class TestCarried:
    async def test_a_carried_recall_comes_back_as_it_was(self, store: Store) -> None:
        """R8: with each candidate's figures, for another process and another day."""
        carried = await _carried(store)
        await _carry(store, carried)
        assert await _find(store) == carried

    async def test_nothing_is_carried_before_the_first(self, store: Store) -> None:
        """R8: neither in a new conversation nor in none."""
        assert await _find(store) is None
        await store.write(lambda unit: unit.conversations.open(TALK, at=1.0))
        assert await _find(store) is None
        assert not await _drop(store, "c1")

    async def test_a_later_one_takes_its_place(self, store: Store) -> None:
        """R8: a conversation carries one."""
        carried = await _carried(store)
        later = replace(carried, correlation="c2", turn="turn-2", question="and honey?")
        await _carry(store, carried)
        await _carry(store, later)
        assert await _find(store) == later
        assert [await _drop(store, correlation) for correlation in ("c1", "c2")] == [False, True]

    async def test_it_ends_once(self, store: Store) -> None:
        """R5: of two that offer it at once, one is told that it was there."""
        await _carry(store, await _carried(store))
        assert sorted(await asyncio.gather(*(_drop(store, "c1") for _ in range(3)))) == [False, False, True]
        assert await _find(store) is None

    @pytest.mark.parametrize("compacted", [True, False])
    async def test_clearing_carries_nothing(self, store: Store, *, compacted: bool) -> None:
        """R8, H7: compaction and reset carry nothing."""
        await _carry(store, await _carried(store))
        await store.write(lambda unit: unit.conversations.clear(TALK, at=20.0, compacted=compacted))
        assert await _find(store) is None

    @_ELSEWHERE
    async def test_another_conversation_carries_its_own(self, store: Store, elsewhere: ConversationKey) -> None:
        """L2: by tenant, owner and id."""
        await _carry(store, await _carried(store))
        assert await store.read(lambda unit: unit.conversations.find_carried(elsewhere)) is None
        assert not await store.write(lambda unit: unit.conversations.drop_carried(elsewhere, "c1"))
        await store.write(lambda unit: unit.conversations.clear(elsewhere, at=20.0, compacted=True))
        assert await _find(store) is not None

    async def test_what_was_forgotten_is_not_among_it(self, store: Store) -> None:
        """M2: the rest still is."""
        carried = await _carried(store)
        await _carry(store, carried)
        await forget_memory(store, carried.candidates[0].ref)
        assert await _find(store) == replace(carried, candidates=carried.candidates[1:])

    async def test_nothing_is_left_when_all_was_forgotten(self, store: Store) -> None:
        """M2: then there is nothing to offer, but it can still be ended."""
        carried = await _carried(store)
        await _carry(store, carried)
        for item in carried.candidates:
            await forget_memory(store, item.ref.partition(".")[0])
        assert await _find(store) is None
        assert await _drop(store, "c1")

    async def test_what_another_space_forgot_is_not_among_it(self, store: Store) -> None:
        """M2: a conversation reads more spaces than its own."""
        team = (await add(store, "Bees swarm in May", within=operation(space=TEAM))).entry
        carried = await _carried(store, candidate(team, score=0.3))
        await _carry(store, carried)
        await forget_memory(store, team.id, space=TEAM)
        assert await _find(store) == replace(carried, candidates=carried.candidates[:-1])

    async def test_the_same_id_in_another_space_is_another_s(self, store: Store) -> None:
        """L2: a candidate is looked for where it was found."""
        carried = await _carried(store)
        ref = carried.candidates[0].ref
        await add(store, "Bob keeps wasps", id=ref, within=operation(space="user:bob"))
        await _carry(store, carried)
        await forget_memory(store, ref, space="user:bob")
        assert await _find(store) == carried

    async def test_a_late_one_does_not_bring_back_what_was_forgotten(self, store: Store) -> None:
        """M2: what was in flight finds it gone."""
        carried = await _carried(store)
        await forget_memory(store, carried.candidates[0].ref)
        await _carry(store, carried)
        assert await _find(store) == replace(carried, candidates=carried.candidates[1:])

    async def test_what_was_merely_deleted_is_still_named(self, store: Store) -> None:
        """M2: deleting hides; whoever offers it asks what is active."""
        carried = await _carried(store)
        await _carry(store, carried)
        await delete(store, carried.candidates[0].ref)
        assert await _find(store) == carried


class TestStanding:
    async def test_a_standing_block_comes_back_as_it_was(self, store: Store) -> None:
        """S3: frozen for a conversation, whoever drives its next turn."""
        standing = await _standing(store)
        await _freeze(store, standing)
        assert await _frozen(store) == standing

    async def test_there_is_none_before_the_first(self, store: Store) -> None:
        """S3: made at a conversation's start."""
        assert await _frozen(store) is None
        await store.write(lambda unit: unit.conversations.put_standing(TALK, None))
        assert await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=9)) == []

    async def test_a_newer_one_takes_its_place(self, store: Store) -> None:
        """S3: refreshed on request."""
        standing = await _standing(store)
        newer = StandingRow("# other conventions", standing.refs[1:], 20.0)
        await _freeze(store, standing)
        await _freeze(store, newer)
        assert await _frozen(store) == newer

    async def test_none_means_that_it_is_made_anew(self, store: Store) -> None:
        """S3, H7: after compaction."""
        await _freeze(store, await _standing(store))
        await _freeze(store, None)
        assert await _frozen(store) is None

    async def test_an_empty_one_is_not_none(self, store: Store) -> None:
        """S1: nothing to say is frozen too, and not read from files at each turn."""
        await _freeze(store, StandingRow("", (), 5.0))
        assert await _frozen(store) == StandingRow("", (), 5.0)

    @_ELSEWHERE
    async def test_each_conversation_has_its_own(self, store: Store, elsewhere: ConversationKey) -> None:
        """L2: by tenant, owner and id."""
        standing = await _standing(store)
        await _freeze(store, standing)
        assert await store.read(lambda unit: unit.conversations.find_standing(elsewhere)) is None
        await store.write(lambda unit: unit.conversations.put_standing(elsewhere, None))
        assert await _frozen(store) == standing

    @pytest.mark.parametrize("space", [SPACE, TEAM])
    async def test_one_with_a_forgotten_memory_in_it_is_gone(self, store: Store, space: str) -> None:
        """M2: whichever space the memory was in."""
        pinned = (await add(store, "Answer in French", within=operation(space=space))).entry
        await _freeze(store, StandingRow("- Answer in French", (pinned.ref,), 5.0))
        await forget_memory(store, pinned.id, space=space)
        assert await _frozen(store) is None

    async def test_one_without_it_stays(self, store: Store) -> None:
        """M2: nothing else is erased."""
        standing, other = await _standing(store), await add(store, "Ada likes tea")
        await _freeze(store, standing)
        await forget_memory(store, other.entry.id)
        assert await _frozen(store) == standing

    async def test_a_late_one_does_not_bring_back_what_was_forgotten(self, store: Store) -> None:
        """M2: it is made anew instead, and the one before is gone too."""
        await _freeze(store, StandingRow("", (), 5.0))
        standing = await _standing(store)
        await forget_memory(store, standing.refs[0])
        await _freeze(store, standing)
        assert await _frozen(store) is None

    async def test_another_tenant_s_memory_of_the_same_id_decides_nothing(self, store: Store) -> None:
        """L2: tenants never meet."""
        standing = await _standing(store)
        ref = standing.refs[0]
        await add(store, "Answer in Welsh", id=ref, within=operation(tenant="acme"))
        await _freeze(store, standing)
        await forget_memory(store, ref, tenant="acme")
        assert await _frozen(store) == standing


async def _carried(store: Store, *more: Candidate) -> CarriedRow:
    """Of two memories of Ada's, one of them at its second version."""
    first = (await add(store, "Ada keeps bees")).entry
    second = await _second_version(store)
    candidates = (candidate(first, score=0.75, decision=Decision.SHOWN), candidate(second, similarity=0.5), *more)
    return CarriedRow("c1", "turn-1", 2, 'do bees "sleep"? 蜂', 9.0, 9.5, (Phase.FAST, Phase.REFINED), candidates)


async def _second_version(store: Store) -> Entry:
    added = await add(store, "Ada sells honey")
    return await update(store, added.entry.id, "Ada sells much honey")


async def _standing(store: Store) -> StandingRow:
    refs = [(await add(store, text)).entry.ref for text in ("Answer in French", "Be brief")]
    return StandingRow("# conventions\n- Answer in French\n- Be brief", tuple(refs), 5.0)


async def _carry(store: Store, carried: CarriedRow) -> None:
    await store.write(lambda unit: unit.conversations.carry(TALK, carried))


async def _find(store: Store) -> CarriedRow | None:
    return await store.read(lambda unit: unit.conversations.find_carried(TALK))


async def _drop(store: Store, correlation: str) -> bool:
    return await store.write(lambda unit: unit.conversations.drop_carried(TALK, correlation))


async def _freeze(store: Store, standing: StandingRow | None) -> None:
    def work(unit: Unit) -> None:
        unit.conversations.put_standing(TALK, standing)

    await store.write(work)


async def _frozen(store: Store) -> StandingRow | None:
    return await store.read(lambda unit: unit.conversations.find_standing(TALK))
