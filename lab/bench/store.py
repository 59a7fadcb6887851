"""`make bench-store`: adding, importing, and what importing costs the host's event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import apsw

import afterturn
from afterturn.embedders.sentence_encoder import SentenceEncoder
from afterturn.evaluation.examination import scratch_folder
from lab.bench.report import Figure, Goal, Progress, Report, judge, make_report, percentile
from lab.bench.texts import sentences

SPACE = "user:bench"
ADDS = 8
TICK = 0.001
DRAIN_WITHIN = 300.0
EXPLAINED = (
    "Each figure is the median of rounds in which ours and a baseline alternate on the same machine, so compare the "
    "ratio across machines rather than the times."
)
_IMPORT = "import time; began = time.perf_counter(); import afterturn; print(time.perf_counter() - began)"


@dataclass(frozen=True, slots=True)
class Scale:
    """One extra round warms up and is not counted."""

    rounds: int
    import_rounds: int
    imported: int
    idle_seconds: float


FULL = Scale(rounds=150, import_rounds=7, imported=10_000, idle_seconds=3.0)
QUICK = Scale(rounds=2, import_rounds=1, imported=200, idle_seconds=0.05)


def measure_store(*, quick: bool = False, progress: Progress = lambda step: None) -> Report:
    scale = QUICK if quick else FULL
    with scratch_folder("afterturn-bench-") as folder:
        figures = asyncio.run(_figures(folder, scale, progress))
    return make_report("store", ["--quick"] if quick else [], EXPLAINED, figures)


async def _figures(folder: Path, scale: Scale, progress: Progress) -> list[Figure]:
    found = [await _adding(folder, scale, progress), *await _importing(folder, scale, progress)]
    progress("import afterturn")
    return [*found, await asyncio.to_thread(_package_import)]


def _package_import() -> Figure:
    runs = [
        subprocess.run([sys.executable, "-c", _IMPORT], check=True, capture_output=True, text=True, timeout=60).stdout
        for _ in range(5)
    ]
    return judge("import afterturn", "ms", median(map(float, runs)) * 1000, Goal(50, "ms"))


class BareStore:
    """The smallest store that keeps a text durably and finds it by its words: one table with an FTS5 index."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        self._connection.execute("CREATE TABLE memory (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
        self._connection.execute("CREATE VIRTUAL TABLE words USING fts5 (text, content='memory', content_rowid='id')")
        self._writer = ThreadPoolExecutor(1, "bare-write")

    async def add(self, text: str) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, self._insert, text)

    def _insert(self, text: str) -> None:
        with self._connection:
            self._connection.execute("INSERT INTO memory (text) VALUES (?)", (text,))
            key = self._connection.last_insert_rowid()
            self._connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (key, text))

    def close(self) -> None:
        self._writer.shutdown()
        self._connection.close()


async def alternate(
    rounds: int, ours: Callable[[int], Awaitable[float]], baseline: Callable[[int], Awaitable[float]]
) -> tuple[float, float]:
    """The medians of both, measured in every round; their order alternates."""
    found: dict[object, list[float]] = {ours: [], baseline: []}
    for at in range(rounds + 1):
        for measure in (ours, baseline) if at % 2 else (baseline, ours):
            found[measure].append(await measure(at))
    return median(found[ours][1:]), median(found[baseline][1:])


async def _adding(folder: Path, scale: Scale, progress: Progress) -> Figure:
    progress("durable adds")
    texts = sentences((scale.rounds + 1) * ADDS, seed=2)
    bare = BareStore(folder / "bare.db")

    async def timed(add: Callable[[str], Awaitable[object]], at: int) -> float:
        times = []
        for text in texts[at * ADDS : (at + 1) * ADDS]:
            began = perf_counter()
            await add(text)
            times.append(perf_counter() - began)
        return median(times) * 1e6

    async with afterturn.open(folder / "ours.db") as memory:
        await memory.ready()
        add = memory.space(SPACE).add
        ours, baseline = await alternate(scale.rounds, lambda at: timed(add, at), lambda at: timed(bare.add, at))
    bare.close()
    return judge(
        "durable add",
        "µs",
        ours,
        Goal(2000, "µs"),
        "baseline: a script that commits a text and its FTS5 row, synchronous=FULL, on a thread of its own",
        f"{ADDS} adds a round, {scale.rounds} rounds",
        baseline=baseline,
    )


async def _importing(folder: Path, scale: Scale, progress: Progress) -> list[Figure]:
    """Every round imports into a new store, so that all rounds do the same work."""
    rates: dict[str, list[float]] = {"ours": [], "embedding": [], "inserting": []}
    idle: list[float] = []
    lags: list[float] = []
    embedder = SentenceEncoder()
    embedder.load_gradually()
    for at in range(scale.import_rounds + 1):
        progress(f"import: round {at} of {scale.import_rounds}")
        texts = sentences(scale.imported, seed=10 + at)
        idle += await _ticks(asyncio.sleep(scale.idle_seconds))
        began = perf_counter()
        lags += await _ticks(_import(folder / f"ours-{at}.db", texts, "static"))
        rates["ours"].append(len(texts) / (perf_counter() - began))
        began = perf_counter()
        await asyncio.to_thread(embedder.embed, texts)
        rates["embedding"].append(len(texts) / (perf_counter() - began))
        began = perf_counter()
        await _import(folder / f"plain-{at}.db", texts, "none")
        rates["inserting"].append(len(texts) / (perf_counter() - began))
    middle = {name: median(found[1:]) for name, found in rates.items()}
    quiet, busy = percentile(idle, 0.99) * 1000, percentile(lags, 0.99) * 1000
    return [
        judge(
            "bulk import",
            "statements/s",
            middle["ours"],
            Goal(0.8, at_least=True),
            "baseline: the slower of embedding alone and inserting alone (an import without an embedder)",
            f"{scale.imported:,} statements stored and embedded, opening included, {scale.import_rounds} rounds",
            f"embedding alone {middle['embedding']:,.0f}/s, inserting alone {middle['inserting']:,.0f}/s",
            baseline=min(middle["embedding"], middle["inserting"]),
        ),
        judge(
            "lag of the host's loop during an import, p99",
            "ms",
            busy,
            Goal(10, "ms"),
            "baseline: the lag of the same 1 ms ticker in an idle process",
            f"{len(lags):,} ticks; median {percentile(lags, 0.5) * 1000:.2f} ms, worst {max(lags) * 1000:.1f} ms",
            baseline=quiet,
        ),
    ]


async def _import(path: Path, texts: Sequence[str], embedder: str) -> None:
    """Returns when everything is stored and embedded."""
    async with afterturn.open(path, {"embedder": embedder}) as memory:
        await memory.ready()
        await memory.space(SPACE).add_many([afterturn.Draft(text) for text in texts])
        if embedder != "none":
            await memory.drain(within=DRAIN_WITHIN)


async def _ticks(work: Awaitable[None]) -> list[float]:
    """The lags of a ticker on this loop, in seconds, while the work is done."""
    lags: list[float] = []
    done = asyncio.Event()

    async def tick() -> None:
        while not done.is_set():
            began = perf_counter()
            await asyncio.sleep(TICK)
            lags.append(max(0.0, perf_counter() - began - TICK))

    async with asyncio.TaskGroup() as group:
        group.create_task(tick())
        await work
        done.set()
    return lags
