"""The agent's host: the loop of a turn as any host would write it, with an eye on what memory does and costs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from dataclasses import dataclass, field, fields
from typing import Any

from afterturn.base.tokens import estimate_tokens
from afterturn.base.types import Event
from afterturn.lab.demo.restaurants import TOOLS, describe_call, run_tools
from afterturn.lab.demo.stage import Said, Stage
from afterturn.lab.demo.story import Exchange
from afterturn.memory import Conversation, Space
from afterturn.testing.model import ScriptedModel
from afterturn.turn.turn import Turn

_EVENT_WITHIN = 1.0
_BULLET = re.compile(r"^- \[([0-9a-z.]+)\]", re.MULTILINE)
_POINTS = {"user_message": "after Ada", "tool_result": "after tool"}


class StoryBroken(Exception):
    """Memory did not do its part, and the story can not go on."""


@dataclass(slots=True)
class Cost:
    """What memory took: `waited` is seconds, `tokens_each_call` what a copy for every model call would have added.

    `handed_over` names each memory as often as it was.
    """

    recalls: int = 0
    model_calls: int = 0
    turns: int = 0
    waited: float = 0.0
    tokens: int = 0
    tokens_each_call: int = 0
    handed_over: list[str] = field(default_factory=list)

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


class EventQueue:
    """Takes events on memory's thread and gives them, in order, to the host's loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Event] = asyncio.Queue()

    def put(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, event)

    async def take(self, *, until: str = "") -> list[Event]:
        """What has come; with `until`, waits for an event of that name first, for at most a second."""
        taken: list[Event] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EVENT_WITHIN):
                while until and (not taken or taken[-1].name != until):
                    taken.append(await self._queue.get())
        await asyncio.sleep(0)
        while not self._queue.empty():
            taken.append(self._queue.get_nowait())
        return taken


class Host:
    """One conversation between Ada and Basil."""

    def __init__(self, conversation: Conversation, space: Space, events: EventQueue, stage: Stage) -> None:
        self._conversation = conversation
        self._space = space
        self._events = events
        self._stage = stage
        self._messages: list[dict[str, Any]] = []
        self._blocks: list[str] = []
        self.cost = Cost()

    async def play(self, exchange: Exchange, *, full_block: bool = False) -> None:
        """One turn, shown as it happens. StoryBroken when the answer shows that memory failed."""
        model = ScriptedModel(*exchange.replies)
        self._messages.append({"role": "user", "content": exchange.says})
        said = [Said("Ada", exchange.says)]
        async with self._conversation.turn(self._messages) as turn:
            within = None if exchange.patient else 0.0
            while True:
                block = await self._inject(turn, within)
                self._stage.moment(said, await self._seen(exchange, block, within))
                if block and full_block:
                    self._stage.block("the block that Basil was given", block)
                within = None
                reply = await model.complete(self._messages, TOOLS)
                self._messages.append(reply)
                if not reply.get("tool_calls"):
                    break
                results = await run_tools(reply["tool_calls"])
                self._messages.extend(results)
                said = [Said("calls", f"→ {describe_call(call)}") for call in reply["tool_calls"]]
                said += [Said("tool", f"← {result['content']}") for result in results]
            leaving = time.perf_counter()
        self.cost.waited += time.perf_counter() - leaving
        await self._ended(turn, reply["content"], exchange, model)

    async def _inject(self, turn: Turn, within: float | None) -> str | None:
        asked = time.perf_counter()
        element = await turn.inject(self._messages, within=within)
        self.cost.waited += time.perf_counter() - asked
        if element is None:
            return None
        block = str(element["content"])
        self._blocks.append(block)
        self.cost.tokens += estimate_tokens(block)
        self.cost.handed_over.extend(_BULLET.findall(block))
        return block

    async def _seen(self, exchange: Exchange, block: str | None, within: float | None) -> list[str]:
        """What memory did up to here, in the words of the right column."""
        awaited = "handed_over" if block else "recall_started" if within == 0 else ""
        events = await self._events.take(until=awaited)
        self.cost.recalls += sum(event.name == "recall_started" for event in events)
        notes = [note for event in events for note in _notes(event)]
        if {"recall_started", "recall_settled"} <= {event.name for event in events}:
            notes = notes[1:]
        if any(event.name == "recall_settled" and not event.data["memories"] for event in events):
            notes.extend(await self._left_out(exchange.says))
        return notes

    async def _left_out(self, text: str) -> list[str]:
        """What would have been recalled if the model did not see it already: the same question without exclusions."""
        shown = {ref for block in self._blocks for ref in _BULLET.findall(block)}
        matches = [hit for hit in (await self._space.recall(text)).hits if hit.entry.ref in shown]
        return [f"the {len(matches)} that match are in sight: not repeated"] if matches else []

    async def _ended(self, turn: Turn, answer: str, exchange: Exchange, model: ScriptedModel) -> None:
        recorded = await turn.wait_recorded()
        events = await self._events.take(until="recorded" if recorded else "")
        self._stage.moment([Said("Basil", answer)], [note for event in events for note in _notes(event)])
        self.cost.turns += 1
        self.cost.model_calls += len(model.calls)
        for call in model.calls:
            self.cost.tokens_each_call += sum(estimate_tokens(block) for block in self._blocks if block in call.text)
        if exchange.proof not in answer:
            raise StoryBroken(f"Memory failed: Basil should have said “… {exchange.proof} …”. Is recall switched off?")
        if not recorded:
            raise StoryBroken("Memory failed: the turn was not recorded. Is recording switched off?")


def _notes(event: Event) -> list[str]:
    data = event.data
    match event.name:
        case "recall_started":
            return ["recall starts, and the turn goes on"]
        case "recall_settled":
            return [f"recalled in {data['milliseconds']:.1f} ms: {_lanes(event)}"]
        case "handed_over":
            count = "1 memory" if data["memories"] == 1 else f"{data['memories']} memories"
            return [f"handed over {_POINTS[str(data['point'])]}: {count}, {data['tokens']} tokens"]
        case "recorded":
            return [f"recorded for good: {data['records']} messages"]
    return []


def _lanes(event: Event) -> str:
    counts = {name: event.data[name] for name in ("short_term", "long_term", "episodic")}
    found = [f"{count} {name.replace('_', '-')}" for name, count in counts.items() if count]
    return " + ".join(found) or "nothing to add"
