"""The cost of a warm turn: how long its host waits for memory and how much CPU time memory takes, next to a blocking
search of Chroma with the same embedder.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import afterturn
from afterturn.config import Config
from afterturn.embedders.sentence_encoder import SentenceEncoder
from lab.bench.host import AfterturnMode, MemoryMode, Message, NoMemory, SlowModel, run_turn, timer
from lab.bench.report import Figure, Goal, Progress, Table, judge, milliseconds, percentile
from lab.bench.texts import USER, past, questions

STEPS = 14
WARM_UP = 6
OURS, CHROMA = "ours", "Chroma, blocking search"
_CALL_SECONDS = 0.02
# The index in memory is updated this soon after a turn, at most.
_SETTLED_AFTER = 0.1
_HISTORY = 100
_FOUND = 10
_BATCH = 500
_EXPLAINED = (
    f"Turns of {STEPS} model calls in a warm process with default settings, behind {_HISTORY} messages, each in a "
    "conversation of its own; the same turns without memory run between them. *Wait* is the time that the host spends "
    "in memory's verbs. *CPU* is the process's CPU time, all threads together, until the turn is recorded, embedded "
    "and in the index, less that of the same turn without memory. *Chroma* searches once, when the turn begins, "
    "with the same embedder in the same process, and records nothing. All are medians; *p90* is the wait of one turn "
    "in ten."
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


async def measure_cost(store: Path, texts: list[str], rounds: int, progress: Progress) -> list[Cost]:
    """`store` contains `texts`. Every round is one turn of each kind, in changing order."""
    embedder = SentenceEncoder()
    chroma = open_chroma(store.with_name("chroma"), texts, embedder)
    waits: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    async with afterturn.open(store, Config()) as memory:
        await memory.ready()
        for at, question in enumerate(questions(WARM_UP + rounds)):
            if at % 10 == 0:
                progress(f"cost: round {at + 1} of {WARM_UP + rounds}")
            ours = AfterturnMode(memory.conversation(f"cost-{at}", user=USER))
            ways: list[tuple[str, MemoryMode]] = [("", NoMemory()), (OURS, ours)]
            if chroma is not None:
                ways.append((CHROMA, ChromaMode(chroma, embedder)))
            for name, way in ways[at % len(ways) :] + ways[: at % len(ways)]:
                waited, took = await _measure(way, question, memory.drain if way is ours else None)
                waits.setdefault(name, []).append(waited)
                cpu.setdefault(name, []).append(took)
    bare = median(cpu[""][WARM_UP:])
    return [
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


async def _measure(
    way: MemoryMode, question: str, finish: Callable[[], Awaitable[object]] | None
) -> tuple[float, float]:
    """One turn: the seconds that its host waited, and the seconds of CPU time."""
    messages = past(_HISTORY)
    began = time.process_time()
    await run_turn(way, SlowModel(STEPS, _CALL_SECONDS), messages, question)
    if isinstance(way, AfterturnMode) and way.turn is not None:
        await way.turn.wait_recorded()
    if finish is not None:
        await finish()
        await timer(_SETTLED_AFTER)
    return way.spent, time.process_time() - began


def cost_figures(costs: list[Cost]) -> list[Figure]:
    by_way = {one.way: one for one in costs}
    ours, chroma = by_way[OURS], by_way.get(CHROMA)
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
            Goal(12, "ms"),
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
