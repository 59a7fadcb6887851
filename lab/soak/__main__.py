"""`make lab-soak DURATION=3600`: 200 conversations at once with reviews, for an hour or less.

An hour has as many turns as 200 people with five turns a day have in a month. Measured after a warm-up: the slope of
the resident memory, the blocks that Python's objects take in it at both ends, the drift of the 99th percentile of what
a host waits for, errors, and what the file's bytes are. The limits hold for a full hour: in a shorter run, a slope is
mostly noise.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import sys
import time
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import apsw

import afterturn
from afterturn.testing.model import call_tools
from lab import slices
from lab.bench.report import percentile
from lab.bench.texts import TOPICS, sentences
from lab.slices import Lab, Outcome, Row, StoreTarget

CONVERSATIONS = 200
FULL_SECONDS = 3_600.0
# 200 people, 30 days, five turns a day, in an hour.
PAUSE = 24.0
# The cache of indexes is full early, so that memory that grows later grows without a reason.
SETTINGS: dict[str, Any] = {"review_interval": 3, "review_timeout": 20.0, "index_bytes_max": 16 << 20}
_WARM_UP = 0.2
_SAMPLES = 240
_SHOWN_EVERY = 30.0
_SLOPE_MAX = 1.0
_DRIFT_MAX = 10.0
_SAID = re.compile(r'\{"message": (\d+), "from": "user.*?"text": "([^"]*)"')


class SlowReviewer:
    """The ChatModel port. It takes a while, and saves what the last message says."""

    def __init__(self, random: Random) -> None:
        self._random = random

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        await asyncio.sleep(self._random.uniform(0.1, 0.5))
        said = _SAID.findall(str(messages[1]["content"])) if len(messages) > 1 else []
        if messages[-1]["role"] == "tool" or not said:
            return {"role": "assistant", "content": "Nothing to save."}
        number, text = said[-1]
        calls = call_tools(("add_memory", {"text": text[:200], "target": "user", "messages": [int(number)]}))
        numbered = [{"id": "1", "type": "function", **call} for call in calls["tool_calls"]]
        return {"role": "assistant", "content": None, "tool_calls": numbered}


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        self.texts[record.getMessage()[:200]] += 1


@dataclass(slots=True)
class Measures:
    """Times since the start, in seconds, with what was measured then."""

    began: float
    turns_at: array[float] = field(default_factory=lambda: array("d"))
    waited: array[float] = field(default_factory=lambda: array("d"))
    recorded: array[float] = field(default_factory=lambda: array("d"))
    sampled_at: array[float] = field(default_factory=lambda: array("d"))
    resident: array[float] = field(default_factory=lambda: array("d"))
    objects: array[float] = field(default_factory=lambda: array("d"))
    file_bytes: array[float] = field(default_factory=lambda: array("d"))
    turns_then: array[float] = field(default_factory=lambda: array("d"))
    blocks: int = 0
    missing: int = 0

    def note_turn(self, waited: float, recorded: float) -> None:
        self.turns_at.append(time.monotonic() - self.began)
        self.waited.append(waited)
        self.recorded.append(recorded)

    def sample(self, store: Path) -> None:
        self.sampled_at.append(time.monotonic() - self.began)
        self.resident.append(float(_resident_bytes()))
        self.objects.append(float(sys.getallocatedblocks()))
        self.file_bytes.append(float(store.stat().st_size))
        self.turns_then.append(float(len(self.turns_at)))


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def run_seed(
    seed: int,
    target: StoreTarget,
    *,
    duration: float,
    conversations: int = CONVERSATIONS,
    pause: float = PAUSE,
    settings: Mapping[str, Any] | None = None,
) -> Outcome:
    random, outcome, warnings = Random(seed), Outcome(seed), _Warnings()
    log = logging.getLogger("afterturn")
    log.addHandler(warnings)
    try:
        with target.fresh() as store:
            config = {**SETTINGS, **(settings or {})}
            async with afterturn.open(store, config, model=SlowReviewer(random)) as memory:
                await memory.ready(within=60)
                measures = Measures(time.monotonic())
                ends = measures.began + duration
                talks = [_converse(memory, number, random, ends, pause, measures) for number in range(conversations)]
                await asyncio.gather(_watch(store, ends, duration, measures), *talks)
                await memory.drain(within=120)
                reviews = await memory.usage(limit=10_000)
                outcome.counts["reviews by the model"] += sum(row.calls for row in reviews)
            _explain_file(store, outcome)
    finally:
        log.removeHandler(warnings)
    _judge(measures, duration, outcome)
    outcome.broken.extend(f"{count} times: {text}" for text, count in warnings.texts.most_common(10))
    return outcome


async def _converse(
    memory: afterturn.Memory, number: int, random: Random, ends: float, pause: float, measures: Measures
) -> None:
    """One person: a statement of their own or a question, at random times."""
    await asyncio.sleep(random.uniform(0, min(pause, ends - time.monotonic())))
    texts, messages, turns = sentences(400, seed=number), list[dict[str, Any]](), 0
    while time.monotonic() < ends:
        topic = random.choice(TOPICS)
        statement = random.choice((*topic.facts, texts[turns % len(texts)], f"I prefer {texts[-turns % 400].lower()}"))
        said = random.choice((statement, random.choice(topic.questions)))
        turns += 1
        messages.append({"role": "user", "content": said})
        began = time.monotonic()
        async with memory.conversation(f"talk-{number}-{turns // 10}", user=f"person-{number}").turn(messages) as turn:
            measures.blocks += await turn.inject(messages) is not None
            waited = time.monotonic() - began
            await asyncio.sleep(random.uniform(0.1, 0.5))
            messages.append({"role": "assistant", "content": f"I see. {texts[(turns * 7) % len(texts)]}"})
        left = time.monotonic()
        if await turn.wait_recorded(within=30):
            measures.note_turn(waited, time.monotonic() - left)
        else:
            measures.missing += 1
        if turns % 10 == 0:
            messages = []
        await asyncio.sleep(random.uniform(0.5, 1.5) * pause)


async def _watch(store: Path, ends: float, duration: float, measures: Measures) -> None:
    shown = time.monotonic()
    while time.monotonic() < ends:
        measures.sample(store)
        if time.monotonic() - shown >= _SHOWN_EVERY:
            shown = time.monotonic()
            seconds, turns, megabytes = measures.sampled_at[-1], len(measures.turns_at), measures.resident[-1] / 1e6
            print(f"{seconds:.0f} of {duration:.0f} s: {turns} turns, {megabytes:.0f} MB", file=sys.stderr, flush=True)
        await asyncio.sleep(duration / _SAMPLES)


def _judge(measures: Measures, duration: float, outcome: Outcome) -> None:
    outcome.counts["turns"] += len(measures.turns_at)
    outcome.counts["turns with a block"] += measures.blocks
    outcome.counts["seconds"] += round(duration)
    for what, values in (("resident bytes", measures.resident), ("blocks of objects", measures.objects)):
        first, last = levels(values)
        outcome.counts.update({f"{what}, first": round(first), f"{what}, last": round(last)})
    if measures.missing:
        outcome.broken.append(f"{measures.missing} turns were not recorded within 30 seconds")
    slope = slope_per_hour(measures.sampled_at, measures.resident)
    drift = max(drift_of_p99(measures.turns_at, values) for values in (measures.waited, measures.recorded))
    outcome.worst.update(
        {
            "resident slope": slope,
            "p99 drift": drift,
            "p99 waited": 1000 * percentile(list(measures.waited), 0.99),
            "p99 recorded": 1000 * percentile(list(measures.recorded), 0.99),
            "resident MB": max(measures.resident) / 1e6,
        }
    )
    if duration >= FULL_SECONDS and slope >= _SLOPE_MAX:
        outcome.broken.append(f"resident memory grows by {slope:.1f} % an hour")
    if duration >= FULL_SECONDS and drift >= _DRIFT_MAX:
        outcome.broken.append(f"the 99th percentile of what a host waits for grew by {drift:.0f} %")


def slope_per_hour(at: Sequence[float], values: Sequence[float]) -> float:
    """The slope of a line through the values after the warm-up, in percent of their mean an hour."""
    skipped = int(len(at) * _WARM_UP)
    times, kept = list(at)[skipped:], list(values)[skipped:]
    if len(kept) < 2:
        return 0.0
    mean_time, mean = sum(times) / len(times), sum(kept) / len(kept)
    spread = sum((one - mean_time) ** 2 for one in times)
    slope = sum((one - mean_time) * (value - mean) for one, value in zip(times, kept, strict=True)) / spread
    return 100 * slope * 3600 / mean


def levels(values: Sequence[float]) -> tuple[float, float]:
    """The means of the first and of the last tenth of the values after the warm-up."""
    kept = list(values)[int(len(values) * _WARM_UP) :]
    tenth = max(1, len(kept) // 10)
    return sum(kept[:tenth]) / tenth, sum(kept[-tenth:]) / tenth


def drift_of_p99(at: Sequence[float], values: Sequence[float]) -> float:
    """How much larger the 99th percentile of the last third is than that of the first one after the warm-up, in %."""
    if len(values) < 10:
        return 0.0
    begin, end = at[-1] * _WARM_UP, at[-1]
    third = (end - begin) / 3
    first = [value for one, value in zip(at, values, strict=True) if begin <= one < begin + third]
    last = [value for one, value in zip(at, values, strict=True) if one >= end - third]
    if not first or not last:
        return 0.0
    return 100 * (percentile(last, 0.99) / percentile(first, 0.99) - 1)


def _explain_file(store: Path, outcome: Outcome) -> None:
    """Every byte of the file belongs to a table, an index or the free list."""
    with closing(apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchall()[0][0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        tables = connection.execute(
            "SELECT coalesce(m.tbl_name, d.name), sum(d.pgsize) FROM dbstat AS d LEFT JOIN sqlite_master AS m "
            "ON m.name = d.name GROUP BY 1 ORDER BY 2 DESC"
        ).fetchall()
    assert isinstance(pages, int)
    assert isinstance(free, int)
    assert isinstance(size, int)
    outcome.counts["bytes of the file"] += pages * size
    outcome.counts["bytes of the free list"] += free * size
    used = {str(name): int(str(count)) for name, count in tables}
    for name, count in list(used.items())[:5]:
        outcome.counts[f"bytes of {name}"] += count
    if abs(pages * size - free * size - sum(used.values())) > 2 * size:
        outcome.broken.append(f"{pages * size - free * size - sum(used.values())} bytes of the file are in no table")
    if free > pages * 0.25:
        outcome.broken.append(f"{free} of {pages} pages of the file are free")


def _run(seed: int, target: StoreTarget, options: argparse.Namespace) -> Outcome:
    work = run_seed(seed, target, duration=options.duration, conversations=options.conversations, pause=options.pause)
    return asyncio.run(work)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--duration", type=float, default=FULL_SECONDS, help="seconds of each seed")
    parser.add_argument("--conversations", type=int, default=CONVERSATIONS, help="conversations at once")
    parser.add_argument("--pause", type=float, default=PAUSE, help="seconds between two turns of a conversation")


LAB = Lab(
    "soak",
    "many conversations with reviews for a long time.",
    "1",
    _run,
    (
        Row("seconds", "seconds", full=3_600),
        Row("turns of 200 conversations", "turns", full=30_000),
        Row("turns with a block", "turns with a block"),
        Row("calls of the model for reviews", "reviews by the model"),
        Row("slope of the resident memory", "resident slope", most=_SLOPE_MAX, unit="% an hour"),
        Row("bytes of resident memory after the warm-up", "resident bytes, first"),
        Row("the same at the end", "resident bytes, last"),
        Row("blocks of Python's objects after the warm-up", "blocks of objects, first"),
        Row("the same at the end", "blocks of objects, last"),
        Row("drift of the 99th percentile", "p99 drift", most=_DRIFT_MAX, unit="%"),
        Row("bytes of the file", "bytes of the file"),
        Row("bytes of its free list", "bytes of the free list"),
    ),
    "warnings, errors, turns not recorded, or bytes without a table",
    _options,
)


if __name__ == "__main__":
    sys.exit(slices.main(LAB))
