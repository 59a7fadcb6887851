"""Memory runs on its own loop, so recall and recording do not depend on the host's loops and threads."""

import asyncio
import threading
from pathlib import Path

import pytest
from exchanges import NO_EMBEDDER, WAIT, assistant, exchange, user

import afterturn
from afterturn import blocking
from afterturn.errors import CalledFromHandler, MemoryClosed
from afterturn.testing import EventLog
from afterturn.types import Added, Event


async def test_a_recall_settles_though_the_host_never_yields(path: Path, event_log: EventLog) -> None:
    """R2: the host blocks its loop from the turn's start on, and the recall is there all the same."""
    async with afterturn.open(path, NO_EMBEDDER, on_event=event_log) as memory:
        await memory.space("user:ada").add("Ada likes green tea")
        messages = [user("Which tea does Ada like?")]
        turn = memory.conversation("c", user="ada").turn(messages)
        event_log.wait("recall_settled")
        block = turn.inject_now(messages)
    assert block is not None
    assert "green tea" in block["content"]


async def test_memory_is_opened_and_closed_in_different_tasks(path: Path, event_log: EventLog) -> None:
    """§2: a fixture's task opens, a test's task uses, another closes."""
    memory = afterturn.open(path, NO_EMBEDDER, on_event=event_log)
    await asyncio.gather(memory.start())
    await asyncio.gather(memory.space("user:ada").add("Ada likes green tea"))
    await asyncio.gather(memory.close())
    with pytest.raises(MemoryClosed):
        await memory.space("user:ada").list()


def test_memory_is_opened_used_and_closed_on_different_loops(path: Path) -> None:
    """§2: no loop of the host's is remembered, so each of these may be gone when the next one comes."""
    memory = afterturn.open(path, NO_EMBEDDER)
    asyncio.run(memory.start())
    added = asyncio.run(_add(memory, "Ada likes green tea"))
    found = asyncio.run(_add(memory, "Ada likes green tea"))
    asyncio.run(memory.close())
    assert added.created
    assert not found.created


async def test_two_memories_on_one_file_see_each_other(path: Path) -> None:
    """§13: one process may open a file twice; each sees what the other has committed."""
    async with afterturn.open(path, NO_EMBEDDER) as one, afterturn.open(path, NO_EMBEDDER) as other:
        await one.space("user:ada").add("Ada likes green tea")
        found = await other.space("user:ada").search("green tea")
        again = await other.space("user:ada").add("Ada likes green tea")
    assert [hit.entry.text for hit in found.hits] == ["Ada likes green tea"]
    assert not again.created


def test_a_host_loop_that_closes_takes_no_recall_with_it(
    path: Path, event_log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    """R2: the turn's loop is closed while its recall is in flight; memory neither stumbles nor complains."""
    hold, memory = threading.Event(), None

    def on_event(event: Event) -> None:
        if event.name == "recall_started":
            hold.wait(WAIT)
        event_log(event)

    async def begin() -> None:
        nonlocal memory
        memory = await afterturn.open(path, NO_EMBEDDER, on_event=on_event).start()
        messages = [user("Which tea does Ada like?")]
        turn = memory.conversation("c", user="ada").turn(messages)
        await turn.inject(messages, within=0.01)

    asyncio.run(begin())
    hold.set()
    event_log.wait("recall_settled")
    assert memory is not None
    asyncio.run(memory.close())
    assert caplog.text == ""


def test_a_call_whose_loop_closed_ends_without_a_word(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """§2: the host gives up a direct verb with its loop; the verb's answer finds nobody, and that is all."""
    memory = afterturn.open(path, NO_EMBEDDER)
    asyncio.run(memory.start())
    host = asyncio.new_event_loop()
    waiting = host.create_task(_add(memory, "Ada likes green tea"))
    host.call_soon(host.stop)
    host.run_forever()
    waiting.cancel()
    host.run_until_complete(asyncio.wait({waiting}))
    host.close()
    asyncio.run(memory.close())
    assert caplog.text == ""


async def test_blocking_works_in_a_thread_of_an_async_host(path: Path) -> None:
    """§2: both bridges at once, on one file."""
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        texts = await asyncio.to_thread(_add_blocking, path)
        found = await memory.space("user:ada").list()
    assert [entry.text for entry in found] == texts


def _add_blocking(path: Path) -> list[str]:
    with blocking.open(path, NO_EMBEDDER) as memory:
        return [memory.space("user:ada").add("Ada likes green tea").entry.text]


@pytest.mark.parametrize("verb", ["list", "close", "add"])
def test_a_blocking_call_from_a_handler_is_refused(path: Path, verb: str) -> None:
    """§2: it would wait for the very thread it runs on, so it raises, and memory goes on."""
    caught: list[Exception] = []

    def on_event(event: Event) -> None:
        if event.name == "turn_started":
            ada = memory.space("user:ada")
            calls = {"add": lambda: ada.add("text"), "list": lambda: ada.list(), "close": lambda: memory.close()}
            try:
                calls[verb]()
            except CalledFromHandler as error:
                caught.append(error)

    with blocking.open(path, NO_EMBEDDER, on_event=on_event) as memory:
        with memory.conversation("c", user="ada").turn(exchange("Hello there")) as turn:
            pass
        recorded = turn.wait_recorded()
    assert "thread of your own" in str(caught[0])
    assert recorded


def test_a_turn_verb_in_a_handler_waits_for_nothing(path: Path, event_log: EventLog) -> None:
    """§2: turn verbs do not raise; in a handler they answer with what is known."""
    answers: list[bool] = []

    def on_event(event: Event) -> None:
        if event.name == "recorded":
            answers.append(turn.wait_recorded(within=WAIT))
        event_log(event)

    with blocking.open(path, NO_EMBEDDER, on_event=on_event) as memory:
        with memory.conversation("c", user="ada").turn(exchange("Hello there")) as turn:
            pass
        event_log.wait("recorded")
    assert answers == [True]


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3)])
async def test_a_handler_that_raises_breaks_nothing(
    path: Path, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """§2: exceptions of `on_event` are contained and logged."""

    def on_event(event: Event) -> None:
        raise error

    async with afterturn.open(path, NO_EMBEDDER, on_event=on_event) as memory:
        messages = [user("Which tea does Ada like?")]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            messages.append(assistant("Green tea."))
        assert await turn.wait_recorded()
    assert "the event handler failed on memory_opened" in caplog.text


async def _add(memory: afterturn.Memory, text: str) -> Added:
    return await memory.space("user:ada").add(text)
