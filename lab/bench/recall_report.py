"""What a run of the recall benchmark found, and how it is shown: as text, as a page's section, as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lab.bench.report import Goal, Surroundings, remark, result, verdict

_TEXT_WIDTH = 100
_NAME_WIDTH = 46
_EXPLAINED = (
    "Each row runs in a process of its own, BLAS on one thread, and ours and the limit take turns. Where it does not "
    "say otherwise, a recall is all of it but the question's vector and the hops between threads: words and meaning in "
    "every lane, exclusions, ranking, and the texts of the ten best. Times of the public verb, which include both, "
    "stand in the notes. With `--text FILE` what is remembered are sentences of real conversations, put together anew "
    "until there are enough; without it, generated ones. *Reported* figures have no target of their own."
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure. `limit` and `ratio` are None where it stands alone, `passed` is None where nothing is demanded,
    and in a quick run, which is not judged."""

    row: str
    name: str
    unit: str
    ours: float
    target: str = ""
    passed: bool | None = None
    limit: float | None = None
    ratio: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """Makes the figures of one row of the table."""

    name: str

    def beside(self, name: str, unit: str, pair: tuple[float, float], goal: Goal | None, *notes: str) -> Measured:
        """`pair` is ours and the limit."""
        ours, limit = pair
        ratio = ours / limit
        passed = None if goal is None else goal.is_met(ratio)
        return Measured(self.name, name, unit, ours, str(goal or ""), passed, limit, ratio, notes)

    def alone(self, name: str, unit: str, ours: float, goal: Goal | None, *notes: str) -> Measured:
        passed = None if goal is None else goal.is_met(ours)
        return Measured(self.name, name, unit, ours, str(goal or ""), passed, notes=notes)


@dataclass(frozen=True, slots=True)
class RecallReport:
    """`growth` is what the plot shows: of each size, ours and the matrix product in seconds."""

    surroundings: Surroundings
    figures: tuple[Measured, ...]
    growth: tuple[tuple[int, float, float], ...] = ()

    @property
    def passed(self) -> bool | None:
        return verdict(self.figures)

    def as_dict(self) -> dict[str, Any]:
        found = asdict(self)
        return {**found.pop("surroundings"), **found, "passed": self.passed}

    def as_text(self) -> str:
        lines: list[str] = []
        for name, value in self._surroundings():
            lines += textwrap.wrap(f"{name}: {value}", _TEXT_WIDTH, subsequent_indent="    ")
        cells = [_COLUMNS, *(_cells(figure) for figure in self.figures)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(_COLUMNS))]
        notes = [(), *(figure.notes for figure in self.figures)]
        for row, below in zip(cells, notes, strict=True):
            lines += ["", *_aligned(row, widths)]
            for note in below:
                lines += textwrap.wrap(note, _TEXT_WIDTH, initial_indent="    ", subsequent_indent="      ")
        return "\n".join(lines)

    def as_markdown(self) -> str:
        """A section of docs/benchmarks.md."""
        command = self.surroundings.command
        lines = ["", "## Recall", "", "```console", f"$ {command}", "```"]
        lines += ["", _EXPLAINED, "", f"| {' | '.join(_COLUMNS)} |", "|---|---:|---:|---:|---|---|"]
        lines += [f"| {' | '.join(_cells(figure))} |" for figure in self.figures]
        if self.growth:
            lines += ["", "![Recall as a space grows, beside one matrix product](plots/recall_growth.svg)"]
        lines += ["", *(f"- **{figure.name}**: {'; '.join(figure.notes)}." for figure in self.figures if figure.notes)]
        lines += ["", *(f"- {name}: {value}" for name, value in self._surroundings())]
        return "\n".join(lines)

    def _surroundings(self) -> list[tuple[str, str]]:
        return [*remark(self.figures), *self.surroundings.lines()]


_COLUMNS = ("figure", "ours", "limit", "ratio", "target", "result")


def _cells(figure: Measured) -> tuple[str, ...]:
    return (
        figure.name,
        f"{number(figure.ours)} {figure.unit}".rstrip(),
        "" if figure.limit is None else f"{number(figure.limit)} {figure.unit}",
        "" if figure.ratio is None else f"{figure.ratio:.2f} ×",
        figure.target,
        result(figure),
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """A name that is too long goes on in the next line."""
    first, *others = textwrap.wrap(row[0], _NAME_WIDTH) or [""]
    cells = [cell.rjust(width) for cell, width in zip(row[1:4], widths[1:4], strict=True)]
    cells += [cell.ljust(width) for cell, width in zip(row[4:], widths[4:], strict=True)]
    return ["  ".join([first.ljust(min(widths[0], _NAME_WIDTH)), *cells]).rstrip(), *others]


def number(value: float) -> str:
    """Three digits, and no exponent for what is large."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
