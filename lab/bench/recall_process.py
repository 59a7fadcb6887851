"""The rows that need a process of their own for each measurement: the first recall after opening, and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from lab.bench.recall_reference import BareSpace
from lab.bench.recall_report import Measured, Row, number
from lab.bench.recall_scale import Scale, Told
from lab.bench.recall_stores import SPACE, Stores, texts_of
from lab.bench.report import Goal

OPENING = Goal(3.0)
RESIDENT = Goal(120.0, "MB")
_WARM_RECALLS = 50
_WITHIN = 300.0
_PYTHON = (sys.executable, "-P", "-c")

_BLOCKING = """
import json, sys, time
began = time.perf_counter()
path, space, question = sys.argv[1:]
import afterturn.blocking
with afterturn.blocking.open(path, background=False) as memory:
    found = memory.space(space).search(question)
    print(time.perf_counter() - began, flush=True)
    assert not set(found.missing) - {"vectors"}, found.missing
    memory.ready(within=60.0)
    ready = time.perf_counter() - began
    while memory.space(space).search(question).missing:
        assert time.perf_counter() - began < 120.0, "no answer has vectors"
        time.sleep(0.005)
    print(json.dumps([ready, time.perf_counter() - began]))
"""
_ASYNCIO = """
import json, sys, time
began = time.perf_counter()
path, space, question = sys.argv[1:]
import asyncio, afterturn
async def main():
    async with afterturn.open(path, background=False) as memory:
        found = await memory.space(space).search(question)
        print(time.perf_counter() - began, flush=True)
        assert not set(found.missing) - {"vectors"}, found.missing
    print("[]")
asyncio.run(main())
"""
# What a program pays for Python's own event loop, whatever it does with it.
_LOOP = """
import sys, time
began = time.perf_counter()
import asyncio
async def main():
    print(time.perf_counter() - began, flush=True)
asyncio.run(main())
print("[]")
"""
_BARE = """
import json, sys, time
began = time.perf_counter()
path, expression = sys.argv[1:]
import apsw
connection = apsw.Connection(path)
rows = connection.execute("SELECT rowid FROM entry_terms WHERE entry_terms MATCH ?", (expression,)).fetchall()
print(time.perf_counter() - began, flush=True)
print(json.dumps([len(rows)]))
"""
_RESIDENT = """
import asyncio, json, os, resource, sys
path, space, *questions = sys.argv[1:]
import afterturn
async def main():
    async with afterturn.open(path, background=False) as memory:
        await memory.ready(within=60.0)
        async with asyncio.timeout(120):
            while (await memory.space(space).search(questions[0])).missing:
                await asyncio.sleep(0.05)
        for question in questions:
            found = await memory.space(space).search(question)
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        print(json.dumps([now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, list(found.missing)]))
asyncio.run(main())
"""


def measure_opening(stores: Stores, scale: Scale, told: Told) -> list[Measured]:
    path = stores.single(scale.large)
    questions = stores.corpus.questions(scale.processes + 1, texts_of(path, SPACE), seed=9)
    bare = BareSpace(path)
    sides = _Sides()
    for at, question in enumerate(questions):
        told(f"opening: process {at} of {scale.processes}")
        asked, expression = (str(path), SPACE, question), bare.expression(SPACE, question)
        programs = (
            (sides.ours, _BLOCKING, asked),
            (sides.limit, _BARE, (str(path), expression)),
            (sides.awaited, _ASYNCIO, asked),
            (sides.loop, _LOOP, ()),
        )
        for side, program, arguments in programs if at % 2 else reversed(programs):
            answered = _answered(program, *arguments)
            # The first of each compiles what it loads.
            side += [answered] if at else []
    bare.close()
    return [_opening(sides, scale)]


@dataclass(frozen=True, slots=True)
class _Sides:
    ours: list[Answered] = field(default_factory=list)
    limit: list[Answered] = field(default_factory=list)
    awaited: list[Answered] = field(default_factory=list)
    loop: list[Answered] = field(default_factory=list)


def _opening(sides: _Sides, scale: Scale) -> Measured:
    lines = (number(median(one.from_first_line for one in side) * 1000) for side in (sides.ours, sides.limit))
    ready, vectors = (median(one.rest[part] for one in sides.ours) * 1000 for part in range(2))
    ours, limit, awaited, loop = (
        median(one.from_start for one in side) * 1000 for side in (sides.ours, sides.limit, sides.awaited, sides.loop)
    )
    return Row("opening").beside(
        f"opening {scale.large:,}, first answer by words",
        "ms",
        (ours, limit),
        OPENING,
        "a script beside a script: `afterturn.blocking` beside one that imports apsw, opens the file and runs one FTS5 "
        "query; both from the start of their process to the answer, with modules compiled as an installation leaves "
        "them",
        "from their first line on, without Python's own start: {} ms and {} ms; medians of ".format(*lines)
        + f"{len(sides.ours)} processes each",
        f"the same question in a program with an event loop, through `afterturn.open`: {number(awaited)} ms, "
        f"{number(awaited / limit)} × the script; a program that does nothing but start asyncio takes "
        f"{number(loop)} ms",
        f"the embedder was ready {ready:,.0f} ms after our first line, the first answer with vectors came after "
        f"{vectors:,.0f} ms",
    )


@dataclass(frozen=True, slots=True)
class Answered:
    """When a process had its answer, in seconds, from its start and from its first line on; `rest` is what follows."""

    from_start: float
    from_first_line: float
    rest: list[Any]


def _answered(program: str, *arguments: str) -> Answered:
    began = perf_counter()
    with subprocess.Popen([*_PYTHON, program, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = perf_counter() - began
        rest = process.stdout.read()
    if process.returncode:
        raise _ended(process.returncode)
    return Answered(took, float(line), json.loads(rest))


def measure_memory(stores: Stores, scale: Scale, told: Told) -> list[Measured]:
    path = stores.single(scale.large)
    questions = stores.corpus.questions(_WARM_RECALLS, texts_of(path, SPACE), seed=10)
    rounds = max(1, scale.processes // 3)
    with tempfile.TemporaryDirectory(prefix="afterturn-bench-") as folder:
        full: list[list[Any]] = []
        empty: list[list[Any]] = []
        for at in range(rounds):
            told(f"memory: process {at} of {rounds}")
            empty.append(_output(_RESIDENT, str(Path(folder) / f"empty-{at}.db"), SPACE, *questions))
            full.append(_output(_RESIDENT, str(path), SPACE, *questions))
    assert not any(found[2] for found in full), "a recall went without vectors"
    now, highest = (median(found[part] for found in full) / 1e6 for part in range(2))
    start, start_highest = (median(found[part] for found in empty) / 1e6 for part in range(2))
    return [
        Row("memory").alone(
            f"memory for {scale.large:,}, above the empty process",
            "MB",
            now - start,
            RESIDENT,
            f"resident after {len(questions)} recalls, {now:,.0f} MB, less the same program on an empty store, "
            f"embedder loaded and asked too, {start:,.0f} MB; medians of {rounds} processes each",
            f"the highest on the way was {highest - start_highest:,.0f} MB above the empty process's highest",
        )
    ]


def _output(program: str, *arguments: str) -> list[Any]:
    # Standard error is left alone: what goes wrong there is for whoever started the benchmark to read.
    done = subprocess.run(
        [*_PYTHON, program, *arguments], check=False, stdout=subprocess.PIPE, text=True, timeout=_WITHIN
    )
    if done.returncode:
        raise _ended(done.returncode)
    found: list[Any] = json.loads(done.stdout)
    return found


def _ended(code: int) -> RuntimeError:
    return RuntimeError(f"a process that opens a store ended with code {code}")
