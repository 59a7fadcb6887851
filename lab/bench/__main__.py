"""`python -m lab.bench PART`: measures afterturn on this machine and prints a report. `make bench` runs every part."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Protocol

from afterturn.evaluation.ending import unwinding
from lab.bench.recall import measure_recall
from lab.bench.recall_scale import ROWS, Options
from lab.bench.review import measure_review
from lab.bench.store import measure_store
from lab.bench.turn import measure_turn

PARTS = ("store", "turn", "recall", "review")


class Report(Protocol):
    @property
    def passed(self) -> bool | None: ...

    def as_dict(self) -> dict[str, Any]: ...

    def as_markdown(self) -> str: ...

    def as_text(self) -> str: ...


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 1 when a figure missed its target."""
    options = _options(arguments)
    try:
        with unwinding():
            report = _measure(options)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    if options.json:
        print(json.dumps(report.as_dict(), ensure_ascii=False))
    else:
        print(report.as_markdown() if options.markdown else report.as_text())
    return 1 if report.passed is False else 0


def _measure(options: argparse.Namespace) -> Report:
    def tell(step: str) -> None:
        print(f"{options.part}: {step}", file=sys.stderr, flush=True)

    match options.part:
        case "store":
            return measure_store(quick=options.quick, progress=tell)
        case "turn":
            return measure_turn(quick=options.quick, progress=_by_tenths(tell))
        case "review":
            return measure_review(quick=options.quick, progress=tell)
        case _:
            names = ("quick", "spaces", "text", "keep", "plots")
            given = {name: getattr(options, name) for name in names}
            return measure_recall(Options(only=tuple(options.only or ROWS), **given), progress=tell)


def _by_tenths(tell: Any) -> Any:
    """A step of many is printed at its beginning and after each tenth."""

    def progress(step: str, done: int, total: int) -> None:
        if total < 10 or done * 10 // total != (done - 1) * 10 // total:
            tell(f"{step} {done}/{total}")

    return progress


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.bench", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="a small run: it shows the form and judges nothing")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the figures as JSON")
    form.add_argument("--markdown", action="store_true", help="print tables for a page")
    recall = parser.add_argument_group("recall")
    recall.add_argument("--only", action="append", choices=ROWS, metavar="ROW", help=f"one of {', '.join(ROWS)}")
    recall.add_argument("--spaces", type=int, help="number of small spaces")
    recall.add_argument("--text", type=Path, help="real text: a conversation file, JSON lines with a text, plain text")
    recall.add_argument("--keep", type=Path, help="keep the stores in this folder for later runs")
    recall.add_argument("--plots", type=Path, help="draw the plots into this folder")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
