"""A scene with a sub-agent: its task contains the turn's memories, it can search, and its result needs approval."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from afterturn.conversation.conversation import Conversation
from afterturn.conversation.turn import Turn
from afterturn.testing.model import Answer, Messages, ScriptedModel, call_tools
from lab.demo.host import Call, Host, SceneContext
from lab.demo.screen import Cell, DemoFailed, counted, describe, describe_call
from lab.demo.story import USER, Exchange, text_of

TASK = "Find a bakery that can make a cake for Grace"
FOUND = "Rosa's bakery uses no peanuts, no eggs."


def _report(messages: Messages) -> Answer:
    knows = "allergic to peanuts" in text_of(messages) and "Anna is a vegan" in text_of(messages)
    return FOUND if knows else "Any bakery will do."


def _pass_on(messages: Messages) -> Answer:
    return "Rosa's bakery can do it." if FOUND in text_of(messages) else "Any bakery can do it."


def _order(messages: Messages) -> Answer:
    return "Ordered at Rosa's bakery." if FOUND in text_of(messages) else "At which bakery?"


SUB_AGENT = (call_tools(("search_memory", {"query": "party guest who is a vegan"})), _report)
ASKED = Exchange(
    "Have a cake made for my mother Grace. What is she allergic to?",
    (call_tools(("ask_colleague", {"task": TASK})), _pass_on),
    proof="Rosa's bakery",
)
ASKED_LATER = Exchange("Order the cake at that bakery, please.", (_order,), proof="Rosa's bakery")


class Colleague:
    """The tool that runs the sub-agent: a loop around a model, as any host would write it."""

    def __init__(self, play: SceneContext, conversation: Conversation) -> None:
        self._play = play
        self._tools = conversation.tools()

    async def run(self, turn: Turn, calls: Sequence[Call]) -> list[dict[str, Any]]:
        return [{"role": "tool", "tool_call_id": call["id"], "content": await self._work(turn, call)} for call in calls]

    async def _work(self, turn: Turn, call: Call) -> str:
        task = json.loads(call["function"]["arguments"])["task"]
        text = turn.delegate(task)
        self._play.screen.block("the prompt of the sub-agent: turn.delegate(task)", text)
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
                await self._show_call(call)

    async def _show_call(self, call: Call) -> None:
        events = await self._play.events.take(until="tool_called")
        said = Cell("calls", f"→ {describe_call(call)}, by the sub-agent")
        self._play.screen.moment([said], [note for event in events for note in describe(event)])


async def play_subagent(play: SceneContext) -> None:
    conversation = play.memory.conversation("cake", user=USER)
    await Host(play, conversation, tools=Colleague(play, conversation).run).play(ASKED)
    await _decide(play)
    await Host(play, play.memory.conversation("order", user=USER), show_memories=True).play(ASKED_LATER)


async def _decide(play: SceneContext) -> None:
    waiting = await play.ada.proposals()
    if [entry.text for entry in waiting] != [FOUND]:
        raise DemoFailed(f"Memory failed: {counted(len(waiting))} in the inbox instead of what the sub-agent found.")
    before = await _recalled(play)
    await play.ada.approve(waiting[0].id)
    play.screen.moment(
        [Cell("Ada", "Yes, keep that."), Cell("calls", f'→ ada.approve("{waiting[0].id}")')],
        [f"inbox: {FOUND}", f"recalled before approval: {before}; now: {await _recalled(play)}"],
    )


async def _recalled(play: SceneContext) -> str:
    hits = (await play.ada.search(FOUND)).hits
    return "yes" if any(hit.entry.text == FOUND for hit in hits) else "no"
