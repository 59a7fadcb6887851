"""The cost of a warm turn: how long its host waits for memory and how much CPU time memory takes, next to a blocking
search of Chroma with the same embedder.
"""

from __future__ import annotations

import importlib
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import afterturn
from afterturn.config import Config
from afterturn.embedders.sentence_encoder import DIMENSIONS, SentenceEncoder
from lab.bench.host import AfterturnMode, MemoryMode, Message, NoMemory, SlowModel, run_turn, timer
from lab.bench.report import Figure, Goal, Progress, Table, judge, milliseconds, percentile
from lab.bench.texts import USER, past, questions
from lab.bench.texts import memories as facts

STEPS = 14
WARM_UP = 6
OURS, LATER = "ours, first turn", "ours, later turn"
CHROMA, PLAIN = "Chroma, blocking search", "SQLite and numpy, search and add"
_CALL_SECONDS = 0.02
# The index in memory is updated this soon after a turn, at most.
_SETTLED_AFTER = 0.1
_HISTORY = 100
_HISTORY_SHORT, _HISTORY_LONG = 10, 1_000
_MORE_SPACES = 4
_COUNTED = 10_000_000
_FOUND = 10
_BATCH = 500
_OPENING = """
import asyncio, json, os, sys, time
began, wall = time.process_time(), time.perf_counter()
import afterturn
async def main():
    async with afterturn.open(sys.argv[1]) as memory:
        cpu = time.process_time() - began
        await memory.space(f"user:{sys.argv[2]}").search("Where is the cat?")
        first = time.perf_counter() - wall
        await memory.ready()
        pages = int(open("/proc/self/statm").read().split()[1])
        print(json.dumps([1000 * cpu, 1000 * first, pages * os.sysconf("SC_PAGE_SIZE") / 1e6]))
asyncio.run(main())
"""
_EXPLAINED = (
    f"Turns of {STEPS} model calls in a warm process with default settings, behind {_HISTORY} messages; the same turns "
    "without memory run between them. The first turn of a conversation makes the standing block, a later one does not. "
    "*Wait* is the time that the host spends in memory's verbs. *CPU* is the process's CPU time, all threads together, "
    "until the turn is recorded, embedded and in the index, less that of the same turn without memory. *Chroma* "
    "searches once, when the turn begins, with the same embedder in the same process, and records nothing; *SQLite and "
    "numpy* is a baseline of forty lines (`PlainMemory`), which also stores what was said. All are medians; *p90* is "
    "the wait of one turn in ten."
)
_NO_CHROMA = (
    "chromadb is not installed; with `uv venv .venv/chroma && uv pip install --python .venv/chroma chromadb`, "
    "pass `--chroma .venv/chroma/lib/python3.11/site-packages`"
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, of a turn. `cpu` is less that of a turn without memory."""

    way: str
    rounds: int
    waited: float
    waited_p90: float
    cpu: float


class ChromaMode:
    """Searches Chroma when the turn begins, and shows what it found after the user's message."""

    def __init__(self, collection: Any, embedder: SentenceEncoder) -> None:
        self._collection = collection
        self._embedder = embedder
        self.spent = 0.0

    async def begin(self, messages: list[Message]) -> None:
        began = time.perf_counter()
        vectors = self._embedder.embed([messages[-1]["content"]])
        found = self._collection.query(query_embeddings=vectors, n_results=_FOUND)
        messages.append({"role": "user", "content": "\n".join(f"- {text}" for text in found["documents"][0])})
        self.spent += time.perf_counter() - began

    async def prompt(self, messages: list[Message]) -> list[Message]:
        return messages

    async def end(self, messages: list[Message]) -> None:
        """Nothing."""


def open_chroma(folder: Path, texts: list[str], embedder: SentenceEncoder) -> Any | None:
    """A collection of `texts` in a database in `folder`. None if chromadb is not installed."""
    try:
        chromadb = importlib.import_module("chromadb")
    except ImportError:
        return None
    client = chromadb.PersistentClient(str(folder), settings=chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection("bench", metadata={"hnsw:space": "cosine"})
    for start in range(0, len(texts), _BATCH):
        part = texts[start : start + _BATCH]
        ids = [str(at) for at in range(start, start + len(part))]
        collection.add(ids=ids, embeddings=embedder.embed(part), documents=part)
    return collection


class PlainMemory:
    """Memory in forty lines: texts in SQLite, their vectors in one matrix. Searches when the turn begins, and adds what
    was said when it ends."""

    def __init__(self, path: Path, texts: list[str], embedder: SentenceEncoder) -> None:
        self._embedder = embedder
        self._connection = sqlite3.connect(path)
        self._connection.execute("PRAGMA journal_mode = wal")
        self._connection.execute("CREATE TABLE memory (id INTEGER PRIMARY KEY, text TEXT, vector BLOB)")
        self._texts: list[str] = []
        self._matrix = np.empty((0, DIMENSIONS), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            self.add(texts[start : start + _BATCH])
        self.spent = 0.0

    def add(self, texts: list[str]) -> None:
        vectors = self._embedder.embed(texts)
        rows = [(text, vector.tobytes()) for text, vector in zip(texts, vectors, strict=True)]
        with self._connection:
            self._connection.executemany("INSERT INTO memory (text, vector) VALUES (?, ?)", rows)
        self._texts += texts
        self._matrix = np.concatenate([self._matrix, vectors])

    def search(self, question: str) -> list[str]:
        scores = self._matrix @ self._embedder.embed([question])[0]
        return [self._texts[at] for at in np.argsort(-scores)[:_FOUND]]

    async def begin(self, messages: list[Message]) -> None:
        began = time.perf_counter()
        found = self.search(messages[-1]["content"])
        messages.append({"role": "user", "content": "\n".join(f"- {text}" for text in found)})
        self.spent += time.perf_counter() - began

    async def prompt(self, messages: list[Message]) -> list[Message]:
        return messages

    async def end(self, messages: list[Message]) -> None:
        began = time.perf_counter()
        said = [message["content"] for message in messages if message["role"] == "user"]
        self.add([said[-2], str(messages[-1]["content"])])
        self.spent += time.perf_counter() - began


async def measure_cost(
    store: Path, texts: list[str], rounds: int, progress: Progress
) -> tuple[list[Cost], list[Figure]]:
    """`store` contains `texts`. Every round is one turn of each kind, in changing order."""
    embedder = SentenceEncoder()
    embedder.load_gradually()
    chroma = open_chroma(store.with_name("chroma"), texts, embedder)
    plain = PlainMemory(store.with_name("plain.db"), texts, embedder)
    waits: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    async with afterturn.open(store, Config()) as memory:
        await memory.ready()
        for at, question in enumerate(questions(WARM_UP + rounds)):
            if at % 10 == 0:
                progress(f"cost: round {at + 1} of {WARM_UP + rounds}")
            conversation = memory.conversation(f"cost-{at}", user=USER)
            ways: list[tuple[str, MemoryMode]] = [("", NoMemory()), (OURS, AfterturnMode(conversation))]
            ways.append((PLAIN, plain))
            if chroma is not None:
                ways.append((CHROMA, ChromaMode(chroma, embedder)))
            turn = at % len(ways)
            # After the first: the model sees what stands by then.
            ways = [*ways[turn:], *ways[:turn], (LATER, AfterturnMode(conversation))]
            history = past(_HISTORY)
            for name, way in ways:
                is_ours = isinstance(way, AfterturnMode)
                messages = history if is_ours else past(_HISTORY)
                waited, took = await _measure(way, question, messages, memory.drain if is_ours else None)
                waits.setdefault(name, []).append(waited)
                cpu.setdefault(name, []).append(took)
        bare = median(cpu[""][WARM_UP:])
        costs = [
            Cost(
                name,
                rounds,
                median(waits[name][WARM_UP:]),
                percentile(waits[name][WARM_UP:], 0.9),
                median(cpu[name][WARM_UP:]) - bare,
            )
            for name in waits
            if name
        ]
        return costs, await _measure_growth(memory, costs, rounds, progress)


async def _measure_growth(memory: afterturn.Memory, costs: list[Cost], rounds: int, progress: Progress) -> list[Figure]:
    """What a later turn of a conversation costs with another number of steps, of messages and of spaces; what one
    search and one durable addition cost; and how fast this machine computes at the moment."""
    progress("cost: steps, messages, spaces")
    reads = tuple(f"project:{number}" for number in range(_MORE_SPACES))
    for space in reads:
        await memory.space(space).add_many([afterturn.Draft(f"{fact} In {space}.") for fact in facts(0)])
    await memory.drain()
    kinds: dict[str, tuple[int, int, tuple[str, ...]]] = {
        "usual": (STEPS, _HISTORY_SHORT, ()),
        "one step": (1, _HISTORY_SHORT, ()),
        "long": (STEPS, _HISTORY_LONG, ()),
        "spaces": (STEPS, _HISTORY_SHORT, reads),
    }
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for at, question in enumerate(questions(1 + max(2, rounds // 2))):
        for kind, (steps, length, spaces) in kinds.items():
            progress(f"cost: {kind}, round {at + 1}")
            conversation = memory.conversation(f"growth-{kind}-{at}", user=USER, reads=spaces)
            messages = past(length)
            # Memory has read the list before.
            await _measure(AfterturnMode(conversation), "Where were we?", messages, memory.drain, steps=1)
            bare = await _measure(NoMemory(), question, past(length), None, steps=steps)
            took = await _measure(AfterturnMode(conversation), question, messages, memory.drain, steps=steps)
            if at:
                found[kind].append(took[1] - bare[1])
    cpu = {kind: median(values) * 1000 for kind, values in found.items()}
    searched, added = await _measure_search(memory, rounds)
    ours = next(cost for cost in costs if cost.way == OURS).cpu * 1000
    begun = time.process_time()
    for _ in range(_COUNTED):
        pass
    speed = (time.process_time() - begun) * 1000
    return [
        judge("… a later turn ÷ (one search + one durable add)", "", cpu["usual"] / (searched + added), Goal(5, "")),
        judge("… the first turn ÷ (one search + one durable add)", "", ours / (searched + added)),
        judge("… one search, CPU", "ms", searched),
        judge("… one durable add, CPU", "ms", added),
        judge("… each step", "ms", (cpu["usual"] - cpu["one step"]) / (STEPS - 1), Goal(0.06, "ms")),
        judge(f"… a list of {_HISTORY_LONG:,} messages against 10", "ms", cpu["long"] - cpu["usual"], Goal(1.5, "ms")),
        judge("… each further space", "ms", (cpu["spaces"] - cpu["usual"]) / _MORE_SPACES, Goal(0.4, "ms")),
        judge("an empty loop of ten million rounds, CPU", "ms", speed, None, "180 ms on a quiet machine of this kind"),
    ]


async def _measure_search(memory: afterturn.Memory, rounds: int) -> tuple[float, float]:
    """Milliseconds of CPU time: one search, and one durable addition."""
    space = memory.space(f"user:{USER}")
    searched: list[float] = []
    added: list[float] = []
    for at, question in enumerate(questions(2 + rounds)):
        began = time.process_time()
        # No question that a turn has asked, as its vector would be cached.
        await space.search(f"{question} {at}", limit=_FOUND)
        between = time.process_time()
        await space.add(f"Shelf {at} of the {question[:20]} cupboard is blue.")
        searched.append(between - began)
        added.append(time.process_time() - between)
    return median(searched[2:]) * 1000, median(added[2:]) * 1000


def measure_open(store: Path) -> list[Figure]:
    """`open()` in a process of its own."""
    done = subprocess.run([sys.executable, "-c", _OPENING, store, USER], check=True, capture_output=True, text=True)
    cpu, first, resident = json.loads(done.stdout)
    return [
        judge("open(), CPU", "ms", cpu, Goal(150, "ms"), "without the imports of Python itself"),
        judge("… until a first search has answered", "ms", first, Goal(300, "ms")),
        judge("… resident then", "MB", resident, Goal(80, "MB")),
    ]


async def _measure(
    way: MemoryMode,
    question: str,
    messages: list[Message],
    finish: Callable[[], Awaitable[object]] | None,
    *,
    steps: int = STEPS,
) -> tuple[float, float]:
    """One turn: the seconds that its host waited, and the seconds of CPU time."""
    before, began = way.spent, time.process_time()
    await run_turn(way, SlowModel(steps, _CALL_SECONDS), messages, question)
    if isinstance(way, AfterturnMode) and way.turn is not None:
        await way.turn.wait_recorded()
    if finish is not None:
        await finish()
        await timer(_SETTLED_AFTER)
    return way.spent - before, time.process_time() - began


def cost_figures(costs: list[Cost]) -> list[Figure]:
    by_way = {one.way: one for one in costs}
    ours, chroma = by_way[LATER], by_way.get(CHROMA)
    notes = ("the baseline is a blocking search of Chroma",) if chroma else (_NO_CHROMA,)
    return [
        judge(
            f"wait of a host in a warm turn of {STEPS} steps",
            "ms",
            ours.waited * 1000,
            Goal(6, "ms"),
            *notes,
            baseline=None if chroma is None else chroma.waited * 1000,
        ),
        judge(
            f"CPU time of a warm turn of {STEPS} steps",
            "ms",
            ours.cpu * 1000,
            Goal(11, "ms"),
            *notes,
            baseline=None if chroma is None else chroma.cpu * 1000,
        ),
    ]


def cost_table(costs: list[Cost]) -> Table:
    rows = [
        (one.way, milliseconds(one.waited), milliseconds(one.waited_p90), milliseconds(one.cpu), f"{one.rounds}")
        for one in costs
    ]
    return Table("Cost of a warm turn", _EXPLAINED, ("memory", "wait", "p90", "CPU", "rounds"), tuple(rows))
