"""What both threads change of a turn is changed under its lock, and only once."""

import threading
from dataclasses import replace

from afterturn.conversation.delivery import Prefetch
from afterturn.conversation.ledger import BlockPosition, end_anchor
from afterturn.conversation.scope import make_scope
from afterturn.conversation.turn_state import SharedTurn
from afterturn.conversation.visible import VisibleBlocks
from afterturn.dialects.detection import get_dialect
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
