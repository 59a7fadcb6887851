"""How many units of work a turn writes, in a warm process with the default embedder."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import afterturn
from afterturn import maintenance
from afterturn.ports import Unit
from afterturn.stores.sqlite.store import SqliteStore
from afterturn.types import Scope

WITHIN = 100.0
# The turn, its block, the trace of its recall, and the recording. Several may share a commit.
WRITES = 4
R = TypeVar("R")


@pytest.fixture(autouse=True)
def no_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of many turns share a commit, so these tests do not count it."""
    monkeypatch.setattr(maintenance, "TIMELINE_DELAY", 600.0)


@pytest.fixture
async def warm(tmp_path: Path) -> AsyncIterator[afterturn.Memory]:
    async with afterturn.open(tmp_path / "store.db") as memory:
        assert await memory.ready(within=WITHIN)
        await memory.space("user:ada").add("Our staging server is deployed from the branch release.")
        assert await memory.drain(within=WITHIN)
        await take_turn(memory, "first")
        yield memory


async def take_turn(memory: afterturn.Memory, conversation: str) -> list[dict[str, Any]]:
    messages = [{"role": "user", "content": "From which branch is our staging server deployed?"}]
    async with memory.conversation(conversation, user="ada").turn(messages) as turn:
        await turn.inject(messages, within=WITHIN)
        messages.append({"role": "assistant", "content": "From the branch release."})
    assert await turn.wait_recorded(WITHIN)
    return messages


async def test_a_warm_turn_is_written_in_few_units_of_work(
    warm: afterturn.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G5: its vectors are stored with its messages, not by a job with commits of its own."""
    written: list[str] = []
    write = SqliteStore.write

    async def count(store: SqliteStore, work: Callable[[Unit], R], **where: Any) -> R:
        written.append(repr(work))
        return await write(store, work, **where)

    monkeypatch.setattr(SqliteStore, "write", count)
    messages = await take_turn(warm, "second")
    assert await warm.drain(within=WITHIN)
    assert "release" in str(messages[1]["content"])
    assert len(written) == WRITES, written


async def test_a_recorded_turn_has_its_vectors_and_leaves_no_job(warm: afterturn.Memory) -> None:
    """G5: the next question finds it by its meaning, without waiting for a job."""
    services = warm._services
    assert services.embedding is not None
    identity = services.embedding.identity
    assert identity is not None
    await take_turn(warm, "second")
    waiting, jobs, found = await warm._loop.run(
        services.store.read(
            lambda unit: (
                unit.index.waiting("default", identity),
                unit.jobs.page("default", limit=10),
                unit.records.of_conversation(Scope("default", ("user:ada",)), "second", limit=10),
            ),
            at=None,
        )
    )
    assert (waiting, jobs, len(found)) == (0, [], 2)
