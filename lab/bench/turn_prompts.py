"""What prompts hold of memory, over whole conversations: recalled per call, per turn without exclusion, and by ours."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import afterturn
from afterturn.base.config import Config
from afterturn.base.tokens import estimate_tokens
from afterturn.base.types import Event
from afterturn.context.block import find_blocks
from afterturn.testing.model import ScriptedModel
from lab.bench.report import Progress
from lab.bench.turn_corpus import SPACE, USER, past, questions
from lab.bench.turn_host import Message, Ours, PerCall, PerTurn, run_turn, script

PER_CALL, PER_TURN, OURS = "recall per call", "recall per turn", "ours"
WAYS = (PER_CALL, PER_TURN, OURS)
_NAMED = re.compile(r"^- \[([^\]]+)\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Course:
    """A conversation by the steps of its turns."""

    name: str
    steps: tuple[int, ...]


# 30 turns with 144 calls: as many as the conversation of a real bot had that made people look for something better.
MIXED = (1, 2, 5, 14, 2) * 6
FULL = (Course("20 turns of 14 steps", (14,) * 20), Course(f"{sum(MIXED)} calls in {len(MIXED)} turns", MIXED))
QUICK = (Course("3 turns of 2 steps", (2,) * 3),)


@dataclass(frozen=True, slots=True)
class Prompts:
    """What one conversation came to, in memory's tokens as estimated for a budget.

    `carried`: summed over all prompts, each with all blocks in it. `injected`: the part of it that lies behind what a
    prompt shares with the one before, so that no cache of the provider's can have it. `stability`: the share of
    prompts, from the second on, that begin with the whole prompt before them. `repeats`: how often a memory was put in
    while the prompt had it already. `most_often`: how often the memory was put in that was put in most often.
    """

    course: str
    way: str
    turns: int
    calls: int
    recalls: int
    injected: int
    carried: int
    stability: float
    repeats: int
    most_often: int


async def measure_prompts(store: Path, courses: Sequence[Course], told: Progress) -> list[Prompts]:
    """`store` is copied, so that each conversation begins with the same memories."""
    found = []
    for at, course in enumerate(courses):
        for way in WAYS:
            told(f"prompts: {course.name}, {way}")
            path = store.with_name(f"prompts-{at}-{WAYS.index(way)}.db")
            async with afterturn.open(store, Config()) as memory:
                await memory.backup(path)
            found.append(await _converse(path, course, way))
    return found


async def _converse(path: Path, course: Course, way: str) -> Prompts:
    model = ScriptedModel(*(line for steps in course.steps for line in script(steps)))
    started: list[Event] = []

    def hear(event: Event) -> None:
        if event.name == "recall_started":
            started.append(event)

    config = Config()
    async with afterturn.open(path, config, on_event=hear) as memory:
        await memory.ready()
        ours = Ours(memory.conversation("bench", user=USER))
        naive: dict[str, PerCall | PerTurn] = {
            PER_CALL: PerCall(memory.space(SPACE), config),
            PER_TURN: PerTurn(memory.space(SPACE), config),
        }
        messages = past(0)
        for question in questions(len(course.steps)):
            await run_turn(naive.get(way, ours), model, messages, question)
            if ours.turn is not None:
                await ours.turn.wait_recorded()
    recalls = naive[way].recalls if way in naive else len(started)
    return weigh(course, way, recalls, [list(call.messages) for call in model.calls])


def weigh(course: Course, way: str, recalls: int, prompts: Sequence[Sequence[Mapping[str, Any]]]) -> Prompts:
    """Counts what the model was shown, prompt after prompt."""
    before: Sequence[Mapping[str, Any]] = ()
    injected = carried = whole = repeats = 0
    shown: Counter[str] = Counter()
    for prompt in prompts:
        shared = shared_prefix(before, prompt)
        whole += bool(before) and shared == len(before)
        carried += _tokens(prompt)
        new = prompt[shared:]
        injected += _tokens(new)
        added = [name for message in new for name in _names(message)]
        shown.update(added)
        repeats += len(added) - len(set(added) - {name for message in prompt[:shared] for name in _names(message)})
        before = prompt
    return Prompts(
        course=course.name,
        way=way,
        turns=len(course.steps),
        calls=len(prompts),
        recalls=recalls,
        injected=injected,
        carried=carried,
        stability=whole / max(1, len(prompts) - 1),
        repeats=repeats,
        most_often=max(shown.values(), default=0),
    )


def shared_prefix(before: Sequence[object], prompt: Sequence[object]) -> int:
    """How many messages, from the first on, are the same in both."""
    shared = 0
    while shared < min(len(before), len(prompt)) and before[shared] == prompt[shared]:
        shared += 1
    return shared


def _tokens(messages: Iterable[Mapping[str, Any]]) -> int:
    return sum(_weight(str(message.get("content"))) for message in messages)


@functools.lru_cache(maxsize=10_000)
def _weight(text: str) -> int:
    return sum(estimate_tokens(text[block.start : block.end]) for block in find_blocks(text))


def _names(message: Mapping[str, Any] | Message) -> tuple[str, ...]:
    return _references(str(message.get("content")))


@functools.lru_cache(maxsize=10_000)
def _references(text: str) -> tuple[str, ...]:
    return tuple(name for block in find_blocks(text) for name in _NAMED.findall(text[block.start : block.end]))
