"""The README's loops with the providers' own clients, over a real memory, as the providers' servers see them."""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from provider_hosts import (
    TAG,
    TOOL,
    HeldEmbedder,
    Loop,
    Watched,
    loops,
    open_memory,
    records,
    run_tool,
    settle_before_first_reply,
)
from provider_server import ProviderServer
from provider_wires import Call, Json, Reply, refusal

import afterturn

SAID = "My cat Miso is allergic to chicken."
ASKED = "What food is my cat Miso allergic to?"
ASKED_AGAIN = "So is my cat Miso allergic to chicken soup?"
CALLS = (Call("call_a", TOOL, {"what": "cats"}), Call("call_b", TOOL, {"what": "soup"}))
LOOKS = Reply("Let me look.", CALLS)
ANSWERS = Reply("Chicken.")
LOOPS = loops()
every_loop = pytest.mark.parametrize("name", LOOPS)
ON_TUESDAY = [
    ("user", ASKED),
    ("assistant", "Let me look."),
    ("tool", "The shelf has nothing about cats."),
    ("tool", "The shelf has nothing about soup."),
    ("assistant", "Chicken."),
]


class Host:
    """One loop, one server, one memory in which it is known what Ada said on Monday."""

    def __init__(self, loop: Loop, memory: afterturn.Memory, server: ProviderServer, client: Any) -> None:
        self.loop = loop
        self.memory = memory
        self.server = server
        self._client = client

    async def ask(self, conversation: Watched, messages: list[Any], text: str, *script: Reply) -> str:
        """One turn, recorded."""
        self.server.script.extend(script)
        messages.append(self.loop.wire.user(text))
        answer = await self.loop.ask(self._client, conversation, messages, self.loop.tools, run_tool)
        assert await conversation.turns[-1].wait_recorded(within=30)
        return answer

    def conversation(self, id: str, **where: Any) -> Watched:
        return Watched(self.memory.conversation(id, user="ada", **where))


@pytest.fixture
def embedder() -> HeldEmbedder:
    return HeldEmbedder()


@pytest.fixture
async def host(request: pytest.FixtureRequest, tmp_path: Path, embedder: HeldEmbedder) -> AsyncIterator[Host]:
    loop = LOOPS[request.getfixturevalue("name")]
    async with open_memory(tmp_path, embedder) as memory:
        await memory.ready()
        with ProviderServer(loop.wire, []).serving() as server:
            async with loop.client(server.origin) as client:
                opened = Host(loop, memory, server, client)
                assert await opened.ask(opened.conversation("monday"), [], SAID, Reply("Noted.")) == "Noted."
                server.prompts.clear()
                yield opened


def blocks_in(prompt: list[Json]) -> list[int]:
    """Where elements stand that carry a block."""
    return [at for at, element in enumerate(prompt) if TAG in json.dumps(element)]


def begins_with(prompt: list[Json], earlier: list[Json]) -> bool:
    """To the byte, as a prompt cache would have it."""
    return json.dumps(prompt).startswith(json.dumps(earlier)[:-1])


def text_of(element: Json) -> str:
    """Of an element with nothing but one text."""
    content = element.get("content") or element["parts"]
    return str(content if isinstance(content, str) else content[0]["text"])


@every_loop
async def test_the_next_conversation_is_reminded_at_the_users_message(host: Host, name: str):
    """H1, H2, H3, C1, C5: once, as a message of the user's, in every prompt of the turn from the first one on."""
    conversation = host.conversation("tuesday")
    assert await host.ask(conversation, [], ASKED, LOOKS, ANSWERS) == "Chicken."
    first, second = host.server.prompts
    assert blocks_in(first) == blocks_in(second) == [1]
    assert first[1] == host.loop.wire.user(text_of(first[1]))
    assert SAID in text_of(first[1])
    assert "shelf" not in text_of(first[1])
    assert begins_with(second, first)
    assert await records(host.memory, "tuesday") == ON_TUESDAY


@every_loop
async def test_a_slow_recall_comes_with_the_tool_results(host: Host, name: str, embedder: HeldEmbedder):
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
    assert await records(host.memory, "tuesday") == ON_TUESDAY


@every_loop
async def test_a_conversation_goes_on_without_being_told_again(host: Host, name: str, embedder: HeldEmbedder):
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
    assert (await records(host.memory, "tuesday"))[5:] == [
        ("user", ASKED_AGAIN),
        *ON_TUESDAY[1:4],
        ("assistant", "No soup."),
    ]


@every_loop
async def test_a_server_refuses_what_stands_between_a_call_and_its_result(host: Host, name: str):
    """H1: the servers of these tests see what the providers' would."""
    await host.ask(host.conversation("tuesday"), [], ASKED, LOOKS, ANSWERS)
    wire, prompt = host.loop.wire, host.server.prompts[-1]
    assert refusal(wire, prompt) is None
    call = max(at for at, element in enumerate(prompt) if wire.calls(element))
    assert refusal(wire, [*prompt[: call + 1], wire.user("Hello"), *prompt[call + 1 :]]) is not None
    assert refusal(wire, prompt[: call + 1]) is not None
    assert refusal(wire, prompt[call + 1 :]) is not None
