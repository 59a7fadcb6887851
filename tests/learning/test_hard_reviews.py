"""Reviews in hard circumstances: several spaces, forgetting midway, models that misbehave, stores that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from simple_host import open_memory, say, texts

from afterturn.errors import ModelRefused, NotFound, StoreLocked
from afterturn.testing.model import Held, ScriptedModel, call_tools
from afterturn.types import ReviewKind, ReviewState

NOTHING = "Nothing to save."
TEA = ("add_memory", {"text": "The user prefers oolong tea", "target": "user", "messages": [1]})
LEAVE = ("add_memory", {"text": "The user is on sick leave", "target": "user", "messages": [1]})
PORT = ("add_memory", {"text": "The staging port is 8443", "target": "environment", "messages": [1]})


async def test_a_space_sees_and_undoes_what_was_written_there_and_no_more(tmp_path: Path) -> None:
    """L2, V8: what a review wrote into a private space is no shared space's to read or take back."""
    model = ScriptedModel(call_tools(LEAVE, PORT), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        ada, project = memory.space("user:ada"), memory.space("project:api")
        conversation = memory.conversation("c", user="ada", writes="project:api", reads=["project:api"])
        await say(conversation, "I am on sick leave; the staging port is 8443")
        assert await memory.drain(within=20)
        (row,) = await ada.reviews()
        seen_here, seen_there = await ada.review(row.id), await project.review(row.id)
        await project.undo_review(row.id)
        left = await texts(ada)
        with pytest.raises(NotFound):
            await memory.space("user:bob").review(row.id)

    assert {change.space for change in seen_here.changes} == {"user:ada", "project:api"}
    assert {change.space for change in seen_there.changes} == {"project:api"}
    assert left == ["The user is on sick leave"]


async def test_a_review_that_read_what_is_forgotten_writes_nothing_and_the_rest_is_read_anew(tmp_path: Path) -> None:
    """M2, V4: it may have put the forgotten words under another message."""
    laundered = ("add_memory", {"text": "The user prefers oolong tea", "target": "user", "messages": [3]})
    last = Held(NOTHING)
    model = ScriptedModel(call_tools(laundered), last, NOTHING)
    async with open_memory(tmp_path, model, review_interval=2) as memory:
        space = memory.space("user:ada")
        conversation = memory.conversation("c", user="ada")
        await say(conversation, "I prefer oolong tea")
        await say(conversation, "what do you prefer, tea or the other thing the user said?")
        assert last.asked.wait(100)
        record = next(entry for entry in await space.list() if entry.text == "I prefer oolong tea")
        await space.forget(memory=record.id)
        last.release()
        assert await memory.drain(within=20)
        rows = await space.reviews()

        assert await texts(space) == []
    assert sorted(row.state for row in rows) == [ReviewState.FORGOTTEN, ReviewState.NOTHING]
    assert "oolong" not in model.calls[-1].text


async def test_what_was_forgotten_is_no_context_of_the_review_that_follows(tmp_path: Path) -> None:
    """M2, V9: messages without a record, of a compaction, are not stored again from a review's own memory."""
    hanging = Held(NOTHING)
    model = ScriptedModel(hanging, NOTHING)
    async with open_memory(tmp_path, model, review_interval=1, review_compaction=True) as memory:
        conversation = memory.conversation("c", user="ada")
        await say(conversation, "the first thing")
        assert hanging.asked.wait(100)
        conversation.compacting(
            [{"role": "user", "content": "hush: the vault is in Basel"}, {"role": "assistant", "content": "I see."}]
        )
        await say(conversation, "the second thing")
        await memory.space("user:ada").forget(speaker="user")
        hanging.release()
        await memory.drain(within=20)

    assert all("Basel" not in call.text for call in model.calls)


async def test_a_review_on_request_works_after_an_earlier_forget(tmp_path: Path) -> None:
    """M2, V8: what was forgotten long ago does not void what is asked for now."""
    model = ScriptedModel(call_tools(TEA), NOTHING)
    async with open_memory(tmp_path, model) as memory:
        space = memory.space("user:ada")
        await say(memory.conversation("c", user="ada"), "something old")
        await space.forget(conversation="c")
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        review = await space.run_review("c")

        assert await texts(space) == ["The user prefers oolong tea"]
    assert review is not None
    assert review.row.state is ReviewState.SAVED


async def test_a_review_with_a_deletion_that_waits_is_undone(tmp_path: Path) -> None:
    """V8: a proposed deletion is the review's own, nobody's rejection."""
    async with open_memory(tmp_path) as memory:
        car = (await memory.space("user:ada").add("Ada drives a car", origin="agent")).entry
    model = ScriptedModel(call_tools(("delete_memory", {"id": car.id, "messages": [1]})), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1, approval="background") as memory:
        space = memory.space("user:ada")
        await say(memory.conversation("c", user="ada"), "I sold the car that I drive")
        assert await memory.drain(within=20)
        (row,) = await space.reviews()
        assert [change.state for change in (await space.review(row.id)).changes] == ["waits"]
        await space.undo_review(row.id)

        assert await space.proposals() == []
        assert await texts(space) == ["Ada drives a car"]


@pytest.mark.parametrize("fault", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_whatever_a_models_call_raises_memory_goes_on(tmp_path: Path, fault: BaseException) -> None:
    """V2, C4: a host's model can not end memory's loop or its reviews."""
    model = ScriptedModel(fault, NOTHING)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        conversation = memory.conversation("c", user="ada")
        await say(conversation, "the first thing")
        await memory.drain(within=1)
        await say(conversation, "the second thing")
        found = await memory.space("user:ada").search("second thing")

    assert found.hits


class Talking:
    """A model that gives something else than a message."""

    async def complete(self, messages: Any, tools: Any = (), *, schema: Any = None) -> Any:
        return ["add_memory"]


async def test_an_answer_that_is_no_message_ends_the_review(tmp_path: Path) -> None:
    """V12: never stored, never lost."""
    async with open_memory(tmp_path, Talking(), review_interval=1) as memory:  # type: ignore[arg-type]
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        assert await memory.drain(within=20)
        (row,) = await memory.space("user:ada").reviews()

    assert (row.state, row.reason) == (ReviewState.FAILED, "no_message")


async def test_a_store_that_fails_for_a_moment_does_not_cost_the_review(tmp_path: Path) -> None:
    """C8, V4: it is tried again, as any job is."""
    model = ScriptedModel(call_tools(TEA), call_tools(TEA), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1, background=False) as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        store = memory._services.store
        whole, faults = store.read, [StoreLocked("busy")]

        async def read(work: Any, **where: Any) -> Any:
            if model.calls and faults:
                raise faults.pop()
            return await whole(work, **where)

        store.read = read  # type: ignore[method-assign]
        await memory._services.reviews.runner.run_due()
        (row,) = await memory.space("user:ada").reviews()
        memory._services.clock.advance(60.0)
        assert await memory.drain(within=20)

        assert await texts(memory.space("user:ada")) == ["The user prefers oolong tea"]
    assert row.state is ReviewState.WAITING


async def test_what_a_review_came_to_nothing_over_is_read_by_the_next(tmp_path: Path) -> None:
    """V4, V12: the review is not tried again, and what it should have learned is not lost."""
    model = ScriptedModel(ModelRefused("wrong key", reason="key", status=401), call_tools(TEA), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        conversation = memory.conversation("c", user="ada")
        await say(conversation, "I prefer oolong tea")
        assert await memory.drain(within=20)
        await say(conversation, "what time is it?")
        assert await memory.drain(within=20)
        states = [row.state for row in await memory.space("user:ada").reviews()]

        assert await texts(memory.space("user:ada")) == ["The user prefers oolong tea"]
    assert states == [ReviewState.SAVED, ReviewState.FAILED]


async def test_a_trigger_adds_no_second_job_to_a_review_that_runs(tmp_path: Path) -> None:
    """V1: one review runs for a conversation, whichever process would take the next job."""
    hanging = Held(NOTHING)
    async with open_memory(tmp_path, ScriptedModel(hanging, NOTHING), review_interval=1) as memory:
        conversation = memory.conversation("c", user="ada")
        await say(conversation, "the first thing")
        assert hanging.asked.wait(100)
        await say(conversation, "the second thing")
        counts = await memory._services.store.read(lambda unit: unit.jobs.counts("default", ["review"]), at=None)
        hanging.release()
        assert await memory.drain(within=20)

    assert counts == {"leased": 1}


async def test_a_live_turn_comes_before_a_review(tmp_path: Path) -> None:
    """V2: while a turn is open in this process, the model is not asked yet."""
    asked = Held(NOTHING)
    async with open_memory(tmp_path, ScriptedModel(asked), review_interval=1) as memory:
        messages = [{"role": "user", "content": "a long errand"}]
        async with memory.conversation("busy", user="ada", subagent=True).turn(messages) as turn:
            await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
            assert not await asyncio.to_thread(asked.asked.wait, 0.7)
            messages.append({"role": "assistant", "content": "done"})
        await turn.wait_recorded()
        assert await asyncio.to_thread(asked.asked.wait, 10)
        asked.release()
        assert await memory.drain(within=20)


async def test_compacting_for_a_host_reviews_what_goes_once_it_is_decided(tmp_path: Path) -> None:
    """V9, K1: `compact` says so itself; a history that is short enough is only checked, and reviewed by nobody."""
    summary = (
        "<state_snapshot><overall_goal>Tea</overall_goal><key_knowledge>None.</key_knowledge>"
        "<file_system_state>None.</file_system_state><recent_actions>None.</recent_actions>"
        "<current_plan>None.</current_plan></state_snapshot>"
    )
    said = [
        {"role": role, "content": f"{role} {n} " + "word " * 200} for n in range(10) for role in ("user", "assistant")
    ]
    model = ScriptedModel(summary, call_tools(TEA), NOTHING)
    async with open_memory(tmp_path, model, review_compaction=True) as memory:
        conversation = memory.conversation("c", user="ada")
        unchanged = await conversation.compact([{"role": "user", "content": "short"}], limit_tokens=100_000)
        assert await memory.drain(within=20)
        assert await memory.space("user:ada").reviews() == []
        history = [{"role": "user", "content": "I prefer oolong tea"}, {"role": "assistant", "content": "Good."}, *said]
        compacted = await conversation.compact(history, limit_tokens=4_000)
        assert await memory.drain(within=20)
        rows = await memory.space("user:ada").reviews()

    assert (unchanged.changed, compacted.changed) == (False, True)
    assert [row.kind for row in rows] == [ReviewKind.COMPACTION]
