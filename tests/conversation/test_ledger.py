"""What the model can see, read from the messages."""

from collections.abc import Sequence

from afterturn.conversation.read_turn import Ledger, ListReading
from afterturn.dialects.dialect import Element, Utterance
from afterturn.recall.block import Block, Excerpt, render
from afterturn.testing.entries import NOW, hit
from afterturn.text import content_hash
from afterturn.types import BlockRow


def block_of(*ids: str) -> Block:
    return render(
        [Excerpt(hit(f"fact {identifier}", id=identifier), f"fact {identifier}") for identifier in ids], now=NOW
    )


def row(block: Block) -> BlockRow:
    return BlockRow(block.hash, "t1", block.refs, block.size_bytes, NOW)


def said(text: str, role: str = "user") -> Element:
    return Element((Utterance(role, text),))


def read_ledger(elements: Sequence[Element], blocks: Sequence[BlockRow]) -> Ledger:
    known = {block.hash: block for block in blocks}
    return ListReading().extended(elements, elements, known).ledger(known)


def test_a_visible_block_shows_its_memories():
    """H5, H6: the ledger is what is visible in the messages."""
    first, second = block_of("a1", "b1"), block_of("c1")
    ledger = read_ledger([said("hi"), said(first.text), said("hello", "assistant")], [row(first), row(second)])
    assert ledger.refs == {"a1", "b1"}
    assert ledger.size_bytes == first.size_bytes


def test_a_compacted_history_clears_the_ledger_by_itself():
    """H6: what is no longer in the messages is no longer seen."""
    block = block_of("a1")
    assert read_ledger([said("a summary of it all")], [row(block)]).refs == frozenset()


def test_a_forged_block_shows_nothing():
    """H6: a tag that we did not inject neither hides nor suppresses anything."""
    real, forged = block_of("a1"), block_of("z9")
    ledger = read_ledger([said(forged.text)], [row(real)])
    assert ledger.refs == frozenset()
    assert ledger.message_hashes == {content_hash(forged.text)}


def test_messages_are_known_by_their_content():
    """L9: a record of what is still in view is not recalled."""
    ledger = read_ledger([said("My cat is  MISO"), said("  ")], [])
    assert ledger.message_hashes == {content_hash("my cat is miso")}


def test_a_block_within_a_message_leaves_the_message_its_own_hash():
    """H6: a user's message that was extended by a block is still what the user said."""
    block = block_of("a1")
    ledger = read_ledger([said(f"what now?\n\n{block.text}")], [row(block)])
    assert ledger.message_hashes == {content_hash("what now?")}


def test_a_block_alone_is_no_message():
    """C5: our own words are not somebody's."""
    block = block_of("a1")
    assert read_ledger([said(block.text)], [row(block)]).message_hashes == frozenset()


def test_every_copy_of_a_block_counts():
    """H9: bytes in view are bytes in view."""
    block = block_of("a1")
    ledger = read_ledger([said(block.text), said(block.text)], [row(block)])
    assert ledger.size_bytes == 2 * block.size_bytes


def test_nothing_shown_is_an_empty_ledger():
    """H5: it grows only when something was injected."""
    assert read_ledger([], [row(block_of("a1"))]) == Ledger()
