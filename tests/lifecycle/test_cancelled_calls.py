"""A call cancelled at any of its awaits has written everything or nothing, and memory continues."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from cancelling import AWAITS_MAX, DELAYS, cancel_at_await, settled
from exchanges import NO_EMBEDDER, exchange

import afterturn
from afterturn.space.verbs import SpaceCore
from afterturn.types import Added, Kind

State = list[tuple[str, str, int]]
Either = SpaceCore | afterturn.Space
Call = Callable[[Either, Added], Coroutine[Any, Any, object]]


async def _undo(space: Either, added: Added) -> object:
    assert added.operation is not None
    return await space.undo(added.operation)


VERBS: dict[str, Call] = {
    "add": lambda space, added: space.add("Ada likes black coffee"),
    "add_many": lambda space, added: space.add_many(afterturn.Draft(f"Statement {number}") for number in range(5)),
    "update": lambda space, added: space.update(added.entry.id, "Ada likes white tea"),
    "delete": lambda space, added: space.delete(added.entry.id),
    "forget": lambda space, added: space.forget(memory=added.entry.id),
    "undo": _undo,
    "search": lambda space, added: space.search("green tea"),
    "list": lambda space, added: space.list(),
    "export": lambda space, added: space.export(),
    "history": lambda space, added: space.history(added.entry.id),
}


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("verb", VERBS)
async def test_a_call_cancelled_at_any_await_is_whole_or_not_there(path: Path, verb: str, delay: float) -> None:
    """§13: each await of the core in turn: the space is as before the call or as after it, never between."""
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        wanted = await _state_after(memory, verb)
        for cut in range(1, AWAITS_MAX):
            space, added = await _prepared(memory, f"user:cut{cut}")
            before = await _state(space)
            awaits = await memory._loop.run(cancel_at_await(VERBS[verb](space._core, added), cut, delay))
            await settled(memory)
            assert await _state(space) in (before, wanted)
            if awaits < cut:
                break
        else:
            raise AssertionError(f"{verb} does not end within {AWAITS_MAX} awaits")
        assert await _state(space) == wanted
        assert [finding for finding in await memory.check() if finding.level == "error"] == []


@pytest.mark.parametrize("verb", VERBS)
async def test_a_host_that_cancels_at_any_of_its_steps_finds_memory_whole(path: Path, verb: str) -> None:
    """§13: the host's task is cancelled after ever more of its loop's rounds, until the call ends before that."""
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        wanted = await _state_after(memory, verb)
        rounds, number = 0, 0
        while True:
            space, added = await _prepared(memory, f"user:round{number}")
            before = await _state(space)
            calling = asyncio.ensure_future(VERBS[verb](space, added))
            for _ in range(rounds):
                await asyncio.sleep(0)
            ended = calling.done()
            calling.cancel()
            await asyncio.wait({calling})
            if ended:
                break
            await settled(memory)
            assert await _state(space) in (before, wanted)
            rounds, number = rounds * 2 + 1, number + 1
        assert await _state(space) == wanted
        assert [finding for finding in await memory.check() if finding.level == "error"] == []


@pytest.mark.parametrize("delay", DELAYS)
async def test_a_cancelled_backup_leaves_a_whole_copy_or_none(path: Path, delay: float) -> None:
    """M4: no partial file stays beside the store either."""
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        await memory.space("user:ada").add("Ada likes green tea")
        before = set(path.parent.iterdir())
        for cut in range(1, AWAITS_MAX):
            target = path.with_name(f"copy{cut}.db")
            awaits = await memory._loop.run(cancel_at_await(memory._core.backup(target), cut, delay))
            if awaits < cut:
                break
        await memory.check()
    copies = set(path.parent.iterdir()) - before
    assert target in copies
    for copy in copies:
        async with afterturn.open(copy, NO_EMBEDDER) as other:
            assert [entry.text for entry in await other.space("user:ada").list()] == ["Ada likes green tea"]


async def test_a_forget_cancelled_before_the_bytes_are_gone_is_finished_by_a_job(path: Path) -> None:
    """M2: the rows are gone with the commit; the job that removes their bytes is part of it."""
    async with afterturn.open(path, NO_EMBEDDER, background=False) as memory:
        space, added = await _prepared(memory, "user:ada")
        for cut in range(1, AWAITS_MAX):
            await memory._loop.run(cancel_at_await(space._core.forget(memory=added.entry.id), cut, 0.0015))
            await settled(memory)
            if not await space.list():
                break
        jobs = (await memory.stats())["jobs"]
        drained = await memory.drain()
    assert (jobs, drained) == ({"ready": 2}, True)
    assert not any(b"green tea" in file.read_bytes() for file in path.parent.iterdir())


async def test_a_cancelled_wait_for_recording_changes_nothing(path: Path) -> None:
    """C4: a caller may stop waiting; the turn is still stored."""
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        async with memory.conversation("c", user="ada").turn(exchange("Green tea, please")) as turn:
            pass
        waiting = asyncio.ensure_future(turn.wait_recorded())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert await turn.wait_recorded()


async def _prepared(memory: afterturn.Memory, name: str) -> tuple[afterturn.Space, Added]:
    space = memory.space(name)
    return space, await space.add("Ada likes green tea")


async def _state_after(memory: afterturn.Memory, verb: str) -> State:
    space, added = await _prepared(memory, "user:model")
    await VERBS[verb](space, added)
    return await _state(space)


async def _state(space: afterturn.Space) -> State:
    """Every version there is, and that recall and list agree with it."""
    lines = [line["entry"] for line in await space.export() if "entry" in line]
    active = {line["text"] for line in lines if line["status"] == "active" and line["kind"] == Kind.STATEMENT}
    assert active == {entry.text for entry in await space.list()}
    found = {hit.entry.text for hit in (await space.search("Ada likes tea coffee statement", limit=50)).hits}
    assert found <= active
    return sorted((line["text"], str(line["status"]), line["version"]) for line in lines)
