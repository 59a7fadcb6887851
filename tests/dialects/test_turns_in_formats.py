"""Whole turns of a raw loop in every format, over a real store."""

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from client_libraries import as_objects, parsed
from histories import NAMES, Call, Step, Turn, unpaired, write

import afterturn
from afterturn.dialects import Dialect, get_dialect
from afterturn.dialects.history import find_point
from afterturn.types import Filter, Kind

CAT = "Ada's cat is called Turing"
CALLS = (Call("a", "search", "a cat"), Call("b", "search", "a dog"))
TURN = Turn("What is my cat called?", steps=(Step("Let me look.", CALLS, thinks=True),), answer="Turing.", thinks=True)
NEXT = Turn("And what does my cat called Turing eat?", answer="Fish.")
formats = pytest.mark.parametrize("name", NAMES)
placements = pytest.mark.parametrize("placement", ["append", "merge"])


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[afterturn.Memory]:
    async with afterturn.open(tmp_path / "memory.db") as opened:
        await opened.space("user:ada").add(CAT)
        await opened.ready()
        yield opened


async def play(conversation: Any, messages: list[Any], script: list[Any], *, begin_at: int) -> list[int]:
    """One turn as a raw loop has it; asks for a block from the `begin_at`-th element on. Gives the places of blocks."""
    places = []
    messages.append(script[0])
    async with conversation.turn(messages) as turn:
        for at, message in enumerate(script[1:], 1):
            if at >= begin_at and await turn.inject(messages, within=30) is not None:
                places.append(at)
            messages.append(message)
        turn.complete(messages)
    assert await turn.wait_recorded(within=30)
    return places


def tool_point(dialect: Dialect, messages: list[Any]) -> int:
    return next(at for at in range(2, len(messages)) if find_point(dialect, messages[:at]) is not None)


async def records(memory: afterturn.Memory) -> list[tuple[str | None, str]]:
    entries = await memory.space("user:ada").list(filter=Filter(kind=Kind.RECORD), limit=100)
    return [(entry.speaker, entry.text) for entry in sorted(entries, key=lambda entry: entry.position or 0)]


SAID = [
    ("user", "What is my cat called?"),
    ("assistant", "Let me look."),
    ("tool", "a cat"),
    ("tool", "a dog"),
    ("assistant", "Turing."),
]


@formats
@placements
@pytest.mark.parametrize("late", [False, True], ids=["at the user's message", "at the tool results"])
async def test_a_block_reaches_the_model_once_and_is_not_recorded(memory, name, placement, late):
    """H1, H2, C1, C5: at either point, in either placement, and the client would take the list."""
    script: list[Any] = write(name, [TURN])
    before = copy.deepcopy(script)
    conversation = memory.conversation("c", user="ada", placement=placement)
    point = tool_point(get_dialect(name), script) if late else 1
    messages: list[Any] = []
    assert await play(conversation, messages, script, begin_at=2 if late else 1) == [point]
    parsed(name, messages)
    assert unpaired(name, messages) == []
    assert str(messages).count(CAT) == 1
    assert await records(memory) == SAID
    assert script == before


@formats
@placements
async def test_visible_memories_are_not_repeated(memory, name, placement):
    """H6, L3: a block is known again in the host's list, as an element or in one."""
    conversation = memory.conversation("c", user="ada", placement=placement)
    messages: list[Any] = []
    assert await play(conversation, messages, write(name, [TURN]), begin_at=1) == [1]
    assert await play(conversation, messages, write(name, [NEXT]), begin_at=1) == []
    assert str(messages).count(CAT) == 1


@formats
@placements
async def test_the_clients_own_objects_go_through_a_turn(memory, name, placement):
    """H1, H3, C1: as a host has them that appends what its client gave it."""
    script = as_objects(name, write(name, [TURN]))
    before = copy.deepcopy(script)
    messages: list[Any] = []
    conversation = memory.conversation("c", user="ada", placement=placement)
    assert await play(conversation, messages, script, begin_at=2) == [tool_point(get_dialect(name), script)]
    assert await records(memory) == SAID
    assert script == before


@formats
async def test_a_format_that_the_host_named_is_used(memory, name):
    """H1: a list that could be in several formats gets the named one's shape."""
    conversation = memory.conversation("c", user="ada", dialect=name)
    script = write(name, [TURN])
    messages: list[Any] = [script[0]]
    async with conversation.turn(messages) as turn:
        element = await turn.inject(messages, within=30)
        turn.abort()
    dialect = get_dialect(name)
    read = dialect.read(element)
    assert read is not None
    block = read.text_of("user").removeprefix(f"{TURN.text}\n")
    assert element == (dialect.merged(script[0], block) if dialect.alternates else dialect.make_message("user", block))
    assert CAT in block
