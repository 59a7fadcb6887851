"""`make bench-recall`: every row in one run, each in a process of its own that computes on one thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.bench.recall_plot import Line, draw
from lab.bench.recall_report import Measured, RecallReport
from lab.bench.recall_scale import ROWS, WIDTH, Growth, Options, Told
from lab.bench.recall_text import load_corpus
from lab.bench.report import surroundings

# Read by numpy's libraries when they are loaded, so they have to be set before a process begins.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
ONE_THREAD = dict.fromkeys(_THREADS, "1")
PLOT = "recall_growth.svg"
_PROGRAM = ("-m", "lab.bench.recall_row")


class RowFailed(RuntimeError):
    """A row's process ended without figures."""


def measure_recall(options: Options, progress: Told = lambda step: None) -> RecallReport:
    """Runs the rows that were asked for, in the order of the table. With `plots`, draws growth there."""
    figures: list[Measured] = []
    growth: Growth = ()
    # Here first: a file that can not be read is told before anything is measured.
    load_corpus(options.text)
    with _folder(options.keep) as folder:
        for row in ROWS:
            if row in options.only:
                found, points = _attempt(row, options, folder, progress)
                figures += found
                growth = points or growth
        around = surroundings(options.command(), folder)
    report = RecallReport(around, tuple(figures), growth)
    if options.plots is not None and growth:
        options.plots.mkdir(parents=True, exist_ok=True)
        (options.plots / PLOT).write_text(plot(growth), encoding="utf-8")
    return report


def plot(growth: Growth) -> str:
    ours = Line("afterturn", tuple((size, seconds) for size, seconds, _ in growth))
    product = Line(f"product × {WIDTH}", tuple((size, seconds) for size, _, seconds in growth))
    return draw("Recall as a space grows, beside one matrix product", (ours, product))


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="afterturn-bench-") as folder:
        yield Path(folder)


def _compiled(folder: Path) -> dict[str, str]:
    """Modules are found compiled from the second process on, as an installation leaves them, whatever this process was
    told: without that, up to a third of what opening takes is Python's compiler."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str((folder / "bytecode").absolute())}


def _attempt(row: str, options: Options, folder: Path, told: Told) -> tuple[list[Measured], Growth]:
    """What one row can not tell is no reason to lose what the others can."""
    try:
        figures, points = _run(row, options, folder, told)
    except RowFailed as error:
        return [Measured(row, f"{row}: not measured", "", 0.0, "", passed=False, notes=(str(error),))], ()
    return [replace(figure, passed=None) for figure in figures] if options.quick else figures, points


def _converse(process: subprocess.Popen[str], asked: dict[str, Any], told: Told) -> dict[str, Any]:
    """The last that it says."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(asked))
    process.stdin.close()
    answer: dict[str, Any] = {}
    for line in process.stdout:
        answer = json.loads(line)
        if "told" in answer:
            told(answer["told"])
    return answer


def _run(row: str, options: Options, folder: Path, told: Told) -> tuple[list[Measured], Growth]:
    asked = {
        "row": row,
        "quick": options.quick,
        "spaces": options.spaces,
        "text": None if options.text is None else str(options.text.absolute()),
        "folder": str(folder.absolute()),
    }
    process = subprocess.Popen(
        [sys.executable, *_PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD, **_compiled(folder)},
    )
    with process:
        try:
            answer = _converse(process, asked, told)
        except BaseException:
            # Only a terminal tells it of an interruption by itself.
            process.terminate()
            raise
    if process.returncode or "figures" not in answer:
        raise RowFailed(f"its process ended with code {process.returncode} and no figures; standard error says why")
    figures = [Measured(**{**found, "notes": tuple(found["notes"])}) for found in answer["figures"]]
    return figures, tuple((size, ours, product) for size, ours, product in answer["growth"])
