"""Figures of single adds: one after another, and many at once."""

import asyncio
from pathlib import Path
from statistics import median
from time import perf_counter

import afterturn
from lab.bench.bare import Bare, bare, prepare
from lab.bench.corpus import sentences
from lab.bench.report import Figure, Goal, Progress, Rounds
from lab.bench.rounds import Scale, alternate

ADDERS = 32
WAVES = 4
ADDS = 8
SPACE = "user:bench"
ADD = Goal(1.3)
CONCURRENT = Goal(0.5, at_least=True)


async def measure_adding(folder: Path, scale: Scale, told: Progress) -> list[Figure]:
    """Memory is opened as by default: vectors follow in the background, where they hold up both sides alike."""
    with bare(folder / "bare.db") as script:
        async with afterturn.open(folder / "ours.db") as memory:
            await memory.ready()
            return [await _durable(memory, script, scale, told), await _concurrent(memory, script, scale, told)]


async def _durable(memory: afterturn.Memory, script: Bare, scale: Scale, told: Progress) -> Figure:
    space, size = memory.space(SPACE), ADDS
    texts = sentences((scale.rounds + 1) * size, seed=2)
    ready = prepare(sentences((scale.rounds + 1) * size, seed=3))

    async def ours(at: int) -> float:
        times = []
        for text in texts[at * size : (at + 1) * size]:
            began = perf_counter()
            await space.add(text)
            times.append(perf_counter() - began)
        return median(times) * 1e6

    async def limit(at: int) -> float:
        times = []
        for row in ready[at * size : (at + 1) * size]:
            began = perf_counter()
            await script.commit([row])
            times.append(perf_counter() - began)
        return median(times) * 1e6

    await memory.drain()
    found = await alternate(scale.rounds, ours, limit, told, "durable add")
    name = "a bare script that commits the same rows, synchronous=FULL, over the same two hops"
    return Rounds("durable add", "µs", *found, name).figure(ADD, f"{size} adds a round, {scale.rounds} rounds")


async def _concurrent(memory: afterturn.Memory, script: Bare, scale: Scale, told: Progress) -> Figure:
    space, size = memory.space(SPACE), ADDERS * WAVES
    texts = sentences((scale.rounds + 1) * size, seed=4)
    ready = prepare(sentences((scale.rounds + 1) * size, seed=5))

    async def add_all(own: list[str]) -> None:
        for text in own:
            await space.add(text)

    async def ours(at: int) -> float:
        part = texts[at * size : (at + 1) * size]
        began = perf_counter()
        await asyncio.gather(*(add_all(part[adder::ADDERS]) for adder in range(ADDERS)))
        return size / (perf_counter() - began)

    async def limit(at: int) -> float:
        part = ready[at * size : (at + 1) * size]
        began = perf_counter()
        for start in range(0, size, ADDERS):
            await script.commit(part[start : start + ADDERS])
        return size / (perf_counter() - began)

    await memory.drain()
    found = await alternate(scale.rounds, ours, limit, told, "32 adders")
    name = "the same script, committing ready-made batches of 32"
    return Rounds("32 concurrent adders", "adds/s", *found, name).figure(
        CONCURRENT, f"{size} adds a round, {scale.rounds} rounds"
    )
