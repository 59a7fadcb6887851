"""What a conversation has come to: its counters, and which of its blocks the model still sees."""

import asyncio
from dataclasses import replace

import pytest

from afterturn.ports import Store
from afterturn.testing.conformance.scene import SPACE, TALK, TENANT, add, forget_memory, update
from afterturn.types import BlockRow, ConversationKey, ConversationState, HandoverPoint, TurnRow, TurnStatus

_ELSEWHERE = pytest.mark.parametrize(
    "elsewhere",
    [
        ConversationKey(TENANT, SPACE, "other"),
        ConversationKey(TENANT, "user:bob", "talk"),
        ConversationKey("acme", SPACE, "talk"),
    ],
    ids=["conversation", "owner", "tenant"],
)
_BLOCK = BlockRow("block-hash", "turn-1", (), 400, 11.0, HandoverPoint.USER_MESSAGE, "anchor-1", "the block")


class TestConversationState:
    async def test_a_conversation_that_is_not_there_is_as_if_it_were_new(self, store: Store) -> None:
        """R8: and looking does not make it."""
        assert await _state(store) == ConversationState()
        assert await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=9)) == []

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

    @_ELSEWHERE
    async def test_each_conversation_counts_for_itself(self, store: Store, elsewhere: ConversationKey) -> None:
        """L2: by tenant, owner and id."""
        await _start(store, "turn-1")
        await _end(store, "turn-1", recorded=True)
        await _clear(store, at=20.0, compacted=True)
        assert await _state(store, elsewhere) == ConversationState()


class TestSight:
    async def test_a_block_comes_back_with_its_place_and_text(self, store: Store) -> None:
        """H6: the same bytes can go back to the same place."""
        added = await add(store, "Ada keeps bees")
        newer = await update(store, added.entry.id, "Ada keeps many bees")
        block = replace(_BLOCK, refs=(added.entry.ref, newer.ref))
        await _put(store, block)
        assert await _blocks(store) == [block]

    async def test_what_is_known_of_a_block_in_sight_is_all_of_it(self, store: Store) -> None:
        """H6: so that it can be put back, and what it shows is excluded."""
        added = await add(store, "Ada keeps bees")
        block = replace(_BLOCK, refs=(added.entry.ref,))
        await _put(store, block)
        assert await _known(store) == [block]

    async def test_what_is_known_of_a_block_out_of_sight_is_its_hash_and_size(self, store: Store) -> None:
        """H7: its text and references are left where they are; asked in full, they come."""
        added = await add(store, "Ada keeps bees")
        block = replace(_BLOCK, refs=(added.entry.ref,), in_sight=True)
        await _put(store, block)
        await _put(store, replace(block, hash="still there"))
        await _clear(store, at=20.0, still=("still there",))
        gone = replace(block, in_sight=False)
        assert await _known(store) == [replace(gone, text="", refs=()), replace(block, hash="still there")]
        assert (await _blocks(store))[0] == gone

    async def test_clearing_takes_every_block_out_of_sight(self, store: Store) -> None:
        """H7: exclusions are cleared; the blocks are still known."""
        await _put(store, _BLOCK)
        await _put(store, replace(_BLOCK, hash="another"))
        await _clear(store, at=20.0)
        assert [(block.text, block.in_sight) for block in await _blocks(store)] == [("the block", False)] * 2

    async def test_what_is_still_in_sight_stays_so(self, store: Store) -> None:
        """H6: a rewound history loses some of its blocks; what was lost already does not come back."""
        for name in ("lost before", "still", "lost now"):
            await _put(store, replace(_BLOCK, hash=name))
            if name == "lost before":
                await _clear(store, at=11.0)
        await _clear(store, at=20.0, still=("still", "lost before", "unknown"))
        sight = {block.hash: block.in_sight for block in await _blocks(store)}
        assert sight == {"lost before": False, "still": True, "lost now": False}

    @_ELSEWHERE
    async def test_clearing_one_conversation_leaves_the_others(self, store: Store, elsewhere: ConversationKey) -> None:
        """L2: what one model has lost from sight, another may still see."""
        await _put(store, _BLOCK, elsewhere)
        await _clear(store, at=20.0)
        assert await _blocks(store, elsewhere) == [_BLOCK]

    async def test_a_block_that_is_injected_again_is_in_sight_where_it_is_now(self, store: Store) -> None:
        """H6, H7: after a compaction the same bytes may be said in another place."""
        await _put(store, _BLOCK)
        await _clear(store, at=20.0)
        again = replace(_BLOCK, turn="turn-2", injected_at=30.0, point=HandoverPoint.TOOL_RESULT, anchor="anchor-2")
        await _put(store, again)
        assert await _blocks(store) == [again]

    async def test_a_block_in_sight_stays_where_it_is(self, store: Store) -> None:
        """H3: its bytes are in one place."""
        await _put(store, _BLOCK)
        await _put(store, replace(_BLOCK, turn="turn-2", injected_at=30.0, anchor="anchor-2"))
        assert await _blocks(store) == [_BLOCK]

    @pytest.mark.parametrize("first", ["the block", ""])
    async def test_a_text_that_comes_once_is_kept(self, store: Store, first: str) -> None:
        """H6: whether a block is stored with its text before or after it is stored without."""
        await _put(store, replace(_BLOCK, text=first))
        await _put(store, replace(_BLOCK, text="" if first else "the block"))
        assert await _blocks(store) == [_BLOCK]

    async def test_what_is_stored_late_is_not_in_sight_again(self, store: Store) -> None:
        """H7: a turn's blocks are stored when it is recorded too, and a compaction may have come before."""
        await _put(store, _BLOCK)
        await _clear(store, at=20.0)
        await _put(store, _BLOCK)
        await _put(store, replace(_BLOCK, hash="never stored before", injected_at=12.0))
        assert [block.in_sight for block in await _blocks(store)] == [False, False]

    async def test_what_is_injected_at_the_moment_of_clearing_is_in_sight(self, store: Store) -> None:
        """H7: of one moment, what is said last counts."""
        await _clear(store, at=11.0)
        await _put(store, _BLOCK)
        assert [block.in_sight for block in await _blocks(store)] == [True]

    async def test_whoever_only_makes_a_block_known_puts_nothing_in_sight(self, store: Store) -> None:
        """H6: known by its hash, for what is recorded."""
        await _put(store, replace(_BLOCK, in_sight=False))
        await _put(store, replace(_BLOCK, in_sight=False))
        assert [block.in_sight for block in await _blocks(store)] == [False]

    async def test_a_late_block_does_not_bring_back_a_forgotten_text(self, store: Store) -> None:
        """M2: it is known by its hash, and shows nothing."""
        gone, stays = await add(store, "Ada keeps bees"), await add(store, "Ada likes tea")
        block = replace(_BLOCK, refs=(gone.entry.ref, stays.entry.ref))
        await forget_memory(store, gone.entry.id)
        await _put(store, block)
        assert [(found.hash, found.text) for found in await _blocks(store)] == [("block-hash", "")]


async def _state(store: Store, key: ConversationKey = TALK) -> ConversationState:
    return await store.read(lambda unit: unit.conversations.state(key))


async def _start(store: Store, turn: str) -> bool:
    row = TurnRow(turn, TurnStatus.OPEN, 10.0, "hash")
    return await store.write(lambda unit: unit.conversations.start_turn(TALK, row))


async def _end(store: Store, turn: str, *, recorded: bool) -> bool:
    status = TurnStatus.COMPLETED if recorded else TurnStatus.ABORTED
    return await store.write(
        lambda unit: unit.conversations.end_turn(TALK, turn, status=status, at=15.0, recorded=recorded)
    )


async def _clear(store: Store, *, at: float, compacted: bool = True, still: tuple[str, ...] = ()) -> None:
    await store.write(lambda unit: unit.conversations.clear(TALK, at=at, compacted=compacted, still=still))


async def _put(store: Store, block: BlockRow, key: ConversationKey = TALK) -> None:
    await store.write(lambda unit: unit.conversations.add_block(key, block))


async def _blocks(store: Store, key: ConversationKey = TALK) -> list[BlockRow]:
    return await store.read(lambda unit: unit.conversations.blocks(key))


async def _known(store: Store, key: ConversationKey = TALK) -> list[BlockRow]:
    return await store.read(lambda unit: unit.conversations.known_blocks(key))
