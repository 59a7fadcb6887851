"""Messages that one process records are in the prompts of the next, in every provider format."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from provider_hosts import ANSWERS, ASKED, LOOKS, SAID, WatchedConversation, blocks_in, text_of
from provider_loops import NAMES, connected, get_loop, run_tool
from provider_server import ProviderServer
from provider_wires import Reply

import afterturn
from afterturn.types import Filter, Kind

pytestmark = pytest.mark.slow
TOLD = "Please remember that my spare key is under the blue flower pot."
LEARNED = "spare key is under the blue flower pot"
ASKED_FOR_KEY = "Where did I put my spare key?"
CHILD_WITHIN = 100.0
every_loop = pytest.mark.parametrize("name", NAMES)


@dataclass(frozen=True)
class Provider:
    server: ProviderServer
    store: Path


@pytest.fixture(scope="module")
def providers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Provider]]:
    """A store for each format, in which another process, that has ended, has recorded and learned."""
    folder = tmp_path_factory.mktemp("composition")
    with ExitStack() as stack:
        served = {
            name: Provider(
                stack.enter_context(ProviderServer(get_loop(name).wire, []).serving()), folder / f"{name}.db"
            )
            for name in NAMES
        }
        for provider in served.values():
            provider.server.script.extend([LOOKS, Reply("Poor Miso."), Reply("I will.")])
        play_elsewhere([(name, one.server.origin, str(one.store), [SAID, TOLD]) for name, one in served.items()])
        yield served


def play_elsewhere(arguments: list[tuple[str, str, str, list[str]]]) -> None:
    child = Path(__file__).with_name("provider_child.py")
    subprocess.run(
        [sys.executable, str(child)],
        input=json.dumps(arguments).encode(),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        timeout=CHILD_WITHIN,
    )


@pytest.fixture
async def memory(providers: dict[str, Provider], name: str) -> AsyncIterator[afterturn.Memory]:
    async with afterturn.open(providers[name].store, {"embedder": "none"}) as opened:
        yield opened


async def ask(memory: afterturn.Memory, server: ProviderServer, name: str, text: str) -> list[list[dict[str, Any]]]:
    """One turn of this process in a new conversation; the prompts that its model was sent."""
    loop = get_loop(name)
    server.prompts.clear()
    server.script.extend([LOOKS, ANSWERS])
    conversation = WatchedConversation(memory.conversation(f"asked: {text}", user="ada"))
    messages: list[Any] = [loop.wire.user(text)]
    async with connected(name, server.origin) as client:
        await loop.ask(client, conversation, messages, loop.tools, run_tool)
    assert await conversation.turns[-1].wait_recorded(within=30)
    return list(server.prompts)


def block_of(prompt: list[dict[str, Any]]) -> str:
    (at,) = blocks_in(prompt)
    return text_of(prompt[at])


@every_loop
async def test_messages_of_another_process_are_in_every_prompt_of_a_later_turn(
    memory: afterturn.Memory, providers: dict[str, Provider], name: str
):
    """C1, C2, H1, H3: word by word, once, from the first model request on; what a tool answered then is not (C6)."""
    first, second = await ask(memory, providers[name].server, name, ASKED)
    assert block_of(first) == block_of(second)
    assert block_of(first).count(SAID) == 1
    assert "has nothing about" not in block_of(first)


@every_loop
async def test_facts_learned_in_another_process_are_in_every_prompt_of_a_later_turn(
    memory: afterturn.Memory, providers: dict[str, Provider], name: str
):
    """V11, V5, L10, H1: as one statement that names its author, without its source message."""
    statements = await memory.space("user:ada").list(filter=Filter(kind=Kind.STATEMENT))
    (learned,) = [statement for statement in statements if LEARNED in statement.text]
    first, second = await ask(memory, providers[name].server, name, ASKED_FOR_KEY)
    assert block_of(first) == block_of(second)
    assert block_of(first).count(LEARNED) == 1
    assert learned.id in block_of(first)
    (rests_on,) = learned.sources
    assert (await memory.space("user:ada").get(rests_on)).text == TOLD
