"""Measures what the scanners find in attacks and in harmless texts, compared with a plain list of expressions.

    python -m lab.guard_eval FOLDER [--show 5] [--json]

FOLDER has files of JSON lines with `text` and `label` (1: to be found, 0: to be left alone), or is one such file. A row
is found if any scanner finds something, as `afterturn scan` reports it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from afterturn.guard.scanning import scanner

# What many projects start with.
BASELINE = re.compile(
    r"ignore (?:all |any )?(?:previous|prior|above) instructions|disregard (?:all |any )?(?:previous|prior|above)"
    r"|you are now|system prompt|jailbreak|do anything now|developer mode|reveal your|<\|im_start\|>|\[INST\]"
    r"|AKIA[0-9A-Z]{16}|ghp_[A-Za-z0-9]{36}|sk-[A-Za-z0-9]{20,}|xox[bp]-[0-9A-Za-z-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|AIza[0-9A-Za-z_-]{35}|eyJ[A-Za-z0-9_-]{10,}\.eyJ|password\s*[:=]\s*\S+|api[_-]?key\s*[:=]\s*\S+"
    r"|[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]|[\U000e0000-\U000e007f]",
    re.IGNORECASE,
)


class GuardFigures(NamedTuple):
    """The counts of one file and label."""

    file: str
    label: int
    rows: int
    found: int
    baseline: int


def read_texts(path: Path) -> Iterator[tuple[str, int]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        if isinstance(row.get("text"), str) and row.get("label") in (0, 1):
            yield row["text"], row["label"]


def measure(path: Path, show: int = 0) -> Iterator[GuardFigures]:
    """One line for each label in the file. `show` prints that many rows that are judged wrong."""
    scan = scanner(scanning=True)
    counts = {0: [0, 0, 0], 1: [0, 0, 0]}
    for text, label in read_texts(path):
        kinds = [one.kind for one in scan.find(text)] or list(scan.suspect(text))
        counts[label][0] += 1
        counts[label][1] += bool(kinds)
        counts[label][2] += BASELINE.search(text) is not None
        if bool(kinds) != bool(label) and show > 0:
            show -= 1
            print(f"  {path.stem} {label} {kinds}: {ascii(text)[:160]}", file=sys.stderr)
    for label, (rows, found, baseline) in counts.items():
        if rows:
            yield GuardFigures(path.stem, label, rows, found, baseline)


def report(figures: Iterable[GuardFigures]) -> Iterator[str]:
    yield f"{'file':<32} {'label':>6} {'rows':>6} {'found':>8} {'plain expressions':>18}"
    for one in figures:
        kind = "attack" if one.label else "benign"
        share, baseline = one.found / one.rows, one.baseline / one.rows
        yield f"{one.file:<32} {kind:>6} {one.rows:>6} {share:>8.1%} {baseline:>18.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a file of JSON lines, or a folder of them")
    parser.add_argument(
        "--show", type=int, default=0, metavar="N", help="print N rows of each file that are judged wrong"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    options = parser.parse_args()
    paths = sorted(options.data.glob("*.jsonl")) if options.data.is_dir() else [options.data]
    figures = [one for path in paths for one in measure(path, options.show)]
    benign = [one for one in figures if one.label == 0]
    if benign:
        totals = [sum(getattr(one, name) for one in benign) for name in ("rows", "found", "baseline")]
        figures.append(GuardFigures("all benign rows", 0, *totals))
    for line in (json.dumps(one._asdict()) for one in figures) if options.json else report(figures):
        print(line)


if __name__ == "__main__":
    main()
