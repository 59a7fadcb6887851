"""`make bench-review`: how much longer turns take during reviews, also when the model never answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import afterturn
from afterturn.config import Config
from afterturn.evaluation.examination import scratch_folder
from afterturn.testing.model import call_tools
from afterturn.types import ReviewKind, ReviewRow
from lab.bench.host import AfterturnMode, BackgroundModel, Message, SlowModel, learn, run_turn
from lab.bench.report import Figure, Goal, Progress, Report, judge, make_report
from lab.bench.texts import SPACE, USER, memories, past, questions

INTERVAL = 3
HISTORY = 20
STEPS = 2
SETTLED_WITHIN = 10.0
GOAL = Goal(1.05)
EXPLAINED = (
    "Ten turns of two {} ms model calls each, one right after the other, with a review after every third of them, "
    "alternating with the same ten turns without reviews. Reviews run while the turns continue; no turn waits for one."
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Conversations of `turns` turns. One more conversation warms up and is not counted."""

    rounds: int
    turns: int
    call_seconds: float


FULL = Scale(rounds=5, turns=10, call_seconds=0.5)
QUICK = Scale(rounds=1, turns=3, call_seconds=0.05)


@dataclass(frozen=True, slots=True)
class Case:
    """How long the review model takes for each call; None: it never answers."""

    name: str
    seconds: float | None
    settings: Mapping[str, Any]


CASES = (
    Case("turns during reviews", 0.5, {"review_interval": INTERVAL, "rules": False}),
    Case("turns while a review hangs", None, {"review_interval": INTERVAL, "rules": False}),
    Case("turns whose messages teach rules", 0.0, {"rules": True}),
)


def save_last_message(messages: Sequence[Mapping[str, Any]]) -> Message:
    """The answer of a review model that saves one thing in each review: the user's last message."""
    if any(message["role"] == "tool" for message in messages):
        return {"role": "assistant", "content": "Nothing to save."}
    preferences = [line for line in str(messages[-1]["content"]).split('"text": "') if line.startswith("I prefer")]
    text = preferences[-1].partition(".")[0]
    call = call_tools(("add_memory", {"text": text, "target": "user", "messages": []}))["tool_calls"][0]
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", **call}]}


def measure_review(*, quick: bool = False, progress: Progress = lambda step: None) -> Report:
    """`quick` runs too few rounds for valid figures; it only checks that the benchmark works."""
    scale = QUICK if quick else FULL
    with scratch_folder("afterturn-bench-") as folder:
        figures = asyncio.run(_figures(folder, scale, progress))
    explained = EXPLAINED.format(f"{scale.call_seconds * 1000:g}")
    return make_report("review", ["--quick"] if quick else [], explained, figures)


async def _figures(folder: Path, scale: Scale, progress: Progress) -> list[Figure]:
    return [await _measure(folder / f"{at}.db", case, scale, progress) for at, case in enumerate(CASES)]


async def _measure(store: Path, case: Case, scale: Scale, progress: Progress) -> Figure:
    bare = Config(rules=False)
    beside = replace(bare, **case.settings)
    async with afterturn.open(store, bare) as memory:
        await learn(memory, memories(200))
    took: dict[bool, list[float]] = {True: [], False: []}
    reviews: list[ReviewRow] = []
    for at in range(scale.rounds + 1):
        progress(f"{case.name}: round {at} of {scale.rounds}")
        for reviewed in (True, False) if at % 2 else (False, True):
            config = beside if reviewed else bare
            async with afterturn.open(store, config, model=BackgroundModel(case.seconds, save_last_message)) as memory:
                await memory.ready()
                name = f"{'with' if reviewed else 'without'}-{at}"
                took[reviewed].append(await _converse(memory, name, scale))
                if reviewed:
                    # Counted, not timed, because the turns have ended.
                    await memory.drain(within=0.0 if case.seconds is None else SETTLED_WITHIN)
                    reviews += await memory.space(SPACE).reviews(conversation=name)
    ours, baseline = (median(took[reviewed][1:]) for reviewed in (True, False))
    about = "baseline: the same turns without reviews and rules"
    return judge(case.name, "ms a turn", ours, GOAL, _told(reviews, scale), about, baseline=baseline)


async def _converse(memory: afterturn.Memory, name: str, scale: Scale) -> float:
    """Milliseconds a turn."""
    conversation = memory.conversation(name, user=USER)
    messages = past(HISTORY)
    way = AfterturnMode(conversation)
    began = perf_counter()
    for number, question in enumerate(questions(scale.turns)):
        said = f"I prefer answer number {number} of {name}. {question}"
        await run_turn(way, SlowModel(STEPS, scale.call_seconds), messages, said)
    took = perf_counter() - began
    assert way.turn is not None
    await way.turn.wait_recorded()
    return took * 1000 / scale.turns


def _told(reviews: Sequence[ReviewRow], scale: Scale) -> str:
    by_model = [row for row in reviews if row.kind is ReviewKind.INTERVAL]
    written = sum(row.written for row in reviews)
    return (
        f"{scale.rounds + 1} conversations of {scale.turns} turns; {len(by_model)} reviews by a model and "
        f"{len(reviews) - len(by_model)} by rules, which wrote {written} memories"
    )
