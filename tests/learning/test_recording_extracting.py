"""`recorder=extracting`: every turn is kept word by word, and a model states what it taught."""

from __future__ import annotations

from pathlib import Path

from simple_host import open_memory, say, statements, texts

from afterturn.testing import EventLog
from afterturn.testing.model import Held, ScriptedModel, call_tools
from afterturn.types import Filter, JobKind, Kind, Origin, Purpose, ReviewKind, ReviewState

NOTHING = "Nothing to save."
TEA = ("add_memory", {"text": "The user prefers oolong tea", "target": "user", "messages": [1]})
RECORDS = Filter(kind=Kind.RECORD)


async def test_every_turn_is_kept_word_by_word_and_stated(tmp_path: Path) -> None:
    """C7, C8: the records are there as ever; a job of its own asks a model about each turn."""
    events_seen, model = EventLog(), ScriptedModel(call_tools(TEA), NOTHING, NOTHING)
    async with open_memory(tmp_path, model, events_seen, recorder="extracting") as memory:
        conversation = memory.conversation("c", user="ada")
        await say(conversation, "I prefer oolong tea")
        assert await memory.drain(within=20)
        await say(conversation, "And how are you?")
        assert await memory.drain(within=20)
        records = await memory.space("user:ada").list(filter=RECORDS)
        (learned,) = await statements(memory.space("user:ada"))
        spent = await memory.space("user:ada").usage()
    assert [event.data["kind"] for event in events_seen.named("review_scheduled")] == ["extraction", "extraction"]
    assert len(records) == 4
    assert (learned.text, learned.origin) == ("The user prefers oolong tea", Origin.BACKGROUND_REVIEW)
    assert [record.text for record in records if record.id in learned.sources] == ["I prefer oolong tea"]
    assert {row.purpose for row in spent} == {Purpose.EXTRACTION}


async def test_turns_do_not_wait_for_what_is_extracted_from_them(tmp_path: Path) -> None:
    """C7, C8, V2: a model that hangs holds up no recording, and each turn has its own job."""
    hanging = Held(NOTHING)
    async with open_memory(tmp_path, ScriptedModel(hanging, NOTHING), recorder="extracting") as memory:
        conversation = memory.conversation("c", user="ada")
        await say(conversation, "I prefer oolong tea")
        assert hanging.asked.wait(100)
        await say(conversation, "And black tea on Sundays")
        hanging.release()
        assert await memory.drain(within=20)
        rows = await memory.space("user:ada").reviews()
    assert [(row.kind, row.state) for row in rows] == [(ReviewKind.EXTRACTION, ReviewState.NOTHING)] * 2


async def test_an_extraction_that_nobody_could_do_is_done_by_the_next_process(tmp_path: Path) -> None:
    """C8, C3: the job is written with the turn, and the same turn again adds none."""
    async with open_memory(tmp_path, None, recorder="extracting") as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea", id="turn-1")
    model = ScriptedModel(call_tools(TEA), NOTHING)
    async with open_memory(tmp_path, model, recorder="extracting") as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea", id="turn-1")
        assert await memory.drain(within=20)
        saved = await texts(memory.space("user:ada"))
        rows = await memory.space("user:ada").reviews()
    assert saved == ["The user prefers oolong tea"]
    assert len(rows) == 1
    assert model.remaining == 0


async def test_a_sub_agents_turns_are_not_extracted(tmp_path: Path) -> None:
    """C7, A3: they are kept, and teach nothing."""
    async with open_memory(tmp_path, ScriptedModel(), recorder="extracting", background=False) as memory:
        await say(memory.conversation("helper", user="ada", subagent=True), "I prefer oolong tea")
        assert await memory.space("user:ada").reviews() == []
        assert len(await memory.space("user:ada").list(filter=RECORDS)) == 2


async def test_without_extracting_no_model_is_asked_about_a_turn(tmp_path: Path) -> None:
    """C7, V1: the default keeps turns word by word, and schedules nothing that would cost."""
    model = ScriptedModel()
    async with open_memory(tmp_path, model, background=False) as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        store = memory._services.store
        assert store is not None
        jobs = await store.read(lambda unit: unit.jobs.page("default"), at=None)
    assert {job.kind for job in jobs} == {JobKind.EMBED}
    assert model.calls == []
