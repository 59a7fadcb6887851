"""Turns are recorded once, blocks are kept by hash, the timeline is bounded."""

from collections.abc import Sequence

from afterturn.ports import Store
from afterturn.testing.conformance.scene import ADA, SPACE, TALK, TENANT
from afterturn.types import BlockRow, ConversationKey, Event, Scope, TurnRow, TurnStatus

_TURN = TurnRow("turn-1", TurnStatus.OPEN, 10.0, "hash of hello")
_BLOCK = BlockRow("block-hash", "turn-1", ("m1", "m2.2"), 400, 11.0)


class TestTurns:
    async def test_a_conversation_is_new_once(self, store: Store) -> None:
        assert [await self._open(store, "talk", at=at) for at in (1.0, 2.0)] == [True, False]

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
        """C3: whoever records it again is told so."""
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
        await store.write(lambda unit: unit.conversations.touch_turn(TALK, "turn-1", at=55.0))
        assert await self._abandon(store, TENANT) == 0
        assert await self._find(store) == _TURN

    async def test_another_tenant_s_turns_are_not_abandoned(self, store: Store) -> None:
        """L2: each tenant has its own idle timeout."""
        await self._start(store)
        assert await self._abandon(store, "acme") == 0
        assert await self._find(store) == _TURN

    async def test_conversations_are_listed_by_their_last_activity(self, store: Store) -> None:
        for at, name in ((1.0, "talk"), (2.0, "second"), (3.0, "third")):
            await self._open(store, name, at=at)
        await self._start(store)
        listed = await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=2))
        assert listed == ["talk", "third"]

    async def test_conversations_go_on_after_the_last_of_a_page(self, store: Store) -> None:
        """M4: page by page, each comes once, also those that were active at the same moment."""
        for at, name in ((1.0, "a"), (2.0, "b"), (2.0, "c"), (2.0, "d"), (3.0, "e")):
            await self._open(store, name, at=at)
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
        assert await store.read(lambda unit: unit.conversations.turns(TALK)) == [aborted, later]

    async def _page(self, store: Store, before: str | None) -> list[str]:
        return await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=2, before=before))

    async def _open(self, store: Store, conversation: str, *, at: float) -> bool:
        return await store.write(
            lambda unit: unit.conversations.open(ConversationKey(TENANT, SPACE, conversation), at=at)
        )

    async def _start(self, store: Store, turn: TurnRow = _TURN) -> bool:
        return await store.write(lambda unit: unit.conversations.start_turn(TALK, turn))

    async def _find(self, store: Store) -> TurnRow | None:
        return await store.read(lambda unit: unit.conversations.find_turn(TALK, "turn-1"))

    async def _abandon(self, store: Store, tenant: str) -> int:
        return await store.write(lambda unit: unit.conversations.abandon_turns(tenant, idle_since=50.0, at=60.0))

    async def _end(self, store: Store, *, at: float, recorded: bool, status: TurnStatus = TurnStatus.COMPLETED) -> bool:
        return await store.write(
            lambda unit: unit.conversations.end_turn(TALK, "turn-1", status=status, at=at, recorded=recorded)
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
            lambda unit: unit.conversations.add_block(ConversationKey(TENANT, SPACE, conversation), block)
        )

    async def _blocks(self, store: Store, conversation: str) -> list[BlockRow]:
        return await store.read(lambda unit: unit.conversations.blocks(ConversationKey(TENANT, SPACE, conversation)))


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
        assert await store.read(lambda unit: unit.timeline.page(other, limit=10)) == []

    async def _add(self, store: Store, events: Sequence[Event], *, entries_max: int = 100) -> None:
        await store.write(lambda unit: unit.timeline.add(events, entries_max=entries_max))

    async def _page(
        self, store: Store, *, conversation: str | None = None, limit: int = 100, skip: int = 0
    ) -> list[Event]:
        return await store.read(lambda unit: unit.timeline.page(ADA, conversation=conversation, limit=limit, skip=skip))


def _event(at: float, conversation: str) -> Event:
    return Event("recalled", at, TENANT, SPACE, conversation, "turn-1", {"count": 2, "why": "asked"})
