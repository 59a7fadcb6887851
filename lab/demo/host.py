"""The agent of the demo: a host with tools, a scripted model and a count of its tokens."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias, get_type_hints

from afterturn.conversation.compactor import Compacted
from afterturn.conversation.conversation import Conversation
from afterturn.conversation.turn import Turn
from afterturn.guard.output_filter import STANDING_TAG
from afterturn.memory import Memory, Space
from afterturn.testing.model import ModelCall, ScriptedModel
from afterturn.text import estimate_tokens
from afterturn.types import Event
from lab.demo.screen import Cell, DemoFailed, EventQueue, Screen, TurnPrinter, bullets, describe
from lab.demo.story import Exchange

LATENCY = 0.03

_TABLES = {"Satay House": ("19:30", "peanut sauces, lively"), "Casa Nova": ("20:30", "grilled fish, quiet")}


def find_tables(day: str, guests: int) -> str:
    return "; ".join(f"{place} {time} ({note})" for place, (time, note) in _TABLES.items())


def book_table(place: str, time: str, note: str) -> str:
    if _TABLES.get(place, ("",))[0] != time:
        return f"{place} has no free table at {time}"
    return f"confirmed; note for the kitchen: {note}"


def send_text(to: str, text: str) -> str:
    return "delivered" if to.replace(" ", "").isdigit() else "that is not a phone number"


def invite(guest: str) -> str:
    return f"{guest} has an invitation"


_FUNCTIONS: dict[str, Callable[..., str]] = {
    function.__name__: function for function in (find_tables, book_table, send_text, invite)
}
_TYPES = {str: "string", int: "integer"}


def _schema(function: Callable[..., str]) -> dict[str, Any]:
    arguments = {name: kind for name, kind in get_type_hints(function).items() if name != "return"}
    properties = {name: {"type": _TYPES[kind]} for name, kind in arguments.items()}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": function.__name__, "parameters": parameters}}


TOOLS = [_schema(function) for function in _FUNCTIONS.values()]


async def run_tools(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One tool message per call, after a short delay, as a real service has."""
    await asyncio.sleep(LATENCY)
    return [{"role": "tool", "tool_call_id": call["id"], "content": _run(call["function"])} for call in calls]


def _run(function: Mapping[str, Any]) -> str:
    return _FUNCTIONS[function["name"]](**json.loads(function["arguments"]))


@dataclass(slots=True)
class Cost:
    """Sums over turns. `waited` is seconds.

    `added` counts tokens of memory added to a history, `read` those in all prompts: each call sends the history again.
    `each_call_*` is the same for a host that recalls before every call and excludes nothing.
    """

    turns: int = 0
    recalls: int = 0
    model_calls: int = 0
    waited: float = 0.0
    added: int = 0
    read: int = 0
    each_call_added: int = 0
    each_call_read: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


class Comparison:
    """Counts one conversation for both hosts. A compaction removes all blocks of the other one."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        self._blocks: list[str] = []
        self._gathered = 0

    def gave(self, block: str) -> None:
        self._blocks.append(block)
        self._cost.added += estimate_tokens(block)

    def called(self, calls: Sequence[ModelCall], would_give: str) -> None:
        """Counts the calls of one turn; `would_give` is the block of a recall without exclusions."""
        self._cost.model_calls += len(calls)
        for call in calls:
            self._cost.read += sum(estimate_tokens(block) for block in self._blocks if block in call.text)
            self._gathered += estimate_tokens(would_give)
            self._cost.each_call_added += estimate_tokens(would_give)
            self._cost.each_call_read += self._gathered

    def compacted(self) -> None:
        self._gathered = 0


Call: TypeAlias = Mapping[str, Any]
RunTools: TypeAlias = Callable[[Turn, Sequence[Call]], Awaitable[list[dict[str, Any]]]]


# More than there are memories in the demo.
_SEARCH_LIMIT = 50


@dataclass(frozen=True, slots=True)
class SceneContext:
    """Everything a scene needs: the open memory, its events and the screen."""

    memory: Memory
    ada: Space
    events: EventQueue
    screen: Screen
    store: Path
    cost: Cost = field(default_factory=Cost)


async def _run_tools(turn: Turn, calls: Sequence[Call]) -> list[dict[str, Any]]:
    return await run_tools(calls)


class Host:
    """One conversation between Ada and Basil. `show_memories` lists the memories of each block in the right column."""

    def __init__(
        self,
        play: SceneContext,
        conversation: Conversation,
        *,
        system: str = "",
        show_memories: bool = False,
        tools: RunTools = _run_tools,
    ) -> None:
        self._conversation = conversation
        self._standing = conversation.standing()
        self._space, self._events, self._screen, self._cost = play.ada, play.events, play.screen, play.cost
        self._run_tools = tools
        self._show_memories = show_memories
        self._comparison = Comparison(play.cost)
        self._messages: list[Any] = [{"role": "system", "content": system}] if system else []
        self._shown: set[str] = set()
        self._carried = False

    async def play(
        self,
        exchange: Exchange,
        *,
        full_block: bool = False,
        slowed: AbstractContextManager[object] | None = None,
    ) -> None:
        """Plays one turn and prints it. DemoFailed if the answer shows that memory failed.

        Memory is slow inside the `slowed` context, which lasts until the turn has ended.
        """
        # The vectors of questions are cached by text; a cached one would not be late.
        compared = exchange.says if slowed is None else f"{exchange.says} "
        would_give = await self._standing.relevant_context(compared)
        model = ScriptedModel(*exchange.replies)
        self._messages.append({"role": "user", "content": exchange.says})
        with slowed or nullcontext():
            async with self._conversation.turn(self._messages) as turn:
                answer = await self._answer(turn, exchange, model, full_block=full_block)
                leaving = time.perf_counter()
            self._cost.waited += time.perf_counter() - leaving
        self._comparison.called(model.calls, would_give)
        await self._ended(turn, answer, exchange)

    async def compact(self, *, limit_tokens: int) -> Compacted:
        """Compacts the history."""
        done = await self._conversation.compact(self._messages, limit_tokens=limit_tokens)
        self._messages = list(done.messages)
        self._comparison.compacted()
        await self._events.take(until="compacted")
        return done

    async def _answer(self, turn: Turn, exchange: Exchange, model: ScriptedModel, *, full_block: bool) -> str:
        printer = TurnPrinter(self._screen, terse=exchange.terse)
        said = [Cell("Ada", exchange.says)]
        within = None if exchange.patient else 0.0
        while True:
            block = await self._inject(turn, within)
            printer.moment(said, await self._seen(exchange, block, within))
            if block and full_block:
                self._screen.block("the block that was added to the messages", block)
            within = None
            reply = await model.complete(self._messages, TOOLS)
            self._messages.append(reply)
            if not reply.get("tool_calls"):
                printer.end()
                return str(reply["content"])
            printer.called(reply["tool_calls"])
            results = await self._run_tools(turn, reply["tool_calls"])
            self._messages.extend(results)
            said = [Cell("tool", f"← {result['content']}") for result in results]

    async def _inject(self, turn: Turn, within: float | None) -> str | None:
        asked = time.perf_counter()
        element = await turn.inject(self._messages, within=within)
        self._cost.waited += time.perf_counter() - asked
        if element is None:
            return None
        block = str(element["content"])
        self._comparison.gave(block)
        return block

    async def _seen(self, exchange: Exchange, block: str | None, within: float | None) -> list[str]:
        """What memory did since the last call, as notes for the right column."""
        awaited = "recall_started" if within == 0 else ""
        if block:
            awaited = "standing_delivered" if f"<{STANDING_TAG}>" in block else "handed_over"
        events = await self._events.take(until=awaited)
        notes = self._notes(events)
        if {"recall_started", "recall_settled"} <= {event.name for event in events}:
            notes = [note for event in events if event.name != "recall_started" for note in describe(event)]
        if any(event.name == "recall_settled" and not event.data["memories"] for event in events):
            notes.extend(await self._left_out(exchange.says))
        memories = bullets(block) if block else {}
        if block and self._carried:
            self._carried = False
            notes.insert(0, "found by the recall of the previous turn:")
        if self._show_memories:
            notes += [f"  {'again: ' if ref in self._shown else '+ '}{text}" for ref, text in memories.items()]
        self._shown.update(memories)
        return notes

    def _notes(self, events: Sequence[Event]) -> list[str]:
        self._cost.recalls += sum(event.name == "recall_started" for event in events)
        self._carried = self._carried or any(event.name == "recall_carried" for event in events)
        return [note for event in events for note in describe(event)]

    async def _left_out(self, text: str) -> list[str]:
        """A note about memories that match but are visible already, from the same search without exclusions."""
        matches = [
            hit for hit in (await self._space.search(text, limit=_SEARCH_LIMIT)).hits if hit.entry.ref in self._shown
        ]
        many = len(matches) != 1
        said = f"{len(matches)} match, but are" if many else "1 matches, but is"
        return [f"{said} in the history already"] if matches else []

    async def _ended(self, turn: Turn, answer: str, exchange: Exchange) -> None:
        recorded = await turn.wait_recorded()
        events = await self._events.take(until="recorded" if recorded else "")
        if exchange.carries and not any(event.name == "recall_carried" for event in events):
            events += await self._events.take(until="recall_carried")
        self._screen.moment([Cell("Basil", answer)], self._notes(events))
        self._cost.turns += 1
        if exchange.proof not in answer:
            raise DemoFailed(f"Memory failed: Basil should have said “… {exchange.proof} …”. Is recall switched off?")
        if not recorded:
            raise DemoFailed("Memory failed: the turn was not recorded. Is recording switched off?")
