"""One row of the recall benchmark in this process: asked for on standard input, told and answered by line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from afterturn.evaluation.ending import unwinding
from lab.bench.recall_concurrent import measure_concurrent
from lab.bench.recall_growth import measure_growth
from lab.bench.recall_process import measure_memory, measure_opening
from lab.bench.recall_report import Measured
from lab.bench.recall_scale import FULL, QUICK, Growth, Scale, Told
from lab.bench.recall_sizes import measure_large, measure_small
from lab.bench.recall_spaces import measure_spaces
from lab.bench.recall_stores import Stores
from lab.bench.recall_text import load_corpus

_PLAIN: dict[str, Callable[[Stores, Scale, Told], list[Measured]]] = {
    "spaces": measure_spaces,
    "large": measure_large,
    "small": measure_small,
    "concurrent": measure_concurrent,
    "opening": measure_opening,
    "memory": measure_memory,
}


def measure_row(row: str, stores: Stores, scale: Scale, told: Told) -> tuple[list[Measured], Growth]:
    if row == "growth":
        return measure_growth(stores, scale, told)
    return _PLAIN[row](stores, scale, told), ()


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.stdin.read())
    scale = QUICK if asked["quick"] else FULL
    if asked["spaces"]:
        scale = replace(scale, spaces=asked["spaces"])
    corpus = load_corpus(Path(asked["text"]) if asked["text"] else None)
    figures, growth = measure_row(asked["row"], Stores(Path(asked["folder"]), corpus, _tell), scale, _tell)
    _print({"figures": [asdict(figure) for figure in figures], "growth": growth})


def _tell(step: str) -> None:
    _print({"told": step})


def _print(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    try:
        with unwinding():
            main()
    except KeyboardInterrupt:
        # Whoever started it tells why.
        sys.exit(130)
