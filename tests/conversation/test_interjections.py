"""What is said in the middle of a turn: each new thing is an epoch with one recall, and the steps between have none."""

import copy
import threading
from typing import Any

import pytest
from controlled_store import Stage, caught_up, learn, learn_herbs, letters, settled
from hosted import ANTHROPIC, FORMATS, Format, Listed
from spoken import answer, assistant, call, user

from afterturn import blocking
from afterturn.conversation import engine
from afterturn.types import Filter, Kind

SOUP = "What goes into the soup?"
CAT = "What is my cat called?"
DOG = "Where does the dog sleep?"
PETS = ["Ada's cat is called Miso", "Rex the dog sleeps in the barn"]


async def test_each_thing_that_is_said_has_one_recall_and_tool_steps_have_none(stage: Stage) -> None:
    """R1: prefetches = epochs, never model calls."""
    async with stage.open() as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(SOUP)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            for step, said in enumerate([None, None, CAT, None, "focus", None, None]):
                await settled(turn)
                await turn.inject(messages)
                messages += [call(f"call{step}"), answer(f"call{step}")]
                if said == CAT:
                    messages.append(user(CAT))
                    turn.interject(CAT)
                elif said is not None:
                    turn.cue("now the dog")
            await settled(turn)
            turn.abort()
        await caught_up(memory)
    causes = [event.data["cause"] for event in stage.told.named("recall_started")]
    epochs = [(event.data["cause"], event.data["epoch"]) for event in stage.told.named("epoch_started")]
    assert causes == ["message", "interjection", "cue"]
    assert epochs == [("message", 0), ("interjection", 1), ("cue", 2)]
    assert stage.store.searches == 3


async def test_what_was_interjected_is_answered_at_the_next_point(stage: Stage) -> None:
    """R1, H1: its block stands after the interjection, and the first one stays where it is."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            first = await turn.inject(messages)
            messages += [call("one"), answer("one"), user(DOG)]
            turn.interject(DOG)
            second = await turn.inject(messages)
            messages.append(assistant("Miso and Rex."))
        assert await turn.wait_recorded()
    assert messages[1] is first
    assert messages[5] is second
    assert "Rex" in str(second)
    assert "Miso" not in str(second)


async def test_the_grace_is_waited_for_once_for_each_thing_that_is_said(stage: Stage) -> None:
    """R1, R2: an interjection may be waited for again, the steps after it may not."""
    async with stage.open() as memory:
        stage.store.searching.shut()
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            waits = [turn._find_wait(messages, None, "fast", now) for now in (0.0, 5.0)]
            turn.interject(DOG)
            waits += [turn._find_wait(messages, None, "fast", now) for now in (6.0, 11.0)]
            stage.store.searching.open()
            turn.abort()
    assert [wait and wait[1] for wait in waits] == [5.0, None, 5.0, None]


async def test_cues_are_bounded_and_those_refused_are_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """R1: at most `CUES_MAX` in a turn; the next turn may name as many again."""
    monkeypatch.setattr(engine, "CUES_MAX", 2)
    async with stage.open() as memory:
        conversation = memory.conversation("c", user="ada")
        for _ in range(2):
            async with conversation.turn([user(SOUP)]) as turn:
                for focus in (CAT, DOG, SOUP, CAT):
                    await settled(turn)
                    turn.cue(focus)
                await settled(turn)
                turn.abort()
        await caught_up(memory)
    assert stage.count("recall_started", cause="cue") == 4
    assert stage.count("cue_refused") == 4


@pytest.mark.parametrize("text", ["", "  \n", "ok", "Thanks!"])
async def test_nothing_worth_a_recall_starts_none(stage: Stage, text: str) -> None:
    """R6, R1: blank interjections and acknowledgements ask nothing, and nobody waits for them."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await turn.inject(messages)
            turn.interject(text)
            await settled(turn)
            assert await turn.inject(messages) is None
            turn.abort()
        await caught_up(memory)
    assert stage.count("epoch_started") == 1
    assert stage.store.searches == 1


async def test_what_is_not_text_is_refused_without_raising(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """R1: turn verbs never raise; the turn goes on, and the log tells why."""
    async with stage.open() as memory:
        async with memory.conversation("c", user="ada").turn([user(CAT)]) as turn:
            turn.interject(17)  # type: ignore[arg-type]
            turn.cue(None)  # type: ignore[arg-type]
            await settled(turn)
            turn.abort()
        await caught_up(memory)
    assert stage.count("epoch_started") == 1
    assert caplog.text.count("memory failed; the turn continues without it") == 2


async def test_what_had_settled_is_handed_over_with_what_was_asked_after_it(stage: Stage) -> None:
    """R3, H9: an interjection ends only what is in flight; both results come as one block, each memory once."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            messages.append(user(DOG))
            turn.interject(DOG)
            await settled(turn)
            element = await turn.inject(messages)
            assert await turn.inject(messages) is None
            turn.abort()
        await caught_up(memory)
    assert str(element).count("Miso") == 1
    assert str(element).count("Rex") == 1
    assert stage.endings() == [("delivered", "user_message")] * 2


async def test_what_waits_to_be_handed_over_is_excluded_from_the_next_query(stage: Stage) -> None:
    """L3: two recalls of one turn do not find the same."""
    async with stage.open(recall_entries_max=8) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(SOUP)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            turn.interject("Which herbs go into the soup?")
            await settled(turn)
            element = await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert letters(element) == "ABCDEFGH"
    assert [event.data["memories"] for event in stage.told.named("recall_settled")] == [8, 0]


async def test_said_before_memory_has_heard_of_the_turn_it_is_an_epoch_of_its_own(stage: Stage) -> None:
    """R1, R3: the host is quicker than memory; what it interjects is asked, once, and nothing is mixed up."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        held = threading.Event()
        memory._loop.post(held.wait, 20.0)
        messages = [user(CAT), user(DOG)]
        async with memory.conversation("c", user="ada").turn(messages[:1]) as turn:
            turn.interject(DOG)
            held.set()
            await settled(turn)
            element = await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    started = [(event.data["cause"], event.data["correlation"]) for event in stage.told.named("recall_started")]
    assert "Rex" in str(element)
    assert [cause for cause, _ in started][-1:] == ["interjection"]
    assert len(set(started)) == len(started)
    assert len(stage.endings()) == len(started)


async def test_an_interjection_before_the_store_answers_is_asked_all_the_same(stage: Stage) -> None:
    """R1, R3: the turn's first look into the store goes on; only its recall gives way."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        stage.store.reading.shut()
        messages = [user(CAT), user(DOG)]
        async with memory.conversation("c", user="ada").turn(messages[:1]) as turn:
            turn.interject(DOG)
            await caught_up_without_the_store(memory)
            stage.store.reading.open()
            element = await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert "Rex" in str(element)
    assert stage.count("recall_started") == 1
    assert stage.endings() == [("delivered", "user_message")]


async def caught_up_without_the_store(memory: object) -> None:
    """What was posted so far has run."""

    async def nothing() -> None: ...

    await memory._loop.run(nothing())  # type: ignore[attr-defined]


async def test_a_left_turn_hears_nothing_more(stage: Stage) -> None:
    """R1: an interjection after the end starts nothing."""
    async with stage.open() as memory:
        async with memory.conversation("c", user="ada").turn([user(CAT), assistant("Miso.")]) as turn:
            await settled(turn)
        turn.interject(DOG)
        turn.cue(DOG)
        await caught_up(memory)
    assert stage.count("recall_started") == 1


async def test_interjections_of_a_turn_that_was_taken_over_start_nothing(stage: Stage) -> None:
    """R3: the later turn owns recall."""
    async with stage.open() as memory:
        conversation = memory.conversation("c", user="ada")
        earlier = conversation.turn([user(SOUP)])
        await settled(earlier)
        later = conversation.turn([user(CAT)])
        await settled(later)
        earlier.interject(DOG)
        await settled(earlier)
        later.abort()
        earlier.abort()
        await caught_up(memory)
    assert [event.turn for event in stage.told.named("recall_started")] == [earlier.id, later.id]


async def test_several_threads_may_speak_at_once(stage: Stage) -> None:
    """R3, R5: of what ten threads interject at once, one recall is in flight at a time, and each ends once."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            threads = [threading.Thread(target=turn.interject, args=(f"{DOG} {number}",)) for number in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            await settled(turn)
            await turn.inject(messages, within=5.0)
            turn.abort()
        await caught_up(memory)
    flights = 0
    for event in stage.told.events:
        flights += (event.name == "recall_started") - (event.name == "recall_settled")
        assert flights <= 1 or event.name != "recall_started" or _ended_before(stage, event)
    started = [event.data["correlation"] for event in stage.told.named("recall_started")]
    ended = [event.data["correlation"] for event in stage.told.named("recall_ended")]
    assert sorted(started) == sorted(ended)


def _ended_before(stage: Stage, event: object) -> bool:
    """Every recall that started before this event has settled or ended by then."""
    before = stage.told.events[: stage.told.events.index(event)]  # type: ignore[arg-type]
    started = {one.data["correlation"] for one in before if one.name == "recall_started"}
    over = {one.data["correlation"] for one in before if one.name in ("recall_settled", "recall_ended")}
    return started <= over


@pytest.mark.parametrize("is_elsewhere", [True, False])
async def test_a_turn_that_was_under_way_stays_forgotten_whatever_is_asked_in_it(
    stage: Stage, *, is_elsewhere: bool
) -> None:
    """M2: a recall that has heard of the forget does not make the turn one that began after it."""
    async with stage.open() as memory, stage.open() as other:
        await learn(memory, stage.clock, ["Anise goes into the soup"])
        messages = [user("My locker is number 4711.")]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            await (other if is_elsewhere else memory).space("user:ada").forget(conversation="c")
            messages.append(user("What goes into the soup?"))
            turn.interject("What goes into the soup?")
            await settled(turn)
            messages.append(assistant("Anise."))
        assert not await turn.wait_recorded(within=20.0)
        assert await memory.space("user:ada").list(filter=Filter(kind=Kind.RECORD)) == []
    assert stage.count("not_recorded", reason="forgotten") == 1


@pytest.mark.parametrize("has_spoken", [True, False])
async def test_a_turn_that_begins_after_a_forget_is_recorded_though_nobody_could_look(
    stage: Stage, *, has_spoken: bool
) -> None:
    """C4, M2: where the store cannot be read, this process knows of its own forgets all the same."""
    async with stage.open() as memory:
        talk = memory.conversation("c", user="ada")
        if has_spoken:
            async with talk.turn([user("My locker is number 4711."), assistant("Noted.")]) as turn:
                await settled(turn)
            assert await turn.wait_recorded(within=20.0)
        await memory.space("user:ada").forget(conversation="c")
        stage.store.fails_reads = True
        async with talk.turn([user("My bike is red."), assistant("Nice.")]) as turn:
            await settled(turn)
        assert await turn.wait_recorded(within=20.0)
        stage.store.fails_reads = False
        kept = await memory.space("user:ada").list(filter=Filter(kind=Kind.RECORD))
        assert [one.text for one in kept] == ["Nice.", "My bike is red."]


# Said, and not reported.

formats = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


def _causes(stage: Stage) -> list[object]:
    return [event.data["cause"] for event in stage.told.named("recall_started")]


@formats
@pytest.mark.parametrize("placement", ["append", "merge"])
async def test_a_user_message_that_is_only_appended_is_recalled_for(stage: Stage, form: Format, placement: Any) -> None:
    """R1: in a shown history it is an interjection all the same; tool results that follow are none."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        messages: Listed = [form.user(CAT)]
        conversation = memory.conversation("c", user="ada", dialect=form.name, placement=placement)
        async with conversation.turn(messages) as turn:
            first = await turn.inject(messages)
            messages += [*form.calls(["one"]), *form.answers(["one"]), form.user(DOG)]
            second = await turn.inject(messages)
            for step in range(3):
                messages += [*form.calls([f"c{step}"]), *form.answers([f"c{step}"])]
                assert await turn.inject(messages) is None
            turn.abort()
        await caught_up(memory)
    assert "Miso" in str(first)
    assert "Rex" in str(second)
    assert _causes(stage) == ["message", "interjection"]


@formats
async def test_a_host_that_rebuilds_its_list_is_noticed_too(stage: Stage, form: Format) -> None:
    """R1, H6: the elements are others, and our blocks are not among them."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        own: Listed = [form.user(CAT)]
        async with memory.conversation("c", user="ada", dialect=form.name).turn(own) as turn:
            await turn.inject(copy.deepcopy(own))
            own += [*form.calls(["one"]), *form.answers(["one"])]
            await turn.inject(copy.deepcopy(own))
            own.append(form.user(DOG))
            shown = copy.deepcopy(own)
            await turn.inject(shown)
            turn.abort()
        await caught_up(memory)
    assert "Rex" in str(shown[-1])
    assert _causes(stage) == ["message", "interjection"]


@pytest.mark.parametrize("when", ["before", "after", "with a name"])
async def test_what_is_appended_and_reported_is_recalled_for_once(stage: Stage, when: str) -> None:
    """R1: one piece of new input is one epoch, in whichever order memory hears of it."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await turn.inject(messages)
            if when != "after":
                turn.interject(DOG)
            messages.append(user(DOG if when != "with a name" else f"Ada says: {DOG}"))
            element = await turn.inject(messages)
            if when == "after":
                turn.interject(DOG)
            await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert "Rex" in str(element)
    assert _causes(stage) == ["message", "interjection"]


async def test_text_beside_a_tool_result_is_noticed(stage: Stage) -> None:
    """R1: Anthropic's user elements carry results and what the user typed meanwhile."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        messages: Listed = [ANTHROPIC.user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await turn.inject(messages)
            messages += ANTHROPIC.calls(["one"])
            (both,) = ANTHROPIC.answers(["one"])
            both["content"].append({"type": "text", "text": DOG})
            messages.append(both)
            element = await turn.inject(messages)
            turn.abort()
    assert "Rex" in str(element)


async def test_a_summary_in_a_compacted_list_is_not_said_by_the_user(stage: Stage) -> None:
    """R1, H7: a list that was written anew has user messages that nobody typed in this turn."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await turn.inject(messages)
            messages = [user("Summary: we spoke of the dog Rex."), assistant("Yes."), call("one"), answer("one")]
            await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert _causes(stage) == ["message", "compaction"]


async def test_a_host_that_hides_its_history_reports_what_is_said(stage: Stage) -> None:
    """R1: its lists are its own affair, and need not be what the model sees."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada", history="hidden").turn(messages) as turn:
            await turn.inject(messages)
            messages.append(user(DOG))
            await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert _causes(stage) == ["message"]


def test_the_blocking_facade_and_inject_now_notice_it_too(stage: Stage) -> None:
    """R1: a host that never waits gets the block at a later point."""
    settings = {"embedder": "none", "grace": 5.0}
    with blocking.open(stage.path, settings, on_event=stage.told) as memory:
        for text in PETS:
            memory.space("user:ada").add(text)
        messages = [user(CAT)]
        with memory.conversation("c", user="ada").turn(messages) as turn:
            turn.inject(messages)
            messages.append(user(DOG))
            now = turn.inject_now(messages)
            messages += [call("one"), answer("one")]
            later = turn.inject(messages)
            turn.abort()
    assert "Rex" in f"{now} {later}"
    assert _causes(stage) == ["message", "interjection"]
