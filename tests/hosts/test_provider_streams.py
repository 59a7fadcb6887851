"""A loop that streams its answer as an async generator: its consumer decides whether the turn ends."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from provider_hosts import SAID, WatchedConversation, begins_with, blocks_in, said_in, text_of
from provider_loops import connected
from provider_server import ProviderServer
from provider_wires import ChatWire, Reply

import afterturn
from afterturn.testing import EventLog
from afterturn.testing.hashing import HashingEmbedder
from afterturn.types import Filter, Kind

TRAIN = "The night train to Oslo leaves at nine."
CAT_ASKED, CAT_ANSWERED = "What food is my cat Miso allergic to?", "It is chicken "
TRAIN_ASKED, TRAIN_ANSWERED = "When does the night train to Oslo leave?", "At nine "
CAT = [("user", CAT_ASKED), ("assistant", CAT_ANSWERED)]
TRAVEL = [("user", TRAIN_ASKED), ("assistant", TRAIN_ANSWERED)]
Deltas = AsyncGenerator[str, None]


async def stream_openai(client: Any, conversation: Any, messages: list[Any]) -> Deltas:
    async with conversation.turn(messages) as turn:
        await turn.inject(messages)
        said = ""
        async with await client.chat.completions.create(model="gpt-5", messages=messages, stream=True) as stream:
            async for chunk in stream:
                delta = chunk.choices[0].delta.content or ""
                said += delta
                yield delta
        messages.append({"role": "assistant", "content": said})


class Chat:
    """A user who talks to a streaming agent, in one list."""

    def __init__(self, memory: afterturn.Memory, client: Any) -> None:
        self.memory = memory
        self.conversation = WatchedConversation(memory.conversation("tuesday", user="ada"))
        self.messages: list[Any] = []
        self._client = client

    def ask(self, text: str) -> Deltas:
        self.messages.append({"role": "user", "content": text})
        return stream_openai(self._client, self.conversation, self.messages)

    async def records(self) -> list[tuple[str | None, str]]:
        return said_in("tuesday", await self.memory.space("user:ada").list(filter=Filter(kind=Kind.RECORD)))


@pytest.fixture
def told() -> EventLog:
    return EventLog()


@pytest.fixture
async def memory(tmp_path: Path, told: EventLog) -> AsyncIterator[afterturn.Memory]:
    parts = afterturn.Components(embedder=HashingEmbedder())
    async with afterturn.open(tmp_path / "memory.db", on_event=told, components=parts) as opened:
        await opened.space("user:ada").add(SAID)
        await opened.space("user:ada").add(TRAIN)
        await opened.ready()
        yield opened


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer(ChatWire(), [Reply(CAT_ANSWERED), Reply(TRAIN_ANSWERED)]).serving() as serving:
        yield serving


@pytest.fixture
async def chat(memory: afterturn.Memory, server: ProviderServer) -> AsyncIterator[Chat]:
    async with connected("openai", server.origin) as client:
        yield Chat(memory, client)


async def broken_off(deltas: Deltas) -> None:
    """A consumer has seen a word and wants no more."""
    async for delta in deltas:
        if delta:
            return


async def exhausted(deltas: Deltas) -> str:
    return "".join([delta async for delta in deltas])


async def test_a_stream_that_is_read_to_its_end_is_recorded(chat: Chat, server: ProviderServer):
    """C1, H1: the generator leaves the turn when its consumer has the last word."""
    assert await exhausted(chat.ask(CAT_ASKED)) == CAT_ANSWERED
    assert await chat.conversation.turns[0].wait_recorded(within=30)
    assert await chat.records() == CAT
    (prompt,) = server.prompts
    assert blocks_in(prompt) == [1]
    assert SAID in text_of(prompt[1])


async def test_the_next_turn_takes_over_from_a_stream_that_was_broken_off(chat: Chat, server: ProviderServer):
    """R3, H3, C1: the turn that nobody left holds nothing up, and is not recorded as if it were complete."""
    first = chat.ask(CAT_ASKED)
    await broken_off(first)
    assert await exhausted(chat.ask(TRAIN_ASKED)) == TRAIN_ANSWERED
    left, taken_over = chat.conversation.turns
    assert await taken_over.wait_recorded(within=30)
    assert not await left.wait_recorded(within=0)
    assert await chat.records() == TRAVEL
    earlier, later = server.prompts
    assert begins_with(later, earlier)
    assert blocks_in(later) == [1, len(later) - 1]
    assert TRAIN in text_of(later[-1])
    assert SAID not in text_of(later[-1])
    await first.aclose()


async def test_a_stream_that_is_read_on_later_is_recorded_too(chat: Chat):
    """R3, C1: of two turns at once both are recorded if they complete, each with its own words."""
    first = chat.ask(CAT_ASKED)
    await broken_off(first)
    chat.messages = list(chat.messages)
    assert await exhausted(chat.ask(TRAIN_ASKED)) == TRAIN_ANSWERED
    assert CAT_ANSWERED.endswith(await exhausted(first))
    for turn in chat.conversation.turns:
        assert await turn.wait_recorded(within=30)
    assert sorted(await chat.records()) == sorted([*CAT, *TRAVEL])


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "dropped"])
async def test_a_stream_that_its_consumer_gives_up_is_aborted(chat: Chat, told: EventLog, closed: bool):
    """R4, C1: closing the generator ends its turn, and so does losing sight of it."""
    deltas = chat.ask(CAT_ASKED)
    await broken_off(deltas)
    if closed:
        await deltas.aclose()
    del deltas
    gc.collect()
    aborted = await asyncio.to_thread(told.wait, "turn_aborted")
    assert aborted.data["reason"] == "left_with_exception"
    assert await exhausted(chat.ask(TRAIN_ASKED)) == TRAIN_ANSWERED
    assert await chat.conversation.turns[1].wait_recorded(within=30)
    assert await chat.records() == TRAVEL


async def test_a_stream_that_nobody_reads_on_is_abandoned_with_its_memory(tmp_path: Path, server: ProviderServer):
    """C1: closing ends the turns that no host has ended."""
    async with connected("openai", server.origin) as client:
        async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
            chat = Chat(memory, client)
            deltas = chat.ask(CAT_ASKED)
            await broken_off(deltas)
        async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
            with pytest.raises(afterturn.AfterturnError, match="is already abandoned"):
                await memory.conversation("tuesday", user="ada").resume_turn(chat.conversation.turns[0].id)
        await deltas.aclose()
