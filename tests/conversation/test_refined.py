"""The second phase of a recall: a model chooses among what was found, and nobody has to wait for it."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from controlled_store import HERBS, LETTERS, Stage, caught_up, learn_herbs, letters, settled
from spoken import answer, assistant, call, user

from afterturn.conversation import recall_client
from afterturn.errors import ModelError
from afterturn.testing import Held, ScriptedModel

ASKED = "What goes into the soup?"


def choosing(wanted: str) -> Callable[[Sequence[Mapping[str, Any]]], str]:
    """A model that chooses the herbs of these letters, in this order, out of whatever it is shown."""

    def choose(messages: Sequence[Mapping[str, Any]]) -> str:
        lines = re.findall(r"^\[(\d+)\] (.*)$", str(messages[-1]["content"]), re.MULTILINE)
        numbers = {letters(text): int(number) for number, text in lines}
        return json.dumps({"ids": [numbers[letter] for letter in wanted]})

    return choose


def held(wanted: list[int]) -> Held:
    return Held(json.dumps({"ids": wanted}))


async def test_what_the_model_chose_is_added_to_what_fast_had_delivered(stage: Stage) -> None:
    """R7: both phases are consumed separately; refined adds what fast had not delivered, however fast ranked it."""
    line = held([7, 2, 5])
    async with stage.open(model=ScriptedModel(line), refined=True, recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            fast = await turn.inject(messages)
            line.release()
            messages += [call("one"), answer("one")]
            refined = await turn.inject(messages, phase="refined")
            messages.append(assistant("Herbs."))
        await caught_up(memory)
    assert letters(fast) == "ABC"
    assert letters(refined) == "GE"
    assert stage.endings() == [("delivered", "user_message"), ("delivered", "tool_result")]


async def test_a_choice_replaces_what_fast_has_ready(stage: Stage) -> None:
    """R7: nothing was handed over yet, so what the model did not choose is dropped."""
    async with stage.open(model=ScriptedModel(choosing("GB")), refined=True, recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            element = await turn.inject(messages, phase="refined")
            again = await turn.inject(messages)
            messages.append(assistant("Herbs."))
        await caught_up(memory)
    assert letters(element) == "GB"
    assert again is None
    assert stage.endings() == [("superseded", "selected"), ("delivered", "user_message")]


async def test_a_choice_of_what_was_delivered_already_adds_nothing(stage: Stage) -> None:
    """R7, H5: a chosen set within the ledger injects nothing."""
    line = held([2, 1])
    async with stage.open(model=ScriptedModel(line), refined=True, recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await turn.inject(messages)
            line.release()
            messages += [call("one"), answer("one")]
            assert await turn.inject(messages, phase="refined") is None
            turn.abort()
        await caught_up(memory)
    assert stage.endings() == [("delivered", "user_message"), ("empty", "already_visible")]


async def test_an_empty_choice_means_no_block_where_none_was_handed_over(stage: Stage) -> None:
    """R7, L5: the model may drop everything; recalling nothing is a good answer."""
    async with stage.open(model=ScriptedModel('{"ids": []}'), refined=True, recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            element = await turn.inject(messages, phase="refined")
            messages += [call("one"), answer("one")]
            later = await turn.inject(messages)
            messages.append(assistant("Herbs."))
        assert await turn.wait_recorded()
        messages.append(user("thanks"))
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            carried = await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert (element, later, carried) == (None, None, None)
    assert stage.count("refined_failed") == 0
    assert stage.endings() == [("superseded", "selected"), ("empty", "no_relevant_results")]


async def test_an_empty_choice_takes_nothing_back_that_was_handed_over(stage: Stage) -> None:
    """R7, H3: the block is in the host's list, and stays there."""
    line = held([])
    async with stage.open(model=ScriptedModel(line), refined=True, recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            fast = await turn.inject(messages)
            line.release()
            messages += [call("one"), answer("one")]
            assert await turn.inject(messages, phase="refined") is None
            turn.abort()
        await caught_up(memory)
    assert letters(fast) == "ABC"
    assert messages[1] is fast
    assert stage.endings() == [("delivered", "user_message"), ("empty", "no_relevant_results")]


@pytest.mark.parametrize("chosen, shown", [("", ""), ("GA", "GA")])
async def test_a_late_choice_drops_from_what_is_carried(stage: Stage, chosen: str, shown: str) -> None:
    """R7, R8: the turn ended before anything was handed over; the next one is offered the choice alone."""
    line = held([LETTERS.index(letter) + 1 for letter in chosen])
    async with stage.open(model=ScriptedModel(line), refined=True, recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        conversation, messages = memory.conversation("c", user="ada"), [user(ASKED)]
        async with conversation.turn(messages) as turn:
            await settled(turn)
            messages.append(assistant("Herbs."))
        assert await turn.wait_recorded()
        await stage.heard("recall_carried")
        line.release()
        await stage.heard("recall_carried" if chosen else "recall_ended", 2)
        messages.append(user("thanks"))
        async with conversation.turn(messages) as turn:
            await turn._turn.shared.opened.wait(within=5.0)  # type: ignore[union-attr]
            element = await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert letters(element) == shown


VOID = '{"ids": [1, 99]}'
FAILING = [
    pytest.param([VOID], "unknown_id", id="an id outside the manifest"),
    pytest.param(["no idea", "no idea"], "not_json", id="no JSON twice"),
    pytest.param([ModelError("The model is away. Ask tomorrow.", reason="status_503")], "status_503", id="no answer"),
    pytest.param([ValueError("what?")], "ValueError", id="somebody else's fault"),
]


@pytest.mark.parametrize("script, reason", FAILING)
async def test_a_failed_choice_leaves_the_fast_result_and_is_told(stage: Stage, script: list[Any], reason: str) -> None:
    """R7, R5: whatever is wrong with the model or its answer, the fast result stands; the phase is degraded."""
    async with stage.open(model=ScriptedModel(*script), refined=True, recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            element = await turn.inject(messages, phase="refined")
            messages.append(assistant("Herbs."))
        recorded = await turn.wait_recorded()
    assert letters(element) == "ABC"
    assert recorded
    assert [event.data["reason"] for event in stage.told.named("refined_failed")] == [reason]
    assert sorted(stage.endings()) == [("degraded", reason), ("delivered", "user_message")]


async def test_a_model_that_never_answers_is_given_up_at_its_own_limit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7: no short timeout, but a net; what waits for the refined phase gets the fast one then."""
    line = held([7])
    monkeypatch.setattr(recall_client, "MODEL_TIMEOUT", 0.3)
    async with stage.open(model=ScriptedModel(line), refined=True, recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            element = await turn.inject(messages, phase="refined")
            turn.abort()
        await caught_up(memory)
        given_up = line.cancelled.is_set()
    assert letters(element) == "ABC"
    assert given_up
    assert ("degraded", "timeout") in stage.endings()


async def test_waiting_for_fast_does_not_wait_for_the_model(stage: Stage) -> None:
    """R7, R2: a slow selector costs a turn nothing."""
    line = held([7])
    async with stage.open(model=ScriptedModel(line), refined=True, recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            element = await turn.inject(messages)
            unanswered = not line.cancelled.is_set()
            messages += [call("one"), answer("one")]
            waits = turn._find_wait(messages, None, "fast", 0.0)
            turn.abort()
    assert letters(element) == "ABC"
    assert unanswered
    assert waits is None


async def test_a_new_question_cancels_the_model_and_keeps_what_fast_has_ready(stage: Stage) -> None:
    """R3, R7: the refined phase in flight is superseded; the fast one has settled and is still handed over."""
    line = held([7])
    model = ScriptedModel(line, '{"ids": []}')
    async with stage.open(model=model, refined=True, recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            assert await asyncio.to_thread(line.asked.wait, 10)
            messages.append(user("And what goes into bread?"))
            turn.interject("And what goes into bread?")
            assert await asyncio.to_thread(line.cancelled.wait, 10)
            await settled(turn)
            element = await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert letters(element) == "ABC"
    assert stage.endings()[0] == ("superseded", "new_query")
    assert ("delivered", "user_message") in stage.endings()


async def test_a_choice_that_comes_after_the_turn_is_carried(stage: Stage) -> None:
    """R7, R8: a model that answers late answers for the next turn."""
    line = held([7, 1])
    async with stage.open(model=ScriptedModel(line), refined=True, recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        conversation, messages = memory.conversation("c", user="ada"), [user(ASKED)]
        async with conversation.turn(messages) as turn:
            await turn.inject(messages)
            messages.append(assistant("Herbs."))
        assert await turn.wait_recorded()
        line.release()
        await stage.heard("recall_carried")
        messages.append(user("thanks"))
        async with conversation.turn(messages) as turn:
            await turn._turn.shared.opened.wait(within=5.0)  # type: ignore[union-attr]
            element = await turn.inject(messages)
            messages.append(assistant("Enjoy."))
        await caught_up(memory)
    assert letters(element) == "G"
    assert stage.endings() == [("delivered", "user_message"), ("delivered", "user_message")]


async def test_nothing_is_refined_without_a_model_or_when_switched_off(stage: Stage) -> None:
    """R7: refined is optional; waiting for it means waiting for fast."""
    model = ScriptedModel()
    for options in ({"model": model, "refined": False}, {"refined": True}):
        async with stage.open(**options) as memory:
            if not await memory.space("user:ada").list():
                await learn_herbs(memory, stage.clock)
            messages = [user(ASKED)]
            async with memory.conversation("c", user="bob", reads=["user:ada"]).turn(messages) as turn:
                assert await turn.inject(messages, phase="refined") is not None
                turn.abort()
            await caught_up(memory)
    assert model.calls == []
    assert len(stage.endings()) == 2


async def test_no_model_is_called_where_nothing_was_found(stage: Stage) -> None:
    """R6, R7: nothing to choose from, blank input, an acknowledgement: no model call."""
    model = ScriptedModel()
    async with stage.open(model=model, refined=True) as memory:
        await learn_herbs(memory, stage.clock)
        for text in ("Where is the Kremlin?", "  ", "ok"):
            messages = [user(text)]
            async with memory.conversation("c", user="ada").turn(messages) as turn:
                assert await turn.inject(messages, phase="refined") is None
                turn.abort()
        await caught_up(memory)
    assert model.calls == []
    assert stage.endings() == [("empty", "no_relevant_results")] * 2


async def test_a_model_is_asked_once_for_each_thing_that_is_said(stage: Stage) -> None:
    """R1, R7: a tool loop of any length calls the selector once."""
    model = ScriptedModel('{"ids": [1]}')
    async with stage.open(model=model, refined=True) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            for step in range(10):
                await turn.inject(messages, phase="refined")
                messages += [call(f"call{step}"), answer(f"call{step}")]
            turn.abort()
    assert len(model.calls) == 1
    assert all(herb in model.calls[0].text for herb in HERBS)


async def test_only_what_the_model_selects_is_delivered_and_nothing_waits_for_it(stage: Stage) -> None:
    """R7: with `refined="only"` the fast result never appears, and the first point does not wait for the model."""
    line = held([7, 2])
    async with stage.open(model=ScriptedModel(line), refined="only", recall_entries_max=3, grace=60.0) as memory:
        await learn_herbs(memory, stage.clock)
        conversation, messages = memory.conversation("c", user="ada"), [user(ASKED)]
        async with conversation.turn(messages) as turn:
            assert await asyncio.to_thread(line.asked.wait, 10)
            first = await turn.inject(messages, within=60.0)
            line.release()
            messages += [call("one"), answer("one")]
            await turn._turn.shared.current.fast.settled.wait(within=5.0)  # type: ignore[union-attr]
            later = await turn.inject(messages)
            messages.append(assistant("Herbs."))
        assert await turn.wait_recorded()
        await caught_up(memory)
        traced = (await conversation.trace("last")).turns[0].recalls
    assert first is None
    assert letters(later) == "GB"
    assert stage.endings() == [("delivered", "tool_result")]
    assert {one.why for one in traced[0].left_out} == {"not_selected"}


async def test_a_selection_that_is_late_is_carried_alone(stage: Stage) -> None:
    """R7, R8: a turn without tools ends before the model answers; the next turn is offered the selection."""
    line = held([7])
    async with stage.open(model=ScriptedModel(line), refined="only", recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        conversation, messages = memory.conversation("c", user="ada"), [user(ASKED)]
        async with conversation.turn(messages) as turn:
            assert await turn.inject(messages) is None
            messages.append(assistant("Herbs."))
        assert await turn.wait_recorded()
        line.release()
        await stage.heard("recall_carried")
        messages.append(user("thanks"))
        async with conversation.turn(messages) as turn:
            await turn._turn.shared.opened.wait(within=5.0)  # type: ignore[union-attr]
            element = await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert letters(element) == "G"


@pytest.mark.parametrize("script, reason", FAILING)
async def test_without_a_selection_there_is_no_block_and_the_outcome_says_so(
    stage: Stage, script: list[Any], reason: str
) -> None:
    """R7, R5: with `refined="only"` a failed model means no block."""
    async with stage.open(model=ScriptedModel(*script), refined="only", recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        conversation, messages = memory.conversation("c", user="ada"), [user(ASKED)]
        async with conversation.turn(messages) as turn:
            element = await turn.inject(messages, phase="refined")
            messages += [call("one"), answer("one")]
            later = await turn.inject(messages)
            messages.append(assistant("Herbs."))
        assert await turn.wait_recorded()
        await caught_up(memory)
        traced = (await conversation.trace("last")).turns[0].recalls
    assert (element, later) == (None, None)
    assert stage.endings() == [("degraded", reason)]
    assert [one.row.reason for one in traced] == [reason]
    assert {one.why for one in traced[0].left_out} == {"not_handed_over"}


async def test_an_empty_selection_ends_as_empty(stage: Stage) -> None:
    """R7: what the model rejects never appears, and is named in the trace."""
    async with stage.open(model=ScriptedModel('{"ids": []}'), refined="only", recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        conversation, messages = memory.conversation("c", user="ada"), [user(ASKED)]
        async with conversation.turn(messages) as turn:
            assert await turn.inject(messages, phase="refined") is None
            assert "A" not in letters(turn.delegate("Buy what goes into the soup"))
            messages.append(assistant("Herbs."))
        assert await turn.wait_recorded()
        await caught_up(memory)
        traced = (await conversation.trace("last")).turns[0].recalls
    assert stage.endings() == [("empty", "no_relevant_results")]
    assert {one.why for one in traced[0].left_out} == {"not_selected"}
