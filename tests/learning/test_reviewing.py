"""A model reviews conversations: when, on what, with what, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from simple_host import CONFIG, open_memory, say, statements, texts

import afterturn
from afterturn.errors import Conflict, ModelRefused, ModelUnavailable
from afterturn.learning.review_jobs import describe_changes
from afterturn.testing import EventLog
from afterturn.testing.clock import ManualClock
from afterturn.testing.model import Held, ScriptedModel, call_tools
from afterturn.types import Origin, ReviewKind, ReviewState, Status

NOTHING = "Nothing to save."
TEA = ("add_memory", {"text": "The user prefers oolong tea", "target": "user", "messages": [1]})


async def test_reviews_come_after_every_nth_turn(tmp_path: Path) -> None:
    """V1: ten turns with an interval of 3 are reviewed after the third, sixth and ninth."""
    events_seen = EventLog()
    model = ScriptedModel(call_tools(TEA), NOTHING, NOTHING, NOTHING)
    async with open_memory(tmp_path, model, events_seen, review_interval=3) as memory:
        conversation = memory.conversation("c", user="ada")
        for number in range(1, 11):
            await say(conversation, f"I prefer oolong tea, said {number} times", id=f"turn-{number}")
            assert await memory.drain(within=20)
        saved = await texts(memory.space("user:ada"))

    assert [event.turn for event in events_seen.named("review_scheduled")] == ["turn-3", "turn-6", "turn-9"]
    assert [event.data["state"] for event in events_seen.named("review_ended")] == ["saved", "nothing", "nothing"]
    assert saved == ["The user prefers oolong tea"]
    assert model.remaining == 0


async def test_the_counter_survives_a_restart(tmp_path: Path) -> None:
    """V1: turns before and after reopening count together."""
    events_seen = EventLog()
    async with open_memory(tmp_path, ScriptedModel(), events_seen, review_interval=3) as memory:
        await say(memory.conversation("c", user="ada"), "first")
        await say(memory.conversation("c", user="ada"), "second")
    async with open_memory(tmp_path, ScriptedModel(NOTHING), events_seen, review_interval=3) as memory:
        await say(memory.conversation("c", user="ada"), "third")
        await memory.drain(within=20)

    assert len(events_seen.named("review_scheduled")) == 1


async def test_without_an_interval_nothing_of_a_review_exists(tmp_path: Path) -> None:
    """V1: the default is 0: no snapshot, no job, no model call, no counter."""
    model = ScriptedModel()
    async with open_memory(tmp_path, model) as memory:
        conversation = memory.conversation("c", user="ada")
        for number in range(5):
            await say(conversation, f"I prefer oolong tea {number}")
        await memory.drain(within=20)
        counted = await memory._services.store.read(
            lambda unit: unit.reviews.unreviewed(conversation._scope.key), at=None
        )

        assert counted == (0, 0)
        assert await memory.space("user:ada").reviews() == []
    assert model.calls == []


async def test_triggers_join_the_review_that_runs_and_what_it_had_not_read_follows(tmp_path: Path) -> None:
    """V1: one review waits or runs for a conversation; what came meanwhile is read by one that follows it."""
    events_seen, hanging = EventLog(), Held(NOTHING)
    model = ScriptedModel(hanging, NOTHING)
    async with open_memory(tmp_path, model, events_seen, review_interval=1) as memory:
        conversation = memory.conversation("c", user="ada")
        await say(conversation, "the first thing")
        hanging.asked.wait(100)
        for number in range(4):
            await say(conversation, f"the next thing, number {number}")
        hanging.release()
        assert await memory.drain(within=20)
        rows = await memory.space("user:ada").reviews()

    assert len(rows) == 2
    assert len(model.calls) == 2
    assert "next thing" not in model.calls[0].text
    assert all(f"number {number}" in model.calls[1].text for number in range(4))


async def test_a_review_whose_job_was_given_up_is_taken_up_by_the_next_trigger(tmp_path: Path) -> None:
    """V1, C8: a dead job must not keep a conversation from being reviewed for ever."""
    async with open_memory(tmp_path, ScriptedModel(), review_interval=1, background=False) as memory:
        await say(memory.conversation("c", user="ada"), "the first thing")
        services = memory._services
        (job,) = await services.store.write(
            lambda unit: unit.jobs.claim(["review"], owner="x", now=services.clock.now(), lease=60.0, limit=1), at=None
        )
        await services.store.write(lambda unit: unit.jobs.fail(job.id, owner="x", error="gone", retry_at=None), at=None)
    model = ScriptedModel(NOTHING)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        await say(memory.conversation("c", user="ada"), "the second thing")
        assert await memory.drain(within=20)
        (row,) = await memory.space("user:ada").reviews()

    assert row.state is ReviewState.NOTHING
    assert "the first thing" in model.calls[0].text
    assert "the second thing" in model.calls[0].text


async def test_a_hanging_model_holds_up_no_turn_and_is_given_up_once(tmp_path: Path) -> None:
    """V2, V4: turns go on, the review times out, none of it exists, and it is not tried again."""
    hanging = Held("never said")
    model = ScriptedModel(call_tools(TEA), hanging)
    async with open_memory(tmp_path, model, review_interval=1, review_timeout=0.5) as memory:
        conversation = memory.conversation("c", user="ada")
        await say(conversation, "I prefer oolong tea")
        assert await memory.drain(within=20)
        (row,) = await memory.space("user:ada").reviews()
        saved = await texts(memory.space("user:ada"))

    assert row.state is ReviewState.TIMED_OUT
    assert hanging.cancelled.is_set()
    assert saved == []
    assert len(model.calls) == 2


async def test_the_review_reads_what_was_said_when_it_was_scheduled(tmp_path: Path) -> None:
    """V2: a snapshot, with tool outputs as evidence and without anything of a later turn."""
    model = ScriptedModel(NOTHING, NOTHING)
    async with open_memory(tmp_path, model, review_interval=1, background=False) as memory:
        conversation = memory.conversation("c", user="ada")
        await say(conversation, "look it up", tool="the gauge shows 42 bar")
        async with open_memory(tmp_path, None, review_interval=0) as other:
            await say(other.conversation("c", user="ada"), "something later")
        assert await memory.drain(within=20)

    typed, everything = model.calls
    assert "look it up" in typed.text
    assert "the gauge shows 42 bar" not in typed.text
    assert "the gauge shows 42 bar" in everything.text
    assert "something later" not in everything.text


async def test_an_unknown_tool_is_not_run_and_the_model_gets_an_error(tmp_path: Path) -> None:
    """V3: a call of anything else is answered with what is allowed, and the review goes on."""
    model = ScriptedModel(call_tools(("run_shell", {"command": "ls"})), call_tools(TEA), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        assert await memory.drain(within=20)
        saved = await texts(memory.space("user:ada"))

    assert "The tools are add_memory, update_memory, delete_memory" in model.calls[1].text
    assert saved == ["The user prefers oolong tea"]


async def test_the_sixth_change_is_refused_and_the_first_five_stand(tmp_path: Path) -> None:
    """V4: at most `review_entries_max` operations."""
    fruits = ["apples", "pears", "plums", "figs", "dates", "limes", "kiwis"]
    calls = [("add_memory", {"text": f"The user likes {fruit}", "target": "user", "messages": [1]}) for fruit in fruits]
    model = ScriptedModel(call_tools(*calls), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        await say(memory.conversation("c", user="ada"), f"I like {', '.join(fruits)}")
        assert await memory.drain(within=20)
        space = memory.space("user:ada")
        saved, (row,) = await texts(space), await space.reviews()

    assert saved == sorted(f"The user likes {fruit}" for fruit in fruits[:5])
    assert row.refusals == ("limit", "limit")
    assert row.written == 5


async def test_what_is_learned_says_where_it_comes_from(tmp_path: Path) -> None:
    """V5: origin, the review's id and the recorded messages that it rests on."""
    model = ScriptedModel(call_tools(TEA), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea", id="t1")
        assert await memory.drain(within=20)
        space = memory.space("user:ada")
        (entry,) = await statements(space)
        (row,) = await space.reviews()
        source = await space.get(entry.sources[0])
        steps = (await space.history(entry.id)).steps

    assert entry.origin is Origin.BACKGROUND_REVIEW
    assert entry.trust == Origin.BACKGROUND_REVIEW.trust
    assert entry.metadata["review"] == row.id
    assert entry.conversation == "c"
    assert source.text == "I prefer oolong tea"
    assert {step.operation.group for step in steps} == {row.id}
    assert {step.operation.actor for step in steps} == {Origin.BACKGROUND_REVIEW}


@pytest.mark.parametrize(
    "arguments, refusal",
    [
        ({"text": "The user prefers Darjeeling tea", "messages": [1]}, "invented"),
        ({"text": "The user drinks 12 cups of tea", "messages": [1]}, "invented"),
        ({"text": "The user prefers oolong tea", "messages": [7]}, "evidence"),
        ({"text": "Sailing boats need wind", "messages": []}, "evidence"),
        ({"text": "Has an interest in maritime engineering history", "messages": [1]}, "unsupported"),
        ({"text": "Never save passwords, keys or tokens.", "messages": [1]}, "prompt"),
    ],
)
async def test_what_was_not_said_is_not_saved(tmp_path: Path, arguments: dict[str, object], refusal: str) -> None:
    """V5: new names and numbers, messages that are not there, statements nobody made, and the review's own prompt."""
    model = ScriptedModel(call_tools(("add_memory", {"target": "user", **arguments})), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea", "Good choice.")
        assert await memory.drain(within=20)
        space = memory.space("user:ada")
        saved, (row,) = await texts(space), await space.reviews()

    assert saved == []
    assert row.refusals == (refusal,)
    assert row.state is ReviewState.REFUSED


async def test_an_inference_with_little_support_goes_to_the_inbox(tmp_path: Path) -> None:
    """V5, V8: a person decides about what was hardly said."""
    inference = {"text": "The user enjoys planning sunny holidays by the beach", "target": "user", "messages": [1]}
    model = ScriptedModel(call_tools(("add_memory", inference)), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        said = "could you check the flight prices again, and the hotel near the beach?"
        await say(memory.conversation("c", user="ada"), said)
        assert await memory.drain(within=20)
        space = memory.space("user:ada")
        (proposal,) = await space.proposals()
        (row,) = await space.reviews()

    assert proposal.status is Status.PROPOSED
    assert (row.written, row.proposed) == (0, 1)


async def test_a_review_updates_and_deletes_what_it_was_shown(tmp_path: Path) -> None:
    """V3, M1: the old version is superseded, and the whole review is taken back by one command."""
    async with open_memory(tmp_path) as memory:
        space = memory.space("user:ada")
        tea = (await space.add("Ada prefers black tea", origin="agent", clean=True)).entry
        car = (await space.add("Ada drives a car", origin="agent", clean=True)).entry
    model = ScriptedModel(
        call_tools(
            ("update_memory", {"id": tea.id, "text": "Ada prefers oolong tea", "messages": [1]}),
            ("delete_memory", {"id": car.id, "messages": [1]}),
        ),
        NOTHING,
    )
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        space = memory.space("user:ada")
        await say(memory.conversation("c", user="ada"), "it is oolong tea now, and I sold the car")
        assert await memory.drain(within=20)
        after, (row,) = await texts(space), await space.reviews()
        review = await space.review(row.id)
        await space.undo_review(row.id)
        restored = await texts(space)
        undone = await space.review(row.id)

    assert tea.text in model.calls[0].text
    assert after == ["Ada prefers oolong tea"]
    assert [(c.before and c.before.text, c.after and c.after.text) for c in review.changes] == [
        ("Ada prefers black tea", "Ada prefers oolong tea"),
        ("Ada drives a car", None),
    ]
    assert restored == ["Ada drives a car", "Ada prefers black tea"]
    assert {change.state for change in undone.changes} == {"undone"}


async def test_a_review_leaves_pinned_memories_alone(tmp_path: Path) -> None:
    """V4: what is pinned is changed by its owner only."""
    async with open_memory(tmp_path) as memory:
        pinned = (await memory.space("user:ada").add("Ada prefers black tea", pinned=True)).entry
    update = ("update_memory", {"id": pinned.id, "text": "Ada prefers oolong tea", "messages": [1]})
    model = ScriptedModel(call_tools(update, ("delete_memory", {"id": pinned.id, "messages": [1]})), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        space = memory.space("user:ada")
        await say(memory.conversation("c", user="ada"), "it is oolong tea now")
        assert await memory.drain(within=20)
        (row,) = await space.reviews()

        assert await texts(space) == ["Ada prefers black tea"]
    assert row.refusals == ("pinned", "pinned")


async def test_what_a_person_changed_meanwhile_wins(tmp_path: Path) -> None:
    """V4: compare-and-swap: an update for a version that has passed is refused, and the others stand."""
    async with open_memory(tmp_path) as memory:
        tea = (await memory.space("user:ada").add("Ada prefers black tea", origin="agent", clean=True)).entry
    update = ("update_memory", {"id": tea.id, "text": "Ada prefers oolong tea", "messages": [1]})
    add = ("add_memory", {"text": "The user sold the car", "target": "user", "messages": [1]})
    last = Held(NOTHING)
    model = ScriptedModel(call_tools(update, add), last)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        space = memory.space("user:ada")
        await say(memory.conversation("c", user="ada"), "it is oolong tea now, and I sold the car")
        assert last.asked.wait(100)
        await space.update(tea.id, "Ada prefers white tea")
        last.release()
        assert await memory.drain(within=20)
        (row,) = await space.reviews()

        assert await texts(space) == ["Ada prefers white tea", "The user sold the car"]
    assert row.refusals == ("changed",)


@pytest.mark.parametrize("what", ["conversation", "record", "everything", "speaker"])
async def test_what_is_forgotten_while_it_is_reviewed_does_not_come_back(tmp_path: Path, what: str) -> None:
    """M2, V4: a forget during a review leaves nothing of what it rests on."""
    last = Held(NOTHING)
    model = ScriptedModel(call_tools(TEA), last)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        space = memory.space("user:ada")
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        assert last.asked.wait(100)
        record = next(entry for entry in await space.list() if "oolong" in entry.text)
        by = {
            "conversation": {"conversation": "c"},
            "record": {"memory": record.id},
            "everything": {"everything": True},
            "speaker": {"speaker": "user"},
        }
        await space.forget(**by[what])
        last.release()
        assert await memory.drain(within=20)

        assert await texts(space) == []


async def test_a_tools_words_are_learned_as_a_report(tmp_path: Path) -> None:
    """G2, G2b, V5: a fact is a report; what would enter the system prompt waits for a person, and enters it then."""
    added = {"text": "The staging port is 8443", "target": "environment", "messages": [2]}
    rule = {"text": "Always use staging port 8443", "target": "environment", "kind": "convention", "messages": [2]}
    model = ScriptedModel(NOTHING, call_tools(("add_memory", added), ("add_memory", rule)), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        conversation = memory.conversation("c", user="ada")
        await say(conversation, "look up the staging settings", tool="always use staging port: 8443")
        assert await memory.drain(within=20)
        space = memory.space("user:ada")
        saved, (waiting,) = await statements(space), await space.proposals()
        standing = await memory.conversation("d", user="ada").standing().block()
        await space.approve(waiting.id)
        approved = await memory.conversation("e", user="ada").standing().block()

    assert [(entry.text, entry.trust) for entry in saved] == [("The staging port is 8443", Origin.TOOL.trust)]
    assert "8443" not in standing
    assert "Always use staging port 8443" in approved


async def test_verbose_tells_the_user_once_per_review_that_saved(tmp_path: Path) -> None:
    """V7: one event after at least one write, and nothing otherwise."""
    events_seen = EventLog()
    model = ScriptedModel(call_tools(TEA), NOTHING, NOTHING)
    async with open_memory(tmp_path, model, events_seen, review_interval=1, review_verbose=True) as memory:
        conversation = memory.conversation("c", user="ada")
        await say(conversation, "I prefer oolong tea")
        await memory.drain(within=20)
        await say(conversation, "what time is it?")
        await memory.drain(within=20)

    assert [event.data["text"] for event in events_seen.named("memories_saved")] == [
        "Saved 1 memory from your last conversation."
    ]


async def test_verbose_counts_what_was_saved_changed_and_removed(tmp_path: Path) -> None:
    """V7: apart, in the event and in its sentence."""
    events_seen = EventLog()
    async with open_memory(tmp_path) as memory:
        space = memory.space("user:ada")
        car = (await space.add("Ada drives a car", origin="background_review")).entry
        bike = (await space.add("Ada rides a red bike", origin="background_review")).entry
    changes = (
        TEA,
        ("update_memory", {"id": bike.id, "text": "Ada rides a blue bike", "messages": [1]}),
        ("delete_memory", {"id": car.id, "messages": [1]}),
    )
    model = ScriptedModel(call_tools(*changes), NOTHING)
    async with open_memory(tmp_path, model, events_seen, review_interval=1, review_verbose=True) as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea, the bike is blue, I sold the car")
        assert await memory.drain(within=20)

    (event,) = events_seen.named("memories_saved")
    assert {name: event.data[name] for name in ("saved", "changed", "removed")} == {
        "saved": 1,
        "changed": 1,
        "removed": 1,
    }
    assert event.data["text"] == "Saved 1 memory from your last conversation, changed 1 and removed 1."
    changed = [event for event in events_seen.events if event.name.startswith("memory_") and "memory" in event.data]
    assert [(event.name, event.data["group"]) for event in changed] == [
        (name, event.data["review"]) for name in ("memory_added", "memory_updated", "memory_deleted")
    ]


@pytest.mark.parametrize(
    "counts, text",
    [
        ((2, 0, 0), "Saved 2 memories from your last conversation."),
        ((1, 2, 0), "Saved 1 memory from your last conversation and changed 2."),
        ((0, 1, 0), "Changed 1 memory after your last conversation."),
        ((0, 2, 1), "Changed 2 memories after your last conversation and removed 1."),
        ((0, 0, 3), "Removed 3 memories after your last conversation."),
    ],
)
def test_the_sentence_for_the_user_names_what_happened(counts: tuple[int, int, int], text: str) -> None:
    """V7: and nothing else."""
    assert describe_changes(*counts) == text


async def test_with_approval_what_is_learned_waits(tmp_path: Path) -> None:
    """V8: additions, changes and deletions of a review wait in the inbox, and a person's word makes them so."""
    async with open_memory(tmp_path) as memory:
        space = memory.space("user:ada")
        car = (await space.add("Ada drives a car", origin="agent", clean=True)).entry
        bike = (await space.add("Ada rides a red bike", origin="agent", clean=True)).entry
    changes = (
        TEA,
        ("update_memory", {"id": bike.id, "text": "Ada rides a blue bike", "messages": [1]}),
        ("delete_memory", {"id": car.id, "messages": [1]}),
    )
    model = ScriptedModel(call_tools(*changes), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1, approval="background") as memory:
        space = memory.space("user:ada")
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea, the bike is blue, I sold the car")
        assert await memory.drain(within=20)
        before = await texts(space)
        waiting = await space.proposals()
        for proposal in waiting:
            await space.approve(proposal.id)
        after = await texts(space)

    assert before == ["Ada drives a car", "Ada rides a red bike"]
    assert len(waiting) == 3
    assert after == ["Ada rides a blue bike", "The user prefers oolong tea"]


async def test_a_review_is_undone_by_one_command_also_when_it_was_approved(tmp_path: Path) -> None:
    """V8: what was decided in the inbox is taken back with it; twice says that it was already undone."""
    async with open_memory(tmp_path) as memory:
        car = (await memory.space("user:ada").add("Ada drives a car", origin="agent", clean=True)).entry
    drop = ("delete_memory", {"id": car.id, "messages": [1]})
    hot = ("add_memory", {"text": "The user wants it hot", "target": "user", "messages": [1]})
    model = ScriptedModel(call_tools(TEA, drop, hot), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1, approval="background") as memory:
        space = memory.space("user:ada")
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea, I want it hot, I sold the car")
        assert await memory.drain(within=20)
        (row,) = await space.reviews()
        by_text = {entry.text: entry.id for entry in await space.proposals()}
        await space.approve(by_text["The user prefers oolong tea"])
        await space.approve(car.id)
        await space.reject(by_text["The user wants it hot"])
        decided, states = await texts(space), [change.state for change in (await space.review(row.id)).changes]
        await space.undo_review(row.id)
        restored, waiting = await texts(space), await space.proposals()
        with pytest.raises(Conflict, match="already undone"):
            await space.undo_review(row.id)

    assert decided == ["The user prefers oolong tea"]
    assert states == ["approved", "approved", "rejected"]
    assert restored == ["Ada drives a car"]
    assert waiting == []


async def test_a_model_without_tools_answers_by_schema_and_is_asked_again_once(tmp_path: Path) -> None:
    """V12: prose, then broken JSON, then a repaired answer."""
    repaired = (
        '{"operations": [{"operation": "add_memory", "text": "The user prefers oolong tea", "target": "user", '
        '"messages": [1]}]}'
    )
    model = ScriptedModel("The user likes tea, I will remember that.", '{"operations": [', repaired)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        assert await memory.drain(within=20)
        saved = await texts(memory.space("user:ada"))

    assert model.calls[0].schema is None
    assert model.calls[1].schema is not None
    assert "That cannot be used" in model.calls[2].text
    assert saved == ["The user prefers oolong tea"]


async def test_what_cannot_be_repaired_is_refused_and_the_records_remain(tmp_path: Path) -> None:
    """V12: never stored, never lost."""
    model = ScriptedModel("blah", "blah blah", "blah blah blah")
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        space = memory.space("user:ada")
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        assert await memory.drain(within=20)
        (row,) = await space.reviews()

        assert await texts(space) == []
        assert any("oolong" in entry.text for entry in await space.list())
    assert row.state is ReviewState.REFUSED
    assert row.reason == "unreadable"


async def test_a_model_that_takes_no_tools_is_asked_by_schema(tmp_path: Path) -> None:
    """V12: a server that refuses tools is not given up."""
    answer = '{"operations": []}'
    model = ScriptedModel(ModelRefused("no tools here", reason="refused", status=400), answer)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        assert await memory.drain(within=20)
        (row,) = await memory.space("user:ada").reviews()

    assert row.state is ReviewState.NOTHING


async def test_a_server_that_refuses_ends_the_review_with_its_reason(tmp_path: Path) -> None:
    """V4, C8: a wrong key does not get better by trying again."""
    model = ScriptedModel(ModelRefused("wrong key", reason="key", status=401))
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        assert await memory.drain(within=20)
        (row,) = await memory.space("user:ada").reviews()

    assert (row.state, row.reason) == (ReviewState.FAILED, "key")


async def test_an_unreachable_model_is_tried_again_later(tmp_path: Path) -> None:
    """C8: the job waits with backoff, and the review is still to come."""
    model = ScriptedModel(ModelUnavailable("nobody there", reason="unreachable"))
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        await memory.drain(within=1)
        (row,) = await memory.space("user:ada").reviews()

    assert row.state is ReviewState.WAITING
    assert len(model.calls) == 1


async def test_over_the_days_limit_reviews_wait_for_tomorrow(tmp_path: Path) -> None:
    """V12: over `tokens_per_day_max` reviews pause and say so, nothing is lost, and recall goes on."""
    events_seen, clock = EventLog(), ManualClock()
    model = ScriptedModel(call_tools(TEA), NOTHING, NOTHING)
    parts = afterturn.Components(clock=clock, model=model)
    config = {**CONFIG, "review_interval": 1, "tokens_per_day_max": 1500}
    async with afterturn.open(tmp_path / "memory.db", config, components=parts, on_event=events_seen) as memory:
        conversation = memory.conversation("c", user="ada")
        space = memory.space("user:ada")
        await say(conversation, "I prefer oolong tea")
        assert await memory.drain(within=20)
        await say(conversation, "and I prefer it hot")
        assert await memory.drain(within=20)
        paused, found = (await space.reviews())[0], await space.search("oolong tea")
        clock.advance(86_400.0)
        assert await memory.drain(within=20)
        resumed = (await space.reviews())[0]

    assert paused.state is ReviewState.WAITING
    assert events_seen.named("model_paused")
    assert found.hits
    assert (resumed.id, resumed.state) == (paused.id, ReviewState.NOTHING)
    assert "I prefer it hot" in model.calls[-1].text


async def test_a_speakers_words_are_learned_into_that_speakers_space_only(tmp_path: Path) -> None:
    """L2, V5: into a granted space of theirs, never into somebody else's."""
    bobs = ("add_memory", {"text": "The user plays the cello", "target": "user", "messages": [1]})
    model = ScriptedModel(call_tools(bobs), NOTHING, call_tools(bobs), NOTHING)
    async with open_memory(tmp_path, model, review_interval=1) as memory:
        await say(memory.conversation("a", user="ada"), "I play the cello", speaker="bob")
        await memory.drain(within=20)
        granted = memory.conversation("b", user="ada", reads=["user:bob"])
        await say(granted, "I play the cello", speaker="bob")
        await memory.drain(within=20)
        rows = await memory.space("user:ada").reviews()

        assert await texts(memory.space("user:ada")) == []
        assert await texts(memory.space("user:bob")) == ["The user plays the cello"]
    assert rows[1].refusals == ("speaker",)


async def test_before_a_compaction_what_goes_is_reviewed(tmp_path: Path) -> None:
    """V9: with its switch on, what `compacting` is told is read, also what is not recorded yet; else nothing is."""
    messages = [
        {"role": "user", "content": "I prefer oolong tea"},
        {"role": "assistant", "content": "Good."},
        {"role": "user", "content": "go on"},
    ]
    model = ScriptedModel(call_tools(TEA), NOTHING)
    async with open_memory(tmp_path, model, review_compaction=True) as memory:
        memory.conversation("c", user="ada").compacting(messages)
        assert await memory.drain(within=20)
        (row,) = await memory.space("user:ada").reviews()
        assert await texts(memory.space("user:ada")) == ["The user prefers oolong tea"]
    async with open_memory(tmp_path, ScriptedModel()) as memory:
        memory.conversation("d", user="ada").compacting(messages)
        assert await memory.drain(within=20)
        assert len(await memory.space("user:ada").reviews()) == 1

    assert row.kind is ReviewKind.COMPACTION


async def test_our_own_blocks_are_not_reviewed(tmp_path: Path) -> None:
    """C5, V5: memory does not feed on itself."""
    model = ScriptedModel(NOTHING)
    async with open_memory(tmp_path, model, review_interval=1, grace=5.0, recall_score_min=0.0) as memory:
        await memory.space("user:ada").add("Ada's gecko is called Fermat")
        await say(memory.conversation("c", user="ada"), "what is the gecko called?", "It is called that.")
        assert await memory.drain(within=20)

    (call,) = model.calls
    said = call.messages[1]["content"].split("The conversation:")[1]
    assert "Fermat" not in said


async def test_sub_agents_and_interjections_do_not_count(tmp_path: Path) -> None:
    """V1: only completed user turns do."""
    events_seen = EventLog()
    async with open_memory(tmp_path, ScriptedModel(), events_seen, review_interval=2) as memory:
        helper = memory.conversation("helper", user="ada", subagent=True)
        for number in range(4):
            await say(helper, f"do step {number}")
        conversation = memory.conversation("c", user="ada")
        messages = [{"role": "user", "content": "first"}]
        async with conversation.turn(messages) as turn:
            turn.interject("and this")
            turn.cue("that")
            messages += [{"role": "user", "content": "and this"}, {"role": "assistant", "content": "done"}]
        await turn.wait_recorded()

    assert events_seen.named("review_scheduled") == []


async def test_a_review_on_request_is_waited_for(tmp_path: Path) -> None:
    """V8: somebody asks for a review of a conversation, and sees what it did; once read, there is nothing new."""
    model = ScriptedModel(call_tools(TEA), NOTHING)
    async with open_memory(tmp_path, model, background=False) as memory:
        space = memory.space("user:ada")
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        review = await space.run_review("c")
        again = await space.run_review("c")

    assert review is not None
    assert review.row.kind is ReviewKind.ASKED
    assert [change.after.text for change in review.changes if change.after] == ["The user prefers oolong tea"]
    assert again is None
