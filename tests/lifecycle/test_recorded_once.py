"""A turn is recorded, counted and reviewed once, even if several processes record it."""

from __future__ import annotations

from pathlib import Path

import pytest
from children import HOLD_THE_LOCK, StartChild
from exchanges import NO_EMBEDDER, WAIT, exchange

import afterturn
from afterturn.testing import EventLog
from afterturn.types import ConversationKey, Filter, Kind, ReviewKind

PROCESSES = 4
KEY = ConversationKey("default", "user:ada", "c")
SAID = "Please remember that my spare key is under the blue pot."
LEARNING = {**NO_EMBEDDER, "review_interval": 3}
RECORD = """
settings = {"embedder": "none", "review_interval": 3, "busy_timeout": 20.0}
with blocking.open(path, settings, background=False) as memory:
    say("ready")
    hear()
    with memory.conversation("c", user="ada").turn(exchange(arguments[0]), id="turn-1") as turn:
        pass
    say(turn.wait_recorded(within=20))
"""


async def followed(memory: afterturn.Memory) -> tuple[int, list[ReviewKind], int]:
    """How many messages are recorded, which reviews are scheduled, and how many turns count for the next one."""
    space = memory.space("user:ada")
    records = await space.list(filter=Filter(kind=Kind.RECORD))
    assert memory._services.store is not None
    counted, _ = await memory._services.store.read(lambda unit: unit.reviews.unreviewed(KEY), at=None)
    return len(records), [row.kind for row in await space.reviews()], counted


async def leave(memory: afterturn.Memory) -> afterturn.Turn:
    async with memory.conversation("c", user="ada").turn(exchange(SAID), id="turn-1") as turn:
        pass
    return turn


@pytest.mark.slow
async def test_one_turn_of_many_processes_is_recorded_counted_and_reviewed_once(path: Path, start: StartChild) -> None:
    """C3, V1, V11: at the same moment, from processes that know nothing of each other."""
    async with afterturn.open(path, NO_EMBEDDER):
        pass
    children = [start(RECORD, SAID) for _ in range(PROCESSES)]
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        child.say()
    answers = [child.result() for child in children]
    async with afterturn.open(path, NO_EMBEDDER, background=False) as memory:
        once = await followed(memory)
    assert answers == [["True"]] * PROCESSES
    assert once == (2, [ReviewKind.RULES], 1)


async def test_a_turn_that_is_repeated_after_a_restart_teaches_nothing_twice(path: Path) -> None:
    """C3, V1, V11: the same turn id, said again by a host that does not know what became of it."""
    for _ in range(3):
        async with afterturn.open(path, LEARNING) as memory:
            turn = await leave(memory)
            assert await turn.wait_recorded(within=WAIT)
            assert await memory.drain(within=WAIT)
    async with afterturn.open(path, LEARNING) as memory:
        once = await followed(memory)
        statements = await memory.space("user:ada").list(filter=Filter(kind=Kind.STATEMENT))
    assert once == (2, [ReviewKind.RULES], 1)
    assert len(statements) == 1


async def test_a_turn_that_waited_in_a_file_is_followed_up_once(
    path: Path, start: StartChild, event_log: EventLog
) -> None:
    """C3, C4, V1: a file that was left behind, though the store has the turn by now, schedules nothing."""
    folder = Path(f"{path}.waiting")
    troubled = {**LEARNING, "busy_timeout": 0.1}
    async with afterturn.open(path, troubled, on_event=event_log, background=False) as memory:
        holder = start(HOLD_THE_LOCK, "IMMEDIATE")
        holder.hear()
        turn = await leave(memory)
        event_log.wait("recording_waits")
        left = {file.name: file.read_bytes() for file in folder.iterdir()}
        holder.say()
        holder.result()
        assert await turn.wait_recorded(within=WAIT)
    for name, data in left.items():
        (folder / name).write_bytes(data)
    async with afterturn.open(path, LEARNING, on_event=event_log) as memory:
        assert await memory.drain(within=WAIT)
        once = await followed(memory)
    assert len(left) == 1
    assert list(folder.iterdir()) == []
    assert once == (2, [ReviewKind.RULES], 1)
    assert len(event_log.named("review_scheduled")) == 1
