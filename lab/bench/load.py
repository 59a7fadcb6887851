"""`make bench-load`: many turns in one instant, more turns than memory can serve, and many processes with one store."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any
from unittest.mock import patch

import afterturn
from afterturn.config import Config
from afterturn.conversation import recorder
from afterturn.evaluation.examination import scratch_folder
from lab.bench.report import (
    Figure,
    Goal,
    Progress,
    Report,
    judge,
    make_report,
    milliseconds,
    percentile,
    resident_megabytes,
)

EXPLAINED = (
    "First a host takes turns with a list of {messages:,} messages. Then {burst} conversations of as many users begin "
    "a turn in one instant; each turn has one tool call of 500 ms. Then {rate} turns a second begin, whatever becomes "
    "of the earlier ones, for {seconds:g} seconds, with a queue of recordings that is full early "
    "(`RECORDING_QUEUE_MAX` is {queue}). Then {processes} processes open one new store at once, with the default "
    "embedder, and each writes one memory.\n\n"
    "Some figures do not depend on what else the machine does. The wait of a host is compared with that of a bare "
    "timer of the grace, which begins in the same loop at the same moment. A list costs processor time of the host's "
    "thread. Objects, recordings, processes and lines of the log are counted. Which share is delivered in the same "
    "turn depends on it: see the load."
)
TOOL_SECONDS = 0.5
QUEUE_MAX = 100
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
    messages: int


FULL = Scale(burst=200, rate=100, seconds=20.0, processes=50, messages=1_000_000)
QUICK = Scale(burst=5, rate=20, seconds=0.5, processes=2, messages=2_000)


@dataclass(slots=True)
class Burst:
    delivered: int = 0
    longest_wait: float = 0.0
    longest_timer: float = 0.0
    longest_leave: float = 0.0


class _LogLines(logging.Handler):
    """Counts the lines of the log by their text before its values are filled in."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.counts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        self.counts[str(record.msg).partition(" (")[0]] += 1


def measure_load(
    *, quick: bool = False, seconds: float | None = None, progress: Progress = lambda step: None
) -> Report:
    """`quick` runs too few turns for valid figures; it only checks that the benchmark works. `seconds` is how long the
    overload lasts."""
    scale = QUICK if quick else FULL
    scale = scale if seconds is None else replace(scale, seconds=seconds)
    load = os.getloadavg()[0]
    lines, log, began = _LogLines(), logging.getLogger("afterturn"), perf_counter()
    log.addHandler(lines)
    try:
        with scratch_folder("afterturn-bench-") as folder:
            figures = asyncio.run(_measure_list(folder / "list.db", scale, progress))
            figures += asyncio.run(_measure_burst(folder / "burst.db", scale, progress))
            with patch.object(recorder, "RECORDING_QUEUE_MAX", QUEUE_MAX):
                figures += asyncio.run(_measure_overload(folder / "overload.db", scale, progress))
            progress("lines of the log")
            figures.append(_judge_log(lines, perf_counter() - began))
            figures.append(_measure_processes(folder / "processes.db", scale, progress))
    finally:
        log.removeHandler(lines)
    explained = EXPLAINED.format(**asdict(scale), queue=QUEUE_MAX)
    arguments = [*(["--quick"] if quick else []), *([] if seconds is None else [f"--seconds {seconds:g}"])]
    report = make_report("load", arguments, explained, figures)
    return replace(report, machine={**report.machine, "load": f"{load:.1f} before the run"})


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
    progress(f"burst: {scale.burst} turns that wait for their block")
    async with afterturn.open(path, {"grace": 60.0, "recall_timeout": 60.0}) as memory:
        await memory.ready(within=60)
        began = process_time()
        spent = await asyncio.gather(*(_wait_for_block(memory, number, began) for number in range(scale.burst)))
    return [
        judge("delivered in the same turn", "%", 100 * found.delivered / scale.burst, Goal(95, "%", at_least=True)),
        judge(
            "processor time until 95 % of the blocks are ready",
            "ms",
            1000 * percentile(spent, 0.95),
            None,
            "of the whole process, the host included, on all cores",
        ),
        judge(
            "longest wait of a host",
            "ms",
            1000 * found.longest_wait,
            Goal(1.1),
            f"the grace is {1000 * Config().grace:g} ms; the baseline is a timer of the grace in the same loop, which "
            f"starts {scale.burst} turns meanwhile",
            baseline=1000 * found.longest_timer,
        ),
        judge("longest time to leave a turn", "ms", 1000 * found.longest_leave),
    ]


async def _take_turn(memory: afterturn.Memory, number: int, found: Burst) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    async with memory.conversation(f"c{number}", user=f"u{number}").turn(messages) as turn:
        began = perf_counter()
        timer = asyncio.create_task(_wait_bare(began))
        is_delivered = await turn.inject(messages) is not None
        found.longest_wait = max(found.longest_wait, perf_counter() - began)
        function = {"name": "look", "arguments": "{}"}
        call = {"id": "1", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        await asyncio.sleep(TOOL_SECONDS)
        messages.append({"role": "tool", "tool_call_id": "1", "content": "done"})
        found.longest_timer = max(found.longest_timer, await timer)
        found.delivered += await turn.inject(messages) is not None or is_delivered
        messages.append({"role": "assistant", "content": "Felix."})
        began = perf_counter()
    found.longest_leave = max(found.longest_leave, perf_counter() - began)


async def _wait_for_block(memory: afterturn.Memory, number: int, began: float) -> float:
    """The processor time of the process when the block is ready; infinite without a block."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    async with memory.conversation(f"waiting-{number}", user=f"u{number}").turn(messages) as turn:
        is_ready = bool(await turn.block())
        spent = process_time() - began
        turn.abort()
    return spent if is_ready else float("inf")


async def _wait_bare(began: float) -> float:
    await asyncio.sleep(Config().grace)
    return perf_counter() - began


def _judge_log(lines: _LogLines, seconds: float) -> Figure:
    minutes = int(seconds // 60) + 1
    most = max(lines.counts.values(), default=0)
    notes = [f"{text!r}: {count}" for text, count in lines.counts.most_common(5)]
    return judge("log lines of one kind, per minute", "", most / minutes, Goal(1, ""), *notes)


async def _measure_list(path: Path, scale: Scale, progress: Progress) -> list[Figure]:
    """What a turn with a very long list costs the thread of the host."""
    progress(f"list: {scale.messages:,} messages")
    history = [{"role": ("user", "assistant")[number % 2], "content": f"Line {number}."} for number in range(1000)]
    messages: list[dict[str, Any]] = [history[number % 1000] for number in range(scale.messages)]
    messages.append({"role": "user", "content": QUESTION})
    async with afterturn.open(path) as memory:
        await _learn(memory, 1)
        conversation, spent = memory.conversation("long", user="u0"), list[float]()
        for _ in range(3):
            gc.collect()
            began = thread_time()
            async with conversation.turn(messages) as turn:
                await turn.inject(messages)
                messages.append({"role": "assistant", "content": "Felix."})
            spent.append(thread_time() - began)
            await turn.wait_recorded(within=60)
            messages.append({"role": "user", "content": QUESTION})
    began = thread_time()
    list(messages)
    copied = thread_time() - began
    return [
        judge(
            "processor time of the host's thread for a long list",
            "ms",
            1000 * max(spent),
            Goal(100, "ms"),
            f"the slowest of {len(spent)} turns; a copy of the list takes {milliseconds(copied)}",
        )
    ]


async def _measure_overload(path: Path, scale: Scale, progress: Progress) -> list[Figure]:
    """The objects in the middle and at the end of the load are compared, since a queue without a limit would double
    them, and the resident memory after a fifth of it and at the end."""
    recorded, counts, resident = 0, list[int](), list[float]()

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
            if not resident and elapsed > scale.seconds / 5:
                resident.append(resident_megabytes())
        counts.append(len(gc.get_objects()))
        resident.append(resident_megabytes())
        await asyncio.gather(*running)
        progress("overload: recording the last turns")
        until = perf_counter() + 10 * scale.seconds + 30
        await memory.drain(within=until - perf_counter())
        while recorded < started and perf_counter() < until:  # noqa: ASYNC110 - some wait in files
            await asyncio.sleep(0.1)
    return [
        judge("objects at the end of the load", "", counts[-1], Goal(1.25), baseline=counts[0]),
        judge(
            "resident memory at the end of the load",
            "MB",
            resident[-1],
            Goal(1.15),
            "the baseline is after a fifth of it",
            baseline=resident[0],
        ),
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
