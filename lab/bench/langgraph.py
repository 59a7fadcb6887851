"""`make bench-langgraph`: afterturn's store of LangGraph and LangGraph's own SqliteStore, in one process."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

from afterturn.evaluation.examination import scratch_folder
from lab.bench.report import Figure, Progress, Report, judge, make_report

SPACE = ("memories", "ada")
BATCH = 100
FILTERS: dict[str, dict[str, Any]] = {
    "a filter for a value": {"tag": "t7"},
    "a filter for a value at a path": {"deep.a": 5},
    "a filter for a range": {"n": {"$lt": 10}},
}
EXPLAINED = (
    "LangGraph's SqliteStore has no guard, versions, undo or index of words. Both have a file on disk; figures are "
    "medians of rounds in which they alternate."
)


def measure_langgraph(*, quick: bool = False, progress: Progress = lambda step: None) -> Report:
    """Runs in the environment of LangChain, which has both packages."""
    base = importlib.import_module("langgraph.store.base")
    theirs_kind = importlib.import_module("langgraph.store.sqlite").SqliteStore
    ours_kind = importlib.import_module("afterturn.frameworks.langgraph_store").AfterturnStore
    rounds, items = (1, 200) if quick else (7, 10_000)

    def put(at: int, space: tuple[str, ...] = SPACE) -> Any:
        value = {"text": f"Item {at} is about tea", "n": at, "tag": f"t{at % 500}", "deep": {"a": at % 700}}
        return base.PutOp(space, f"k{at}", value, ttl=60.0)

    with (
        scratch_folder("afterturn-bench-") as folder,
        ours_kind(folder / "ours.db") as ours,
        theirs_kind.from_conn_string(str(folder / "theirs.db")) as theirs,
    ):
        theirs.setup()
        stores = (ours, theirs)
        progress(f"filling with {items:,} items")
        for store in stores:
            for start in range(0, items, 500):
                store.batch([put(at) for at in range(start, min(items, start + 500))])
        new = iter(range(items, 10**9, BATCH))
        gets = [base.GetOp(SPACE, f"k{at}", refresh_ttl=True) for at in range(BATCH)]
        work: dict[str, Callable[[Any], object]] = {
            f"a batch of {BATCH} puts": lambda store: store.batch([put(at) for at in _from(next(new))]),
            f"a batch of {BATCH} puts that replace": lambda store: store.batch([put(at) for at in _from(0)]),
            f"a batch of {BATCH} gets with TTL refresh": lambda store: store.batch(gets),
        }
        for name, wanted in FILTERS.items():
            work[f"{name}, {items:,} items"] = _searching(wanted)
        figures = [_compared(name, one, stores, rounds, progress) for name, one in work.items()]
    return make_report("langgraph", ["--quick"] if quick else [], EXPLAINED, figures)


def _searching(wanted: dict[str, Any]) -> Callable[[Any], object]:
    return lambda store: store.search(SPACE, filter=wanted)


def _from(start: int) -> range:
    return range(start, start + BATCH)


def _compared(
    name: str, work: Callable[[Any], object], stores: tuple[Any, Any], rounds: int, progress: Progress
) -> Figure:
    progress(name)
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for store, times in zip(stores, taken, strict=True):
            began = perf_counter()
            work(store)
            times.append((perf_counter() - began) * 1000)
    mine, its = (median(times[1:]) for times in taken)
    return judge(name, "ms", mine, None, f"{rounds} rounds", baseline=its)
