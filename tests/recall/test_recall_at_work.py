"""Recall of an open memory: what is embedded of a question, and spaces that come to memory behind it."""

import asyncio
import gc
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from fake_index import reachable
from numpy.typing import NDArray

import afterturn
from afterturn.errors import StoreError
from afterturn.ports import Store
from afterturn.recall.index import cache as cache_module
from afterturn.recall.index.cache import IndexCache
from afterturn.recall.index.space_index import EntryCache, SpaceKey
from afterturn.testing.hashing import HashingEmbedder
from afterturn.types import Entry

WITHIN = 100.0
HIKE = "I went hiking in the mountains with a tent"


class Listening(HashingEmbedder):
    """Keeps what it was asked to embed."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.heard += texts
        return super().embed(texts)


class Built:
    """Has every space built in the background; waits until one was, or could not be."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._tried = threading.Semaphore(0)
        build = IndexCache.build_next

        async def building(cache: IndexCache, store: Store) -> SpaceKey | None:
            try:
                return await build(cache, store)
            finally:
                self._tried.release()

        patch.setattr(IndexCache, "build_next", building)
        patch.setattr(cache_module, "AT_ONCE_ROWS_MAX", 0)

    async def wait(self) -> None:
        assert await asyncio.to_thread(self._tried.acquire, timeout=WITHIN)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Built:
    return Built(monkeypatch)


async def told(memory: afterturn.Memory, text: str, speaker: str) -> None:
    messages = [{"role": "user", "content": text}]
    async with memory.conversation("c", user="ada").turn(messages, speaker=speaker) as turn:
        messages.append({"role": "assistant", "content": "That sounds like a wonderful journey"})
    assert await turn.wait_recorded()
    assert await memory.drain(within=WITHIN)


def texts(found: afterturn.SearchResults) -> list[str]:
    return [hit.entry.text for hit in found.hits]


async def test_whoever_is_named_is_left_out_of_what_is_embedded(tmp_path: Path) -> None:
    """L6: in the direct verbs and in a turn; a name of nobody who spoke stays."""
    embedder = Listening()
    async with afterturn.open(tmp_path / "memory.db", components=afterturn.Components(embedder=embedder)) as memory:
        assert await memory.ready()
        await told(memory, HIKE, "Bob Miller")
        found = await memory.space("user:ada").search("Where did Bob go hiking with Carol?")
        asked = [{"role": "user", "content": "What did Miller carry up the mountains, a tent?"}]
        async with memory.conversation("d", user="ada").turn(asked) as turn:
            await turn.inject(asked, within=WITHIN)
            turn.abort()
    assert texts(found)[0] == HIKE
    assert "Where did go hiking with Carol?" in embedder.heard
    assert "What did carry up the mountains, a tent?" in embedder.heard
    assert not any("Bob" in heard for heard in embedder.heard)


async def is_in_memory(memory: afterturn.Memory) -> bool:
    embedding, store = memory._services.embedding, memory._services.store
    assert embedding is not None
    assert store is not None
    cache = embedding.index
    assert cache is not None
    return await store.read(lambda unit: cache.find(unit, "default", "user:ada") is not None, at=None)


@pytest.mark.parametrize("begun", ["turn", "standing"])
async def test_a_space_is_loaded_before_the_first_question(tmp_path: Path, built: Built, begun: str) -> None:
    """L6: with a turn that asks nothing, or with the standing block."""
    path = tmp_path / "memory.db"
    async with afterturn.open(path, components=afterturn.Components(embedder=HashingEmbedder())) as memory:
        assert await memory.ready()
        await memory.space("user:ada").add(HIKE)
    async with afterturn.open(path, components=afterturn.Components(embedder=HashingEmbedder())) as memory:
        conversation = memory.conversation("c", user="ada")
        if begun == "turn":
            async with conversation.turn([{"role": "user", "content": "Thanks!"}]) as turn:
                turn.abort()
        else:
            await conversation.standing().block()
        assert await memory.ready()
        await built.wait()
        assert await is_in_memory(memory)


async def test_a_large_space_is_found_by_words_until_it_is_in_memory(tmp_path: Path, built: Built) -> None:
    """L6: which it is behind the first answer."""
    parts = afterturn.Components(embedder=HashingEmbedder())
    async with afterturn.open(tmp_path / "memory.db", components=parts) as memory:
        assert await memory.ready()
        await told(memory, HIKE, "Bob Miller")
        ada = memory.space("user:ada")
        assert await memory.drain(within=WITHIN)
        cold = await ada.search("Where did Bob go hiking?")
        await built.wait()
        assert await memory._loop.run(is_in_memory(memory))
        warm = await ada.search("Where did Bob go hiking?")
        added = (await ada.add("Bob takes his tent along when he goes hiking")).entry
        newer = await ada.search("Where did Bob go hiking?")
        await ada.forget(memory=added.id)
        after = await ada.search("Where did Bob go hiking?")
    assert texts(cold) == texts(warm) == texts(after)
    assert (cold.missing, warm.missing) == (("vectors",), ())
    assert added.text in texts(newer)


async def test_a_space_that_can_not_be_brought_to_memory_is_still_found(
    tmp_path: Path, built: Built, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """L1: recall goes on in the store, and what is wrong is logged."""

    def fails(*_: object) -> None:
        raise StoreError("the disk is slow today")

    monkeypatch.setattr(IndexCache, "_plan", fails)
    parts = afterturn.Components(embedder=HashingEmbedder())
    async with afterturn.open(tmp_path / "memory.db", components=parts) as memory:
        assert await memory.ready()
        await told(memory, HIKE, "Bob Miller")
        for _ in range(2):
            await memory.space("user:ada").search("Where did Bob go hiking?")
        await built.wait()
        found = await memory.space("user:ada").search("Where did Bob go hiking?")
    assert (texts(found)[0], found.missing) == (HIKE, ("vectors",))
    assert "the disk is slow today" in caplog.text


async def test_the_first_question_of_another_process_has_vectors(tmp_path: Path) -> None:
    """L6, M3: written by one, asked of another, which answers as the first one did."""
    path, parts = tmp_path / "memory.db", afterturn.Components(embedder=HashingEmbedder())
    columns = [HIKE, "My sister plays the cello", "The boat is moored at the northern harbour"]
    async with afterturn.open(path, components=parts) as memory:
        assert await memory.ready(within=WITHIN)
        await memory.space("user:ada").add_many([afterturn.Draft(fact) for fact in columns])
        assert await memory.drain(within=WITHIN)
        expected = await memory.space("user:ada").search("where is the boat moored?")
    async with afterturn.open(path, components=parts) as memory:
        assert await memory.ready(within=WITHIN)
        found = await memory.space("user:ada").search("where is the boat moored?")
    assert [(hit.entry.text, hit.score) for hit in found.hits] == [(hit.entry.text, hit.score) for hit in expected.hits]
    assert found.missing == ()
    assert found.hits[0].similarity is not None


async def test_a_forget_takes_answers_out_of_this_process_at_once(tmp_path: Path) -> None:
    """M2: not only when the space is next asked."""
    parts = afterturn.Components(embedder=HashingEmbedder())
    # Of memories that other tests have left open, such as those of a simulated process that was killed.
    others = _kept_texts()
    async with afterturn.open(tmp_path / "memory.db", components=parts) as memory:
        assert await memory.ready(within=WITHIN)
        space = memory.space("user:ada")
        hike = await space.add(HIKE)
        assert await memory.drain(within=WITHIN)
        while not (kept := _kept_texts() - others):
            await space.search("hiking with a tent")
            await asyncio.sleep(0.01)
        assert kept == {HIKE}
        await space.forget(memory=hike.entry.id)
        assert _kept_texts() - others == set()


def _kept_texts() -> set[str]:
    """What stays in memory of answers, wherever it is."""
    gc.collect()
    found = [one for one in gc.get_objects() if type(one) is EntryCache]
    return {one.text for kept in found for one in reachable(kept) if isinstance(one, Entry)}
