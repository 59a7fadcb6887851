"""What both threads change of a turn is changed under its lock, and only once."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from afterturn.conversation.delivery import (
    TURN_MESSAGES_MAX,
    BlockPosition,
    HostTurn,
    LoopTurn,
    Prefetch,
    SharedTurn,
    VisibleBlocks,
    copy_messages,
)
from afterturn.conversation.read_turn import end_anchor, scan_blocks
from afterturn.conversation.scope import make_scope
from afterturn.dialects.history import get_dialect
from afterturn.recall.block import block_hash, render
from afterturn.types import BlockRow, HandoverPoint, Phase, RecallCause

BLOCK = BlockRow("hash", "t0", (), 4, 0.0, HandoverPoint.USER_MESSAGE, "anchor", "text")


def shared_turn() -> SharedTurn:
    first = Prefetch("r1", RecallCause.MESSAGE, turn="t1", epoch=0, phases=(Phase.FAST,))
    return SharedTurn("t1", make_scope("default", "c", {"user": "ada"}), first, 0.0)


def test_a_hand_over_waits_while_the_loop_reads_positions() -> None:
    """H6: a block that the host adds while its list is read is not lost."""
    turn, messages = shared_turn(), ["hello", "block"]
    adding = threading.Thread(target=turn.add_positions, args=({"added": BlockPosition(1, messages[1])},))
    with turn.lock:
        adding.start()
        adding.join(0.05)
        assert adding.is_alive()
        assert turn.positions == {}
    adding.join(10.0)
    turn.read_positions({"read": BlockPosition(0, messages[0])}, (), None)
    assert set(turn.positions) == {"added", "read"}


def test_a_prompts_text_is_there_once_though_a_forget_came_between() -> None:
    """H8: the loop may have put the text there before the host's call does."""
    turn = shared_turn()
    turn.set_prompt_texts({"hash": "text"})
    turn.add_prompt_text("hash", "text")
    assert turn.prompt_texts == ["text"]


def test_nothing_of_an_earlier_turn_goes_back_once_the_model_was_called() -> None:
    """H3: that would change a prompt which the model has seen."""
    turn = shared_turn()
    turn.mark_model_called()
    turn.read_positions({}, (BLOCK,), None)
    assert turn.dropped == ()


def test_the_same_bytes_delivered_twice_are_unstored_until_the_second_delivery_is_stored() -> None:
    """L3, H5: the store may still be at the first delivery, which a clearing of the ledger has followed."""
    visible, again = VisibleBlocks(), replace(BLOCK, turn="t1")
    visible.hand_over([BLOCK])
    visible.clear()
    visible.hand_over([again])
    visible.mark_stored(BLOCK)
    assert visible.unstored == {"hash"}
    visible.mark_stored(again)
    assert visible.unstored == frozenset()


def test_a_block_that_is_both_expected_and_dropped_goes_back_once() -> None:
    """H5, H6: a host rebuilds its list while a compaction that kept the block is examined."""
    dialect, visible, turn = get_dialect("openai_chat"), VisibleBlocks(), shared_turn()
    text = render((), now=0.0).text
    messages: list[dict[str, object]] = [{"role": "user", "content": "Hello"}]
    anchor = end_anchor(dialect, messages, (), None)
    row = replace(BLOCK, hash=block_hash(text), text=text, anchor=anchor)
    visible.hand_over([row])
    turn.read_positions({row.hash: BlockPosition(1, object())}, (row,), None)
    assert not visible.find_lost(turn, dialect, messages)
    visible.restore(turn, dialect, messages)
    assert [str(message["content"]) for message in messages] == ["Hello", text]


def host_turn(user: BlockPosition | None) -> HostTurn:
    shared = shared_turn()
    return HostTurn(shared, LoopTurn(shared), user=user)


@pytest.mark.parametrize("container", [list, deque])
def test_a_very_long_turn_is_copied_in_part(container: Callable[[list[object]], Sequence[object]]) -> None:
    """C4: the host's thread waits for the copy, so a list of a million messages must not be copied as a whole."""
    said = {"role": "user", "content": "Go"}
    long: list[object] = [{"role": "assistant", "content": str(number)} for number in range(3 * TURN_MESSAGES_MAX)]
    copied = copy_messages(container([said, *long]), host_turn(BlockPosition(0, said)))
    assert copied.messages == [said, *long[-TURN_MESSAGES_MAX:]]
    assert copied.starts_with_user


def test_of_a_very_long_list_without_the_user_message_the_newest_are_copied() -> None:
    """C4: a host that has rebuilt its list, or that leaves before the list was read."""
    long: list[object] = [{"role": "assistant", "content": str(number)} for number in range(3 * TURN_MESSAGES_MAX)]
    copied = copy_messages(long, host_turn(None))
    assert copied.messages == long[-TURN_MESSAGES_MAX:]
    assert not copied.starts_with_user


def test_the_anchor_of_a_very_long_list_is_found_by_its_end() -> None:
    """H6: also if thousands of messages were added since the list was read."""
    dialect, read = get_dialect("openai_chat"), Counter[int]()

    class Message(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
            read[id(self)] += 1
            return super().get(key, default)

    messages: list[object] = [Message(role="user", content=f"m{number}") for number in range(50)]
    earlier = scan_blocks(dialect, messages, ()).chain
    messages += [Message(role="user", content=f"m{number}") for number in range(50, 9_000)]
    anchor = end_anchor(dialect, messages, (), earlier)
    assert len(read) < 4_000
    assert anchor == scan_blocks(dialect, messages, ()).chain.anchor
