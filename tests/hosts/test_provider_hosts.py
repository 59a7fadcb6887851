"""Other hosts over the providers' clients: merged blocks, the client's own objects, calls without ids, a history that
the provider keeps."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from provider_hosts import (
    ANSWERS,
    ASKED,
    LOOKS,
    RECORDED,
    SAID,
    HeldEmbedder,
    WatchedConversation,
    begins_with,
    blocks_in,
    said_in,
    settle_before_first_reply,
)
from provider_loops import NAMES, TOOL, ask_kept, connected, get_loop, run_tool, types
from provider_server import ProviderServer
from provider_wires import GeminiWire, Reply, ResponsesWire, Wire

import afterturn
from afterturn.types import Filter, Kind

TRAIN = "The night train to Oslo leaves at nine."
every_loop = pytest.mark.parametrize("name", NAMES)
at_either_point = pytest.mark.parametrize("late", [False, True], ids=["at the user's message", "at the tool results"])
# Where a tool's results are messages of their own role, nothing of the user's is left to merge with.
MERGES_WITH_RESULTS = ("anthropic", "gemini")


@pytest.fixture
def wire(name: str) -> Wire:
    return get_loop(name).wire


@pytest.fixture
def server(wire: Wire) -> Iterator[ProviderServer]:
    with ProviderServer(wire, [LOOKS, ANSWERS]).serving() as serving:
        yield serving


async def play(name: str, server: ProviderServer, conversation: WatchedConversation, messages: list[Any]) -> None:
    loop = get_loop(name)
    async with connected(name, server.origin) as client:
        assert await loop.ask(client, conversation, messages, loop.tools, run_tool) == "Chicken."
    assert await conversation.turns[-1].wait_recorded(within=30)


async def records(memory: afterturn.Memory) -> list[tuple[str | None, str]]:
    return said_in("tuesday", await memory.space("user:ada").list(filter=Filter(kind=Kind.RECORD)))


@every_loop
@at_either_point
async def test_a_merged_block_leaves_roles_alternating(
    memory: afterturn.Memory, server: ProviderServer, embedder: HeldEmbedder, name: str, late: bool
):
    """H1, H3, C5: it is in an element that was not sent before, behind what the user or the tools said."""
    conversation = WatchedConversation(memory.conversation("tuesday", user="ada", placement="merge"))
    if late:
        settle_before_first_reply(server, embedder, conversation)
    await play(name, server, conversation, [server.wire.user(ASKED)])
    first, second = server.prompts
    (at,) = blocks_in(second)
    is_merged = not late or name in MERGES_WITH_RESULTS
    assert at == (len(second) - 1 if late else 0)
    assert (server.wire.results(second[at]) != []) == (late and is_merged)
    assert json.dumps(second[at]).count(ASKED) == (not late)
    assert len(first) == 1
    assert begins_with(second, first)
    if name in MERGES_WITH_RESULTS:
        assert all(one["role"] != following["role"] for one, following in pairwise(second))
    assert await records(memory) == RECORDED


@pytest.mark.parametrize("name", ["gemini"])
async def test_among_the_clients_own_objects_a_block_is_one_too(
    memory: afterturn.Memory, server: ProviderServer, name: str
):
    """H1: a host that reads `content.parts` finds them in every element, and the wire sees no difference."""
    conversation = WatchedConversation(memory.conversation("tuesday", user="ada"))
    contents: list[Any] = [types.Content(role="user", parts=[types.Part(text=ASKED)])]
    await play(name, server, conversation, contents)
    assert type(contents[1]) is types.Content
    assert SAID in contents[1].parts[0].text
    assert server.prompts[0][1] == server.wire.block(contents[1].parts[0].text)
    assert await records(memory) == RECORDED


@pytest.mark.parametrize("name, wire", [("gemini", GeminiWire(has_ids=False))])
@at_either_point
async def test_calls_without_ids_are_paired_by_name_and_number(
    memory: afterturn.Memory, server: ProviderServer, embedder: HeldEmbedder, name: str, late: bool
):
    """H1: two calls of one tool are answered when there are two responses."""
    conversation = WatchedConversation(memory.conversation("tuesday", user="ada"))
    if late:
        settle_before_first_reply(server, embedder, conversation)
    await play(name, server, conversation, [server.wire.user(ASKED)])
    second = server.prompts[1]
    assert server.wire.results(second[-2 if late else -1]) == [TOOL, TOOL]
    assert blocks_in(second) == [len(second) - 1 if late else 1]
    assert await records(memory) == RECORDED


@pytest.mark.parametrize("wire", [ResponsesWire()])
@at_either_point
async def test_a_history_that_the_provider_keeps_gets_its_block_once(
    memory: afterturn.Memory, server: ProviderServer, embedder: HeldEmbedder, wire: Wire, late: bool
):
    """H1, H2, H6, L3: what was handed over is in sight, though the host's list does not show it."""
    await memory.space("user:ada").add(TRAIN)
    conversation = WatchedConversation(memory.conversation("tuesday", user="ada", history="hidden"))
    if late:
        settle_before_first_reply(server, embedder, conversation)
    tools = get_loop("responses").tools
    server.script.append(Reply("At nine."))
    async with connected("responses", server.origin) as client:
        reply = await ask_kept(client, conversation, ASKED, tools, run_tool, None)
        assert await conversation.turns[-1].wait_recorded(within=30)
        await ask_kept(client, conversation, f"{ASKED} And when does the night train leave?", tools, run_tool, reply.id)
    first, second, third = server.prompts
    place = len(second) - 1 if late else 1
    assert blocks_in(first) == ([] if late else [1])
    assert blocks_in(second) == [place]
    assert blocks_in(third) == [place, len(third) - 1]
    assert json.dumps(third).count(SAID) == json.dumps(third).count(TRAIN) == 1
    assert begins_with(third, second)
    assert (await records(memory))[:2] == [RECORDED[0], RECORDED[-1]]
