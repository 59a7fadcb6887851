"""What the loss lab does to a store: writers with one step at a time each, and a learner. Every step is noted when it
begins and when it is acknowledged.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import afterturn
from afterturn.errors import AfterturnError
from afterturn.ports import Clock
from afterturn.runtime.clock import SystemClock
from afterturn.testing import HashingEmbedder
from afterturn.testing.model import call_tools
from afterturn.types import Filter, Kind, Status
from lab.loss.plan import LEARNER, WRITERS, ExpectedEntry, State, Step, StepKind, after, choose, space_of

Note = Callable[[str, Step], None]
"""Called with "begin" or "done", and the step."""

SETTINGS: dict[str, Any] = {"recall": False, "review_timeout": 10.0}
_LISTED_MAX = 10_000
_RECORDED_WITHIN = 5.0
_LIKED = re.compile(r"I like (\S+)a, (\S+)b and (\S+)c")


class LearningModel:
    """The ChatModel port. It saves three memories of a conversation that names them, in one review."""

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        found = _LIKED.findall(str(messages))
        if messages[-1]["role"] == "tool" or not found:
            return {"role": "assistant", "content": "Nothing to save."}
        label = found[-1][0]
        texts = [f"The user likes {label}{letter}" for letter in "abc"]
        calls = call_tools(*(("add_memory", {"text": text, "target": "user", "messages": [1]}) for text in texts))
        numbered = [{"id": str(at), "type": "function", **call} for at, call in enumerate(calls["tool_calls"])]
        return {"role": "assistant", "content": None, "tool_calls": numbered}


def components(clock: Clock | None = None) -> afterturn.Components:
    """Vectors that need no files, so that every kind of job runs."""
    return afterturn.Components(model=LearningModel(), embedder=HashingEmbedder(), clock=clock or SystemClock())


async def work(memory: afterturn.Memory, seed: str, note: Note, *, steps: int, learned: int) -> None:
    """Runs all writers and the learner. One that meets an error stops with its step begun; the others go on."""
    workers = [Writer(memory, number, seed, note).run(steps) for number in range(WRITERS)]
    await asyncio.gather(*map(_until_error, [*workers, Learner(memory, seed, note).run(learned)]))


async def _until_error(worker: Any) -> None:
    try:
        await worker
    except (AfterturnError, NotRecorded):
        return


class NotRecorded(Exception):
    """A turn was not acknowledged in time."""


async def record(memory: afterturn.Memory, space: str, label: str, said: Sequence[str]) -> None:
    messages = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), said, strict=True)]
    turn = await memory.conversation(label, owner=space).start_turn(messages[:1], id=label)
    turn.finish(messages)
    if not await turn.wait_recorded(within=_RECORDED_WITHIN):
        raise NotRecorded(label)


class Writer:
    """Adds, updates, deletes, forgets and records in a space of its own."""

    def __init__(self, memory: afterturn.Memory, number: int, seed: str, note: Note) -> None:
        self._memory = memory
        self._space = memory.space(space_of(number))
        self._prefix = f"w{number}s{seed}n"
        self._random = Random(f"{seed} {number}")
        self._note = note
        self._ids: dict[str, str] = {}
        self._state: State = {}

    async def run(self, steps: int) -> None:
        await self._look_up()
        for number in range(steps):
            step = choose(self._random, self._space.name, f"{self._prefix}{number}", self._state)
            self._note("begin", step)
            await self._take(step)
            self._note("done", step)
            self._state = after(self._state, step)

    async def _look_up(self) -> None:
        everything = Filter(statuses=tuple(Status))
        for entry in reversed(await self._space.list(limit=_LISTED_MAX, filter=everything)):
            label = entry.text.split(" ", 1)[0]
            held = self._state.get(label)
            texts = (*held.texts, entry.text) if held and entry.kind is Kind.RECORD else (entry.text,)
            self._state = {
                **self._state,
                label: ExpectedEntry(entry.version, entry.status, texts, is_record=entry.kind is Kind.RECORD),
            }
            self._ids[label] = entry.id

    async def _take(self, step: Step) -> None:
        match step.act:
            case StepKind.ADD:
                self._ids[step.label] = (await self._space.add(step.texts[0])).entry.id
            case StepKind.UPDATE:
                await self._space.update(self._ids[step.label], step.texts[0])
            case StepKind.DELETE:
                await self._space.delete(self._ids[step.label])
            case StepKind.FORGET if self._state[step.label].is_record:
                await self._space.forget(conversation=step.label)
            case StepKind.FORGET:
                await self._space.forget(memory=self._ids[step.label])
            case _:
                await record(self._memory, self._space.name, step.label, step.texts)


class Learner:
    """Turns that rules learn from, reviews by a model that save three memories each, and consolidation."""

    def __init__(self, memory: afterturn.Memory, seed: str, note: Note) -> None:
        self._memory = memory
        self._space = memory.space(LEARNER)
        self._seed = seed
        self._note = note

    async def run(self, steps: int) -> None:
        for number in range(steps):
            act = (StepKind.LEARN, StepKind.REVIEW, StepKind.TIDY)[number % 3]
            step = Step(LEARNER, act, f"l{self._seed}n{number}x")
            self._note("begin", step)
            await self._take(step)
            self._note("done", step)

    async def _take(self, step: Step) -> None:
        label = step.label
        if step.act is StepKind.LEARN:
            await record(self._memory, LEARNER, label, (f"Remember that I like {label}tea with milk.", "I see."))
        elif step.act is StepKind.REVIEW:
            await record(self._memory, LEARNER, label, (f"I like {label}a, {label}b and {label}c", "I see."))
            await self._space.run_review(label)
        else:
            for mark in ".!":
                await self._space.add(f"The {label} key is in the drawer{mark}")
            await self._space.consolidate()
