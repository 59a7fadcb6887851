"""`make bench-load`: many turns in one instant, more turns than memory can serve, and many processes with one store."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import afterturn
from afterturn.config import Config
from afterturn.evaluation.examination import scratch_folder
from lab.bench.report import Figure, Goal, Progress, Report, judge, make_report

EXPLAINED = (
    "First {burst} conversations of as many users begin a turn in one instant; each turn has one tool call of 500 ms. "
    "Then {rate} turns a second begin, whatever becomes of the earlier ones. Then {processes} processes open one new "
    "store at once, with the default embedder, and each writes one memory."
)
TOOL_SECONDS = 0.5
QUESTION = "What is the name of my cat?"
OPEN_AND_WRITE = """
import sys
from afterturn import blocking
with blocking.open(sys.argv[1]) as memory:
    memory.ready(within=60)
    memory.space("user:ada").add(f"Statement {sys.argv[2]}")
"""


@dataclass(frozen=True, slots=True)
class Scale:
    burst: int
    rate: int
    seconds: float
    processes: int


FULL = Scale(burst=200, rate=100, seconds=20.0, processes=50)
QUICK = Scale(burst=5, rate=20, seconds=0.5, processes=2)


@dataclass(slots=True)
class Burst:
    delivered: int = 0
    longest_wait: float = 0.0
    longest_leave: float = 0.0


def measure_load(*, quick: bool = False, progress: Progress = lambda step: None) -> Report:
    """`quick` runs too few turns for valid figures; it only checks that the benchmark works."""
    scale = QUICK if quick else FULL
    with scratch_folder("afterturn-bench-") as folder:
        figures = asyncio.run(_measure_burst(folder / "burst.db", scale, progress))
        figures += asyncio.run(_measure_overload(folder / "overload.db", scale, progress))
        figures.append(_measure_processes(folder / "processes.db", scale, progress))
    explained = EXPLAINED.format(burst=scale.burst, rate=scale.rate, processes=scale.processes)
    return make_report("load", ["--quick"] if quick else [], explained, figures)


async def _learn(memory: afterturn.Memory, users: int) -> None:
    for number in range(users):
        space = memory.space(f"user:u{number}")
        await space.add(f"The user's cat is called Felix {number}.")
        await space.add("The user drinks green tea in the morning.")
    await memory.ready(within=60)
    await memory.drain(within=60)


async def _measure_burst(path: Path, scale: Scale, progress: Progress) -> list[Figure]:
    found = Burst()
    async with afterturn.open(path) as memory:
        progress("burst: memories of all users")
        await _learn(memory, scale.burst)
        progress(f"burst: {scale.burst} turns")
        await asyncio.gather(*(_take_turn(memory, number, found) for number in range(scale.burst)))
    return [
        judge("delivered in the same turn", "%", 100 * found.delivered / scale.burst, Goal(95, "%", at_least=True)),
        judge(
            "longest wait of a host",
            "ms",
            1000 * found.longest_wait,
            None,
            f"the grace is {1000 * Config().grace:g} ms; the host's own loop starts {scale.burst} turns meanwhile",
        ),
        judge("longest time to leave a turn", "ms", 1000 * found.longest_leave),
    ]


async def _take_turn(memory: afterturn.Memory, number: int, found: Burst) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    async with memory.conversation(f"c{number}", user=f"u{number}").turn(messages) as turn:
        began = perf_counter()
        is_delivered = await turn.inject(messages) is not None
        found.longest_wait = max(found.longest_wait, perf_counter() - began)
        function = {"name": "look", "arguments": "{}"}
        call = {"id": "1", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        await asyncio.sleep(TOOL_SECONDS)
        messages.append({"role": "tool", "tool_call_id": "1", "content": "done"})
        found.delivered += await turn.inject(messages) is not None or is_delivered
        messages.append({"role": "assistant", "content": "Felix."})
        began = perf_counter()
    found.longest_leave = max(found.longest_leave, perf_counter() - began)


async def _measure_overload(path: Path, scale: Scale, progress: Progress) -> list[Figure]:
    """The objects in the middle and at the end of the load are compared: a queue without a limit would double them."""
    recorded, counts = 0, list[int]()

    def on_event(event: afterturn.Event) -> None:
        nonlocal recorded
        recorded += event.name == "recorded"

    async with afterturn.open(path, on_event=on_event) as memory:
        progress("overload: memories of all users")
        await _learn(memory, 50)
        progress(f"overload: {scale.rate} turns a second")
        running: set[asyncio.Task[None]] = set()
        began, started = perf_counter(), 0
        while (elapsed := perf_counter() - began) < scale.seconds:
            while started < elapsed * scale.rate:
                running.add(task := asyncio.get_running_loop().create_task(_take_short_turn(memory, started)))
                task.add_done_callback(running.discard)
                started += 1
            await asyncio.sleep(0.005)
            if len(counts) < (2 * elapsed) // scale.seconds:
                counts.append(len(gc.get_objects()))
        counts.append(len(gc.get_objects()))
        await asyncio.gather(*running)
        progress("overload: recording the last turns")
        await memory.drain(within=10 * scale.seconds + 30)
    return [
        judge("objects at the end of the load", "", counts[-1], Goal(1.25), baseline=counts[0]),
        judge("recorded of the turns under overload", "%", 100 * recorded / started, Goal(100, "%", at_least=True)),
    ]


async def _take_short_turn(memory: afterturn.Memory, number: int) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"{QUESTION} I ask for the {number}. time."}]
    async with memory.conversation(f"c{number}", user=f"u{number % 50}").turn(messages) as turn:
        await turn.inject(messages)
        messages.append({"role": "assistant", "content": "Felix."})


def _measure_processes(path: Path, scale: Scale, progress: Progress) -> Figure:
    progress(f"{scale.processes} processes: starting")
    running = [
        subprocess.Popen([sys.executable, "-c", OPEN_AND_WRITE, str(path), str(number)], stderr=subprocess.PIPE)
        for number in range(scale.processes)
    ]
    progress(f"{scale.processes} processes: waiting")
    errors = [process.communicate()[1] for process in running]
    failed = [error for process, error in zip(running, errors, strict=True) if process.returncode != 0]
    notes = [failed[0].decode(errors="replace").strip().splitlines()[-1]] if failed else []
    share = 100 * (1 - len(failed) / scale.processes)
    return judge("processes that opened one store at once", "%", share, Goal(100, "%", at_least=True), *notes)
