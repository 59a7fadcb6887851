"""The scripted model: its replies, the calls it keeps, and the end of its script. The selecting model: its choice."""

import asyncio
import json
from typing import Any

import pytest

from afterturn.ports import ChatModel
from afterturn.recall.rerank import Manifest, prompt
from afterturn.testing import Held, ScriptedModel, SelectingModel, call_tools

HELLO = [{"role": "user", "content": "Hello"}]


async def test_it_is_a_chat_model_that_gives_its_lines_in_order() -> None:
    model: ChatModel = ScriptedModel("one", "two")
    answers = [(await model.complete(HELLO))["content"] for _ in range(2)]
    assert answers == ["one", "two"]


async def test_a_line_can_depend_on_what_the_model_was_shown() -> None:
    model = ScriptedModel(lambda messages: f"You said {messages[-1]['content']}.")
    assert await model.complete(HELLO) == {"role": "assistant", "content": "You said Hello."}


async def test_tool_calls_get_ids_that_are_never_given_twice() -> None:
    step = call_tools(("find", {"day": "Friday"}), ("find", {"day": "Sunday"}))
    model = ScriptedModel(step, step)
    calls = [call for _ in range(2) for call in (await model.complete(HELLO))["tool_calls"]]
    assert [call["id"] for call in calls] == ["call_1", "call_2", "call_3", "call_4"]
    assert json.loads(calls[1]["function"]["arguments"]) == {"day": "Sunday"}


async def test_a_message_stays_as_it_was_written() -> None:
    written: dict[str, Any] = {"role": "assistant", "content": "Look.", "refusal": None}
    model = ScriptedModel(written)
    assert await model.complete(HELLO) == written


async def test_a_call_keeps_its_messages_when_the_host_changes_its_list() -> None:
    model = ScriptedModel("one")
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    await model.complete(messages, [{"type": "function"}])
    messages[0]["content"][0]["text"] = "Bye"
    assert (model.calls[0].text, model.calls[0].tools) == ("Hello", ({"type": "function"},))


async def test_an_exception_in_the_script_is_raised_once() -> None:
    model = ScriptedModel(TimeoutError("too slow"), "here again")
    with pytest.raises(TimeoutError, match="too slow"):
        await model.complete(HELLO)
    assert (await model.complete(HELLO))["content"] == "here again"


async def test_a_call_after_the_last_line_says_so_and_is_kept() -> None:
    model = ScriptedModel("one")
    await model.complete(HELLO)
    with pytest.raises(AssertionError, match="ended with line 1, and the model was called once more"):
        await model.complete(HELLO)
    assert (len(model.calls), model.remaining) == (2, 0)


async def test_a_held_line_comes_when_it_is_released_from_whatever_thread() -> None:
    held = Held("at last")
    call = asyncio.ensure_future(ScriptedModel(held).complete(HELLO))
    assert await asyncio.to_thread(held.asked.wait, 10)
    assert not call.done()
    await asyncio.to_thread(held.release)
    held.release()
    assert (await call)["content"] == "at last"


async def test_a_held_line_may_be_released_before_it_is_asked_for() -> None:
    held = Held(TimeoutError("too slow"))
    held.release()
    with pytest.raises(TimeoutError, match="too slow"):
        await ScriptedModel(held).complete(HELLO)


async def test_a_held_line_that_is_given_up_says_so() -> None:
    held = Held()
    call = asyncio.ensure_future(ScriptedModel(held).complete(HELLO))
    assert await asyncio.to_thread(held.asked.wait, 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    held.release()
    assert held.cancelled.is_set()


async def test_the_wanted_form_of_an_answer_is_kept_with_the_call() -> None:
    model = ScriptedModel("{}")
    await model.complete(HELLO, schema={"type": "object"})
    assert model.calls[0].schema == {"type": "object"}


def test_a_selecting_model_chooses_among_the_lines_that_it_is_shown():
    """R7: the answer names memories by their numbers in the list."""
    shown = Manifest("[1] episodic, today, user: It rains.\n[2] long_term, 3 days ago, user: I moved to Ghent.", ())
    asked: list[list[str]] = []

    def choose(lines: list[str]) -> list[int]:
        asked.append([*lines])
        return [at for at, line in enumerate(lines) if "Ghent" in line]

    answer = asyncio.run(SelectingModel(choose).complete(prompt("Where do I live?", shown, entries_max=5)))
    assert json.loads(answer["content"]) == {"ids": [2]}
    assert asked == [["episodic, today, user: It rains.", "long_term, 3 days ago, user: I moved to Ghent."]]
