"""Recalls that were overtaken: by a newer turn of their conversation, or by forgetting."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray
from spoken import Told, assistant, user

import afterturn
from afterturn.testing.hashing import HashingEmbedder


class Held(HashingEmbedder):
    """Hangs over its first question until the test lets it go."""

    def __init__(self) -> None:
        super().__init__()
        self.held = threading.Event()
        self.free = threading.Event()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if texts == ["What is my dog called?"] and not self.free.is_set():
            self.held.set()
            self.free.wait(30)
        return super().embed(texts)


@pytest.fixture
def embedder() -> Held:
    return Held()


@pytest.fixture
async def memory(tmp_path: Path, told: Told, embedder: Held) -> AsyncIterator[afterturn.Memory]:
    """Ada's, who has a cat and a dog."""
    parts = afterturn.Components(embedder=embedder)
    settings = {"grace": 5.0, "busy_timeout": 20.0}
    async with afterturn.open(tmp_path / "memory.db", settings, on_event=told, components=parts) as opened:
        await opened.ready()
        for text in ("Ada's cat is called Miso", "Ada's dog is called Rex"):
            await opened.space("user:ada").add(text)
        await opened.drain()
        yield opened
        embedder.free.set()


async def test_a_recall_in_flight_is_cancelled_by_the_next_turn(
    memory: afterturn.Memory, told: Told, embedder: Held
) -> None:
    """R3: the earlier recall ends by cancellation, before its embedder has answered; the later one is delivered."""
    conversation = memory.conversation("c", user="ada")
    first, second = [user("What is my dog called?")], [user("What is my cat called?")]
    earlier = conversation.turn(first)
    assert await asyncio.to_thread(embedder.held.wait, 10)
    later = conversation.turn(second)
    task = earlier._turn.shared.current.task  # type: ignore[union-attr]
    assert task is not None
    await memory._loop.run(_ended(task))
    stuck = not embedder.free.is_set()
    embedder.free.set()
    delivered = await later.inject(second)
    ended = told.named("recall_ended")[0]
    assert (stuck, task.cancelled()) == (True, True)
    assert (ended.turn, ended.data["outcome"], ended.data["reason"]) == (earlier.id, "superseded", "new_query")
    assert delivered is not None
    assert await earlier.inject(first) is None


async def test_grants_do_not_make_another_conversation(memory: afterturn.Memory, told: Told, embedder: Held) -> None:
    """R3: the same conversation, opened again with another space to read, still has one recall in flight."""
    earlier = memory.conversation("c", user="ada").turn([user("What is my dog called?")])
    assert await asyncio.to_thread(embedder.held.wait, 10)
    later = memory.conversation("c", user="ada", reads=["team:pets"]).turn([user("What is my cat called?")])
    ended = await asyncio.to_thread(told.wait, "recall_ended")
    embedder.free.set()
    assert (ended.turn, ended.data["outcome"]) == (earlier.id, "superseded")
    later.abort()


async def test_every_recall_ends_in_exactly_one_outcome(memory: afterturn.Memory, told: Told) -> None:
    """R5: delivered, empty, cancelled, undelivered: each told once, with its reason, and none twice."""
    asked = {"delivered": "What is my cat called?", "empty": "Where is the Kremlin?", "cancelled": "And my cat?"}
    turns = {}
    for wanted, question in (*asked.items(), ("undelivered", "What was my cat called?")):
        messages = [user(question)]
        async with memory.conversation(wanted, user="ada").turn(messages) as turn:
            await turn._turn.shared.current.fast.settled.wait(within=10.0)  # type: ignore[union-attr]
            if wanted == "cancelled":
                turn.abort()
            elif wanted != "undelivered":
                await turn.inject(messages)
            messages.append(assistant("Noted."))
        turns[turn.id] = wanted
        await turn.wait_recorded()
    async with memory.conversation("undelivered", user="ada").turn([user("thanks")]):
        """Takes over what was carried, and has no point for it."""
    await memory.stats()
    ended = {event.turn: (event.data["outcome"], event.data["reason"]) for event in told.named("recall_ended")}
    assert len(told.named("recall_ended")) == 4
    assert {wanted: ended[id] for id, wanted in turns.items()} == {
        "delivered": ("delivered", "user_message"),
        "empty": ("empty", "no_relevant_results"),
        "cancelled": ("cancelled", "abort"),
        "undelivered": ("undelivered", "no_safe_point"),
    }


async def test_what_was_recalled_before_it_was_forgotten_is_not_handed_over(
    memory: afterturn.Memory, told: Told
) -> None:
    """M2: a settled recall is dropped by a forget in the same process, and ends as cancelled."""
    space = memory.space("user:ada")
    messages = [user("What is my cat called?")]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        await turn._turn.shared.current.fast.settled.wait(within=10.0)  # type: ignore[union-attr]
        for hit in (await space.search("cat called Miso")).hits:
            await space.forget(memory=hit.entry.id)
        element = await turn.inject(messages)
        turn.abort()
    ended = told.wait("recall_ended")
    assert element is None
    assert (ended.data["outcome"], ended.data["reason"]) == ("cancelled", "forgotten")


async def test_what_rests_on_another_space_s_record_is_not_handed_over_once_that_is_forgotten(
    memory: afterturn.Memory,
) -> None:
    """M2: the statement goes with the record, and so does what was recalled of it."""
    said = [user("My parrot is called Polly"), assistant("Noted.")]
    async with memory.conversation("t", owner="team:pets").turn(said[:1]) as told_in:
        told_in.complete(said)
    assert await told_in.wait_recorded()
    team, ada = memory.space("team:pets"), memory.space("user:ada")
    records = [entry for entry in await team.list() if "Polly" in entry.text]
    await ada.add("Ada's parrot is called Polly", sources=(records[0].id,))
    messages = [user("What is my parrot called?")]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        await turn._turn.shared.current.fast.settled.wait(within=10.0)  # type: ignore[union-attr]
        recalled = turn._core.slot.has_block(turn._turn.shared)  # type: ignore[union-attr]
        await team.forget(memory=records[0].id)
        element = await turn.inject(messages)
        turn.abort()
    assert (recalled, element) == (True, None)


async def test_forgetting_in_another_space_drops_no_recall(memory: afterturn.Memory) -> None:
    """M2: only what the forgotten space could have given is dropped."""
    added = await memory.space("user:bob").add("Bob's cat is called Tofu")
    messages = [user("What is my cat called?")]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        await turn._turn.shared.current.fast.settled.wait(within=10.0)  # type: ignore[union-attr]
        await memory.space("user:bob").forget(memory=added.entry.id)
        assert await turn.inject(messages) is not None
        turn.abort()


async def test_what_is_recalled_while_forgetting_waits_for_the_store_is_not_handed_over(
    memory: afterturn.Memory, tmp_path: Path
) -> None:
    """M2: recalled after forgetting began and before its commit: it is dropped once the commit is there."""
    draft = _draft_of_a_dead_process(tmp_path)
    other = _locking(tmp_path)
    forgetting = asyncio.ensure_future(memory.space("user:ada").forget(everything=True))
    await _gone(draft)
    messages = [user("What is my cat called?")]
    turn = memory.conversation("c", user="ada").turn(messages)
    await turn._turn.shared.current.fast.settled.wait(within=10.0)  # type: ignore[union-attr]
    recalled = turn._core.slot.has_block(turn._turn.shared)  # type: ignore[union-attr]
    other.execute("ROLLBACK")
    other.close()
    await forgetting
    assert recalled
    assert await turn.inject(messages) is None
    turn.abort()


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task}, timeout=10)


def _locking(folder: Path) -> apsw.Connection:
    connection = apsw.Connection(str(folder / "memory.db"))
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def _draft_of_a_dead_process(folder: Path) -> Path:
    """Forgetting erases it before it asks the store for anything, and so tells how far it has come."""
    draft = folder / "memory.db.waiting" / "0123.999999999.tmp"
    draft.parent.mkdir(exist_ok=True)
    draft.write_text("half a turn")
    return draft


async def _gone(path: Path) -> None:
    async with asyncio.timeout(10):
        while path.exists():  # noqa: ASYNC110 a file that goes tells nobody
            await asyncio.sleep(0)
