"""Incognito: nothing of a turn is recorded or learned, and its words are nowhere in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest
from spoken import OpenMemory, Told, answer, assistant, call, exchange, user

import afterturn
from afterturn.conversation.scope import is_private
from afterturn.types import Filter, Kind

SECRET = "quokkaholiday"
SAID = f"Remember that my sister plans a {SECRET} in Bergen"
ANYTHING = Filter(kind=Kind.RECORD)


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def told_turn(conversation: afterturn.Conversation, said: str, **options: Any) -> afterturn.Turn:
    messages = [user(said)]
    async with conversation.turn(messages, **options) as turn:
        await turn.inject(messages)
        messages.append(assistant(f"Enjoy the {SECRET}."))
    return turn


@pytest.mark.parametrize("how", ["conversation", "turn", "prefix", "kept"])
async def test_nothing_of_an_incognito_turn_is_in_the_store(open_memory: OpenMemory, tmp_path: Path, how: str) -> None:
    """P2: no record, no memory, no words in the trace, by each way to ask for it."""
    async with open_memory() as memory:
        await memory.space("user:ada").add("Ada's sister lives in Bergen")
        options = {"incognito": True} if how == "conversation" else {}
        conversation = memory.conversation("c", user="ada", **options)
        if how == "kept":
            await conversation.set_incognito()
        said = f"  PRIVATE: {SAID}" if how == "prefix" else SAID
        turn = await told_turn(conversation, said, incognito=how == "turn")
        assert not await turn.wait_recorded()
        await memory.drain()
        (entry,) = await memory.space("user:ada").list()
        assert entry.text == "Ada's sister lives in Bergen"
        (traced,) = (await conversation.trace()).turns
    assert (traced.not_recorded, traced.turn.incognito, traced.turn.user_hash) == ("incognito", True, "")
    assert SECRET.encode() not in bytes_of(tmp_path)


async def test_an_incognito_turn_recalls_and_its_trace_has_no_question(memory: afterturn.Memory) -> None:
    """P2: recall as usual; the trace shows which memory was included, and not what was asked."""
    added = await memory.space("user:ada").add("Ada's sister lives in Bergen")
    conversation = memory.conversation("c", user="ada", incognito=True)
    messages = [user("Where does my sister live?")]
    async with conversation.turn(messages) as turn:
        assert await turn.inject(messages) is not None
        messages.append(assistant("In Bergen."))
    await memory.drain()
    (traced,) = (await conversation.trace()).turns
    (recall,) = traced.recalls
    assert [one.ref for one in recall.shown] == [added.entry.ref]
    assert (recall.row.question, recall.row.terms, recall.row.visible) == ("", (), ())
    replayed = await conversation.replay("last")
    assert [block.reason for block in replayed.blocks if not block.identical] in (
        [],
        ["the turn was incognito, so its question is not stored"],
    )


async def test_the_prefix_is_not_part_of_the_question(memory: afterturn.Memory) -> None:
    """P2: the words after it are asked."""
    await memory.space("user:ada").add("Ada's sister lives in Bergen")
    messages = [user("private: where does my sister live?")]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        assert await turn.inject(messages) is not None


async def test_a_private_interjection_makes_the_whole_turn_incognito(
    open_memory: OpenMemory, tmp_path: Path, told: Told
) -> None:
    """P2: reported or only seen in the list, in the middle of a turn."""
    for reported in (True, False):
        async with open_memory() as memory:
            conversation = memory.conversation(f"c{reported}", user="ada")
            messages = [user("What is new?")]
            async with conversation.turn(messages) as turn:
                messages += [call("one"), answer("one")]
                messages.append(user(f"private: {SAID}"))
                if reported:
                    turn.interject(f"private: {SAID}")
                    await turn.inject(messages)
                messages.append(assistant(f"I will not keep the {SECRET}."))
            assert not await turn.wait_recorded()
            await memory.drain()
            (traced,) = (await conversation.trace()).turns
        assert (traced.not_recorded, traced.turn.incognito) == ("incognito", True)
    assert SECRET.encode() not in bytes_of(tmp_path)
    assert [event.data["reason"] for event in told.events if event.name == "not_recorded"] == ["incognito"] * 2


async def test_a_follow_up_after_an_incognito_turn_does_not_repeat_its_words(
    open_memory: OpenMemory, tmp_path: Path
) -> None:
    """P2: a follow-up is asked with the message before it, unless that was said incognito."""
    async with open_memory() as memory:
        conversation = memory.conversation("c", user="ada")
        messages = [user(SAID)]
        async with conversation.turn(messages, incognito=True) as turn:
            messages.append(assistant("Fine."))
        await memory.drain()
        messages.append(user("and where is that?"))
        async with conversation.turn(messages) as turn:
            await turn.inject(messages)
            messages.append(assistant("In Bergen."))
        assert await turn.wait_recorded()
        await memory.drain()
    assert SECRET.encode() not in bytes_of(tmp_path)


async def test_a_compaction_is_not_reviewed_after_an_incognito_turn(
    open_memory: OpenMemory, tmp_path: Path, told: Told
) -> None:
    """P2, V9: the messages that are about to be removed may be private."""
    async with open_memory(review_compaction=True) as memory:
        conversation = memory.conversation("c", user="ada")
        await told_turn(conversation, SAID, incognito=True)
        await memory.drain()
        conversation.compacting([user(SAID), assistant("Fine.")])
        await memory.drain()
    assert told.named("review_scheduled") == []
    assert SECRET.encode() not in bytes_of(tmp_path)


async def test_a_sub_agent_of_an_incognito_turn_proposes_nothing(memory: afterturn.Memory) -> None:
    """P2, A3: neither by its answer nor by its tool."""
    conversation = memory.conversation("c", user="ada")
    messages = [user("private: look at the build")]
    async with conversation.turn(messages) as turn:
        await turn.inject(messages)
        turn.returned("look at the build", f"- The build takes a {SECRET} of 40 minutes")
        refused = await conversation.tools(remember=True).dispatch("remember_this", {"text": f"A {SECRET} is slow"})
        messages.append(assistant("Slow."))
    await memory.drain()
    assert "incognito" in refused
    assert await memory.space("user:ada").proposals() == []


async def test_a_resumed_turn_stays_incognito(open_memory: OpenMemory, tmp_path: Path) -> None:
    """P2: the process that finishes it was not told."""
    async with open_memory() as memory:
        await memory.conversation("c", user="ada").start_turn([user(SAID)], id="one", incognito=True)
    async with open_memory() as memory:
        turn = await memory.conversation("c", user="ada").resume_turn("one")
        turn.finish([user(SAID), assistant("Fine.")])
        assert not await turn.wait_recorded()
    assert SECRET.encode() not in bytes_of(tmp_path)


async def test_incognito_that_is_switched_on_in_a_turn_holds_for_that_turn(memory: afterturn.Memory) -> None:
    """P2: by another process, for example by the command."""
    conversation = memory.conversation("c", user="ada")
    messages = [user(SAID)]
    async with conversation.turn(messages) as turn:
        await turn.inject(messages)
        await conversation.set_incognito()
        messages.append(assistant("Fine."))
    assert not await turn.wait_recorded()
    assert await memory.space("user:ada").list(filter=ANYTHING) == []
    await conversation.set_incognito(False)
    assert not await conversation.is_incognito()
    await exchange(memory, "c", "Ada has a cat")
    assert len(await memory.space("user:ada").list(filter=ANYTHING)) == 2


async def test_an_incognito_turn_waits_in_no_file(open_memory: OpenMemory, tmp_path: Path) -> None:
    """P2, C4: also while the store cannot be written."""
    async with open_memory(busy_timeout=0.05, close_timeout=1.0) as memory:
        conversation = memory.conversation("c", user="ada", incognito=True)
        # The library of the store: another copy of SQLite in this process would drop its locks.
        other = apsw.Connection(str(tmp_path / "memory.db"))
        other.set_busy_timeout(10_000)
        other.execute("BEGIN IMMEDIATE")
        turn = await told_turn(conversation, SAID)
        assert not await turn.wait_recorded()
    other.close()
    assert SECRET.encode() not in bytes_of(tmp_path)


@pytest.mark.parametrize(
    "text, private",
    [("private: x", True), ("\n Private:x", True), ("privately", False), ("is it private: or not", False), ("", False)],
)
def test_only_the_beginning_of_a_message_asks_for_it(text: str, private: bool) -> None:
    """P2: the case does not matter."""
    assert is_private(text) is private
