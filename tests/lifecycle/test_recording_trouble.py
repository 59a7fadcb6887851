"""Turns that the store cannot take at once wait in memory and in files, and are stored exactly once."""

import asyncio
import signal
import stat
from pathlib import Path

import pytest
from children import HOLD_THE_LOCK, Child, StartChild
from exchanges import NO_EMBEDDER, WAIT, exchange

import afterturn
from afterturn.conversation import recorder
from afterturn.conversation.recording import Recording
from afterturn.conversation.spill import Spill
from afterturn.errors import StoreLocked, StoreUnavailable
from afterturn.testing import EventLog
from afterturn.text import content_hash
from afterturn.types import Kind, Message

TROUBLED = {**NO_EMBEDDER, "busy_timeout": 0.05, "close_timeout": 1.0}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "RETRY_FIRST", 0.02)
    monkeypatch.setattr(recorder, "RETRY_MOST", 0.1)


@pytest.fixture
def folder(path: Path) -> Path:
    """Where turns wait."""
    return Path(f"{path}.waiting")


async def test_a_turn_waits_while_the_store_is_locked_and_is_stored_once(
    path: Path, folder: Path, start: StartChild, event_log: EventLog
) -> None:
    """C4: the turn is unaffected, the wait is told, a private file holds it; after the lock it is stored, once."""
    async with afterturn.open(path, TROUBLED, on_event=event_log) as memory:
        holder = _locked(start)
        turn = await _say(memory, "Green tea, please")
        waits = event_log.wait("recording_waits")
        (file,) = folder.iterdir()
        modes = [stat.S_IMODE(item.stat().st_mode) for item in (folder, file)]
        _release(holder)
        assert await turn.wait_recorded(within=WAIT)
        event_log.wait("recording_recovered")
        texts = await _texts(memory)
    assert waits.data == {"reason": "StoreLocked", "spilled": True, "waiting": 1}
    assert modes == [0o700, 0o600]
    assert texts == ["Green tea, please", "Noted."]
    assert list(folder.iterdir()) == []


async def test_a_turn_is_in_a_file_before_a_slow_store_has_answered(
    path: Path, folder: Path, start: StartChild, event_log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: a process that is killed while the store does not answer loses no finished turn."""
    monkeypatch.setattr(recorder, "SPILL_AFTER", 0.01)
    async with afterturn.open(path, {**TROUBLED, "busy_timeout": WAIT}, on_event=event_log) as memory:
        holder = _locked(start)
        turn = await _say(memory, "Green tea, please")
        waits = event_log.wait("recording_waits")
        (file,) = folder.iterdir()
        saved = Recording.from_json(file.read_text(encoding="utf-8"))
        _release(holder)
        assert await turn.wait_recorded(within=WAIT)
        event_log.wait("recording_recovered")
        assert await memory.drain(within=WAIT)
        texts = await _texts(memory)
    assert waits.data == {"reason": "slow", "spilled": True, "waiting": 0}
    assert [message.text for message in saved.messages] == ["Green tea, please", "Noted."]
    assert texts == ["Green tea, please", "Noted."]
    assert list(folder.iterdir()) == []


async def test_a_turn_waits_when_the_store_was_removed_and_is_stored_in_the_next_one(
    path: Path, event_log: EventLog
) -> None:
    """C4: nothing is written to a file that no process can open again."""
    async with afterturn.open(path, TROUBLED, on_event=event_log) as memory:
        path.unlink()
        turn = await _say(memory, "Green tea, please")
        assert event_log.wait("recording_waits").data["reason"] == "StoreUnavailable"
        assert not await turn.wait_recorded(within=0)
        with pytest.raises(StoreUnavailable, match="was removed or replaced while it was open"):
            await memory.space("user:ada").add("Ada likes tea")
    for item in path.parent.glob(f"{path.name}-*"):
        item.unlink()
    async with afterturn.open(path, TROUBLED) as memory:
        assert await memory.drain(within=WAIT)
        assert await _texts(memory) == ["Green tea, please", "Noted."]


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_store_that_was_removed_is_not_read_any_more(path: Path, replaced: bool) -> None:
    """C4: what it held is not what the next process sees."""
    async with afterturn.open(path, TROUBLED) as memory:
        await memory.space("user:ada").add("Ada likes tea")
        assert len(await memory.space("user:ada").list()) == 1
        path.rename(path.with_name("old.db"))
        if replaced:
            path.touch()
        with pytest.raises(StoreUnavailable, match="was removed or replaced while it was open"):
            await memory.space("user:ada").list()


@pytest.mark.parametrize("suffixes", [("-wal",), ("-wal", "-shm"), ("-shm",)], ids="+".join)
async def test_a_turn_waits_when_the_log_was_removed_and_nothing_is_lost(
    path: Path, event_log: EventLog, suffixes: tuple[str, ...]
) -> None:
    """C2, C4: what was acknowledged before is in the store, what came later is stored when it is opened again."""
    async with afterturn.open(path, TROUBLED, on_event=event_log) as memory:
        turn = await _say(memory, "Green tea, please")
        assert await turn.wait_recorded(within=WAIT)
        for suffix in suffixes:
            Path(f"{path}{suffix}").unlink()
        later = await _say(memory, "And a cake", conversation="d")
        assert event_log.wait("recording_waits").data["reason"] == "StoreUnavailable"
        assert not await later.wait_recorded(within=0)
        with pytest.raises(StoreUnavailable, match="or its log, was removed or replaced while it was open"):
            await memory.space("user:ada").add("Ada likes tea")
    async with afterturn.open(path, TROUBLED) as memory:
        assert await memory.drain(within=WAIT)
        assert await _texts(memory) == ["And a cake", "Green tea, please", "Noted.", "Noted."]


async def test_turns_that_waited_on_a_full_disk_come_back(path: Path, folder: Path, start: StartChild) -> None:
    """C4: neither the store nor a file had room for them; no half of them stays."""
    child = start(
        """
        import resource
        from afterturn.conversation import recorder
        recorder.RETRY_FIRST, recorder.RETRY_MOST = 0.02, 0.1
        waits = threading.Semaphore(0)
        def on_event(event):
            if event.name == "recording_waits":
                waits.release()
        with blocking.open(path, NO_EMBEDDER | {"rules": False}, on_event=on_event) as memory:
            memory.space("user:ada").add("Ada likes tea")
            no_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, no_limit[1]))
            turns = []
            for number in range(3):
                with memory.conversation(f"c{number}", user="ada").turn(exchange(f"Message {number}")) as turn:
                    turns.append(turn)
            for _ in turns:
                assert waits.acquire(timeout=20)
            say([turn.wait_recorded(within=0) for turn in turns], os.listdir(path + ".waiting"))
            resource.setrlimit(resource.RLIMIT_FSIZE, no_limit)
            say([turn.wait_recorded(within=20) for turn in turns])
        """
    )
    assert child.end().out == ["[False, False, False] []", "[True, True, True]"]


async def test_a_process_killed_while_turns_wait_loses_none(path: Path, folder: Path, start: StartChild) -> None:
    """C4: the next process that opens the store finds the file, stores the turn and removes the file."""
    holder = start(HOLD_THE_LOCK_OF_A_STORE)
    holder.hear()
    child = start(
        """
        def on_event(event):
            if event.name == "recording_waits":
                say("waits")
        memory = blocking.open(path, NO_EMBEDDER | {"busy_timeout": 0.05}, on_event=on_event).start()
        with memory.conversation("c", user="ada").turn(exchange("Green tea, please")):
            pass
        threading.Event().wait()
        """
    )
    child.hear()
    child.send(signal.SIGKILL)
    child.end()
    _release(holder)
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        await memory.drain()
        texts = await _texts(memory)
    assert texts == ["Green tea, please", "Noted."]
    assert list(folder.iterdir()) == []


HOLD_THE_LOCK_OF_A_STORE = """
import apsw
blocking.open(path, NO_EMBEDDER).start().close()
connection = apsw.Connection(path)
connection.execute("BEGIN IMMEDIATE")
say("locked")
hear()
connection.close()
"""


async def test_a_turn_that_another_process_stored_meanwhile_is_not_stored_twice(
    path: Path, folder: Path, start: StartChild, event_log: EventLog
) -> None:
    """C3: another process recovers the file while its writer still holds the turn in memory."""
    async with afterturn.open(path, TROUBLED, on_event=event_log) as memory:
        holder = _locked(start)
        turn = await _say(memory, "Green tea, please")
        event_log.wait("recording_waits")
        kept = {file.name: file.read_bytes() for file in folder.iterdir()}
        _release(holder)
        assert await turn.wait_recorded(within=WAIT)
        event_log.wait("recording_recovered")
        for name, data in kept.items():
            (folder / name).write_bytes(data)
        async with afterturn.open(path, NO_EMBEDDER) as other:
            assert await other.drain()
        texts = await _texts(memory)
    assert texts == ["Green tea, please", "Noted."]
    assert list(folder.iterdir()) == []


async def test_equal_turn_ids_of_two_conversations_both_wait(
    path: Path, start: StartChild, event_log: EventLog
) -> None:
    """C3, C4: a turn's id names it inside its conversation only."""
    async with afterturn.open(path, TROUBLED, on_event=event_log) as memory:
        holder = _locked(start)
        turns = [await _say(memory, f"Said in {name}", conversation=name, id="turn-1") for name in ("one", "two")]
        event_log.wait("recording_waits", 2)
        _release(holder)
        recorded = [await turn.wait_recorded(within=WAIT) for turn in turns]
        texts = await _texts(memory)
    assert recorded == [True, True]
    assert texts == ["Noted.", "Noted.", "Said in one", "Said in two"]


async def test_a_damaged_file_is_set_aside_and_shown(path: Path, folder: Path, event_log: EventLog) -> None:
    """C4: it stops nobody, and `doctor` names it."""
    folder.mkdir()
    (folder / "broken.json").write_text("{")
    async with afterturn.open(path, NO_EMBEDDER, on_event=event_log) as memory:
        await memory.drain()
        findings = await memory.check()
    assert [file.name for file in folder.iterdir()] == ["broken.bad"]
    assert [finding.level for finding in findings if finding.subject == "recordings"] == ["error"]


async def test_a_folder_that_cannot_be_made_leaves_the_turn_in_memory(
    path: Path, folder: Path, start: StartChild, event_log: EventLog
) -> None:
    """C4: no file, but it is retried from memory all the same, and the event says so."""
    folder.write_text("in the way")
    async with afterturn.open(path, TROUBLED, on_event=event_log) as memory:
        holder = _locked(start)
        turn = await _say(memory, "Green tea, please")
        waits = event_log.wait("recording_waits")
        _release(holder)
        recorded = await turn.wait_recorded(within=WAIT)
    assert waits.data["spilled"] is False
    assert recorded


async def test_turns_beyond_the_bound_wait_in_files_alone(
    path: Path, start: StartChild, event_log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: memory holds two, the folder all five, and all five are stored in the end."""
    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 2)
    async with afterturn.open(path, TROUBLED, on_event=event_log) as memory:
        holder = _locked(start)
        for number in range(5):
            await _say(memory, f"Message {number}", conversation=f"c{number}")
            event_log.wait("recording_waits", number + 1)
        _release(holder)
        event_log.wait("recording_recovered", 5)
        texts = await _texts(memory)
    assert max(event.data["waiting"] for event in event_log.named("recording_waits")) == 3  # type: ignore[type-var]
    assert [text for text in texts if text != "Noted."] == [f"Message {number}" for number in range(5)]


async def test_turns_that_fit_neither_memory_nor_file_are_reported(
    path: Path, folder: Path, start: StartChild, event_log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: bounded, and what is lost is said: the oldest, with the reason."""
    folder.write_text("in the way")
    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 1)
    async with afterturn.open(path, TROUBLED, on_event=event_log) as memory:
        holder = _locked(start)
        turns = [await _say(memory, "The oldest", conversation="one")]
        event_log.wait("recording_waits")
        turns.append(await _say(memory, "The newest", conversation="two"))
        lost = event_log.wait("not_recorded")
        _release(holder)
        recorded = [await turn.wait_recorded(within=WAIT) for turn in turns]
    assert (lost.conversation, lost.data["reason"]) == ("one", "queue_full")
    assert recorded == [False, True]


async def test_forgetting_covers_what_waits(path: Path, folder: Path, start: StartChild, event_log: EventLog) -> None:
    """M2: a waiting turn of a forgotten conversation is gone from memory and folder, and never comes back."""
    async with afterturn.open(path, {**TROUBLED, "busy_timeout": 0.3}, on_event=event_log) as memory:
        holder = _locked(start)
        turn = await _say(memory, "My secret sentinel")
        await _say(memory, "Something else", conversation="other")
        event_log.wait("recording_waits", 2)
        with pytest.raises(StoreLocked):
            await memory.space("user:ada").forget(conversation="c")
        left = b"".join(file.read_bytes() for file in folder.iterdir())
        _release(holder)
        await memory.space("user:ada").forget(conversation="c")
        await memory.drain()
        texts = await _texts(memory)
    assert b"sentinel" not in left
    assert not await turn.wait_recorded()
    assert texts == ["Noted.", "Something else"]


async def test_a_turn_spilled_to_a_file_during_a_forget_is_erased_too(
    path: Path, folder: Path, start: StartChild
) -> None:
    """M2: another process may put it there after forgetting looked and before its commit; it looks once more."""
    draft = folder / "0123.999999999.tmp"
    async with afterturn.open(path, {**TROUBLED, "busy_timeout": WAIT}, background=False) as memory:
        folder.mkdir()
        draft.write_text("of a process that died: forgetting erases it before it asks the store")
        holder = _locked(start)
        forgetting = asyncio.ensure_future(memory.space("user:ada").forget(conversation="c"))
        async with asyncio.timeout(WAIT):
            while draft.exists():  # noqa: ASYNC110 a file that goes tells nobody
                await asyncio.sleep(0)
        Spill(folder).put(_recording("My secret sentinel"))
        _release(holder)
        forgotten = await forgetting
        left = list(folder.iterdir())
    assert (forgotten.erased, left) == (1, [])


async def test_a_turn_of_a_forgotten_conversation_that_another_process_kept_is_refused(
    path: Path, folder: Path, start: StartChild, event_log: EventLog
) -> None:
    """M2: in-flight work can't bring it back: the copy of a file that forgetting could not see is not stored."""
    async with afterturn.open(path, TROUBLED, on_event=event_log) as memory:
        holder = _locked(start)
        await _say(memory, "My secret sentinel")
        event_log.wait("recording_waits")
        kept = {file.name: file.read_bytes() for file in folder.iterdir()}
        _release(holder)
        await memory.space("user:ada").forget(conversation="c")
        for name, data in kept.items():
            (folder / name).write_bytes(data)
    async with afterturn.open(path, NO_EMBEDDER) as again:
        await again.drain()
        texts = await _texts(again)
    assert texts == []
    assert list(folder.iterdir()) == []


async def test_a_full_disk_makes_a_turn_wait(path: Path, event_log: EventLog) -> None:
    """C4: the store cannot grow; the turn waits, and is stored once there is room."""
    async with afterturn.open(path, TROUBLED, on_event=event_log) as memory:
        writer = memory._services.store.engine.writer  # type: ignore[union-attr, attr-defined]
        pages = writer.connection.pragma("page_count")
        writer.connection.pragma("max_page_count", pages)
        turn = await _say(memory, "Green tea, please " * 5000)
        waits = event_log.wait("recording_waits")
        writer.connection.pragma("max_page_count", 1_000_000)
        recorded = await turn.wait_recorded(within=WAIT)
    assert waits.data["reason"] == "StoreFull"
    assert recorded


async def test_a_recording_nobody_finished_writing_is_erased(path: Path, folder: Path) -> None:
    """M2: the draft of a process that died holds text too; forgetting removes it."""
    folder.mkdir()
    draft = folder / "0123.999999999.tmp"
    draft.write_text("My secret sentinel")
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        await memory.space("user:ada").forget(everything=True)
    assert not draft.exists()


def _recording(text: str) -> Recording:
    said = Message("user", text, "user", content_hash(text))
    return Recording("default", "user:ada", "c", "turn-1", "user:ada", 0.0, 0, said.hash, (said,))


def _locked(start: StartChild) -> Child:
    holder = start(HOLD_THE_LOCK, "IMMEDIATE")
    holder.hear()
    return holder


def _release(holder: Child) -> None:
    holder.say()
    holder.result()


async def _say(
    memory: afterturn.Memory, text: str, *, conversation: str = "c", id: str | None = None
) -> afterturn.Turn:
    async with memory.conversation(conversation, user="ada").turn(exchange(text), id=id) as turn:
        pass
    return turn


async def _texts(memory: afterturn.Memory) -> list[str]:
    entries = await memory.space("user:ada").list(filter=afterturn.Filter(kind=Kind.RECORD))
    return sorted(entry.text for entry in entries)
