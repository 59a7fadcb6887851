"""The effect of settings that `open` gets, and the events about the embedder."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from exchanges import NO_EMBEDDER, exchange
from numpy.typing import NDArray

import afterturn
from afterturn import maintenance
from afterturn.errors import EmbedderUnavailable
from afterturn.testing import EventLog
from afterturn.testing.hashing import HashingEmbedder


class Missing(HashingEmbedder):
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise EmbedderUnavailable("Its files are not there. Install them.")


async def test_a_loaded_embedder_is_reported(path: Path, event_log: EventLog) -> None:
    """From then on recall uses vectors, and the event names whose."""
    async with afterturn.open(
        path, on_event=event_log, components=afterturn.Components(embedder=HashingEmbedder())
    ) as memory:
        ready = await memory.ready()
        told = await asyncio.to_thread(event_log.wait, "vectors_ready")
    assert ready
    assert told.data == {"embedder": "hashing"}


async def test_a_missing_embedder_is_reported_and_words_still_work(path: Path, event_log: EventLog) -> None:
    """L1: no vectors is no failure; the event says why, each recall says so, and `doctor` says what to do."""
    async with afterturn.open(path, on_event=event_log, components=afterturn.Components(embedder=Missing())) as memory:
        await memory.space("user:ada").add("Ada likes green tea")
        ready = await memory.ready()
        told = await asyncio.to_thread(event_log.wait, "embedder_unavailable")
        found = await memory.space("user:ada").search("Which tea does Ada like?")
        levels = [finding.level for finding in await memory.check() if finding.subject == "embedder"]
    assert not ready
    assert "Install them" in str(told.data["reason"])
    assert ([hit.entry.text for hit in found.hits], found.missing) == (["Ada likes green tea"], ("vectors",))
    assert levels == ["warning"]


async def test_the_timeline_keeps_as_many_events_as_it_may(
    path: Path, event_log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest of a space are kept, and the rest is gone."""
    monkeypatch.setattr(maintenance, "TIMELINE_ENTRIES_MAX", 100)
    async with afterturn.open(path, NO_EMBEDDER, on_event=event_log) as memory:
        for number in range(40):
            async with memory.conversation("c", user="ada").turn(exchange(f"Message {number}")) as turn:
                pass
            assert await turn.wait_recorded()
    told = [event.turn for event in event_log.events if event.space]
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        kept = [event.turn for event in await memory.space("user:ada").trace(limit=1000)]
    assert len(told) > 100
    assert kept == told[-100:]


async def test_a_space_whose_vectors_do_not_fit_is_searched_by_words_and_says_so(path: Path) -> None:
    """L1, §13: `index_bytes_max` bounds the index in memory; the result names what it had to do without."""
    # 4096 dimensions of four bytes: 64 vectors in the least that may be configured.
    parts = afterturn.Components(embedder=HashingEmbedder(4096))
    drafts = [afterturn.Draft(f"Ada likes tea number {number}") for number in range(80)]
    async with afterturn.open(path, {"index_bytes_max": 1_048_576}, components=parts) as memory:
        await memory.space("user:ada").add_many(drafts)
        await memory.drain()
        for _ in range(3):
            found = await memory.space("user:ada").search("Which tea does Ada like?", limit=100)
            embedding = memory._services.embedding
            assert embedding is not None
            assert embedding.index is not None
            assert embedding.index.size_bytes <= 1_048_576
            assert (len(found.hits), found.missing) == (80, ("vectors",))
