"""Turns, drains and restores cancelled at each of their awaits can be repeated without duplicates."""

from pathlib import Path

import pytest
from cancelling import AWAITS_MAX, DELAYS, cancel_at_await, settled
from exchanges import NO_EMBEDDER, assistant, user

import afterturn
from afterturn.testing.hashing import HashingEmbedder
from afterturn.types import Kind

SAID = "Green tea, please"


@pytest.mark.parametrize("delay", DELAYS)
async def test_a_turn_whose_start_was_cancelled_can_be_started_again(path: Path, delay: float) -> None:
    """C3: under its id it is the same turn, and is recorded once."""
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        for cut in range(1, AWAITS_MAX):
            conversation = memory.conversation(f"c{cut}", user="ada")
            starting = conversation._core.start_turn(conversation._scope, [user(SAID)], "turn-1", None)
            awaits = await memory._loop.run(cancel_at_await(starting, cut, delay))
            turn = await conversation.start_turn([user(SAID)], id="turn-1")
            assert await _finished(turn)
            assert await _texts(memory, conversation.id) == [SAID, "Noted."]
            if awaits < cut:
                break
        else:
            raise AssertionError(f"it does not end within {AWAITS_MAX} awaits")


@pytest.mark.parametrize("delay", DELAYS)
async def test_a_turn_whose_resumption_was_cancelled_is_still_open(path: Path, delay: float) -> None:
    """C3: the next call can resume and end it."""
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        for cut in range(1, AWAITS_MAX):
            conversation = memory.conversation(f"c{cut}", user="ada")
            await conversation.start_turn([user(SAID)], id="turn-1")
            resuming = conversation._core.resume_turn(conversation._scope, "turn-1")
            awaits = await memory._loop.run(cancel_at_await(resuming, cut, delay))
            assert await _finished(await conversation.resume_turn("turn-1"))
            assert await _texts(memory, conversation.id) == [SAID, "Noted."]
            if awaits < cut:
                break
        else:
            raise AssertionError(f"it does not end within {AWAITS_MAX} awaits")


@pytest.mark.parametrize("delay", DELAYS)
async def test_a_cancelled_drain_leaves_its_jobs_to_the_next(path: Path, delay: float) -> None:
    """C8: a job that was begun is neither lost nor kept from others."""
    parts = afterturn.Components(embedder=HashingEmbedder())
    async with afterturn.open(path, background=False, components=parts) as memory:
        await memory.ready()
        for cut in range(1, AWAITS_MAX):
            await memory.space("user:ada").add(f"Ada likes tea number {cut}")
            awaits = await memory._loop.run(cancel_at_await(memory._core.drain(within=10.0), cut, delay))
            assert await memory.drain(within=5.0)
            assert (await memory.stats())["jobs"] == {}
            if awaits < cut:
                break
        else:
            raise AssertionError(f"it does not end within {AWAITS_MAX} awaits")
        hits = (await memory.space("user:ada").search("Which tea does Ada like?", limit=AWAITS_MAX)).hits
    assert len(hits) == cut
    assert all(hit.similarity is not None for hit in hits)


@pytest.mark.parametrize("delay", DELAYS)
async def test_a_cancelled_restore_is_whole_or_did_not_happen(path: Path, delay: float) -> None:
    """M4: the store holds what it held or what the backup holds, and no partial file stays beside it."""
    copy = path.with_name("copy.db")
    async with afterturn.open(path, NO_EMBEDDER) as memory:
        space = memory.space("user:ada")
        await space.add("Ada likes green tea")
        await memory.backup(copy)
        beside = {file.name for file in path.parent.iterdir()}
        for cut in range(1, AWAITS_MAX):
            await space.add("Ada likes black coffee")
            awaits = await memory._loop.run(cancel_at_await(memory._core.restore(copy), cut, delay))
            await settled(memory)
            texts = sorted(entry.text for entry in await space.list())
            assert texts in (["Ada likes green tea"], ["Ada likes black coffee", "Ada likes green tea"])
            if awaits < cut:
                break
        else:
            raise AssertionError(f"it does not end within {AWAITS_MAX} awaits")
        assert texts == ["Ada likes green tea"]
        assert {file.name for file in path.parent.iterdir()} == beside
        assert [finding for finding in await memory.check() if finding.level == "error"] == []


async def _finished(turn: afterturn.Turn) -> bool:
    turn.finish([user(SAID), assistant("Noted.")])
    return await turn.wait_recorded()


async def _texts(memory: afterturn.Memory, conversation: str) -> list[str]:
    wanted = afterturn.Filter(kind=Kind.RECORD, conversation=conversation)
    return sorted(entry.text for entry in await memory.space("user:ada").list(filter=wanted))
