"""An agent loop with four kinds of memory: none, recall per call, recall per turn, and afterturn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol, TypeAlias

import afterturn
from afterturn.conversation.turn import PhaseName
from afterturn.guard.output_filter import OutputFilter
from afterturn.ports import ChatModel
from afterturn.recall.answer import compose
from afterturn.testing.model import call_tools
from lab.bench.texts import SPACE, TOOLS, tool_call, tool_result

Message: TypeAlias = dict[str, Any]
TOOL_DEFINITIONS = tuple({"type": "function", "function": {"name": name, "parameters": {}}} for name in TOOLS)
# More hits than a block holds, as afterturn uses.
HITS = 32


class MemoryMode(Protocol):
    """A kind of memory in an agent loop. `spent` is the time, in seconds, spent in these three methods."""

    spent: float

    async def begin(self, messages: list[Message]) -> None:
        """Called when the user's message is the last one."""

    async def prompt(self, messages: list[Message]) -> list[Message]:
        """The prompt for this call."""

    async def end(self, messages: list[Message]) -> None:
        """Called when the agent's answer is the last message."""


async def run_turn(way: MemoryMode, model: ChatModel, messages: list[Message], question: str) -> int:
    """Runs one turn of an agent, until an answer that calls no tool. Returns the number of model calls."""
    calls = 0
    messages.append({"role": "user", "content": question})
    await way.begin(messages)
    while True:
        reply = await model.complete(await way.prompt(messages), TOOL_DEFINITIONS)
        calls += 1
        messages.append(reply)
        if not reply.get("tool_calls"):
            break
        messages.extend([tool_result(call, len(messages)) for call in reply["tool_calls"]])
    await way.end(messages)
    return calls


def script(steps: int) -> list[Any]:
    """The replies of the model in a turn: each step except the last calls a tool."""
    return [*(call_tools(tool_call(at)) for at in range(steps - 1)), "Done: the answer is in the files that I read."]


class SlowModel:
    """A model that takes `seconds` per call and answers after `steps` calls. It keeps the last prompt."""

    def __init__(self, steps: int, seconds: float) -> None:
        self._script = script(steps)
        self._seconds = seconds
        self._at = 0
        self.shown: Sequence[Mapping[str, Any]] = ()

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> Message:
        self.shown = messages
        await timer(self._seconds)
        line = self._script[self._at]
        self._at += 1
        if isinstance(line, str):
            return {"role": "assistant", "content": line}
        calls = [{"id": f"call_{self._at}", "type": "function", **call} for call in line["tool_calls"]]
        return {**line, "tool_calls": calls}


class BackgroundModel:
    """A model for memory itself: it takes the given seconds (None: forever), then returns `answer(messages)`."""

    def __init__(self, seconds: float | None, answer: Callable[[Sequence[Mapping[str, Any]]], Message]) -> None:
        self._seconds = seconds
        self._answer = answer

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> Message:
        await timer(self._seconds)
        return self._answer(messages)


def select_first_three(messages: Sequence[Mapping[str, Any]]) -> Message:
    """The answer of a selecting model."""
    return {"role": "assistant", "content": '{"ids": [1, 2, 3]}'}


async def timer(seconds: float | None) -> None:
    """Waits on the clock of the running loop; None waits forever."""
    loop = asyncio.get_running_loop()
    rung: asyncio.Future[None] = loop.create_future()
    handle = loop.call_later(seconds, rung.set_result, None) if seconds is not None else None
    try:
        await rung
    finally:
        if handle is not None:
            handle.cancel()


class NoMemory:
    def __init__(self) -> None:
        self.spent = 0.0

    async def begin(self, messages: list[Message]) -> None:
        """Nothing."""

    async def prompt(self, messages: list[Message]) -> list[Message]:
        return messages

    async def end(self, messages: list[Message]) -> None:
        """Nothing."""


class SearchMode:
    """Searches for the user's last message and renders a block as afterturn does. Counts its `recalls`."""

    def __init__(self, space: afterturn.Space, config: afterturn.Config) -> None:
        self._space = space
        self._config = config
        self.spent = 0.0
        self.recalls = 0

    async def _found(self, messages: list[Message]) -> list[Message]:
        asked = next(message["content"] for message in reversed(messages) if message["role"] == "user")
        found = await self._space.search(asked, limit=HITS)
        self.recalls += 1
        screen = OutputFilter(scanning=self._config.scan_policy)
        block = compose(found.hits, self._config, visible_bytes=0, now=time.time(), screen=screen)
        return [{"role": "user", "content": block.text}] if block else []

    async def end(self, messages: list[Message]) -> None:
        """Nothing."""


class PerCall(SearchMode):
    """Recalls before every call, and shows the block at the end of that call's prompt only."""

    async def begin(self, messages: list[Message]) -> None:
        """Nothing."""

    async def prompt(self, messages: list[Message]) -> list[Message]:
        return [*messages, *await self._found(messages)]


class PerTurn(SearchMode):
    """Recalls once a turn and keeps the block in the conversation, even if its memories are there already."""

    async def begin(self, messages: list[Message]) -> None:
        messages.extend(await self._found(messages))

    async def prompt(self, messages: list[Message]) -> list[Message]:
        return messages


class AfterturnMode:
    """afterturn, used as in the README. With `phase="refined"` it waits up to `within` seconds for the whole recall."""

    def __init__(
        self, conversation: afterturn.Conversation, *, phase: PhaseName = "fast", within: float | None = None
    ) -> None:
        self._conversation = conversation
        self._phase: PhaseName = phase
        self._within = within
        self.spent = 0.0
        self.turn: afterturn.Turn | None = None

    async def begin(self, messages: list[Message]) -> None:
        began = perf_counter()
        self.turn = self._conversation.turn(messages)
        await self.turn.__aenter__()
        self.spent += perf_counter() - began

    async def prompt(self, messages: list[Message]) -> list[Message]:
        assert self.turn is not None
        began = perf_counter()
        await self.turn.inject(messages, within=self._within, phase=self._phase)
        self.spent += perf_counter() - began
        return messages

    async def end(self, messages: list[Message]) -> None:
        assert self.turn is not None
        began = perf_counter()
        await self.turn.__aexit__(None, None, None)
        self.spent += perf_counter() - began


async def learn(memory: afterturn.Memory, texts: Sequence[str]) -> None:
    """Adds the memories and waits for their vectors."""
    await memory.space(SPACE).add_many([afterturn.Draft(text) for text in texts])
    await memory.drain()
