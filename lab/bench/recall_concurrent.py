"""The row of many callers: recalls at once through the public verbs while somebody writes, and what the loop feels."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from operator import attrgetter
from pathlib import Path
from statistics import median
from time import perf_counter

import afterturn
from afterturn.base.errors import AfterturnError
from afterturn.base.types import SearchResults
from afterturn.recall.lanes import VECTORS
from lab.bench.corpus import sentences
from lab.bench.recall_asking import shelved
from lab.bench.recall_report import Measured, Row
from lab.bench.recall_scale import Scale, Told
from lab.bench.recall_stores import SPACE, Stores, texts_of
from lab.bench.report import Goal, percentile

CALLERS = 32
ERRORS = Goal(0, "")
LAG = Goal(10.0, "ms")
THROUGHPUT = Goal(1.0, at_least=True)
TICK = 0.001
_SETTLED_WITHIN = 600.0
_ROW = Row("concurrent")


@dataclass(slots=True)
class Round:
    """What a number of callers and a writer did in some seconds. `by_words` are recalls that had to do without any
    vectors: less work, so they do not count in the rate. `incomplete` are those for which many entries had none yet."""

    seconds: float = 0.0
    recalls: int = 0
    by_words: int = 0
    incomplete: int = 0
    adds: int = 0
    errors: list[str] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Whole recalls a second."""
        return (self.recalls - self.by_words) / self.seconds

    def note(self, recalled: SearchResults) -> None:
        self.recalls += 1
        if VECTORS in recalled.missing:
            is_compared = any(hit.similarity is not None for hit in recalled.hits)
            self.incomplete += is_compared
            self.by_words += not is_compared
        # While many additions have no vectors yet, an answer says so; a lane that is missing is a fault.
        self.errors += [lane for lane in recalled.missing if lane != VECTORS]


def measure_concurrent(stores: Stores, scale: Scale, told: Told) -> list[Measured]:
    source = stores.single(scale.concurrent)
    asked = stores.corpus.questions(500, texts_of(source, SPACE), seed=8)
    with tempfile.TemporaryDirectory(prefix="afterturn-bench-") as folder:
        # A copy: what is written here must not make the next run's store another one.
        path = Path(shutil.copy(source, Path(folder) / "concurrent.db"))
        alone, beside, many = asyncio.run(_rounds(path, asked, scale, told))
    return figures_of(alone, beside, many, scale)


async def _rounds(
    path: Path, asked: Sequence[str], scale: Scale, told: Told
) -> tuple[list[Round], list[Round], list[Round]]:
    alone: list[Round] = []
    beside: list[Round] = []
    many: list[Round] = []
    async with afterturn.open(path) as memory:
        assert await memory.ready(within=60.0), "the embedder could not be loaded"
        await shelved(memory.space(SPACE), asked[0])
        host = _Host(memory, asked, scale.concurrent_seconds)
        await host.run(1, writes=False)
        for at in range(scale.concurrent_rounds):
            told(f"{CALLERS} callers: round {at} of {scale.concurrent_rounds}")
            alone.append(await host.run(1, writes=False))
            many.append(await host.run(CALLERS, writes=True))
            beside.append(await host.run(1, writes=True))
    return alone, beside, many


class _Host:
    def __init__(self, memory: afterturn.Memory, asked: Sequence[str], seconds: float) -> None:
        self._memory = memory
        self._space = memory.space(SPACE)
        self._asked = cycle(asked)
        self._texts = iter(sentences(200_000, seed=9))
        self._seconds = seconds

    async def run(self, callers: int, *, writes: bool) -> Round:
        # What the round before added would be embedded in this one.
        assert await self._memory.drain(within=_SETTLED_WITHIN), "the vectors of what was added are not there"
        found = Round()
        began = perf_counter()
        deadline = began + self._seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick(found, deadline))
            if writes:
                group.create_task(self._write(found, deadline))
            for _ in range(callers):
                group.create_task(self._call(found, deadline))
        found.seconds = perf_counter() - began
        return found

    async def _call(self, found: Round, deadline: float) -> None:
        while perf_counter() < deadline:
            try:
                recalled = await self._space.search(next(self._asked))
            except AfterturnError as error:
                found.errors.append(str(error))
                continue
            found.note(recalled)

    async def _write(self, found: Round, deadline: float) -> None:
        while perf_counter() < deadline:
            try:
                await self._space.add(next(self._texts))
            except AfterturnError as error:
                found.errors.append(str(error))
                continue
            found.adds += 1

    async def _tick(self, found: Round, deadline: float) -> None:
        while perf_counter() < deadline:
            began = perf_counter()
            await asyncio.sleep(TICK)
            found.lags.append(max(0.0, perf_counter() - began - TICK))


def figures_of(alone: Sequence[Round], beside: Sequence[Round], many: Sequence[Round], scale: Scale) -> list[Measured]:
    errors = [error for one in (*alone, *beside, *many) for error in one.errors]
    by_words, incomplete = attrgetter("by_words"), attrgetter("incomplete")
    lags = [lag * 1000 for one in many for lag in one.lags]
    quiet = [lag * 1000 for one in alone for lag in one.lags]
    rates = {name: median(one.rate for one in found) for name, found in (("alone", alone), ("many", many))}
    added, added_beside_one = (median(one.adds / one.seconds for one in found) for found in (many, beside))
    writing = f"the writer added {added:,.0f}/s beside them, {added_beside_one:,.0f}/s beside one"
    return [
        _ROW.alone(
            f"{CALLERS} recalls at once beside a writer, errors",
            "",
            len(errors),
            ERRORS,
            f"{sum(one.recalls for one in many):,} recalls in a space of {scale.concurrent:,}, by the public verb",
            *sorted(set(errors))[:3],
        ),
        _ROW.alone(
            "the host's loop meanwhile, lag of a 1 ms ticker, p99",
            "ms",
            percentile(lags, 0.99),
            LAG,
            f"{len(lags):,} ticks, p50 {percentile(lags, 0.5):.2f} ms, worst {max(lags):.1f} ms; with one caller and "
            f"no writer p99 {percentile(quiet, 0.99):.2f} ms",
        ),
        _ROW.beside(
            "recalls a second, all callers together",
            "/s",
            (rates["many"], rates["alone"]),
            THROUGHPUT,
            f"limit: one caller alone, without a writer; beside the writer it has "
            f"{median(one.rate for one in beside):,.0f}/s",
            f"without vectors, and not counted here: {_share(by_words, many)} of the recalls of all callers, "
            f"{_share(by_words, alone)} of one caller's alone, {_share(by_words, beside)} of one's beside the writer",
            "more than 64 new entries and 2% of the space had no vectors yet at "
            f"{_share(incomplete, many)} of all callers' recalls",
            writing,
        ),
    ]


def _share(count: Callable[[Round], int], rounds: Sequence[Round]) -> str:
    return f"{sum(map(count, rounds)) / max(1, sum(one.recalls for one in rounds)):.1%}"
