"""The loops of docs/providers.md with synchronous clients: inside async code, and without an event loop."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
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
    text_of,
)
from provider_loops import (
    NAMES,
    blocking,
    connected_sync,
    get_loop,
    look_up,
    never_yielding,
    run_tool,
    with_sync_client,
)
from provider_server import ProviderServer

import afterturn
import afterturn.blocking
from afterturn.types import Filter, Kind

every_loop = pytest.mark.parametrize("name", NAMES)
RECORDS = Filter(kind=Kind.RECORD)


@pytest.fixture
def blocking_memory(tmp_path: Path, embedder: HeldEmbedder) -> Iterator[afterturn.blocking.Memory]:
    with afterturn.blocking.open(tmp_path / "memory.db", components=afterturn.Components(embedder=embedder)) as opened:
        opened.space("user:ada").add(SAID)
        opened.ready()
        yield opened


@pytest.fixture
def server(name: str) -> Iterator[ProviderServer]:
    with ProviderServer(get_loop(name).wire, [LOOKS, ANSWERS]).serving() as serving:
        yield serving


@pytest.fixture
def client(name: str, server: ProviderServer) -> Iterator[Any]:
    with connected_sync(name, server.origin) as connected:
        yield connected


def comes_with_the_results(server: ProviderServer) -> bool:
    """The second prompt is the first one, the calls, their results and the block."""
    first, second = server.prompts
    is_last = blocks_in(first) == [] and blocks_in(second) == [len(second) - 1]
    return is_last and begins_with(second, first) and SAID in text_of(second[-1])


@every_loop
@pytest.mark.parametrize("rewritten", [with_sync_client, never_yielding])
async def test_a_recall_settles_while_the_hosts_event_loop_is_blocked(
    memory: afterturn.Memory,
    server: ProviderServer,
    client: Any,
    name: str,
    embedder: HeldEmbedder,
    rewritten: Callable[[str], str],
):
    """R2, H1: memory has a loop of its own, so a recall that came during a blocking call is handed over after it."""
    loop, conversation = get_loop(name, rewritten), WatchedConversation(memory.conversation("tuesday", user="ada"))
    settle_before_first_reply(server, embedder, conversation)
    ticks: list[bool] = []
    asyncio.get_running_loop().call_soon(ticks.append, True)
    assert await loop.ask(client, conversation, [loop.wire.user(ASKED)], loop.tools, run_tool) == "Chicken."
    assert ticks == ([] if rewritten is never_yielding else [True])
    assert comes_with_the_results(server)
    assert await conversation.turns[-1].wait_recorded(within=30)
    assert said_in("tuesday", await memory.space("user:ada").list(filter=RECORDS)) == RECORDED


@every_loop
def test_a_loop_without_async_and_await_is_reminded_at_the_users_message(
    blocking_memory: afterturn.blocking.Memory, server: ProviderServer, client: Any, name: str
):
    """H1, H2, H3, C1, C5: the same lines, the same block, the same records."""
    loop, conversation = (
        get_loop(name, blocking),
        WatchedConversation(blocking_memory.conversation("tuesday", user="ada")),
    )
    assert loop.ask(client, conversation, [loop.wire.user(ASKED)], loop.tools, look_up) == "Chicken."
    first, second = server.prompts
    assert blocks_in(first) == blocks_in(second) == [1]
    assert SAID in text_of(first[1])
    assert begins_with(second, first)
    assert conversation.turns[-1].wait_recorded(within=30)
    assert said_in("tuesday", blocking_memory.space("user:ada").list(filter=RECORDS)) == RECORDED


@every_loop
def test_a_loop_without_async_and_await_gets_a_slow_recall_with_the_results(
    blocking_memory: afterturn.blocking.Memory, server: ProviderServer, client: Any, name: str, embedder: HeldEmbedder
):
    """H1, H2, H3, C1, C5: the thread waits no longer than the grace, and gets the block at the next point."""
    loop, conversation = (
        get_loop(name, blocking),
        WatchedConversation(blocking_memory.conversation("tuesday", user="ada")),
    )
    settle_before_first_reply(server, embedder, conversation)
    assert loop.ask(client, conversation, [loop.wire.user(ASKED)], loop.tools, look_up) == "Chicken."
    assert comes_with_the_results(server)
    assert conversation.turns[-1].wait_recorded(within=30)
    assert said_in("tuesday", blocking_memory.space("user:ada").list(filter=RECORDS)) == RECORDED
