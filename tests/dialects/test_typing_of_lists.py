"""Hosts' lists, typed as their client libraries type them, go through a turn. mypy reads these tests as strictly as
what we ship, so that a signature which no longer takes such a list fails the check."""

import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, assert_type

import pytest

import afterturn

with warnings.catch_warnings():
    # Their own sources warn when they are compiled for the first time.
    warnings.simplefilter("ignore")
    from anthropic.types import MessageParam
    from google.genai import types
    from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
    from openai.types.chat import ChatCompletionMessageParam
    from openai.types.responses import ResponseInputItemParam, ResponseInputParam

QUESTION = "What is my cat called?"


@pytest.fixture
async def conversation(tmp_path: Path) -> AsyncIterator[afterturn.Conversation]:
    async with afterturn.open(tmp_path / "memory.db") as memory:
        await memory.space("user:ada").add("The cat is called Turing")
        yield memory.conversation("typed", user="ada")


async def test_a_typed_chat_list_goes_through_a_turn(conversation: afterturn.Conversation) -> None:
    """H1: what comes back is an element of the list's own type."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": QUESTION}]
    async with conversation.turn(messages) as turn:
        element = await turn.inject(messages, within=30)
        assert_type(element, ChatCompletionMessageParam | None)
        assert_type(turn.inject_now(messages), ChatCompletionMessageParam | None)
        messages.append({"role": "assistant", "content": "Turing."})
        turn.complete(messages)
    assert element is messages[1]
    assert element == {"role": "user", "content": element["content"]}
    assert "Turing" in str(element["content"])
    assert await turn.wait_recorded(within=30)


async def test_a_typed_responses_list_goes_through_a_turn(conversation: afterturn.Conversation) -> None:
    """H1: under either of the names that the library gives it."""
    items: list[ResponseInputItemParam] = [
        {"role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
    ]
    async with conversation.turn(items) as turn:
        element = await turn.inject(items, within=30)
        assert_type(element, ResponseInputItemParam | None)
        items.append({"role": "assistant", "content": "Turing."})
        turn.complete(items)
    assert element is items[1]
    assert element["type"] == "message"
    assert await turn.wait_recorded(within=30)
    same: ResponseInputParam = items
    async with conversation.turn(same) as later:
        await later.inject(same)


async def test_a_typed_anthropic_list_goes_through_a_turn(conversation: afterturn.Conversation) -> None:
    """H1: what comes back is an element of the list's own type."""
    messages: list[MessageParam] = [
        {"role": "user", "content": [{"type": "text", "text": "Look:"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
    ]
    async with conversation.turn(messages) as turn:
        element = await turn.inject(messages, within=30)
        assert_type(element, MessageParam | None)
        messages.append({"role": "assistant", "content": "Turing."})
        turn.complete(messages)
    assert element is messages[3]
    assert element["role"] == "user"
    assert await turn.wait_recorded(within=30)


async def test_a_typed_gemini_list_goes_through_a_turn(conversation: afterturn.Conversation) -> None:
    """H1: a block goes in as what the list holds, one of the client's own objects."""
    contents: list[types.ContentUnion | types.ContentUnionDict] = [
        types.Content(role="user", parts=[types.Part(text=QUESTION)])
    ]
    async with conversation.turn(contents) as turn:
        element = await turn.inject(contents, within=30)
        contents.append(types.Content(role="model", parts=[types.Part(text="Turing.")]))
        turn.complete(contents)
    assert element is contents[1]
    assert isinstance(element, types.Content)
    assert element.role == "user"
    assert await turn.wait_recorded(within=30)
    own: list[types.Content] = []
    async with conversation.turn(own) as later:
        assert_type(await later.inject(own), types.Content | None)


async def test_a_typed_langchain_list_goes_through_a_turn(conversation: afterturn.Conversation) -> None:
    """H1: a block goes in as what the list holds, one of LangChain's own objects."""
    messages: list[BaseMessage] = [HumanMessage(QUESTION)]
    async with conversation.turn(messages) as turn:
        element = await turn.inject(messages, within=30)
        assert_type(element, BaseMessage | None)
        messages.append(AIMessage("Turing."))
        turn.complete(messages)
    assert element is messages[1]
    assert isinstance(element, HumanMessage)
    assert await turn.wait_recorded(within=30)
    others: list[AnyMessage] = []
    async with conversation.turn(others) as later:
        assert_type(await later.inject(others), AnyMessage | None)


async def test_a_typed_bedrock_list_goes_through_a_turn(conversation: afterturn.Conversation) -> None:
    """H1: boto3 has dictionaries; the block is in the message of the user."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"text": QUESTION}]}]
    async with conversation.turn(messages) as turn:
        element = await turn.inject(messages, within=30)
        assert_type(element, dict[str, Any] | None)
        messages.append({"role": "assistant", "content": [{"text": "Turing."}]})
        turn.complete(messages)
    assert element is messages[0]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert await turn.wait_recorded(within=30)
