"""What the settings of a budget come to over the turns of a conversation."""

import asyncio
import threading
from pathlib import Path

import pytest
from spoken import Message, OpenMemory, Told, assistant, user

import afterturn
from afterturn.recall import block as recall_block
from afterturn.testing.clock import ManualClock


async def test_a_conversation_full_of_blocks_gets_no_further_one_until_it_is_compacted(
    open_memory: OpenMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H9: what all visible blocks come to is bounded; a list that the host has rebuilt has room again."""
    # A block with one short memory has about 200 bytes: there is room for one, and none for a second.
    monkeypatch.setattr(recall_block, "VISIBLE_BYTES_MAX", 300)
    async with open_memory(recall_entries_max=1) as memory:
        await _pets(memory)
        conversation = memory.conversation("c", user="ada")
        messages = [user("What is my cat called?")]
        first = await _injected(conversation, messages)
        messages += [assistant("Miso."), user("What is my dog called?")]
        second = await _injected(conversation, messages)
        compacted = [user("Summary: we spoke of a cat."), assistant("Yes."), user("What is my dog called?")]
        third = await _injected(conversation, compacted)
    assert "Miso" in first
    assert second == ""
    assert "Rex" in third


async def test_a_block_takes_no_more_than_the_visible_ones_have_left(
    open_memory: OpenMemory, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H9: the second block is cut to what is left, though a block of its own could be larger."""
    monkeypatch.setattr(recall_block, "VISIBLE_BYTES_MAX", 1000)
    async with open_memory(block_bytes_max=600) as memory:
        for number in range(12):
            await memory.space("user:ada").add(f"Ada's cat number {number} is called {'Miso' * 9}")
        await memory.drain()
        conversation = memory.conversation("c", user="ada")
        messages = [user("What is my cat called?")]
        await _injected(conversation, messages)
        messages += [assistant("Miso."), user("What is my cat called in full?")]
        await _injected(conversation, messages)
    first, second = (int(event.data["bytes"]) for event in told.named("handed_over"))  # type: ignore[arg-type]
    assert first <= 600
    assert first + second <= 1000


async def test_blocks_of_one_turn_share_the_visible_budget(
    open_memory: OpenMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H9: what was injected a moment ago counts when the user adds something in the same turn."""
    monkeypatch.setattr(recall_block, "VISIBLE_BYTES_MAX", 300)
    async with open_memory(recall_entries_max=1) as memory:
        await _pets(memory)
        messages = [user("What is my cat called?")]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            first = await turn.inject(messages)
            messages.append(user("What is my dog called?"))
            turn.interject("What is my dog called?")
            second = await turn.inject(messages)
            turn.abort()
    assert "Miso" in str(first)
    assert second is None


async def test_refined_waits_where_fast_would_not(open_memory: OpenMemory) -> None:
    """§2: `phase="refined"` has a net of its own, which the grace does not bound."""
    async with open_memory(grace=0.0) as memory:
        await _pets(memory)
        messages = [user("What is my cat called?")]
        held = threading.Event()
        memory._loop.post(held.wait, 30.0)
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            fast = await turn.inject(messages)
            waiting = asyncio.ensure_future(turn.inject(messages, phase="refined"))
            await asyncio.sleep(0)
            held.set()
            refined = await waiting
            turn.abort()
    assert fast is None
    assert refined is not None


async def test_retention_leaves_no_byte_of_what_it_ended(
    open_memory: OpenMemory, told: Told, clock: ManualClock, tmp_path: Path
) -> None:
    """M4: a record past its retention is gone from every file of the store, and not only from its queries."""
    async with open_memory() as memory:
        messages = [user("The sentinel sleeps in the granary"), assistant("Noted.")]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            pass
        assert await turn.wait_recorded()
    clock.advance(86_400 * 31)
    async with open_memory(records_retention_days=30):
        await asyncio.to_thread(told.wait, "retention_ended")
        held = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"granary" not in held


async def _pets(memory: afterturn.Memory) -> None:
    for text in ("Ada's cat is called Miso", "Ada's dog is called Rex"):
        await memory.space("user:ada").add(text)
    await memory.drain()


async def _injected(conversation: afterturn.Conversation, messages: list[Message]) -> str:
    """The text of the block that the turn got; blank without one."""
    async with conversation.turn(messages) as turn:
        element = await turn.inject(messages)
        turn.abort()
    return str(element["content"]) if element else ""
