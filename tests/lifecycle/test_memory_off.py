"""`open(None)`: the same API without memory; and `background=False`, which leaves jobs to other processes."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from exchanges import NO_EMBEDDER, assistant, exchange, user

import afterturn
from afterturn import blocking
from afterturn.errors import StoreUnavailable
from afterturn.testing import EventLog
from afterturn.testing.hashing import HashingEmbedder


async def test_a_turn_without_memory_goes_through_every_verb(event_log: EventLog) -> None:
    """§2: no blocks, nothing recorded, and exactly one event says that memory is off."""
    async with afterturn.open(None, on_event=event_log) as memory:
        conversation = memory.conversation("c", user="ada")
        messages = [user("Which tea does Ada like?")]
        async with conversation.turn(messages) as turn:
            blocks = [await turn.inject(messages), turn.inject_now(messages)]
            messages.append(assistant("I do not know."))
            turn.complete(messages)
        recorded = await turn.wait_recorded()
    assert (blocks, recorded, len(messages)) == ([None, None], False, 2)
    assert [event.name for event in event_log.events] == ["memory_off"]


async def test_a_started_turn_without_memory_is_there_at_once(event_log: EventLog) -> None:
    """§2: `start_turn` waits for no row that will never be stored."""
    async with afterturn.open(None, {"busy_timeout": 3600.0}, on_event=event_log) as memory:
        turn = await memory.conversation("c", user="ada").start_turn(exchange("Hello there")[:1])
        turn.finish(exchange("Hello there"))
        recorded = await turn.wait_recorded()
    assert not recorded


async def test_a_started_turn_in_an_unknown_format_is_there_at_once(path: Path, event_log: EventLog) -> None:
    """§2: the turn goes on without memory; an event and a warning say why."""
    async with afterturn.open(path, {**NO_EMBEDDER, "busy_timeout": 3600.0}, on_event=event_log) as memory:
        turn = await memory.conversation("c", user="ada").start_turn([object()])
        block = await turn.inject([object()])
    assert block is None
    assert len(event_log.named("unknown_dialect")) == 1


@pytest.mark.parametrize("verb", ["add", "search", "list", "forget", "export", "stats", "undo", "add_many"])
async def test_direct_verbs_without_memory_say_why(verb: str) -> None:
    """§2: direct verbs raise what they cannot do."""
    async with afterturn.open(None) as memory:
        ada = memory.space("user:ada")
        calls = {
            "add": lambda: ada.add("Ada likes green tea"),
            "search": lambda: ada.search("tea"),
            "list": lambda: ada.list(),
            "forget": lambda: ada.forget(everything=True),
            "export": lambda: ada.export(),
            "stats": lambda: ada.stats(),
            "undo": lambda: ada.undo("06gy24q73vc4bwqn"),
            "add_many": lambda: ada.add_many([afterturn.Draft("Ada likes green tea")]),
        }
        with pytest.raises(StoreUnavailable, match="Memory is off"):
            await calls[verb]()


async def test_the_verbs_of_a_whole_memory_without_a_store_say_why(tmp_path: Path) -> None:
    """§2: there is nothing to copy or to count; only draining has nothing to do."""
    async with afterturn.open(None) as memory:
        for call in (memory.stats, memory.check, memory.retry_dead, lambda: memory.backup(tmp_path / "copy.db")):
            with pytest.raises(StoreUnavailable, match="Memory is off"):
                await call()
        assert await memory.drain()


def test_memory_that_is_off_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    """§2: one warning, and closing is as clean as with a store."""
    with blocking.open(None) as memory, memory.conversation("c", user="ada").turn(exchange("Hello there")):
        pass
    assert [record.getMessage() for record in caplog.records] == ["memory is off: it was opened without a store"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("afterturn")]


async def test_without_background_no_job_runs_until_it_is_drained(path: Path) -> None:
    """C8: `background=False` runs none; `drain` does."""
    parts = afterturn.Components(embedder=HashingEmbedder())
    async with afterturn.open(path, background=False, components=parts) as memory:
        await memory.ready()
        await memory.space("user:ada").add("Ada likes green tea")
        before = await memory.stats()
        drained = await memory.drain()
        after = await memory.stats()
    assert (before["jobs"], drained, after["jobs"]) == ({"ready": 1}, True, {})


def test_the_worker_command_does_the_jobs_of_others(path: Path) -> None:
    """C8: `afterturn worker --once` does what is there and ends."""
    with blocking.open(path, NO_EMBEDDER, background=False) as memory:
        memory.space("user:ada").add("Ada likes green tea")
    command = [sys.executable, "-m", "afterturn", "worker", "--once", "--store", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    with blocking.open(path, NO_EMBEDDER, background=False) as memory:
        jobs = memory.stats()["jobs"]
    assert (ended.returncode, jobs) == (0, {})


async def test_draining_is_bounded_though_a_job_hangs(path: Path) -> None:
    """C8: False when time ran out."""
    release = threading.Event()

    class Hanging(HashingEmbedder):
        def embed(self, texts):
            if list(texts) != ["warm"]:
                release.wait(20)
            return super().embed(texts)

    parts = afterturn.Components(embedder=Hanging())
    async with afterturn.open(path, {"close_timeout": 1.0}, background=False, components=parts) as memory:
        await memory.space("user:ada").add("Ada likes green tea")
        drained = await memory.drain(within=1.0)
        release.set()
    assert not drained
