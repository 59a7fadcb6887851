"""A sub-agent: it is given a task with what the turn knows, may look things up, and what it learned waits for Ada."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from afterturn.conversation.conversation import Conversation
from afterturn.conversation.turn import Turn
from afterturn.testing.model import Answer, Messages, ScriptedModel, call_tools
from lab.demo.host import Call, Host, Play
from lab.demo.stage import Said, StoryBroken, counted, describe, describe_call
from lab.demo.story import USER, Exchange, heard

TASK = "Find a bakery that can make a cake for Grace"
FOUND = "Rosa's bakery uses no peanuts, no eggs."


def _report(messages: Messages) -> Answer:
    knows = "allergic to peanuts" in heard(messages) and "Anna is a vegan" in heard(messages)
    return FOUND if knows else "Any bakery will do."


def _pass_on(messages: Messages) -> Answer:
    return "Rosa's bakery can do it." if FOUND in heard(messages) else "Any bakery can do it."


def _order(messages: Messages) -> Answer:
    return "Ordered at Rosa's bakery." if FOUND in heard(messages) else "At which bakery?"


SUB_AGENT = (call_tools(("search_memory", {"query": "party guest who is a vegan"})), _report)
ASKED = Exchange(
    "Have a cake made for my mother Grace. What is she allergic to?",
    (call_tools(("ask_colleague", {"task": TASK})), _pass_on),
    proof="Rosa's bakery",
)
ASKED_LATER = Exchange("Order the cake at that bakery, please.", (_order,), proof="Rosa's bakery")


class Colleague:
    """The tool that runs the sub-agent: a loop around a model, as any host would write it."""

    def __init__(self, play: Play, conversation: Conversation) -> None:
        self._play = play
        self._tools = conversation.tools()

    async def run(self, turn: Turn, calls: Sequence[Call]) -> list[dict[str, Any]]:
        return [{"role": "tool", "tool_call_id": call["id"], "content": await self._work(turn, call)} for call in calls]

    async def _work(self, turn: Turn, call: Call) -> str:
        task = json.loads(call["function"]["arguments"])["task"]
        text = turn.delegate(task)
        self._play.stage.block("what the sub-agent was given: turn.delegate(task)", text)
        result = await self._answer([{"role": "user", "content": text}])
        turn.returned(task, result)
        return result

    async def _answer(self, messages: list[dict[str, Any]]) -> str:
        model = ScriptedModel(*SUB_AGENT)
        while True:
            reply = await model.complete(messages, self._tools.definitions())
            messages.append(reply)
            if not reply.get("tool_calls"):
                return str(reply["content"])
            for call in reply["tool_calls"]:
                found = await self._tools.dispatch(call["function"]["name"], call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})
                await self._tell(call)

    async def _tell(self, call: Call) -> None:
        events = await self._play.events.take(until="tool_called")
        said = Said("calls", f"→ {describe_call(call)}, by the sub-agent")
        self._play.stage.moment([said], [note for event in events for note in describe(event)])


async def play_errand(play: Play) -> None:
    conversation = play.memory.conversation("cake", user=USER)
    await Host(play, conversation, tools=Colleague(play, conversation).run).play(ASKED)
    await _decide(play)
    await Host(play, play.memory.conversation("order", user=USER), tell_memories=True).play(ASKED_LATER)


async def _decide(play: Play) -> None:
    waiting = await play.ada.proposals()
    if [entry.text for entry in waiting] != [FOUND]:
        raise StoryBroken(f"Memory failed: {counted(len(waiting))} in the inbox instead of what the sub-agent found.")
    before = await _recalled(play)
    await play.ada.approve(waiting[0].id)
    play.stage.moment(
        [Said("Ada", "Yes, keep that."), Said("calls", f'→ ada.approve("{waiting[0].id}")')],
        [f"inbox: {FOUND}", f"recalled while it waited: {before}; now: {await _recalled(play)}"],
    )


async def _recalled(play: Play) -> str:
    hits = (await play.ada.search(FOUND)).hits
    return "yes" if any(hit.entry.text == FOUND for hit in hits) else "no"
