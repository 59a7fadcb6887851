"""What a run of the turn benchmark found: which targets were met, and the tables behind them, as text and as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lab.bench.report import Surroundings, remark, result, verdict
from lab.bench.turn_delivery import Delivery
from lab.bench.turn_prompts import Prompts
from lab.bench.turn_waiting import CALL_SECONDS, HISTORY, Waits

_TEXT_WIDTH = 120
_PROMPTS = (
    "Whole conversations of one agent with tools, over the same memories. *Recall per call* searches before each "
    "model call and shows what it found after the last message of that call alone. *Recall per turn* searches once for "
    "each user message and leaves the block in the conversation. *Injected* are memory's tokens that a prompt does not "
    "share with the one before it, and *carried* all of memory's tokens summed over all prompts; both are estimates. "
    "What is appended stays, so it is carried longer than what is shown once, but from the provider's cache. *Stable* "
    "is the share of prompts that begin with the whole prompt before them; *most often*, how many times one memory was "
    "put in; *repeats*, how many were put in while the prompt had them."
)
_WAITS = (
    f"Turns of {CALL_SECONDS * 1000:g} ms model calls behind {HISTORY} messages, each in a conversation of its own, "
    "with a selector that takes its time. *Verbs* is the time inside `turn()`, every `inject` and leaving, taken "
    "directly. *Wall* is how much longer the whole turn took than the same loop without memory, which ran just before "
    "or after it. Both are medians of the rounds, and the share is of the turn without memory. What a turn leaves to "
    "be done is over before the next one begins. *Awaiting naively* waits for the whole recall, selector included, "
    "before the first call; where nothing ever comes, it is ended by the 30 s that such an `inject` waits at most. The "
    "grace itself is taken as long as this machine's timers make it: theirs are late by what a model's call is."
)
_DELIVERIES = (
    f"Turns of {CALL_SECONDS * 1000:g} ms model calls, one right after the other, each in a conversation of its own. "
    "*Relevant* are those whose fast recall had something, *delivered* those of them whose model was shown it before "
    "the turn ended. *In verbs* is what the turn spent in memory's verbs. First turns are each of a new process, with "
    "no tools."
)


@dataclass(frozen=True, slots=True)
class Check:
    """A figure beside its target. `where` names the case that gave it, the worst of all that were run.

    `passed` is None in a quick run, which is not judged.
    """

    name: str
    figure: float
    unit: str
    target: str
    passed: bool | None
    where: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    explained: str = ""


@dataclass(frozen=True, slots=True)
class TurnReport:
    surroundings: Surroundings
    checks: tuple[Check, ...]
    prompts: tuple[Prompts, ...]
    waits: tuple[Waits, ...]
    deliveries: tuple[Delivery, ...]

    @property
    def passed(self) -> bool | None:
        return verdict(self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Times in seconds, shares from 0 to 1."""
        found = asdict(self)
        return {**found.pop("surroundings"), **found, "passed": self.passed}

    def as_text(self) -> str:
        lines = [f"{name}: {value}" for name, value in self._surroundings()]
        for table in self._tables():
            explained = textwrap.wrap(
                table.explained.replace("*", ""), _TEXT_WIDTH, initial_indent="    ", subsequent_indent="    "
            )
            lines += ["", table.title.upper(), *explained, *_aligned(table)]
        return "\n".join(lines)

    def as_markdown(self) -> str:
        """A section of docs/benchmarks.md."""
        command = self.surroundings.command
        lines = ["", "## Turns", "", "```console", f"$ {command}", "```"]
        for table in self._tables():
            lines += ["", f"### {table.title}", "", *([table.explained, ""] if table.explained else [])]
            lines += [_cells(table.columns), "|" + "---|" * len(table.columns), *(_cells(row) for row in table.rows)]
        lines += ["", *(f"- {name}: {value}" for name, value in self._surroundings())]
        return "\n".join(lines)

    def _surroundings(self) -> list[tuple[str, str]]:
        return [*remark(self.checks), *self.surroundings.lines()]

    def _tables(self) -> list[Table]:
        return [_checks(self.checks), _prompts(self.prompts), _waits(self.waits), _deliveries(self.deliveries)]


def _checks(checks: Sequence[Check]) -> Table:
    rows = [
        (check.name, f"{check.figure:.3g} {check.unit}".rstrip(), check.target, result(check), check.where)
        for check in checks
    ]
    return Table("Targets", ("figure", "ours", "target", "result", "worst in"), tuple(rows))


def _prompts(found: Sequence[Prompts]) -> Table:
    columns = ("conversation", "way", "calls", "recalls", "injected", "carried", "stable", "most often", "repeats")
    rows = [
        (
            one.course,
            one.way,
            f"{one.calls}",
            f"{one.recalls}",
            f"{one.injected:,}",
            f"{one.carried:,}",
            f"{one.stability:.0%}",
            f"{one.most_often} ×",
            f"{one.repeats}",
        )
        for one in found
    ]
    return Table("What prompts hold of memory", columns, tuple(rows), _PROMPTS)


def _waits(found: Sequence[Waits]) -> Table:
    columns = ("memory", "way", "steps", "turn", "verbs", "share", "wall", "share", "rounds")
    rows = [
        (
            one.case,
            one.way if one.grace is None else f"{one.way}, grace {one.grace * 1000:g} ms",
            f"{one.steps}",
            _milliseconds(one.bare),
            _milliseconds(one.verbs),
            f"{one.verbs_share:.2%}",
            _milliseconds(one.wall),
            f"{one.wall_share:.2%}",
            f"{one.rounds}",
        )
        for one in found
    ]
    return Table("What memory adds to a turn", columns, tuple(rows), _WAITS)


def _deliveries(found: Sequence[Delivery]) -> Table:
    columns = ("turns", "grace", "steps", "relevant", "delivered", "share", "in verbs", "longest")
    rows = [
        (
            one.kind,
            _milliseconds(one.grace),
            f"{one.steps}",
            f"{one.relevant} of {one.turns}",
            f"{one.delivered}",
            f"{one.share:.1%}",
            _milliseconds(one.waited),
            _milliseconds(one.waited_max),
        )
        for one in found
    ]
    return Table("What reaches the model in the same turn", columns, tuple(rows), _DELIVERIES)


def _aligned(table: Table) -> list[str]:
    rows = [table.columns, *table.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cells(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if abs(seconds) >= 0.1 else f"{seconds * 1000:.3g} ms"
