"""The report of a benchmark: figures with targets, tables behind them, the machine; as text, Markdown and JSON."""

from __future__ import annotations

import os
import platform
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

Progress: TypeAlias = Callable[[str], None]

_PACKAGES = ("afterturn", "apsw", "numpy")
_QUICK = "too few rounds for valid figures, so no target is checked"
_COLUMNS = ("figure", "ours", "baseline", "ratio", "target", "result")
_TEXT_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Goal:
    """At most or at least `bound`, in `unit`, or times the baseline if the unit is "×"."""

    bound: float
    unit: str = "×"
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g} {self.unit}".rstrip()

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. Without a target it is only reported. `passed` is None then, and in a quick run."""

    name: str
    unit: str
    ours: float
    target: str = ""
    passed: bool | None = None
    baseline: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        return self.ours / self.baseline if self.baseline else None

    @property
    def result(self) -> str:
        if not self.target:
            return "reported"
        return {None: "not judged", True: "pass", False: "FAIL"}[self.passed]

    def row(self) -> tuple[str, ...]:
        return (
            self.name,
            f"{number(self.ours)} {self.unit}".rstrip(),
            "" if self.baseline is None else f"{number(self.baseline)} {self.unit}".rstrip(),
            "" if self.ratio is None else f"{self.ratio:.2f} ×",
            self.target,
            self.result,
        )


def judge(
    name: str, unit: str, ours: float, goal: Goal | None = None, *notes: str, baseline: float | None = None
) -> Figure:
    """A figure compared with its goal."""
    figure = Figure(name, unit, ours, "" if goal is None else str(goal), None, baseline, notes)
    if goal is None:
        return figure
    value = figure.ratio if goal.unit == "×" and figure.ratio is not None else ours
    return replace(figure, passed=goal.is_met(value))


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    explained: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """`title` and `explained` begin the section in docs/benchmarks.md."""

    title: str
    explained: str
    command: str
    machine: dict[str, str]
    versions: dict[str, str]
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...] = ()

    @property
    def passed(self) -> bool | None:
        """Whether every target was met; None if a quick run was not judged."""
        results = {figure.result for figure in self.figures}
        return False if "FAIL" in results else None if "not judged" in results else True

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}

    def as_text(self) -> str:
        lines = [f"{name}: {value}" for name, value in self._about()]
        rows = [_COLUMNS, *(figure.row() for figure in self.figures)]
        notes: list[tuple[str, ...]] = [(), *(figure.notes for figure in self.figures)]
        for row, below in zip(_aligned(rows), notes, strict=True):
            lines += ["", row, *(line for note in below for line in _indented(note))]
        for table in self.tables:
            explained = _indented(table.explained.replace("*", ""))
            lines += ["", table.title.upper(), *explained, *_aligned([table.columns, *table.rows])]
        return "\n".join(lines)

    def as_markdown(self) -> str:
        """A section of docs/benchmarks.md."""
        lines = [f"## {self.title}", "", self.explained, "", "```console", f"$ {self.command}", "```", ""]
        lines += [_cells(_COLUMNS), "|---|---:|---:|---:|---|---|", *(_cells(figure.row()) for figure in self.figures)]
        lines += ["", *(f"- **{one.name}**: {'; '.join(one.notes)}." for one in self.figures if one.notes)]
        for table in self.tables:
            lines += ["", f"### {table.title}", "", table.explained, ""]
            lines += [_cells(table.columns), "|" + "---|" * len(table.columns), *map(_cells, table.rows)]
        lines += ["", *(f"- {name}: {value}" for name, value in self._about()), ""]
        return "\n".join(lines)

    def _about(self) -> list[tuple[str, str]]:
        return [
            *([("quick", _QUICK)] if any(figure.result == "not judged" for figure in self.figures) else []),
            ("command", self.command),
            ("machine", ", ".join(f"{name} {value}" for name, value in self.machine.items())),
            ("versions", ", ".join(f"{name} {value}" for name, value in self.versions.items())),
        ]


def make_report(
    part: str, arguments: Sequence[str], explained: str, figures: Sequence[Figure], tables: Sequence[Table] = ()
) -> Report:
    """Does not judge the figures of a run with `--quick` among its arguments."""
    given = " ".join(arguments)
    command = f"make bench-{part}" + (f' ARGS="{given}"' if given else "")
    judged = [replace(figure, passed=None) for figure in figures] if "--quick" in arguments else figures
    titles = {"turn": "Turns", "review": "Reviews", "compat": "Compared with mem0"}
    title = titles.get(part, part.capitalize())
    return Report(title, explained, command, _machine(), _versions(), tuple(judged), tuple(tables))


def write_section(page: Path, report: Report) -> None:
    """Replaces the report's section of the page, or appends it."""
    heading = f"## {report.title}\n"
    sections = re.split(r"(?m)^(?=## )", page.read_text(encoding="utf-8"))
    new = report.as_markdown().rstrip() + "\n\n"
    found = [new if section.startswith(heading) else section for section in sections]
    page.write_text("".join(found if new in found else [*found, "\n", new]).rstrip() + "\n", encoding="utf-8")


def resident_megabytes() -> float:
    """The memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def milliseconds(seconds: float) -> str:
    return f"{number(seconds * 1000)} ms"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, _TEXT_WIDTH, initial_indent="    ", subsequent_indent="    ")


def _cells(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


def _versions() -> dict[str, str]:
    import apsw

    found = {"python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    return found | {package: version(package) for package in _PACKAGES}


def _machine() -> dict[str, str]:
    return {
        # Without the suffix, which only names a build.
        "system": f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
    }
