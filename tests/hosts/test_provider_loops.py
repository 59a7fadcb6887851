"""The loops of docs/providers.md with the providers' own clients and a real memory, as the servers see them."""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from provider_hosts import (
    ANSWERS,
    ASKED,
    LOOKS,
    RECORDED,
    SAID,
    TAG,
    HeldEmbedder,
    WatchedConversation,
    begins_with,
    blocks_in,
    said_in,
    settle_before_first_reply,
    text_of,
)
from provider_loops import NAMES, Loop, connected, get_loop, run_tool
from provider_server import ProviderServer
from provider_wires import Reply, refusal

import afterturn
from afterturn.types import Filter, Kind

ASKED_AGAIN = "So is my cat Miso allergic to chicken soup?"
every_loop = pytest.mark.parametrize("name", NAMES)


class Host:
    """One loop, one server, one memory in which it is known what Ada said on Monday."""

    def __init__(self, loop: Loop, memory: afterturn.Memory, server: ProviderServer, client: Any) -> None:
        self.loop = loop
        self.memory = memory
        self.server = server
        self._client = client

    async def ask(self, conversation: WatchedConversation, messages: list[Any], text: str, *script: Reply) -> str:
        """One turn, recorded."""
        self.server.script.extend(script)
        messages.append(self.loop.wire.user(text))
        answer = await self.loop.ask(self._client, conversation, messages, self.loop.tools, run_tool)
        assert await conversation.turns[-1].wait_recorded(within=30)
        return str(answer)

    def conversation(self, id: str, **where: Any) -> WatchedConversation:
        return WatchedConversation(self.memory.conversation(id, user="ada", **where))

    async def records(self, conversation: str) -> list[tuple[str | None, str]]:
        entries = await self.memory.space("user:ada").list(filter=Filter(kind=Kind.RECORD), limit=100)
        return said_in(conversation, entries)


@pytest.fixture
async def host(name: str, tmp_path: Path, embedder: HeldEmbedder) -> AsyncIterator[Host]:
    loop = get_loop(name)
    async with afterturn.open(tmp_path / "memory.db", components=afterturn.Components(embedder=embedder)) as memory:
        await memory.ready()
        with ProviderServer(loop.wire, []).serving() as server:
            async with connected(name, server.origin) as client:
                opened = Host(loop, memory, server, client)
                assert await opened.ask(opened.conversation("monday"), [], SAID, Reply("Noted.")) == "Noted."
                server.prompts.clear()
                yield opened


@every_loop
async def test_the_next_conversation_is_reminded_at_the_users_message(host: Host):
    """H1, H2, H3, C1, C5, C6: once, as a message of the user's, in every prompt of the turn from the first one on."""
    conversation = host.conversation("tuesday")
    assert await host.ask(conversation, [], ASKED, LOOKS, ANSWERS) == "Chicken."
    first, second = host.server.prompts
    assert blocks_in(first) == blocks_in(second) == [1]
    assert first[1] == host.loop.wire.user(text_of(first[1]))
    assert SAID in text_of(first[1])
    assert begins_with(second, first)
    assert await host.records("tuesday") == RECORDED


@every_loop
async def test_a_slow_recall_comes_with_the_tool_results(host: Host, embedder: HeldEmbedder):
    """H1, H2, H3, C1, C5: once, after all of them, in the shape that the provider has for it."""
    conversation = host.conversation("tuesday")
    settle_before_first_reply(host.server, embedder, conversation)
    assert await host.ask(conversation, [], ASKED, LOOKS, ANSWERS) == "Chicken."
    first, second = host.server.prompts
    assert first == [host.loop.wire.user(ASKED)]
    assert blocks_in(second) == [len(second) - 1]
    assert host.loop.wire.results(second[-2]) != []
    assert second[-1] == host.loop.wire.block(text_of(second[-1]))
    assert SAID in text_of(second[-1])
    assert begins_with(second, first)
    assert await host.records("tuesday") == RECORDED


@every_loop
async def test_a_conversation_continues_without_repeating_its_options(host: Host, embedder: HeldEmbedder):
    """H3, H6, L3: what the model sees is not said twice, and no byte of an earlier prompt changes."""
    conversation = host.conversation("tuesday")
    messages: list[Any] = []
    settle_before_first_reply(host.server, embedder, conversation)
    await host.ask(conversation, messages, ASKED, LOOKS, ANSWERS)
    await host.ask(conversation, messages, ASKED_AGAIN, LOOKS, Reply("No soup."))
    prompts = host.server.prompts
    assert len(prompts) == 4
    assert all(begins_with(later, earlier) for earlier, later in pairwise(prompts))
    assert json.dumps(prompts[-1]).count(TAG) == 1
    assert await host.records("tuesday") == [
        *RECORDED,
        ("user", ASKED_AGAIN),
        *RECORDED[1:4],
        ("assistant", "No soup."),
    ]


@every_loop
async def test_tool_outputs_are_kept_and_not_recalled(host: Host):
    """C6: what a tool said on Tuesday is no memory on Wednesday."""
    await host.ask(host.conversation("tuesday"), [], ASKED, LOOKS, ANSWERS)
    host.server.prompts.clear()
    await host.ask(host.conversation("wednesday"), [], "What does the shelf say about cats and soup?", ANSWERS)
    (prompt,) = host.server.prompts
    assert "has nothing about" not in json.dumps(prompt)


@every_loop
async def test_a_server_refuses_messages_between_a_call_and_its_result(host: Host):
    """H1: the servers of these tests see what the providers' would."""
    await host.ask(host.conversation("tuesday"), [], ASKED, LOOKS, ANSWERS)
    wire, prompt = host.loop.wire, host.server.prompts[-1]
    assert refusal(wire, prompt) is None
    call = max(at for at, element in enumerate(prompt) if wire.calls(element))
    assert refusal(wire, [*prompt[: call + 1], wire.user("Hello"), *prompt[call + 1 :]]) is not None
    assert refusal(wire, prompt[: call + 1]) is not None
    assert refusal(wire, prompt[call + 1 :]) is not None
