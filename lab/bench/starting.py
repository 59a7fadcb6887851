"""Figures of what a host pays before anything happens: importing the package, and starting a turn."""

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from statistics import median
from time import perf_counter

import afterturn
from lab.bench.report import Figure, Goal, Progress, Rounds
from lab.bench.rounds import Scale, alternate

HEAVY = ("apsw", "numpy", "tokenizers")
MESSAGES = 1000
START = Goal(3.0)
IMPORTS = 5
STARTS = 10
_PROGRAM = """
import json, sys, time
began = time.perf_counter()
import afterturn
print(json.dumps([time.perf_counter() - began, list(sys.modules)]))
"""


def measure_import(told: Progress) -> Figure:
    """The figure is how many heavy modules `import afterturn` loads, in a fresh process; the time is a note."""
    told("import afterturn")
    found = [json.loads(_output(_PROGRAM)) for _ in range(IMPORTS)]
    loaded = {name for _, modules in found for name in modules} & set(HEAVY)
    seconds = median(took for took, _ in found)
    return Figure(
        name="heavy modules on import",
        unit="modules",
        ours=len(loaded),
        limit=len(HEAVY),
        limit_name=f"all of {', '.join(HEAVY)}",
        ratio=len(loaded) / len(HEAVY),
        target="none",
        passed=not loaded,
        notes=(f"import afterturn takes {seconds * 1000:.1f} ms and loads {len(found[0][1])} modules in all",),
    )


async def measure_starting(folder: Path, scale: Scale, told: Progress) -> Figure:
    """What the caller's path pays for `conversation.turn(messages)`; the recall itself goes on elsewhere."""
    messages = [{"role": ("user", "assistant")[at % 2], "content": f"Message {at} of many."} for at in range(MESSAGES)]
    messages.append({"role": "user", "content": "Which tea does Ada like?"})
    async with afterturn.open(folder / "turns.db") as memory:
        await memory.ready()
        private = asyncio.new_event_loop()
        thread = threading.Thread(target=private.run_forever, daemon=True)
        thread.start()
        conversation = memory.conversation("bench", user="bench")

        async def ours(at: int) -> float:
            times = []
            for _ in range(STARTS):
                began = perf_counter()
                turn = conversation.turn(messages)
                times.append(perf_counter() - began)
                turn.abort("measured")
                # What a turn leaves to do is over before the next begins: memory's loop is as idle as the limit's.
                await memory.drain()
            return median(times) * 1e6

        async def limit(at: int) -> float:
            times = []
            for _ in range(STARTS):
                began = perf_counter()
                posted = asyncio.run_coroutine_threadsafe(_nothing(), private)
                times.append(perf_counter() - began)
                await asyncio.wrap_future(posted)
                # The same in between as with ours, so that neither finds its data nearer to the processor.
                await memory.drain()
            return median(times) * 1e6

        found = await alternate(scale.rounds, ours, limit, told, "starting a turn")
        private.call_soon_threadsafe(private.stop)
        await asyncio.to_thread(thread.join)
        private.close()
    name = "posting an empty coroutine to another thread's loop"
    return Rounds("starting a turn", "µs", *found, name).figure(START, f"{MESSAGES:,} messages in the list")


async def _nothing() -> None:
    """What is posted."""


def _output(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    ).stdout
