"""Closing takes a bounded time, loses nothing that was promised, and leaves nothing behind."""

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
from children import HOLD_THE_LOCK, StartChild
from exchanges import NO_EMBEDDER, WAIT, exchange, user
from numpy.typing import NDArray

import afterturn
from afterturn import blocking
from afterturn.errors import MemoryClosed
from afterturn.testing import EventLog
from afterturn.testing.hashing import HashingEmbedder

# What closing may take beyond its timeout on a machine that is busy with other tests.
SLACK = 3.0


class HangingEmbedder(HashingEmbedder):
    """Answers once, so that it counts as ready, and then no more until `release`."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.hanging, self.release = threading.Event(), threading.Event()
        self._answers = answers

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self._answers -= 1
        if self._answers < 0:
            self.hanging.set()
            self.release.wait(WAIT)
        return super().embed(texts)


@pytest.mark.parametrize("answers", [0, 1])
async def test_closing_is_bounded_though_the_embedder_hangs(path: Path, answers: int) -> None:
    """C4: an embedder that never answers, while loading or later, costs no turn and no more than the timeout."""
    embedder = HangingEmbedder(answers)
    memory = afterturn.open(path, {"close_timeout": 0.5}, components=afterturn.Components(embedder=embedder))
    await memory.start()
    await memory.space("user:ada").add("Ada likes green tea")
    await asyncio.to_thread(embedder.hanging.wait, WAIT)
    async with memory.conversation("c", user="ada").turn(exchange("Green tea, please")) as turn:
        pass
    began = monotonic()
    await memory.close()
    took = monotonic() - began
    embedder.release.set()
    assert took < 0.5 + SLACK
    assert await turn.wait_recorded()


async def test_an_embedder_that_hangs_leaves_recall_by_words(path: Path) -> None:
    """L1: the question gets its answer without vectors, and the answer says so."""
    embedder = HangingEmbedder(answers=1)
    parts = afterturn.Components(embedder=embedder)
    async with afterturn.open(path, {"close_timeout": 0.5}, background=False, components=parts) as memory:
        await memory.ready()
        await memory.space("user:ada").add("Ada likes green tea")
        found = await memory.space("user:ada").search("green tea")
        embedder.release.set()
    assert [hit.entry.text for hit in found.hits] == ["Ada likes green tea"]
    assert "vectors" in found.missing


async def test_closing_is_bounded_though_another_process_holds_the_lock(path: Path, start: StartChild) -> None:
    """C4: a write that waits for the lock is interrupted; its turn goes into a file, and the next process stores it."""
    settings = {**NO_EMBEDDER, "close_timeout": 0.5, "busy_timeout": 60.0}
    memory = afterturn.open(path, settings)
    await memory.start()
    holder = start(HOLD_THE_LOCK, "IMMEDIATE")
    holder.hear()
    async with memory.conversation("c", user="ada").turn(exchange("Green tea, please")):
        pass
    began = monotonic()
    await memory.close()
    took = monotonic() - began
    holder.say()
    holder.result()
    assert took < 0.5 + SLACK
    assert await _recorded_texts(path) == ["Green tea, please", "Noted."]


async def test_closing_records_what_was_handed_over(path: Path) -> None:
    """C4: fifty turns are left and nobody waits for them; closing does."""
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        for number in range(50):
            async with memory.conversation(f"c{number}", user="ada").turn(exchange(f"Message {number}")):
                pass
    assert len(await _recorded_texts(path)) == 100


async def test_closing_twice_is_harmless(path: Path) -> None:
    """§2: the second call finds nothing to do."""
    memory = await afterturn.open(path, NO_EMBEDDER).start()
    await memory.close()
    await memory.close()
    assert not _threads()


async def test_closing_at_once_from_two_tasks_records_everything(path: Path) -> None:
    """C4: a second closer waits for the first and does not cut it short."""
    memory = await afterturn.open(path, NO_EMBEDDER).start()
    for number in range(20):
        async with memory.conversation(f"c{number}", user="ada").turn(exchange(f"Message {number}")):
            pass
    await asyncio.gather(memory.close(), memory.close())
    assert len(await _recorded_texts(path)) == 40


async def test_a_cancelled_close_goes_on_by_itself(path: Path, event_log: EventLog) -> None:
    """C4: a task that waits for closing may be cancelled; completed turns are still recorded."""
    memory = await afterturn.open(path, NO_EMBEDDER, on_event=event_log).start()
    async with memory.conversation("c", user="ada").turn(exchange("Green tea, please")) as turn:
        pass
    closing = asyncio.ensure_future(memory.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await memory.close()
    assert await turn.wait_recorded()
    assert not _threads()


async def test_a_cancelled_open_leaves_nothing_behind(path: Path, start: StartChild) -> None:
    """§2: the host gives up while the store waits for a lock: it need not wait, and no thread or file stays open."""
    before = _descriptors()
    holder = start(HOLD_THE_LOCK, "EXCLUSIVE")
    holder.hear()
    memory = afterturn.open(path, {**NO_EMBEDDER, "busy_timeout": 1.0})
    opening = asyncio.ensure_future(memory.start())
    await asyncio.to_thread(_wait_for_thread, "afterturn-files-1")
    opening.cancel()
    began = monotonic()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert monotonic() - began < 0.5
    for thread in _threads():
        await asyncio.to_thread(thread.join, WAIT)
    holder.say()
    holder.result()
    holder.kill()
    assert _descriptors() == before


def test_a_closed_memory_leaves_no_thread_and_no_descriptor(path: Path) -> None:
    """§2: after a busy life every thread, socket and file is gone, once for each bridge."""
    _live(path)
    before = _descriptors()
    _live(path)
    asyncio.run(_live_async(path))
    assert _descriptors() == before
    assert not _threads()


def test_a_whole_program_runs_without_a_warning(start: StartChild) -> None:
    """§2: no coroutine is left unawaited and no resource unclosed; warnings are errors in this process."""
    child = start(
        """
        async def live():
            async with afterturn.open(path) as memory:
                ada = memory.space("user:ada")
                added = await ada.add("Ada likes green tea")
                await memory.drain()
                messages = exchange("Which tea does Ada like?")
                async with memory.conversation("c", user="ada").turn(messages[:1]) as turn:
                    await turn.inject(messages)
                    turn.complete(messages)
                async with memory.conversation("d", user="ada").turn(messages):
                    pass
                await ada.forget(memory=added.entry.id)
        asyncio.run(live())
        gc.collect()
        say([thread.name for thread in threading.enumerate()])
        """
    )
    assert child.result() == ["['MainThread']"]


async def test_direct_verbs_raise_after_closing(path: Path) -> None:
    """§2: use after closing raises what it is."""
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        ada = memory.space("user:ada")
    with pytest.raises(MemoryClosed, match="Open it again"):
        await ada.add("Ada likes green tea")


async def test_turn_verbs_after_closing_give_nothing_and_say_so_once(
    path: Path, event_log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    """§2: turn verbs never raise: no block, one warning and one event for the whole memory."""
    async with afterturn.open(path, NO_EMBEDDER, on_event=event_log) as memory:
        await memory.space("user:ada").add("Ada likes green tea")
        messages = [user("Which tea does Ada like?")]
        early = memory.conversation("c", user="ada").turn(messages)
        event_log.wait("recall_settled")
    with caplog.at_level(logging.WARNING):
        late = memory.conversation("d", user="ada").turn(messages)
        blocks = [await turn.inject(messages) for turn in (early, late)]
        late.complete([*messages, *exchange("tea")])
        async with late:
            pass
        recorded = [await turn.wait_recorded(within=WAIT) for turn in (early, late)]
    assert (blocks, recorded, len(messages)) == ([None, None], [False, False], 1)
    assert [event.name for event in event_log.events].count("memory_closed") == 1
    assert caplog.text.count("after its memory was closed") == 1


async def test_a_write_under_way_while_closing_is_answered(path: Path) -> None:
    """§2: nobody who called before closing waits for ever: they get their answer or MemoryClosed."""
    memory = await afterturn.open(path, NO_EMBEDDER).start()
    ada = memory.space("user:ada")
    writing = [asyncio.ensure_future(ada.add(f"Statement {number}")) for number in range(50)]
    await asyncio.sleep(0)
    await memory.close()
    outcomes = await asyncio.wait_for(asyncio.gather(*writing, return_exceptions=True), WAIT)
    kept = {outcome.entry.text for outcome in outcomes if not isinstance(outcome, BaseException)}
    assert all(isinstance(outcome, MemoryClosed) for outcome in outcomes if isinstance(outcome, BaseException))
    async with afterturn.open(path, NO_EMBEDDER) as again:
        assert kept <= {entry.text for entry in await again.space("user:ada").list()}


def _live(path: Path) -> None:
    with blocking.open(path, components=afterturn.Components(embedder=HashingEmbedder())) as memory:
        memory.space("user:ada").add("Ada likes green tea")
        memory.drain()
        with memory.conversation("c", user="ada").turn(exchange("Which tea does Ada like?")):
            pass
        memory.backup(path.with_name(f"{len(list(path.parent.iterdir()))}.db"))


async def _live_async(path: Path) -> None:
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        async with memory.conversation("c", user="ada").turn([user("Which tea does Ada like?")]) as turn:
            turn.abort("enough")
        await memory.space("user:ada").search("tea")


async def _recorded_texts(path: Path) -> list[str]:
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        await memory.drain()
        lines = await memory.space("user:ada").export()
    return sorted(line["entry"]["text"] for line in lines if "entry" in line)


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("afterturn")]


def _wait_for_thread(name: str) -> None:
    """Until it runs; the thread starts with the first thing it has to do."""
    deadline = monotonic() + WAIT
    while not any(thread.name == name for thread in _threads()):
        assert monotonic() < deadline
        threading.Event().wait(0.01)


def _descriptors() -> list[str]:
    """What is open, as far as it has a name."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}").split(":")[0])
        except FileNotFoundError:
            continue
    return sorted(found)
