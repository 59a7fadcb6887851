"""A host's messages are read once, and again when the host has edited them."""

from collections.abc import Iterator

import pytest
from spoken import answer, assistant, call, user

import afterturn
from afterturn.dialects.dialect import Element
from afterturn.dialects.history import DIALECTS, register_dialect
from afterturn.dialects.openai_chat import OpenAIChat
from afterturn.types import Taint


class CountingChat(OpenAIChat):
    name = "counting"
    reads = 0

    def read(self, message: object) -> Element | None:
        self.reads += 1
        return super().read(message)


@pytest.fixture
def chat() -> Iterator[CountingChat]:
    chat = CountingChat()
    register_dialect(chat)
    yield chat
    del DIALECTS[chat.name]


def history(length: int) -> list[dict[str, object]]:
    turns = (
        [user(f"Question {at}"), call(f"c{at}"), answer(f"c{at}"), assistant(f"Answer {at}")] for at in range(length)
    )
    return [message for turn in turns for message in turn]


async def test_a_turn_reads_only_what_is_new_in_its_list(memory: afterturn.Memory, chat: CountingChat) -> None:
    """H6, G2b: neither the next steps nor the next turn read a thousand known messages again."""
    await memory.space("user:ada").add("Ada's cat is called Miso")
    conversation = memory.conversation("c", user="ada", dialect=chat.name)
    messages, reads = [*history(250), user("Hello there")], []
    for words in ("What is my cat called?", "What else do you know about my cat?"):
        async with conversation.turn(messages) as turn:
            await turn.inject(messages)
            reads.append(chat.reads)
            await turn.inject(messages)
            reads.append(chat.reads)
            messages.append(assistant("I see."))
        assert await turn.wait_recorded()
        messages.append(user(words))
    first, second_step, next_turn, last = reads
    assert first >= 1_000
    assert second_step == first
    assert next_turn - second_step < 20
    assert last == next_turn


@pytest.mark.parametrize("step", ["next step", "next turn"])
@pytest.mark.parametrize("edit", ["text", "part"])
async def test_an_element_that_is_edited_in_place_is_read_again(memory: afterturn.Memory, step: str, edit: str) -> None:
    """G2b: text of others may enter an element that was read before."""
    conversation, parts = memory.conversation("c", user="ada"), [{"type": "text", "text": "Hello there"}]
    said = user("Hello there") if edit == "text" else {"role": "user", "content": parts}
    messages: list[dict[str, object]] = [said]

    def paste() -> None:
        if edit == "text":
            said["content"] = "See this log:\n```\nTraceback (most recent call last)\n```"
        else:
            parts.append({"type": "document", "text": "The port is 9999."})

    async with conversation.turn(messages, id="first") as turn:
        await turn.inject(messages)
        assert await turn.is_clean()
        if step == "next step":
            paste()
            assert await turn.inject(messages) is None
            assert not await turn.is_clean()
        messages.append(assistant("I see."))
    assert await turn.wait_recorded()
    if step == "next turn":
        paste()
        messages.append(user("What is my cat called?"))
        async with conversation.turn(messages, id="second") as turn:
            await turn.inject(messages)
            assert not await turn.is_clean()
            messages.append(assistant("I do not know."))
        assert await turn.wait_recorded()
        trace = await conversation.trace("second")
        assert trace.turns[0].turn.taint is Taint.EARLIER
