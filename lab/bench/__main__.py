"""`python -m lab.bench PART`: measures afterturn on this machine and prints a report. `make bench` runs every part."""

import argparse
import json
import sys
from pathlib import Path

from afterturn.evaluation.run import end_on_sigterm
from lab.bench.compat import measure_compat
from lab.bench.hooks import measure_hooks
from lab.bench.langgraph import measure_langgraph
from lab.bench.load import measure_load
from lab.bench.proxy import measure_proxy
from lab.bench.recall import Options, measure_recall
from lab.bench.report import Report, write_section
from lab.bench.review import measure_review
from lab.bench.server import measure_server
from lab.bench.store import measure_store
from lab.bench.turn import SECTIONS, measure_turn

PARTS = ("store", "turn", "recall", "review", "load", "hooks", "server", "proxy", "compat", "langgraph", "postgres")


# As in lab/bench/postgres.py, which cannot be imported without psycopg.
POSTGRES_SECTIONS = ("record", "recall", "large", "load", "growth", "langgraph", "network")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 1 when a figure missed its target."""
    options = _options(arguments)
    try:
        with end_on_sigterm():
            report = _measure(options)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    print(json.dumps(report.as_dict(), ensure_ascii=False) if options.json else report.as_text())
    if options.page:
        write_section(PAGE, report)
    return 1 if report.passed is False else 0


def _measure(options: argparse.Namespace) -> Report:
    def show_step(step: str) -> None:
        print(f"{options.part}: {step}", file=sys.stderr, flush=True)

    match options.part:
        case "store":
            return measure_store(quick=options.quick, progress=show_step)
        case "turn":
            return measure_turn(quick=options.quick, only=options.only, chroma=options.chroma, progress=show_step)
        case "review":
            return measure_review(quick=options.quick, progress=show_step)
        case "load":
            return measure_load(quick=options.quick, seconds=options.seconds, progress=show_step)
        case "hooks":
            return measure_hooks(quick=options.quick, progress=show_step)
        case "server":
            return measure_server(quick=options.quick, progress=show_step)
        case "proxy":
            return measure_proxy(quick=options.quick, progress=show_step)
        case "compat":
            return measure_compat(quick=options.quick, everyday=options.everyday, progress=show_step)
        case "langgraph":
            return measure_langgraph(quick=options.quick, progress=show_step)
        case "postgres":
            # Needs psycopg and a server, which only the environment below .postgres/ has.
            from lab.bench.postgres import measure_postgres

            return measure_postgres(
                quick=options.quick,
                only=options.only,
                spaces=options.spaces or (),
                sizes=options.size or (),
                progress=show_step,
            )
        case _:
            sizes = tuple(options.size or ())
            return measure_recall(Options(options.quick, sizes, options.text, options.keep), progress=show_step)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.bench", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="a small run that only checks that the benchmark works")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--page", action="store_true", help="also replace the part's section of docs/benchmarks.md")
    parser.add_argument(
        "--only",
        choices=(*SECTIONS, *POSTGRES_SECTIONS),
        action="append",
        default=[],
        help="a section of turn or postgres; may be repeated",
    )
    turn = parser.add_argument_group("turn")
    turn.add_argument("--chroma", metavar="FOLDER", action="append", default=[], help="a folder that has chromadb")
    parser.add_argument(
        "--size", type=int, action="append", help="recall, postgres large: memories in the space; may be repeated"
    )
    load = parser.add_argument_group("load")
    load.add_argument("--seconds", type=float, help="how long turns begin faster than they can be served")
    recall = parser.add_argument_group("recall")
    recall.add_argument("--text", type=Path, help="real text: a conversation file, JSON lines with a text, plain text")
    recall.add_argument("--keep", type=Path, help="keep the stores in this folder for later runs")
    postgres = parser.add_argument_group("postgres")
    postgres.add_argument("--spaces", type=int, action="append", help="growth: how many spaces; may be repeated")
    compat = parser.add_argument_group("compat")
    compat.add_argument("--everyday", type=Path, metavar="FILE", help="also count right answers, on an everyday file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
