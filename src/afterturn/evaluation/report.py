"""The results of an evaluation as text and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from afterturn.evaluation.examination import OURS
from afterturn.evaluation.run import Evaluation

Systems: TypeAlias = Mapping[str, Mapping[str, Any]]

# By the figure that only one kind of evaluation has: the titles of its columns, and the names of their figures.
_COLUMNS: dict[str, dict[str, str]] = json.loads(
    Path(__file__).with_name("report_columns.json").read_text(encoding="utf-8")
)
# These counts are shown as "3/96".
_OUT_OF = {name: f"{name}_asked" for name in ("answerable", "stale", "silent", "no_word", "word")}
_OUT_OF["outdated_stands"] = "stale_asked"
_SURE = ("delivered", "recall@5", "recall@10", "f1", "judged", "answerable", "first", "reached")
_ABOVE = ("delivered", "recall@10", "answerable", "first")
_HEARD_SHOWN = 3
_TEXT_COLUMNS = (0, 2)


def as_text(evaluation: Evaluation) -> str:
    """A table for each data set, at most 100 columns wide."""
    parts = []
    for name, systems in evaluation.results.items():
        title = ", ".join([name, f"embedder {evaluation.embedder}", *systems.get(OURS, {}).get("conditions", ())])
        missed = [line for miss in systems.get(OURS, {}).get("missed", ()) for line in miss.lines()]
        parts.append("\n".join([title, *_aligned(_table(systems)), *remarks(systems), *missed]))
    return "\n\n".join(parts)


def as_markdown(evaluation: Evaluation) -> str:
    """The means of all data sets, in one table for each kind of figures, then a table for each data set by category."""
    tables: dict[tuple[str, ...], list[list[str]]] = {}
    for name, systems in evaluation.results.items():
        columns = _columns(systems)
        rows = tables.setdefault(tuple(columns), [["data", "n", "system", *columns]])
        rows += _rows(name, {system: found for system, found in systems.items() if "n" in found}, columns)
    parts = [_markdown(rows) for rows in tables.values()]
    for name, systems in evaluation.results.items():
        if any(found.get("categories") for found in systems.values()):
            lines = [f"- {line}" for line in remarks(systems, quoting=False)]
            parts.append([f"### {name}", "", *lines, "", *_markdown(_table(systems))])
    return "\n\n".join("\n".join(lines).rstrip() for lines in parts)


def _table(systems: Systems) -> list[list[str]]:
    """Column titles first. Then one row per system, for all questions and for each category."""
    columns = _columns(systems)
    rows = [["questions", "n", "system", *columns]]
    for part, figures in _parts(systems):
        rows += _rows(part, figures, columns)
    return rows


def _rows(title: str, figures: Systems, columns: Mapping[str, str]) -> list[list[str]]:
    return [
        [title, str(found["n"]), system, *(_cell(found, name) for name in columns.values())]
        for system, found in figures.items()
    ]


def _columns(systems: Systems) -> dict[str, str]:
    """The columns of this kind of evaluation that at least one system has a figure for."""
    known = {name for found in systems.values() for name in found}
    kind = next((columns for name, columns in _COLUMNS.items() if name in known), _COLUMNS["delivered"])
    return {title: name for title, name in kind.items() if name in known}


def _parts(systems: Systems) -> Iterator[tuple[str, Systems]]:
    yield "all", {name: found for name, found in systems.items() if "n" in found}
    others = {name: found["without_adversarial"] for name, found in systems.items() if "without_adversarial" in found}
    yield "not adversarial", others
    yield from _divided(systems, "categories")
    yield from _divided(systems, "languages")


def _divided(systems: Systems, by: str) -> Iterator[tuple[str, Systems]]:
    """The figures of each part, if there are several."""
    names = dict.fromkeys(name for found in systems.values() for name in found.get(by, ()))
    for name in names if len(names) > 1 else ():
        yield name, {system: found[by][name] for system, found in systems.items() if name in found.get(by, ())}


def _cell(found: Mapping[str, Any], name: str) -> str:
    """ "-" if there is no such figure, such as the score of a system that gave no reply."""
    value = found.get(name)
    if value is None:
        return "-"
    if name in _OUT_OF:
        return f"{value}/{found[_OUT_OF[name]]}"
    if isinstance(value, int):
        return str(value)
    digits = 0 if name.endswith("_tokens") else 1 if name.endswith("_lines") else 3
    return f"{value:.{digits}f}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Cells that repeat the row above are empty."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    above = ""
    for row in rows:
        shown = ["", "", *row[2:]] if row[0] == above else row
        above = row[0]
        cells = [
            cell.ljust(width) if at in _TEXT_COLUMNS else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(shown, widths, strict=True))
        ]
        yield " ".join(cells).rstrip()


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    titles, *others = rows
    line = "|".join("---" if at in _TEXT_COLUMNS else "---:" for at in range(len(titles)))
    return [f"| {' | '.join(titles)} |", f"|{line}|", *(f"| {' | '.join(row)} |" for row in others)]


def remarks(systems: Systems, *, quoting: bool = True) -> list[str]:
    """The intervals, and the share of silence. `quoting` adds some remarks that got a block."""
    names = [name for name, found in systems.items() if "replies" in found or name == OURS]
    lines = [f"95% of {name}: {_sure(systems[name]['intervals'])}" for name in names if "intervals" in systems[name]]
    for name, found in systems.get(OURS, {}).get("margins", {}).items():
        above = [f"{one} {found[one]:+.3f}{_between(found['intervals'].get(one))}" for one in _ABOVE if one in found]
        lines.append(f"{OURS} minus {name}: {', '.join(above)}")
    lines += [line for name, found in systems.items() if "replies" in found for line in _about_replies(name, found)]
    silent = {name: found["unanswerable"] for name, found in systems.items() if "unanswerable" in found}
    if silent:
        shares = ", ".join(f"{name} {found['silence']:.1%}" for name, found in silent.items())
        count = next(iter(silent.values()))["n"]
        lines.append(f"no block for questions without an answer ({count}): {shares}")
    for name, figures in systems.get(OURS, {}).get("silence_by_set", {}).items():
        heard = ", ".join(repr(text[:32]) for text in figures["heard"][: _HEARD_SHOWN if quoting else 0])
        low = figures["below_floor"]
        why = f"{figures['not_asked']:.1%} not asked, {low:.1%} below the minimum score"
        lines.append(
            f"no block for {name} ({figures['n']}): {figures['silence']:.1%} ({why}){heard and f'; but for {heard}'}"
        )
    return lines


def _sure(intervals: Mapping[str, Sequence[float]]) -> str:
    if not intervals:
        return "unknown with one conversation"
    known = [name for name in _SURE if name in intervals]
    return ", ".join(f"{name} {intervals[name][0]:.3f} to {intervals[name][1]:.3f}" for name in known)


def _between(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f" ({bounds[0]:+.3f} to {bounds[1]:+.3f})"


def _about_replies(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    if found["failed"]:
        yield f"{name}: the model gave no reply to {found['failed']} questions"
    if found.get("cut"):
        yield f"{name}: for {found['cut']} questions the oldest messages were left out, to fit the limit"
    if name != OURS:
        better, worse = found["better_than_ours"], found["worse_than_ours"]
        yield f"{name} was better than {OURS} on {better} questions, and worse on {worse}"
