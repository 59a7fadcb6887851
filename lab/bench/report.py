"""What a run of the benchmark found, and how it is shown: as text, as Markdown, as JSON."""

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeAlias

Progress: TypeAlias = Callable[[str], None]


def command_of(part: str, *arguments: str) -> str:
    """The make command that measures a part again."""
    given = " ".join(filter(None, arguments))
    return f"make bench-{part}" + (f' ARGS="{given}"' if given else "")


_PACKAGES = ("afterturn", "apsw", "numpy", "tokenizers", "wordllama")
_PAGE = """# Benchmarks

Figures of one run on one machine, each beside the limit that the same machine set in the same minutes: ours and the
limit take turns, and what is shown are medians of the rounds. The ratio is what carries over to other machines, but
only from a run with nothing else going on: beside other work, several threads lose more than a script with one.

`make benchmarks` measures anew and writes this page: what the command of each part prints.

## Store

```console
$ {command}
```
"""
NOT_JUDGED = "not judged"
_COLUMNS = ("figure", "ours", "limit", "ratio", "target", "result")


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure beside its limit, which `limit_name` explains. `notes` say what else was measured on the way.

    `passed` is None in a quick run, which is not judged.
    """

    name: str
    unit: str
    ours: float
    limit: float
    limit_name: str
    ratio: float
    target: str
    passed: bool | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Goal:
    """At most `bound`, or at least: times the limit where there is one, else in `unit`."""

    bound: float
    unit: str = "×"
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g} {self.unit}".rstrip()

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True, slots=True)
class Rounds:
    """One measurement a round, ours and the limit's taken in turns, so that both had the same weather."""

    name: str
    unit: str
    ours: Sequence[float]
    limit: Sequence[float]
    limit_name: str

    def figure(self, goal: Goal, *notes: str) -> Figure:
        """Medians of the rounds, and their ratio."""
        ours, limit = median(self.ours), median(self.limit)
        ratio = ours / limit
        passed = goal.is_met(ratio)
        return Figure(self.name, self.unit, ours, limit, self.limit_name, ratio, str(goal), passed, notes)


class Judged(Protocol):
    """A figure of whatever benchmark. One without a target is only reported."""

    @property
    def target(self) -> str: ...
    @property
    def passed(self) -> bool | None: ...


def result(figure: Judged) -> str:
    if figure.passed is None:
        return NOT_JUDGED if figure.target else "reported"
    return "pass" if figure.passed else "FAIL"


def verdict(figures: Sequence[Judged]) -> bool | None:
    """Whether every target was met; None when figures were not judged, unless something failed all the same."""
    if any(figure.passed is False for figure in figures):
        return False
    return None if any(result(figure) == NOT_JUDGED for figure in figures) else True


def remark(figures: Sequence[Judged]) -> list[tuple[str, str]]:
    """What has to stand above the figures of a quick run."""
    is_quick = any(result(figure) == NOT_JUDGED for figure in figures)
    return [("quick", "too little was measured to mean anything; figures show the form and are not judged")] * is_quick


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run was started by, and on what it ran."""

    command: str
    machine: dict[str, str]
    versions: dict[str, str]

    def lines(self) -> list[tuple[str, str]]:
        return [
            ("command", self.command),
            ("machine", ", ".join(f"{name} {value}" for name, value in self.machine.items())),
            ("versions", ", ".join(f"{name} {value}" for name, value in self.versions.items())),
        ]


def surroundings(command: str, folder: Path) -> Surroundings:
    """`folder` is where the stores stood: its file system decides what a commit costs."""
    return Surroundings(command, _machine(folder), _versions())


@dataclass(frozen=True, slots=True)
class Report:
    command: str
    machine: dict[str, str]
    versions: dict[str, str]
    figures: tuple[Figure, ...]
    page: str = _PAGE

    @property
    def passed(self) -> bool | None:
        return verdict(self.figures)

    def as_dict(self) -> dict[str, Any]:
        found = asdict(self)
        del found["page"]
        return {**found, "passed": self.passed}

    def as_text(self) -> str:
        rows = [_COLUMNS, *(_row(figure) for figure in self.figures)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        notes: list[tuple[str, ...]] = [(), *(_explained(figure) for figure in self.figures)]
        lines = [f"{name}: {value}" for name, value in self._surroundings()]
        for row, below in zip(rows, notes, strict=True):
            lines.append("")
            lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
            lines.extend(f"    {note}" for note in below)
        return "\n".join(lines)

    def as_markdown(self) -> str:
        lines = [self.page.format(command=self.command), f"| {' | '.join(_COLUMNS)} |", "|---|---:|---:|---:|---|---|"]
        lines += [f"| {' | '.join(_row(figure))} |" for figure in self.figures]
        lines += ["", *(f"- **{figure.name}**: {'; '.join(_explained(figure))}." for figure in self.figures)]
        lines += ["", *(f"- {name}: {value}" for name, value in self._surroundings())]
        return "\n".join(lines)

    def _surroundings(self) -> list[tuple[str, str]]:
        return [*remark(self.figures), *Surroundings(self.command, self.machine, self.versions).lines()]


def make_report(command: str, figures: Sequence[Figure], folder: Path) -> Report:
    """`folder` is where the stores stood: its file system decides what a commit costs."""
    return Report(command, _machine(folder), _versions(), tuple(figures))


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        f"{_number(figure.ours)} {figure.unit}",
        f"{_number(figure.limit)} {figure.unit}",
        f"{figure.ratio:.2f} ×",
        figure.target,
        result(figure),
    )


def _explained(figure: Figure) -> tuple[str, ...]:
    return (f"limit: {figure.limit_name}", *figure.notes)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _versions() -> dict[str, str]:
    import apsw

    found = {"python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    return found | {package: version(package) for package in _PACKAGES}


def _machine(folder: Path) -> dict[str, str]:
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "file system": _file_system(folder),
    }


def _file_system(folder: Path) -> str:
    """The type of the file system, where the system tells it."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    best = ("", "unknown")
    for line in mounts.read_text(encoding="utf-8").splitlines():
        _, point, kind, *_ = line.split()
        if folder.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]
