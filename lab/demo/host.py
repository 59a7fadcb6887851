"""The agent's host: the loop of a turn as any host would write it, with an eye on what memory does and costs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from afterturn.conversation.conversation import Conversation
from afterturn.conversation.turn import Turn
from afterturn.memory import Memory, Space
from afterturn.prompt.compaction import Compacted
from afterturn.testing.model import ScriptedModel
from afterturn.types import Event
from lab.demo.cost import Comparison, Cost
from lab.demo.restaurants import TOOLS, run_tools
from lab.demo.stage import Said, Stage
from lab.demo.story import Exchange
from lab.demo.telling import Telling
from lab.demo.watching import EventQueue, bullets, describe

Call: TypeAlias = Mapping[str, Any]
RunTools: TypeAlias = Callable[[Turn, Sequence[Call]], Awaitable[list[dict[str, Any]]]]


# More than there are memories in the play.
_LOOKED_AT = 50


class StoryBroken(Exception):
    """Memory did not do its part, and the story can not go on."""


@dataclass(frozen=True, slots=True)
class Play:
    """What a scene is played with: one process, one open memory."""

    memory: Memory
    ada: Space
    events: EventQueue
    stage: Stage
    store: Path
    cost: Cost = field(default_factory=Cost)


async def _run_tools(turn: Turn, calls: Sequence[Call]) -> list[dict[str, Any]]:
    return await run_tools(calls)


class Host:
    """One conversation between Ada and Basil. With `tell_memories` each memory of a block is shown beside it."""

    def __init__(
        self,
        play: Play,
        conversation: Conversation,
        *,
        system: str = "",
        tell_memories: bool = False,
        tools: RunTools = _run_tools,
    ) -> None:
        self._conversation = conversation
        self._standing = conversation.standing()
        self._space, self._events, self._stage, self._cost = play.ada, play.events, play.stage, play.cost
        self._run_tools = tools
        self._tell_memories = tell_memories
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
        """One turn, shown as it happens. StoryBroken when the answer shows that memory failed.

        Memory is slow for as long as `slowed` is entered, which is until the turn was left.
        """
        # Vectors of questions are kept by their letters, and one that is known already would not come late.
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
        """Has memory's model summarise the history when it has grown over half of the limit."""
        done = await self._conversation.compact(self._messages, limit_tokens=limit_tokens)
        self._messages = list(done.messages)
        self._comparison.compacted()
        await self._events.take(until="compacted")
        return done

    async def _answer(self, turn: Turn, exchange: Exchange, model: ScriptedModel, *, full_block: bool) -> str:
        telling = Telling(self._stage, terse=exchange.terse)
        said = [Said("Ada", exchange.says)]
        within = None if exchange.patient else 0.0
        while True:
            block = await self._inject(turn, within)
            telling.moment(said, await self._seen(exchange, block, within))
            if block and full_block:
                self._stage.block("the block that Basil was given", block)
            within = None
            reply = await model.complete(self._messages, TOOLS)
            self._messages.append(reply)
            if not reply.get("tool_calls"):
                telling.end()
                return str(reply["content"])
            telling.called(reply["tool_calls"])
            results = await self._run_tools(turn, reply["tool_calls"])
            self._messages.extend(results)
            said = [Said("tool", f"← {result['content']}") for result in results]

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
        """What memory did up to here, in the words of the right column."""
        awaited = "handed_over" if block else "recall_started" if within == 0 else ""
        events = await self._events.take(until=awaited)
        notes = self._notes(events)
        if {"recall_started", "recall_settled"} <= {event.name for event in events}:
            notes = notes[1:]
        if any(event.name == "recall_settled" and not event.data["memories"] for event in events):
            notes.extend(await self._left_out(exchange.says))
        memories = bullets(block) if block else {}
        if block and self._carried:
            self._carried = False
            notes.insert(0, "carried over from the turn before:")
        if self._tell_memories:
            notes += [f"  {'again: ' if ref in self._shown else '+ '}{text}" for ref, text in memories.items()]
        self._shown.update(memories)
        return notes

    def _notes(self, events: Sequence[Event]) -> list[str]:
        self._cost.recalls += sum(event.name == "recall_started" for event in events)
        self._carried = self._carried or any(event.name == "recall_carried" for event in events)
        return [note for event in events for note in describe(event)]

    async def _left_out(self, text: str) -> list[str]:
        """What would have been recalled if the model did not see it already: the same question without exclusions."""
        matches = [
            hit for hit in (await self._space.search(text, limit=_LOOKED_AT)).hits if hit.entry.ref in self._shown
        ]
        return [f"the {len(matches)} that match are in sight: not repeated"] if matches else []

    async def _ended(self, turn: Turn, answer: str, exchange: Exchange) -> None:
        recorded = await turn.wait_recorded()
        events = await self._events.take(until="recorded" if recorded else "")
        if exchange.carries and not any(event.name == "recall_carried" for event in events):
            events += await self._events.take(until="recall_carried")
        self._stage.moment([Said("Basil", answer)], self._notes(events))
        self._cost.turns += 1
        if exchange.proof not in answer:
            raise StoryBroken(f"Memory failed: Basil should have said “… {exchange.proof} …”. Is recall switched off?")
        if not recorded:
            raise StoryBroken("Memory failed: the turn was not recorded. Is recording switched off?")
