"""When a recall reaches the model: the five ways it may go, and what three turns of one conversation are shown."""

import logging

import pytest
from controlled_store import Stage, caught_up, learn, learn_herbs, letters, settled
from spoken import Message, answer, assistant, call, user

import afterturn
from afterturn.types import HandoverPoint

MISO = "Ada's cat is called Miso"
ASKED = "What is my cat called?"


async def test_settled_before_the_prompt_is_built_at_the_users_message_no_wait(stage: Stage) -> None:
    """R2, H1: the recall is there, so nothing is waited for and the block stands right after the user's message."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, [MISO])
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            waits = turn._find_wait(messages, None, "fast", 0.0)
            element = turn.inject_now(messages)
            messages.append(assistant("Miso."))
        assert await turn.wait_recorded()
    assert waits is None
    assert messages == [user(ASKED), element, assistant("Miso.")]
    assert "Miso" in str(element)
    assert stage.endings() == [("delivered", HandoverPoint.USER_MESSAGE)]


async def test_slow_skipped_there_at_the_first_tool_result(stage: Stage) -> None:
    """R2, H1: what is not there when the prompt is built comes after all responses of the first tool step."""
    async with stage.open(grace=0.0) as memory:
        await learn(memory, stage.clock, [MISO])
        stage.store.searching.shut()
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            skipped = await turn.inject(messages)
            messages.append(call("one", "two"))
            stage.store.searching.open()
            await settled(turn)
            messages.append(answer("one"))
            between = await turn.inject(messages)
            messages.append(answer("two"))
            element = await turn.inject(messages)
            messages.append(assistant("Miso."))
    assert skipped is None
    assert between is None
    assert messages[-2] is element
    assert "Miso" in str(element)
    assert stage.endings() == [("delivered", HandoverPoint.TOOL_RESULT)]


async def test_fails_nothing_warned_turn_intact(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """R5, L8: a broken recall gives no block, one warning and the outcome `degraded`; the turn is recorded."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, [MISO])
        stage.store.fails_searches = True
        messages = [user(ASKED)]
        with caplog.at_level(logging.WARNING, "afterturn"):
            async with memory.conversation("c", user="ada").turn(messages) as turn:
                element = await turn.inject(messages)
                messages.append(assistant("I do not know."))
            recorded = await turn.wait_recorded()
    assert element is None
    assert messages == [user(ASKED), assistant("I do not know.")]
    assert recorded
    assert [record.message for record in caplog.records] == ["a recall failed; the turn continues without it"]
    assert stage.endings() == [("degraded", "StoreUnavailable")]


async def test_slow_and_no_tool_calls_carried_to_the_next_turn(stage: Stage) -> None:
    """R8: settled after the only point of its turn, it is offered at the first point of the next one."""
    async with stage.open(grace=0.0) as memory:
        await learn(memory, stage.clock, [MISO])
        stage.store.searching.shut()
        conversation = memory.conversation("c", user="ada")
        messages = [user(ASKED)]
        async with conversation.turn(messages) as turn:
            first = await turn.inject(messages)
            stage.store.searching.open()
            await settled(turn)
            messages.append(assistant("I do not know."))
        messages.append(user("Think again, please."))
        async with conversation.turn(messages) as turn:
            second = await turn.inject(messages, within=5.0)
            messages.append(assistant("Miso."))
        await caught_up(memory)
    assert first is None
    assert messages[3] is second
    assert "Miso" in str(second)
    assert stage.count("recall_carried") == 1
    assert ("delivered", HandoverPoint.USER_MESSAGE) in stage.endings()


async def test_a_second_user_message_before_it_settles_the_first_cancelled(stage: Stage) -> None:
    """R3, R5: a new question ends the recall in flight before its own starts; its outcome is `superseded`."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, [MISO, "Ada's dog is called Rex"])
        stage.store.searching.shut()
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await stage.held()
            first = turn._turn.shared.current.task  # type: ignore[union-attr]
            messages.append(user("No, the dog! What is my dog called?"))
            turn.interject("No, the dog! What is my dog called?")
            await stage.heard("recall_started", 2)
            stage.store.searching.open()
            element = await turn.inject(messages)
            messages.append(assistant("Rex."))
        await turn.wait_recorded()
    assert first is not None
    assert first.cancelled()
    assert "Rex" in str(element)
    names = [event.name for event in stage.told.events if event.name in ("recall_started", "recall_ended")]
    assert names == ["recall_started", "recall_ended", "recall_started", "recall_ended"]
    assert stage.endings() == [("superseded", "new_query"), ("delivered", HandoverPoint.USER_MESSAGE)]


async def test_three_turns_are_shown_a_b_c_then_d_e_f_then_g_h(stage: Stage) -> None:
    """L3: what the model sees is excluded inside the query, so each turn gets the best of the rest."""
    async with stage.open(recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        messages: list[Message] = []
        shown = [await _asked(conversation, messages, f"What goes into soup, {time}?") for time in ("a", "b", "c", "d")]
    assert shown == ["ABC", "DEF", "GH", ""]


async def _asked(conversation: afterturn.Conversation, messages: list[Message], text: str) -> str:
    """The letters of what one turn was shown."""
    messages.append(user(text))
    async with conversation.turn(messages) as turn:
        element = await turn.inject(messages)
        messages.append(assistant("Herbs."))
    assert await turn.wait_recorded()
    return letters(element)
