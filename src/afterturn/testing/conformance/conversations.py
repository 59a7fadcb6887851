"""Conversations: turns, blocks, counters, the carried recall, the standing block, the timeline, and owners."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from afterturn.ports import Store, Unit
from afterturn.testing.conformance.actions import (
    ADA,
    ALL_SPACES,
    BOB,
    NOW,
    SPACE,
    TALK,
    TEAM,
    TENANT,
    add,
    candidate,
    converse,
    delete,
    forget,
    forget_memory,
    record,
    texts,
    update,
)
from afterturn.testing.entries import operation
from afterturn.types import (
    BlockRow,
    Candidate,
    CarriedRow,
    ConversationKey,
    ConversationState,
    Decision,
    Entry,
    Event,
    HandoverPoint,
    Lane,
    LaneQuery,
    Phase,
    Scope,
    Selector,
    StandingRow,
    StoredTurn,
    Taint,
    Tenant,
    TurnRow,
    TurnStatus,
    Verb,
)

_TURN = TurnRow("turn-1", TurnStatus.OPEN, 10.0, "hash of hello")
_BLOCK = BlockRow("block-hash", "turn-1", ("m1", "m2.2"), 400, 11.0)


class TestTurns:
    async def test_a_turn_comes_back_as_it_was_started(self, store: Store) -> None:
        await self._start(store)
        assert await self._find(store) == _TURN

    async def test_a_turn_that_nobody_started_is_not_found(self, store: Store) -> None:
        assert await self._find(store) is None

    async def test_a_turn_id_starts_once(self, store: Store) -> None:
        """C3: idempotent by turn id."""
        again = TurnRow("turn-1", TurnStatus.OPEN, 99.0, "another hash")
        assert await self._start(store)
        assert not await self._start(store, again)
        assert await self._find(store) == _TURN

    async def test_a_turn_is_recorded_once(self, store: Store) -> None:
        """C3: a second recording of it is reported as known."""
        await self._start(store)
        assert [await self._end(store, at=at, recorded=True) for at in (20.0, 30.0)] == [True, False]
        assert await self._find(store) == TurnRow("turn-1", TurnStatus.COMPLETED, 10.0, "hash of hello", 20.0, 20.0)

    async def test_a_turn_that_ended_unrecorded_can_still_be_recorded(self, store: Store) -> None:
        """C4: what could not be written is tried again."""
        await self._start(store)
        assert not await self._end(store, at=20.0, recorded=False)
        assert await self._end(store, at=30.0, recorded=True)

    async def test_an_unknown_turn_is_never_recorded(self, store: Store) -> None:
        """M2: a forgotten conversation's turn does not come back."""
        assert not await self._end(store, at=20.0, recorded=True)

    async def test_a_recorded_turn_is_not_aborted_afterwards(self, store: Store) -> None:
        """C3: the first end stands."""
        await self._start(store)
        await self._end(store, at=20.0, recorded=True)
        await self._end(store, at=30.0, recorded=False, status=TurnStatus.ABORTED)
        found = await self._find(store)
        assert found is not None
        assert (found.status, found.recorded_at) == (TurnStatus.COMPLETED, 20.0)

    async def test_a_tainted_turn_taints_its_conversation(self, store: Store) -> None:
        """G2b: the mark is stored with the turn. An abandoned turn counts as tainted."""
        await self._start(store)
        await self._end(store, at=20.0, recorded=True)
        clean = await store.read(lambda unit: unit.conversations.is_tainted(TALK), at=ALL_SPACES)
        await self._start(store, TurnRow("turn-2", TurnStatus.OPEN, 50.0, "hash"))
        ending: dict[str, Any] = {"status": TurnStatus.COMPLETED, "at": 60.0, "recorded": True, "taint": Taint.TOOL}
        await store.write(lambda unit: unit.conversations.end_turn(TALK, "turn-2", **ending), at=ALL_SPACES)
        found = await store.read(lambda unit: unit.conversations.find_turn(TALK, "turn-2"), at=ALL_SPACES)
        keys = (TALK, TALK._replace(id="another"))
        tainted = await store.read(lambda unit: [unit.conversations.is_tainted(key) for key in keys], at=ALL_SPACES)
        assert found is not None
        assert (clean, found.taint, tainted) == (False, Taint.TOOL, [True, False])

    async def test_a_turn_is_tainted_while_it_is_open(self, store: Store) -> None:
        """G2b: the first mark stays, also when the turn is recorded without one."""
        await self._start(store)
        await store.write(lambda unit: unit.conversations.taint_turn(TALK, "turn-1", Taint.SUBAGENT), at=ALL_SPACES)
        await store.write(lambda unit: unit.conversations.taint_turn(TALK, "turn-1", Taint.TOOL), at=ALL_SPACES)
        await self._end(store, at=20.0, recorded=True)
        found = await self._find(store)
        assert found is not None
        assert (found.status, found.taint) == (TurnStatus.COMPLETED, Taint.SUBAGENT)

    async def test_a_turn_that_has_ended_is_not_tainted_afterwards(self, store: Store) -> None:
        """G2b, C3: nothing reaches the assistant after its answer."""
        await self._start(store)
        await self._end(store, at=20.0, recorded=True)
        await store.write(lambda unit: unit.conversations.taint_turn(TALK, "turn-1", Taint.TOOL), at=ALL_SPACES)
        found = await self._find(store)
        assert found is not None
        assert found.taint is None

    async def test_incognito_is_a_switch_of_the_conversation_and_a_mark_of_a_turn(self, store: Store) -> None:
        """P2: the switch can be set before the first turn; the mark removes the hash of what the user said."""
        await store.write(lambda unit: unit.conversations.set_incognito(TALK, on=True, at=5.0), at=ALL_SPACES)
        switched = await store.read(lambda unit: unit.conversations.state(TALK), at=ALL_SPACES)
        await self._start(store)
        await store.write(lambda unit: unit.conversations.mark_incognito(TALK, "turn-1"), at=ALL_SPACES)
        await store.write(
            lambda unit: unit.conversations.mark_incognito(TALK._replace(space="user:bob"), "turn-1"), at=ALL_SPACES
        )
        await store.write(lambda unit: unit.conversations.set_incognito(TALK, on=False, at=20.0), at=ALL_SPACES)
        found, keys = await self._find(store), (TALK, TALK._replace(id="another"))
        states = await store.read(lambda unit: [unit.conversations.state(key) for key in keys], at=ALL_SPACES)
        assert found is not None
        assert (found.incognito, found.user_hash) == (True, "")
        assert (switched.incognito, switched.had_incognito) == (True, False)
        assert [(state.incognito, state.had_incognito) for state in states] == [(False, True), (False, False)]

    async def test_turns_that_nobody_came_back_to_are_abandoned(self, store: Store) -> None:
        await self._start(store)
        await self._start(store, TurnRow("turn-2", TurnStatus.OPEN, 50.0, "hash"))
        abandoned = await self._abandon(store, TENANT)
        found = await self._find(store)
        assert found is not None
        assert (abandoned, found.status, found.ended_at) == (1, TurnStatus.ABANDONED, 60.0)

    async def test_a_turn_that_somebody_came_back_to_is_not_abandoned(self, store: Store) -> None:
        """C1: a long turn is alive as long as its host comes back."""
        await self._start(store)
        await store.write(lambda unit: unit.conversations.touch_turn(TALK, "turn-1", at=55.0), at=ALL_SPACES)
        assert await self._abandon(store, TENANT) == 0
        assert await self._find(store) == _TURN

    async def test_another_tenant_s_turns_are_not_abandoned(self, store: Store) -> None:
        """L2: each tenant has its own idle timeout."""
        await self._start(store)
        assert await self._abandon(store, "acme") == 0
        assert await self._find(store) == _TURN

    async def test_conversations_are_listed_by_their_last_activity(self, store: Store) -> None:
        for at, name in ((1.0, "talk"), (2.0, "second"), (3.0, "third")):
            await converse(store, ConversationKey(TENANT, SPACE, name), at=at)
        await self._start(store)
        listed = await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=2), at=ALL_SPACES)
        assert listed == ["talk", "third"]

    async def test_conversations_go_on_after_the_last_of_a_page(self, store: Store) -> None:
        """M4: page by page, each comes once, also those that were active at the same moment."""
        for at, name in ((1.0, "a"), (2.0, "b"), (2.0, "c"), (2.0, "d"), (3.0, "e")):
            await converse(store, ConversationKey(TENANT, SPACE, name), at=at)
        listed: list[str] = []
        before: str | None = None
        while page := await self._page(store, before):
            listed += page
            before = page[-1]
        assert sorted(listed) == ["a", "b", "c", "d", "e"]
        assert (listed[0], listed[-1]) == ("e", "a")

    async def test_a_conversation_s_turns_come_oldest_first(self, store: Store) -> None:
        """M4: whatever became of them."""
        later = TurnRow("turn-0", TurnStatus.OPEN, 50.0, "hash")
        for turn in (later, _TURN):
            await self._start(store, turn)
        await self._end(store, at=20.0, recorded=False, status=TurnStatus.ABORTED)
        aborted = TurnRow("turn-1", TurnStatus.ABORTED, 10.0, "hash of hello", 20.0)
        assert await store.read(lambda unit: unit.conversations.turns(TALK), at=ALL_SPACES) == [aborted, later]

    async def _page(self, store: Store, before: str | None) -> list[str]:
        return await store.read(
            lambda unit: unit.conversations.page(TENANT, SPACE, limit=2, before=before), at=ALL_SPACES
        )

    async def _start(self, store: Store, turn: TurnRow = _TURN) -> bool:
        return await store.write(lambda unit: unit.conversations.start_turn(TALK, turn), at=ALL_SPACES)

    async def _find(self, store: Store) -> TurnRow | None:
        return await store.read(lambda unit: unit.conversations.find_turn(TALK, "turn-1"), at=ALL_SPACES)

    async def _abandon(self, store: Store, tenant: str) -> int:
        return await store.write(
            lambda unit: unit.conversations.abandon_turns(tenant, idle_since=50.0, at=60.0), at=Tenant(tenant)
        )

    async def _end(self, store: Store, *, at: float, recorded: bool, status: TurnStatus = TurnStatus.COMPLETED) -> bool:
        return await store.write(
            lambda unit: unit.conversations.end_turn(TALK, "turn-1", status=status, at=at, recorded=recorded),
            at=ALL_SPACES,
        )


class TestBlocks:
    async def test_a_block_comes_back_with_its_references_in_order(self, store: Store) -> None:
        """H5: the ledger is built from blocks that were really injected."""
        await self._add(store, "talk", _BLOCK)
        assert await self._blocks(store, "talk") == [_BLOCK]

    async def test_the_same_block_is_kept_once(self, store: Store) -> None:
        """H6: a block counts by the hash of its bytes."""
        await self._add(store, "talk", _BLOCK)
        await self._add(store, "talk", BlockRow("block-hash", "turn-9", ("m9",), 1, 99.0))
        assert await self._blocks(store, "talk") == [_BLOCK]

    async def test_another_conversation_has_its_own_blocks(self, store: Store) -> None:
        await self._add(store, "talk", _BLOCK)
        assert await self._blocks(store, "other") == []

    async def _add(self, store: Store, conversation: str, block: BlockRow) -> None:
        await store.write(
            lambda unit: unit.conversations.add_block(ConversationKey(TENANT, SPACE, conversation), block),
            at=ALL_SPACES,
        )

    async def _blocks(self, store: Store, conversation: str) -> list[BlockRow]:
        return await store.read(
            lambda unit: unit.conversations.blocks(ConversationKey(TENANT, SPACE, conversation)), at=ALL_SPACES
        )


class TestReadingAtOnce:
    """What a turn needs is read in one call, and equals what the single calls return."""

    async def test_a_conversation(self, store: Store) -> None:
        await store.write(_talk, at=ADA)
        stored = await store.read(lambda unit: unit.conversations.read(TALK), at=ADA)
        assert stored.blocks == tuple(await store.read(lambda unit: unit.conversations.known_blocks(TALK), at=ADA))
        assert [block.hash for block in stored.blocks] == [_BLOCK.hash]
        assert stored.state == await store.read(lambda unit: unit.conversations.state(TALK), at=ADA)
        assert stored.state.turns == 1
        assert stored.forgets == await store.read(lambda unit: unit.conversations.forgets(TENANT), at=ADA)

    async def test_a_turn(self, store: Store) -> None:
        """C1, C3: its row, the taint of the conversation, and where its records begin."""
        await store.write(_talk, at=ADA)
        await record(store, "hello", conversation=TALK.id, position=0)
        stored = await store.read(lambda unit: _read_turn(unit, since=0), at=ADA)
        assert stored.turn == await store.read(lambda unit: unit.conversations.find_turn(TALK, _TURN.id), at=ADA)
        assert (stored.any_tainted, stored.is_forgotten, stored.next_position) == (True, False, 1)

    async def test_a_turn_that_was_forgotten(self, store: Store) -> None:
        """M2: a forget of the space covers it."""
        await store.write(_talk, at=ADA)
        await forget(store, Selector(everything=True))
        assert (await store.read(lambda unit: _read_turn(unit, since=0), at=ADA)).is_forgotten
        newest = await store.read(lambda unit: unit.conversations.forgets(TENANT), at=ADA)
        assert not (await store.read(lambda unit: _read_turn(unit, since=newest), at=ADA)).is_forgotten

    async def test_what_does_not_exist(self, store: Store) -> None:
        stored = await store.read(lambda unit: unit.conversations.read(TALK), at=ADA)
        assert (stored.blocks, stored.state, stored.carried) == ((), ConversationState(), None)
        turn = await store.read(lambda unit: _read_turn(unit, since=0), at=ADA)
        assert (turn.turn, turn.any_tainted, turn.next_position) == (None, False, 0)

    async def test_a_turn_that_was_not_stored_yet_ends(self, store: Store) -> None:
        """C3: recorded once, whether its beginning was stored or not."""
        ended = [await store.write(lambda unit: _end_recorded(unit, start=_TURN), at=ADA) for _ in range(2)]
        assert ended == [True, False]
        assert [turn.id for turn in await store.read(lambda unit: unit.conversations.turns(TALK), at=ADA)] == [_TURN.id]


def _talk(unit: Unit) -> None:
    unit.conversations.add_block(TALK, _BLOCK)
    _end_recorded(unit, start=_TURN)


def _end_recorded(unit: Unit, *, start: TurnRow) -> bool:
    return unit.conversations.end_turn(
        TALK, start.id, status=TurnStatus.COMPLETED, at=20.0, recorded=True, taint=Taint.TOOL, start=start
    )


def _read_turn(unit: Unit, *, since: int) -> StoredTurn:
    return unit.conversations.read_turn(TALK, _TURN.id, writes=SPACE, speakers=("ada",), since=since)


class TestTimeline:
    async def test_events_come_back_oldest_first(self, store: Store) -> None:
        events = [_event(1.0, "talk"), _event(2.0, "talk")]
        await self._add(store, events)
        assert await self._page(store) == events

    async def test_the_newest_are_given_when_there_are_more(self, store: Store) -> None:
        await self._add(store, [_event(at, "talk") for at in (1.0, 2.0, 3.0)])
        assert [event.at for event in await self._page(store, limit=2)] == [2.0, 3.0]

    async def test_the_newest_can_be_skipped(self, store: Store) -> None:
        """M4: page by page, back to the oldest."""
        await self._add(store, [_event(at, "talk") for at in (1.0, 2.0, 3.0)])
        pages = [await self._page(store, limit=2, skip=skip) for skip in (0, 2, 4)]
        assert [[event.at for event in page] for page in pages] == [[2.0, 3.0], [1.0], []]

    async def test_the_oldest_go_first(self, store: Store) -> None:
        """The timeline is bounded."""
        for at in range(8):
            await self._add(store, [_event(float(at), "talk")], entries_max=5)
        assert [event.at for event in await self._page(store)] == [3.0, 4.0, 5.0, 6.0, 7.0]

    async def test_one_space_s_events_do_not_push_out_another_s(self, store: Store) -> None:
        """L2: bounds are by space."""
        await self._add(store, [_event(1.0, "talk")], entries_max=2)
        await self._add(store, [Event("recalled", float(at), TENANT, "user:bob") for at in range(5)], entries_max=2)
        assert [event.at for event in await self._page(store)] == [1.0]

    async def test_one_conversation_s_events_can_be_asked_for(self, store: Store) -> None:
        await self._add(store, [_event(1.0, "talk"), _event(2.0, "other")])
        assert [event.at for event in await self._page(store, conversation="other")] == [2.0]

    async def test_another_tenant_sees_nothing(self, store: Store) -> None:
        """L2: every query carries the tenant."""
        await self._add(store, [_event(1.0, "talk")])
        other = Scope("acme", (SPACE,))
        assert await store.read(lambda unit: unit.timeline.page(other, limit=10), at=ALL_SPACES) == []

    async def _add(self, store: Store, events: Sequence[Event], *, entries_max: int = 100) -> None:
        await store.write(lambda unit: unit.timeline.add(events, entries_max=entries_max), at=ALL_SPACES)

    async def _page(
        self, store: Store, *, conversation: str | None = None, limit: int = 100, skip: int = 0
    ) -> list[Event]:
        return await store.read(
            lambda unit: unit.timeline.page(ADA, conversation=conversation, limit=limit, skip=skip), at=ALL_SPACES
        )


def _event(at: float, conversation: str) -> Event:
    return Event("recalled", at, TENANT, SPACE, conversation, "turn-1", {"count": 2, "why": "asked"})


# Counters, and the blocks that the model still sees

_OTHER_CONVERSATIONS = pytest.mark.parametrize(
    "elsewhere",
    [
        ConversationKey(TENANT, SPACE, "other"),
        ConversationKey(TENANT, "user:bob", "talk"),
        ConversationKey("acme", SPACE, "talk"),
    ],
    ids=["conversation", "owner", "tenant"],
)
_VISIBLE_BLOCK = BlockRow("block-hash", "turn-1", (), 400, 11.0, HandoverPoint.USER_MESSAGE, "anchor-1", "the block")


class TestConversationState:
    async def test_a_conversation_that_is_not_there_is_as_if_it_were_new(self, store: Store) -> None:
        """R8: and looking does not make it."""
        assert await _state(store) == ConversationState()
        assert await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=9), at=ALL_SPACES) == []

    async def test_recorded_turns_are_counted_once_each(self, store: Store) -> None:
        """C3: neither what was only started, nor what is recorded again."""
        for turn in ("turn-1", "turn-2", "turn-3"):
            await _start(store, turn)
        for turn, recorded in (("turn-1", True), ("turn-1", True), ("turn-2", False), ("turn-2", True)):
            await _end(store, turn, recorded=recorded)
        assert await _state(store) == ConversationState(turns=2)

    async def test_two_who_record_one_turn_count_it_once(self, store: Store) -> None:
        """C3: of two at once, one records it."""
        await _start(store, "turn-1")
        done = await asyncio.gather(*(_end(store, "turn-1", recorded=True) for _ in range(3)))
        assert (sorted(done), (await _state(store)).turns) == ([False, False, True], 1)

    async def test_compactions_are_counted_and_dated(self, store: Store) -> None:
        """H7: told or seen, each counts; a reset does not."""
        for at, compacted in ((10.0, True), (20.0, True), (30.0, False)):
            await _clear(store, at=at, compacted=compacted)
        assert await _state(store) == ConversationState(compactions=2, compacted_at=20.0)

    @_OTHER_CONVERSATIONS
    async def test_each_conversation_counts_for_itself(self, store: Store, elsewhere: ConversationKey) -> None:
        """L2: by tenant, owner and id."""
        await _start(store, "turn-1")
        await _end(store, "turn-1", recorded=True)
        await _clear(store, at=20.0, compacted=True)
        assert await _state(store, elsewhere) == ConversationState()


class TestVisibleBlocks:
    async def test_a_block_comes_back_with_its_place_and_text(self, store: Store) -> None:
        """H6: the same bytes can go back to the same place."""
        added = await add(store, "Ada keeps bees")
        newer = await update(store, added.entry.id, "Ada keeps many bees")
        block = replace(_VISIBLE_BLOCK, refs=(added.entry.ref, newer.ref))
        await _put(store, block)
        assert await _blocks(store) == [block]

    async def test_what_is_known_of_a_block_in_sight_is_all_of_it(self, store: Store) -> None:
        """H6: so that it can be put back, and what it shows is excluded."""
        added = await add(store, "Ada keeps bees")
        block = replace(_VISIBLE_BLOCK, refs=(added.entry.ref,))
        await _put(store, block)
        assert await _known(store) == [block]

    async def test_what_is_known_of_a_block_out_of_sight_is_its_hash_and_size(self, store: Store) -> None:
        """H7: its text and references are left where they are; asked in full, they come."""
        added = await add(store, "Ada keeps bees")
        block = replace(_VISIBLE_BLOCK, refs=(added.entry.ref,), in_sight=True)
        await _put(store, block)
        await _put(store, replace(block, hash="still there"))
        await _clear(store, at=20.0, still=("still there",))
        gone = replace(block, in_sight=False)
        assert await _known(store) == [replace(gone, text="", refs=()), replace(block, hash="still there")]
        assert (await _blocks(store))[0] == gone

    async def test_clearing_takes_every_block_out_of_sight(self, store: Store) -> None:
        """H7: exclusions are cleared; the blocks are still known."""
        await _put(store, _VISIBLE_BLOCK)
        await _put(store, replace(_VISIBLE_BLOCK, hash="another"))
        await _clear(store, at=20.0)
        assert [(block.text, block.in_sight) for block in await _blocks(store)] == [("the block", False)] * 2

    async def test_what_is_still_in_sight_stays_so(self, store: Store) -> None:
        """H6: a rewound history loses some of its blocks; what was lost already does not come back."""
        for name in ("lost before", "still", "lost now"):
            await _put(store, replace(_VISIBLE_BLOCK, hash=name))
            if name == "lost before":
                await _clear(store, at=11.0)
        await _clear(store, at=20.0, still=("still", "lost before", "unknown"))
        sight = {block.hash: block.in_sight for block in await _blocks(store)}
        assert sight == {"lost before": False, "still": True, "lost now": False}

    @_OTHER_CONVERSATIONS
    async def test_clearing_one_conversation_leaves_the_others(self, store: Store, elsewhere: ConversationKey) -> None:
        """L2: what one model has lost from sight, another may still see."""
        await _put(store, _VISIBLE_BLOCK, elsewhere)
        await _clear(store, at=20.0)
        assert await _blocks(store, elsewhere) == [_VISIBLE_BLOCK]

    async def test_a_block_that_is_injected_again_is_in_sight_where_it_is_now(self, store: Store) -> None:
        """H6, H7: after a compaction the same bytes may be said in another place."""
        await _put(store, _VISIBLE_BLOCK)
        await _clear(store, at=20.0)
        again = replace(
            _VISIBLE_BLOCK, turn="turn-2", injected_at=30.0, point=HandoverPoint.TOOL_RESULT, anchor="anchor-2"
        )
        await _put(store, again)
        assert await _blocks(store) == [again]

    async def test_a_block_in_sight_stays_where_it_is(self, store: Store) -> None:
        """H3: its bytes are in one place."""
        await _put(store, _VISIBLE_BLOCK)
        await _put(store, replace(_VISIBLE_BLOCK, turn="turn-2", injected_at=30.0, anchor="anchor-2"))
        assert await _blocks(store) == [_VISIBLE_BLOCK]

    @pytest.mark.parametrize("first", ["the block", ""])
    async def test_a_text_that_comes_once_is_kept(self, store: Store, first: str) -> None:
        """H6: whether a block is stored with its text before or after it is stored without."""
        await _put(store, replace(_VISIBLE_BLOCK, text=first))
        await _put(store, replace(_VISIBLE_BLOCK, text="" if first else "the block"))
        assert await _blocks(store) == [_VISIBLE_BLOCK]

    async def test_what_is_stored_late_is_not_in_sight_again(self, store: Store) -> None:
        """H7: a turn's blocks are stored when it is recorded too, and a compaction may have come before."""
        await _put(store, _VISIBLE_BLOCK)
        await _clear(store, at=20.0)
        await _put(store, _VISIBLE_BLOCK)
        await _put(store, replace(_VISIBLE_BLOCK, hash="never stored before", injected_at=12.0))
        assert [block.in_sight for block in await _blocks(store)] == [False, False]

    async def test_what_is_injected_at_the_moment_of_clearing_is_in_sight(self, store: Store) -> None:
        """H7: of one moment, what is said last counts."""
        await _clear(store, at=11.0)
        await _put(store, _VISIBLE_BLOCK)
        assert [block.in_sight for block in await _blocks(store)] == [True]

    async def test_whoever_only_makes_a_block_known_puts_nothing_in_sight(self, store: Store) -> None:
        """H6: known by its hash, for what is recorded."""
        await _put(store, replace(_VISIBLE_BLOCK, in_sight=False))
        await _put(store, replace(_VISIBLE_BLOCK, in_sight=False))
        assert [block.in_sight for block in await _blocks(store)] == [False]

    async def test_a_late_block_does_not_bring_back_a_forgotten_text(self, store: Store) -> None:
        """M2: it is known by its hash, and shows nothing."""
        gone, stays = await add(store, "Ada keeps bees"), await add(store, "Ada likes tea")
        block = replace(_VISIBLE_BLOCK, refs=(gone.entry.ref, stays.entry.ref))
        await forget_memory(store, gone.entry.id)
        await _put(store, block)
        assert [(found.hash, found.text) for found in await _blocks(store)] == [("block-hash", "")]


async def _state(store: Store, key: ConversationKey = TALK) -> ConversationState:
    return await store.read(lambda unit: unit.conversations.state(key), at=key.scope)


async def _start(store: Store, turn: str) -> bool:
    row = TurnRow(turn, TurnStatus.OPEN, 10.0, "hash")
    return await store.write(lambda unit: unit.conversations.start_turn(TALK, row), at=ALL_SPACES)


async def _end(store: Store, turn: str, *, recorded: bool) -> bool:
    status = TurnStatus.COMPLETED if recorded else TurnStatus.ABORTED
    return await store.write(
        lambda unit: unit.conversations.end_turn(TALK, turn, status=status, at=15.0, recorded=recorded), at=ALL_SPACES
    )


async def _clear(store: Store, *, at: float, compacted: bool = True, still: tuple[str, ...] = ()) -> None:
    await store.write(
        lambda unit: unit.conversations.clear(TALK, at=at, compacted=compacted, still=still), at=ALL_SPACES
    )


async def _put(store: Store, block: BlockRow, key: ConversationKey = TALK) -> None:
    await store.write(lambda unit: unit.conversations.add_block(key, block), at=key.scope)


async def _blocks(store: Store, key: ConversationKey = TALK) -> list[BlockRow]:
    return await store.read(lambda unit: unit.conversations.blocks(key), at=key.scope)


async def _known(store: Store, key: ConversationKey = TALK) -> list[BlockRow]:
    return await store.read(lambda unit: unit.conversations.known_blocks(key), at=key.scope)


# The carried recall and the standing block

_ELSEWHERE = pytest.mark.parametrize(
    "elsewhere",
    [
        ConversationKey(TENANT, SPACE, "other"),
        ConversationKey(TENANT, "user:bob", "talk"),
        ConversationKey("acme", SPACE, "talk"),
    ],
    ids=["conversation", "owner", "tenant"],
)


class TestCarriedRecalls:
    async def test_a_carried_recall_comes_back_as_it_was(self, store: Store) -> None:
        """R8: with each candidate's figures, for another process and another day."""
        carried = await _carried(store)
        await _carry(store, carried)
        assert await _find(store) == carried

    async def test_nothing_is_carried_before_the_first(self, store: Store) -> None:
        """R8: neither in a new conversation nor in none."""
        assert await _find(store) is None
        await converse(store)
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
        await store.write(lambda unit: unit.conversations.clear(TALK, at=20.0, compacted=compacted), at=ALL_SPACES)
        assert await _find(store) is None

    @_ELSEWHERE
    async def test_another_conversation_carries_its_own(self, store: Store, elsewhere: ConversationKey) -> None:
        """L2: by tenant, owner and id."""
        await _carry(store, await _carried(store))
        assert await store.read(lambda unit: unit.conversations.read(elsewhere).carried, at=elsewhere.scope) is None
        assert not await store.write(lambda unit: unit.conversations.drop_carried(elsewhere, "c1"), at=elsewhere.scope)
        await store.write(lambda unit: unit.conversations.clear(elsewhere, at=20.0, compacted=True), at=elsewhere.scope)
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
        """M2: deleting hides; the caller that offers it checks what is active."""
        carried = await _carried(store)
        await _carry(store, carried)
        await delete(store, carried.candidates[0].ref)
        assert await _find(store) == carried


class TestStandingBlocks:
    async def test_a_standing_block_comes_back_as_it_was(self, store: Store) -> None:
        """S3: frozen for a conversation, in every process."""
        standing = await _standing(store)
        await _freeze(store, standing)
        assert await _frozen(store) == standing

    async def test_there_is_none_before_the_first(self, store: Store) -> None:
        """S3: made at a conversation's start."""
        assert await _frozen(store) is None
        await store.write(lambda unit: unit.conversations.put_standing(TALK, None), at=ALL_SPACES)
        assert await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=9), at=ALL_SPACES) == []

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
        assert await store.read(lambda unit: unit.conversations.find_standing(elsewhere), at=elsewhere.scope) is None
        await store.write(lambda unit: unit.conversations.put_standing(elsewhere, None), at=elsewhere.scope)
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
        """M2: it is built again instead, and the earlier one is gone too."""
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
    await store.write(lambda unit: unit.conversations.carry(TALK, carried), at=ALL_SPACES)


async def _find(store: Store) -> CarriedRow | None:
    return await store.read(lambda unit: unit.conversations.read(TALK).carried, at=ALL_SPACES)


async def _drop(store: Store, correlation: str) -> bool:
    return await store.write(lambda unit: unit.conversations.drop_carried(TALK, correlation), at=ALL_SPACES)


async def _freeze(store: Store, standing: StandingRow | None) -> None:
    def work(unit: Unit) -> None:
        unit.conversations.put_standing(TALK, standing)

    await store.write(work, at=ALL_SPACES)


async def _frozen(store: Store) -> StandingRow | None:
    return await store.read(lambda unit: unit.conversations.find_standing(TALK), at=ALL_SPACES)


# Conversations with the same id but different owners

_TEAM = Scope(TENANT, (TEAM,))
_BOTH = Scope(TENANT, (SPACE, TEAM))


class TestOwners:
    async def test_the_other_spaces_with_an_owner_s_records_are_found(self, store: Store) -> None:
        """M2, L2: for the report of a forget; another tenant's spaces are not among them."""
        for tenant, space, conversation, owner in (
            (TENANT, TEAM, "talk", SPACE),
            (TENANT, "project:p", "other", SPACE),
            (TENANT, "project:q", "talk", BOB),
            (TENANT, SPACE, "talk", None),
            ("acme", "project:r", "talk", SPACE),
        ):
            within = operation(Verb.RECORD, tenant=tenant, space=space)
            await record(store, "bees", within=within, conversation=conversation, owner=owner, speaker="ada")

        def find(**chosen: str) -> Awaitable[list[str]]:
            return store.read(lambda unit: unit.records.spaces_of(TENANT, SPACE, **chosen), at=ALL_SPACES)

        assert await find() == ["project:p", TEAM]
        assert await find(conversation="talk") == [TEAM]
        assert (await find(speaker="ada"), await find(speaker="bob")) == (["project:p", TEAM], [])

    async def test_a_record_keeps_the_owner_of_its_conversation(self, store: Store) -> None:
        """L2: the space that holds a record need not be the one whose conversation it is."""
        entry = await _said(store, "ada's bees", SPACE)
        read = await store.read(lambda unit: unit.memories.get(_TEAM, entry.id), at=ALL_SPACES)
        assert (entry.owner, read.owner) == (SPACE, SPACE)

    async def test_the_space_itself_is_the_owner_of_what_names_none(self, store: Store) -> None:
        """L2: naming the space that holds it says the same as naming none."""
        entry = await _said(store, "the team's bees", TEAM)
        read = await store.read(lambda unit: unit.memories.get(_TEAM, entry.id), at=ALL_SPACES)
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
        keys = (await store.read(lambda unit: unit.index.changes(TENANT, TEAM, since=0), at=ALL_SPACES)).keys or ()
        query = LaneQuery(_TEAM, NOW, lane=lane, conversation="talk", owner=SPACE)
        resolved = await store.read(lambda unit: unit.index.resolve(query, keys), at=ALL_SPACES)
        assert [entry.text for entry in resolved.values()] == (["bob's bees"] if lane is Lane.EPISODIC else [])

    async def test_a_shared_space_forgets_a_conversation_of_every_owner(self, store: Store) -> None:
        """M2: nothing of that id stays in the space, no matter who owns it."""
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
        await store.write(lambda unit: unit.timeline.add(events, entries_max=10), at=None)
        await forget(store, Selector(conversation="talk"), space=TEAM)
        assert await _timeline(store, Scope(TENANT, (SPACE, TEAM, BOB))) == [3.0, 4.0]
        assert await _timeline(store, Scope("acme", (SPACE,))) == [5.0]


async def _said(store: Store, text: str, owner: str, *, position: int | None = None) -> Entry:
    """A message of the owner's conversation `talk`, recorded into the shared space."""
    within = operation(Verb.RECORD, space=TEAM)
    return await record(store, text, within=within, conversation="talk", owner=owner, position=position)


async def _conversation(store: Store, owner: str | None) -> list[Entry]:
    return await store.read(
        lambda unit: unit.records.of_conversation(_TEAM, "talk", limit=10, owner=owner), at=ALL_SPACES
    )


async def _next(store: Store, owner: str | None) -> int:
    return await store.read(lambda unit: unit.records.next_position(TENANT, TEAM, "talk", owner=owner), at=ALL_SPACES)


async def _timeline(store: Store, scope: Scope) -> list[float]:
    return [event.at for event in await store.read(lambda unit: unit.timeline.page(scope, limit=10), at=scope)]


async def _in_lane(store: Store, lane: Lane, owner: str) -> list[str]:
    return await texts(store, "bees", LaneQuery(_BOTH, NOW, lane=lane, conversation="talk", owner=owner))
