"""Figures of a bulk import: its rate, and what the host's loop feels of it."""

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import afterturn
from afterturn.base.types import Draft
from afterturn.embedders.static import StaticEmbedder
from afterturn.recall.following import embed_aside
from afterturn.space.transfer import CHUNK
from lab.bench.bare import bare, prepare
from lab.bench.corpus import sentences
from lab.bench.report import Figure, Goal, Progress, percentile
from lab.bench.rounds import Scale

SPACE = "user:bench"
IMPORT = Goal(0.8, at_least=True)
LAG_FACTOR = 2.0
LAG_MILLISECONDS = 10.0
TICK = 0.001
DRAIN_WITHIN = 300.0
BARE_BATCH = 500


async def measure_importing(folder: Path, scale: Scale, told: Progress) -> list[Figure]:
    """Every round imports into a store of its own, so that each finds the same."""
    rates: dict[str, list[float]] = {"ours": [], "here": [], "aside": [], "inserting": [], "script": []}
    idle: list[float] = []
    lags: list[float] = []
    embedder = StaticEmbedder()
    embedder.load()
    for at in range(scale.import_rounds + 1):
        texts = sentences(scale.imported, seed=10 + at)
        here = folder / f"import-{at}"
        here.mkdir()
        told(f"import: round {at} of {scale.import_rounds}")
        idle.extend(await _idle(scale.idle_seconds))
        seconds, felt = await _import(here / "ours.db", texts, "static")
        lags.extend(felt)
        rates["ours"].append(len(texts) / seconds)
        rates["here"].append(len(texts) / await asyncio.to_thread(_embed, embedder, texts))
        rates["aside"].append(len(texts) / await _embed_aside(embedder, texts))
        rates["inserting"].append(len(texts) / (await _import(here / "plain.db", texts, "none"))[0])
        rates["script"].append(len(texts) / await asyncio.to_thread(_insert, here / "bare.db", texts))
    return [_rate({name: median(found[1:]) for name, found in rates.items()}, scale), _lag(idle, lags)]


def _rate(rates: dict[str, float], scale: Scale) -> Figure:
    slower = min(max(rates["here"], rates["aside"]), rates["inserting"])
    ratio = rates["ours"] / slower
    return Figure(
        name="bulk import",
        unit="statements/s",
        ours=rates["ours"],
        limit=slower,
        limit_name="the slower of embedding alone and inserting alone (an import with no embedder)",
        ratio=ratio,
        target=str(IMPORT),
        passed=IMPORT.is_met(ratio),
        notes=(
            f"{scale.imported:,} statements stored and embedded, {scale.import_rounds} rounds",
            f"embedding alone {rates['here']:,.0f}/s, or {rates['aside']:,.0f}/s in a process that is started already "
            f"(the faster counts), inserting alone {rates['inserting']:,.0f}/s, a bare script that fills the same "
            f"tables {rates['script']:,.0f}/s",
        ),
    )


def _lag(idle: Sequence[float], lags: Sequence[float]) -> Figure:
    quiet, busy = percentile(idle, 0.99) * 1000, percentile(lags, 0.99) * 1000
    return Figure(
        name="host's loop beside an import",
        unit="ms",
        ours=busy,
        limit=quiet,
        limit_name="the same 1 ms ticker's lag with nothing beside it; both are 99th percentiles",
        ratio=busy / quiet,
        target=f"≤ {LAG_MILLISECONDS:g} ms or ≤ {LAG_FACTOR:g} ×",
        passed=busy <= LAG_MILLISECONDS or busy <= LAG_FACTOR * quiet,
        notes=(f"{len(lags):,} ticks; median {percentile(lags, 0.5) * 1000:.2f} ms, worst {max(lags) * 1000:.1f} ms",),
    )


async def _import(path: Path, texts: Sequence[str], embedder: str) -> tuple[float, list[float]]:
    """How long it took until all was stored and embedded, and the lags of the host's loop meanwhile."""
    lags: list[float] = []
    async with afterturn.open(path, {"embedder": embedder}) as memory:
        await memory.ready()
        drafts = [Draft(text) for text in texts]
        done = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(_tick(done, lags))
            began = perf_counter()
            await memory.space(SPACE).add_many(drafts)
            if embedder != "none":
                await memory.drain(within=DRAIN_WITHIN)
            seconds = perf_counter() - began
            done.set()
    return seconds, lags


async def _idle(seconds: float) -> list[float]:
    lags: list[float] = []
    done = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(_tick(done, lags))
        await asyncio.sleep(seconds)
        done.set()
    return lags


async def _tick(done: asyncio.Event, lags: list[float]) -> None:
    while not done.is_set():
        began = perf_counter()
        await asyncio.sleep(TICK)
        lags.append(max(0.0, perf_counter() - began - TICK))


def _embed(embedder: StaticEmbedder, texts: Sequence[str]) -> float:
    began = perf_counter()
    embedder.embed(texts)
    return perf_counter() - began


async def _embed_aside(embedder: StaticEmbedder, texts: Sequence[str]) -> float:
    """In the process that a long import starts, once that is up. For ever where there can be none."""
    aside = embedder.start_aside()
    if aside is None:
        return math.inf
    try:
        await embed_aside(aside, ["warm"])
        began = perf_counter()
        for start in range(0, len(texts), CHUNK):
            await embed_aside(aside, texts[start : start + CHUNK])
        return perf_counter() - began
    finally:
        aside.close()


def _insert(path: Path, texts: Sequence[str]) -> float:
    ready = prepare(texts)
    with bare(path) as script:
        began = perf_counter()
        for start in range(0, len(ready), BARE_BATCH):
            script.import_now(ready[start : start + BARE_BATCH])
        return perf_counter() - began
