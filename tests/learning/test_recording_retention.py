"""What becomes of reviews and of what was learned when the messages they rest on have had their time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from simple_host import CONFIG, say, texts

import afterturn
from afterturn.testing import EventLog
from afterturn.testing.clock import ManualClock
from afterturn.testing.model import Held, ScriptedModel, call_tools
from afterturn.types import Filter, Kind, ReviewState

DAY = 86_400
NOTHING = "Nothing to save."
TEA = ("add_memory", {"text": "The user prefers oolong tea", "target": "user", "messages": [1]})


class Home:
    """Opens memories on one file at one time, which a test decides."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.told = EventLog()
        self._path = folder / "memory.db"

    def open(self, model: ScriptedModel | None = None, **config: Any) -> afterturn.Memory:
        parts = afterturn.Components(clock=self.clock, model=model)
        return afterturn.open(self._path, {**CONFIG, **config}, components=parts, on_event=self.told)

    async def heard(self, name: str, count: int = 1) -> afterturn.Event:
        return await asyncio.to_thread(self.told.wait, name, count)

    async def sweep(self) -> afterturn.Event:
        """A month passes, and whoever opens the store next ends the retention of what was said before."""
        self.clock.advance(31 * DAY)
        already = len(self.told.named("retention_ended"))
        async with self.open(records_retention_days=30):
            return await self.heard("retention_ended", already + 1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def test_what_was_learned_goes_with_the_last_message_that_it_rests_on(home: Home) -> None:
    """M4, M2: it says the same in other words; what a person has stated rests on no message, and stays."""
    async with home.open(rules=True) as memory:
        await say(memory.conversation("c", user="ada"), "Please remember that my spare key is under the blue pot.")
        await memory.space("user:ada").add("Ada likes tea")
        assert await memory.drain(within=20)
        before = await texts(memory.space("user:ada"))
    event = await home.sweep()
    async with home.open() as memory:
        left = await memory.space("user:ada").list()
    assert len(before) == 2
    assert (event.data["records"], event.data["statements"]) == (2, 1)
    assert [entry.text for entry in left] == ["Ada likes tea"]


async def test_what_also_rests_on_a_later_message_stays(home: Home) -> None:
    """M4, M2: one of its two messages is still there, and it goes with that one."""
    both = ("add_memory", {**TEA[1], "messages": [1, 3]})
    async with home.open() as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
    home.clock.advance(20 * DAY)
    async with home.open(ScriptedModel(call_tools(both), NOTHING)) as memory:
        await say(memory.conversation("c", user="ada"), "As I said, I prefer oolong tea")
        await memory.space("user:ada").run_review("c")
        (learned,) = await memory.space("user:ada").list(filter=Filter(kind=Kind.STATEMENT))
    home.clock.advance(-11 * DAY)
    first = await home.sweep()
    async with home.open() as memory:
        kept = await texts(memory.space("user:ada"))
    second = await home.sweep()
    async with home.open() as memory:
        gone = await texts(memory.space("user:ada"))
    assert len(learned.sources) == 2
    assert (first.data["statements"], kept) == (0, ["The user prefers oolong tea"])
    assert (second.data["statements"], gone) == (1, [])


async def test_what_was_said_again_is_known_for_as_long_as_the_later_message(home: Home) -> None:
    """M4, M2, G6: the rules find it twice and keep it once, with both messages to rest on."""
    said = "Please remember that my spare key is under the blue pot."
    async with home.open(rules=True) as memory:
        await say(memory.conversation("c", user="ada"), said)
        assert await memory.drain(within=20)
    home.clock.advance(20 * DAY)
    async with home.open(rules=True) as memory:
        await say(memory.conversation("d", user="ada"), said)
        assert await memory.drain(within=20)
        once = await texts(memory.space("user:ada"))
    home.clock.advance(-11 * DAY)
    first = await home.sweep()
    async with home.open() as memory:
        kept = await texts(memory.space("user:ada"))
    second = await home.sweep()
    assert len(once) == 1
    assert (first.data["records"], first.data["statements"], kept) == (2, 0, once)
    assert (second.data["records"], second.data["statements"]) == (2, 1)


async def test_a_later_review_does_not_read_what_had_its_time(home: Home) -> None:
    """M4, V2: a snapshot is made of records that are there."""
    async with home.open() as memory:
        await say(memory.conversation("c", user="ada"), "The old secret sentinel")
    await home.sweep()
    model = ScriptedModel(NOTHING)
    async with home.open(model, review_interval=1) as memory:
        await say(memory.conversation("c", user="ada"), "Something new")
        assert await memory.drain(within=20)
    (call,) = model.calls
    assert "Something new" in call.text
    assert "sentinel" not in call.text


async def test_a_review_that_still_waits_does_not_read_it_either(home: Home) -> None:
    """M4, V2: the copy that was stored with its job goes with the record, and no model is shown it."""
    async with home.open(review_interval=1, background=False) as memory:
        await say(memory.conversation("c", user="ada"), "The old secret sentinel")
    await home.sweep()
    model = ScriptedModel(NOTHING)
    async with home.open(model) as memory:
        assert await memory.drain(within=20)
        (row,) = await memory.space("user:ada").reviews()
    assert model.calls == []
    assert row.state is ReviewState.FORGOTTEN


async def test_a_review_under_way_writes_nothing_that_rests_on_it(home: Home) -> None:
    """M4, M2, V4: the model has read it, but what it would save has lost its ground meanwhile."""
    hanging = Held(call_tools(TEA))
    async with home.open(ScriptedModel(hanging, NOTHING), review_interval=1) as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        assert await asyncio.to_thread(hanging.asked.wait, 10)
        await home.sweep()
        hanging.release()
        assert await memory.drain(within=20)
        saved = await texts(memory.space("user:ada"))
        (row,) = await memory.space("user:ada").reviews()
    assert saved == []
    assert row.written == 0
