"""More turns than memory can serve: early ones are finished first, recalls are left out, recordings never."""

import asyncio
import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest
from controlled_store import Stage, caught_up, letters
from spoken import assistant, call, user

import afterturn
from afterturn.conversation import recall_client, recorder
from afterturn.conversation.recall_client import RecallQueue, RecallShed
from afterturn.conversation.recording import Recording
from afterturn.conversation.spill import Spill
from afterturn.types import Taint

WAIT = 100.0
SOUP = "What goes into the soup?"


class Steps:
    """Work that a test lets end one by one, and the order in which it began."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self._may_end: dict[str, asyncio.Event] = {}

    def start(self, queue: RecallQueue, name: str, *, begun: bool = False) -> asyncio.Task[str]:
        async def work() -> str:
            self.began.append(name)
            await self._may_end.setdefault(name, asyncio.Event()).wait()
            return name

        return asyncio.get_running_loop().create_task(queue.run(work, begun=begun))

    async def end(self, name: str) -> None:
        self._may_end.setdefault(name, asyncio.Event()).set()
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall_client, "RUNNING_MAX", 1)
    monkeypatch.setattr(recall_client, "WAITING_MAX", 2)


async def test_what_has_begun_is_finished_before_the_newest_which_is_before_older_ones() -> None:
    """R2: so the first turns of a burst get their block, and later the one whose host still waits."""
    queue, steps = RecallQueue(), Steps()
    tasks = [steps.start(queue, name) for name in ("first", "older", "newer")]
    await settle()
    tasks.append(steps.start(queue, "second step", begun=True))
    await settle()
    for name in ("first", "second step", "newer", "older"):
        await steps.end(name)
    assert steps.began == ["first", "second step", "newer", "older"]
    assert [task.done() for task in tasks] == [True] * 4


async def test_the_oldest_of_too_many_is_left_out() -> None:
    """R2: what waits is bounded."""
    queue, steps = RecallQueue(), Steps()
    tasks = [steps.start(queue, name) for name in ("running", "oldest", "b", "c")]
    await settle()
    with pytest.raises(RecallShed):
        await asyncio.wait_for(tasks[1], WAIT)
    for name in ("running", "c", "b"):
        await steps.end(name)
    assert steps.began == ["running", "c", "b"]


async def test_a_recall_that_is_given_up_leaves_its_place_to_the_next() -> None:
    """R4: whether it still waits, was just admitted, or runs."""
    queue, steps = RecallQueue(), Steps()
    running, admitted, waiting = (steps.start(queue, name) for name in ("running", "admitted", "waiting"))
    await settle()
    waiting.cancel()
    running.cancel()
    await settle()
    assert steps.began == ["running", "admitted"]
    last = steps.start(queue, "last")
    await settle()
    admitted.cancel()
    await settle()
    await steps.end("last")
    assert last.result() == "last"


async def test_recalls_are_left_out_and_every_turn_is_recorded(stage: Stage) -> None:
    """R5, C4: a recall that there is no room for ends as degraded by overload; its messages are stored all the same."""
    async with stage.open(grace=0.0) as memory:
        await memory.space("user:ada").add("Anise goes into the soup")
        stage.store.reading.shut()
        turns, lists = [], []
        for number in range(4):
            messages = [user(SOUP)]
            turn = memory.conversation(f"c{number}", user="ada").turn(messages)
            await turn.__aenter__()
            turns.append(turn)
            lists.append(messages)
        assert dict(await stage.heard("recall_ended"))["reason"] == "overload"
        stage.store.reading.open()
        pairs = list(zip(turns, lists, strict=True))
        delivered = [letters(await turn.inject(messages, within=WAIT)) for turn, messages in pairs]
        for turn, messages in pairs:
            messages.append(assistant("Anise."))
            turn.complete(messages)
            await turn.__aexit__(None, None, None)
        assert [await turn.wait_recorded(within=WAIT) for turn in turns] == [True] * 4
    assert delivered == ["A", "", "A", "A"]
    assert stage.endings().count(("degraded", "overload")) == 1


async def test_turns_that_end_faster_than_the_store_takes_them_wait_in_files(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: memory holds `RECORDING_QUEUE_MAX` of them, one file the others, and all are stored in the end."""
    monkeypatch.setattr(recorder, "SPILL_AFTER", WAIT)
    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 1)
    async with stage.open(busy_timeout=60.0, grace=0.0, background=False) as memory:
        other = apsw.Connection(str(stage.path))
        other.set_busy_timeout(10_000)
        other.execute("BEGIN IMMEDIATE")
        turns = []
        for number in range(3):
            async with memory.conversation(f"c{number}", user="ada").turn([user(SOUP), assistant("Anise.")]) as turn:
                turns.append(turn)
        waits = await stage.heard("recording_waits", 2)
        (file,) = Path(f"{stage.path}.waiting").iterdir()
        lines = file.read_text().splitlines()
        other.execute("ROLLBACK")
        other.close()
        assert await memory.drain(within=WAIT)
        texts = [entry.text for entry in await memory.space("user:ada").list(limit=100)]
    assert (waits["reason"], waits["spilled"], len(lines)) == ("overload", True, 2)
    assert sorted(texts) == sorted([SOUP, "Anise."] * 3)


def leave(memory: afterturn.Memory, conversation: str, *said: str, incognito: bool = False) -> afterturn.Turn:
    """A turn that begins and ends without the store, for the user's messages and one answer."""
    messages = [*map(user, said[:1])]
    turn = memory.conversation(conversation, user="ada", incognito=incognito).turn(messages, id=f"turn-{conversation}")
    turn.finish([*map(user, said), assistant("Anise.")])
    return turn


def waiting_in(folder: Path) -> list[str]:
    """The turns in all files of the folder. One may be in two of them, and is stored once."""
    lines = [line for path in folder.glob("*.json*") for line in path.read_text().splitlines()]
    return sorted({json.loads(line)["turn"] for line in lines})


async def test_a_turn_too_many_is_in_a_file_when_finish_returns(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: it is redacted, our block is stripped, and an incognito turn is in no file."""
    folder = Path(f"{stage.path}.waiting")
    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 1)
    async with stage.open(background=False) as memory:
        await memory.space("user:ada").add("Anise goes into the soup")
        messages = [user(SOUP)]
        shown = memory.conversation("shown", user="ada").turn(messages, id="turn-shown")
        block = await shown.inject(messages, within=WAIT)
        stage.store.reading.shut()
        held = leave(memory, "held", "Which key?")
        leave(memory, "hidden", "Nobody may know", incognito=True)
        leave(memory, "marked", "private: Nobody may know")
        leave(memory, "more", "First words", "Then the token ghp_0123456789abcdefghijABCDEFGHIJ012345")
        shown.finish([*messages, assistant("Anise.")])
        content = "".join(path.read_text() for path in folder.iterdir())
        assert waiting_in(folder) == ["turn-more", "turn-shown"]
        stage.store.reading.open()
        assert await held.wait_recorded(within=WAIT)
        assert await memory.drain(within=WAIT)
        texts = [entry.text for entry in await memory.space("user:ada").list(limit=100)]
    assert block is not None
    assert "Anise goes into" not in content
    assert "Nobody" not in content
    assert "ghp_" not in content
    assert "First words" in texts
    assert SOUP in texts
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("count", [3, 40])
async def test_closing_without_time_leaves_every_turn_in_a_file(stage: Stage, count: int) -> None:
    """C4: also turns that memory has not even read. All are written to one file."""
    folder = Path(f"{stage.path}.waiting")
    async with stage.open(close_timeout=0.0, background=False) as memory:
        stage.store.reading.shut()
        stage.store.fails_writes = True
        for number in range(count):
            leave(memory, f"c{number}", SOUP)
    left = dict(stage.told.named("turns_left")[0].data)
    assert waiting_in(folder) == sorted(f"turn-c{number}" for number in range(count))
    assert left == {"waiting": count, "lost": 0}
    assert len(list(folder.glob("*.jsonl"))) == 1
    async with stage.open(background=False) as memory:
        assert await memory.drain(within=WAIT)
        assert len(await memory.space("user:ada").list(limit=100)) == 2 * count


async def test_closing_saves_turns_though_the_disk_does_not_confirm_a_file(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C4: the file of appended turns is closed before those in memory are written."""

    def fail(descriptor: int) -> None:
        raise OSError("the disk is broken")

    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 2)
    async with stage.open(close_timeout=0.0, background=False) as memory:
        stage.store.reading.shut()
        stage.store.fails_writes = True
        for number in range(4):
            leave(memory, f"c{number}", SOUP)
        monkeypatch.setattr(os, "fsync", fail)
    assert waiting_in(Path(f"{stage.path}.waiting")) == [f"turn-c{number}" for number in range(4)]
    assert dict(stage.told.named("turns_left")[0].data) == {"waiting": 4, "lost": 0}
    assert "cannot be closed: the disk is broken" in caplog.text


async def test_closing_does_not_wait_for_the_thread_of_files(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: it may be busy with thousands of files."""

    async def wait_for_ever(*_: object) -> None:
        await asyncio.Event().wait()

    async with stage.open(close_timeout=0.0, background=False) as memory:
        stage.store.reading.shut()
        stage.store.fails_writes = True
        leave(memory, "c", SOUP)
        monkeypatch.setattr(recorder, "run_on", wait_for_ever)
        await asyncio.wait_for(memory.close(), 20.0)
    assert waiting_in(Path(f"{stage.path}.waiting")) == ["turn-c"]


async def test_appended_turns_are_not_forgotten_when_their_file_cannot_be_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: the next attempt stores them."""
    monkeypatch.setattr(recorder, "RETRY_FIRST", 60.0)
    unpack, errors = Spill.unpack, [OSError("the disk is broken")]

    def fail_once(self: Spill) -> None:
        if errors:
            raise errors.pop()
        unpack(self)

    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 1)
    async with stage.open(background=False) as memory:
        stage.store.reading.shut()
        held = leave(memory, "held", SOUP)
        leave(memory, "more", "Which soup?")
        stage.store.reading.open()
        assert await held.wait_recorded(within=WAIT)
        monkeypatch.setattr(Spill, "unpack", fail_once)
        assert await memory.drain(within=WAIT)
        texts = [entry.text for entry in await memory.space("user:ada").list(limit=100)]
    assert errors == []
    assert "Which soup?" in texts


@pytest.mark.parametrize("step", ["before", "after"])
async def test_the_taint_of_a_turn_that_is_appended_during_a_recovery_is_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """C4: the recovery did not see the turn, which is written before the recovery ends, or begun before and
    written after it."""
    unpack, append = Spill.unpack, Spill.append
    turn = Recording("default", "user:ada", "c", "turn-1", "user:ada", 1.0, 0, "h", (), (), 3.0, taint=Taint.TOOL)
    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 1)
    async with stage.open(background=False) as memory:
        await memory.drain(within=WAIT)
        services = memory._services
        begun, may_end = threading.Event(), threading.Event()

        def append_late(self: Spill, recording: Any) -> None:
            begun.set()
            assert may_end.wait(WAIT)
            append(self, recording)

        def unpack_first(self: Spill) -> None:
            unpack(self)
            if step == "before":
                may_end.set()
                host.start()
                host.join()

        host = threading.Thread(target=services.recorder.append, args=(turn,))
        monkeypatch.setattr(Spill, "append", append_late)
        monkeypatch.setattr(Spill, "unpack", unpack_first)
        if step == "after":
            host.start()
            assert begun.wait(WAIT)
        await services.loop.run(services.recorder.recover())
        monkeypatch.undo()
        may_end.set()
        host.join()
        assert services.recorder._completed(turn).taint is Taint.TOOL
        assert services.recorder._completed(replace(turn, taint=None)).taint is Taint.EARLIER


async def test_waiting_turns_are_counted_on_the_thread_of_files(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """R1: their files may be large, and memory's loop has other work."""
    threads = []

    def count(self: Spill) -> int:
        threads.append(threading.current_thread().name)
        return 3

    monkeypatch.setattr(Spill, "count", count)
    async with stage.open(background=False) as memory:
        assert (await memory.stats())["recordings_waiting"] == 3
        await memory.check()
    assert [name.startswith("afterturn-files") for name in threads] == [True, True]


async def test_turns_are_stored_if_no_file_can_hold_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: a file has the name of the folder of waiting turns, and the store works."""
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}):
        pass
    (tmp_path / "memory.db.waiting").touch()
    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 3)
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
        for number in range(60):
            asked = user(f"Message {number}")
            turn = await memory.conversation(f"c{number}", user="ada").start_turn([asked])
            turn.finish([asked, assistant("Noted.")])
        assert await memory.drain(within=WAIT)
        stored = await memory.space("user:ada").list(limit=500)
    assert len({entry.text for entry in stored if entry.text.startswith("Message")}) == 60


async def test_closing_names_the_turns_that_it_could_not_write(
    stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: in the log, and in an event. Here the folder for files is a link, which is not followed."""
    Path(f"{stage.path}.waiting").symlink_to(tmp_path, target_is_directory=True)
    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 1)
    async with stage.open(close_timeout=0.0, background=False) as memory:
        stage.store.reading.shut()
        stage.store.fails_writes = True
        for number in range(2):
            leave(memory, f"c{number}", SOUP)
    assert dict(stage.told.named("turns_left")[0].data) == {"waiting": 0, "lost": 2}
    assert "2 are lost" in caplog.text


async def test_a_turn_that_memory_has_no_time_to_begin_is_recorded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2, C4: the recall is left out on the host's thread, so that what waits for memory's loop is bounded."""
    monkeypatch.setattr(recall_client, "POSTED_MAX", 0)
    async with stage.open() as memory:
        messages = [user(SOUP)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            assert await turn.inject(messages) is None
            turn.interject("And what else?")
            messages += [user("And what else?"), assistant("Anise.")]
        assert await turn.wait_recorded(within=WAIT)
        texts = [entry.text for entry in await memory.space("user:ada").list(limit=100)]
    assert stage.count("turn_started", no_recall="overload") == 1
    async with stage.open() as memory:
        trace = await memory.conversation("c", user="ada").trace()
    assert [one.no_recall for one in trace.turns] == ["overload"]
    assert sorted(texts) == ["And what else?", "Anise.", SOUP]


async def test_a_conversation_that_is_kept_incognito_is_in_no_file(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: also if there is no time to read that from the store, as far as this process knows it."""
    monkeypatch.setattr(recall_client, "POSTED_MAX", 0)
    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 1)
    async with stage.open(background=False) as memory:
        conversation = memory.conversation("hidden", user="ada")
        await conversation.set_incognito()
        stage.store.reading.shut()
        leave(memory, "held", SOUP)
        leave(memory, "hidden", "Nobody may know")
        leave(memory, "more", "Everybody may know")
        assert waiting_in(Path(f"{stage.path}.waiting")) == ["turn-more"]
        stage.store.reading.open()


async def test_a_turn_that_is_stored_before_an_earlier_one_knows_its_taint(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: the earlier turn, in which a tool spoke, still waits in a file."""
    monkeypatch.setattr(recorder, "RETRY_FIRST", 60.0)
    monkeypatch.setattr(recall_client, "POSTED_MAX", 0)
    spoken = [user(SOUP), call("1"), {"role": "tool", "tool_call_id": "1", "content": "Salt"}]
    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 1)
    async with stage.open(background=False) as memory:
        stage.store.reading.shut()
        held = leave(memory, "held", SOUP)
        memory.conversation("c", user="ada").turn(spoken[:1]).finish([*spoken, assistant("Salt.")])
        stage.store.reading.open()
        assert await held.wait_recorded(within=WAIT)
        await caught_up(memory)
        assert await leave(memory, "c", "And then?").wait_recorded(within=WAIT)
        (taint,) = apsw.Connection(str(stage.path)).execute("SELECT taint FROM turn WHERE id = 'turn-c'").fetchone()
        assert len(waiting_in(Path(f"{stage.path}.waiting"))) == 1
    assert taint == "earlier"


async def test_without_recording_no_turn_too_many_is_in_a_file(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4, C7: and none is counted as lost when memory is closed."""
    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 1)
    async with stage.open(recorder="none", close_timeout=0.0, background=False) as memory:
        stage.store.reading.shut()
        for number in range(3):
            leave(memory, f"c{number}", SOUP)
    assert not Path(f"{stage.path}.waiting").exists()
    assert stage.told.named("turns_left") == []
