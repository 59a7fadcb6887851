"""What an evaluation found, as text for people and as Markdown for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from afterturn.lab.eval.examining import OURS
from afterturn.lab.eval.run import Evaluation

_COLUMNS = {
    "delivered": "delivered",
    "whole": "delivered_whole",
    "tokens": "block_tokens",
    "R@1": "recall@1",
    "R@5": "recall@5",
    "R@10": "recall@10",
    "R@20": "recall@20",
    "all@10": "all@10",
    "nDCG@10": "ndcg@10",
    "MRR": "mrr",
}
_SURE = ("delivered", "recall@5", "recall@10")
_WORST_SHOWN = 3


def as_text(evaluation: Evaluation) -> str:
    return "\n\n".join(
        "\n".join([f"{name} ({evaluation.embedder})", *_plain_table(systems), *_remarks(systems)])
        for name, systems in evaluation.results.items()
    )


def as_markdown(evaluation: Evaluation) -> str:
    return "\n\n".join(
        "\n".join([f"### {name} ({evaluation.embedder})", "", *_markdown_table(systems), "", *_listed(systems)])
        for name, systems in evaluation.results.items()
    )


def _rows(systems: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """All questions with evidence, then each category, every system beside the others."""
    rows = [_row("all", name, found) for name, found in systems.items() if "n" in found]
    rows += [
        _row("not adversarial", name, found["without_adversarial"])
        for name, found in systems.items()
        if "without_adversarial" in found
    ]
    ours = systems.get(OURS, {})
    for category in ours.get("categories", ()):
        rows += [
            _row(category, name, found["categories"][category])
            for name, found in systems.items()
            if category in found.get("categories", ())
        ]
    return rows


def _row(part: str, system: str, figures: Mapping[str, Any]) -> list[str]:
    return [part, str(figures["n"]), system, *(_number(name, figures[name]) for name in _COLUMNS.values())]


def _number(name: str, value: float) -> str:
    return f"{value:.0f}" if name == "block_tokens" else f"{value:.3f}"


def _titles() -> list[str]:
    return ["questions", "n", "system", *_COLUMNS]


def _plain_table(systems: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows = [_titles(), *_rows(systems)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    last = ""
    for row in rows:
        shown = ["" if row[0] == last else row[0], "" if row[0] == last else row[1], *row[2:]]
        last = row[0]
        cells = [
            cell.ljust(width) if at in (0, 2) else cell.rjust(width) for at, (cell, width) in _zipped(shown, widths)
        ]
        lines.append(" ".join(cells).rstrip())
    return lines


def _zipped(cells: Sequence[str], widths: Sequence[int]) -> list[tuple[int, tuple[str, int]]]:
    return list(enumerate(zip(cells, widths, strict=True)))


def _markdown_table(systems: Mapping[str, Mapping[str, Any]]) -> list[str]:
    titles = _titles()
    lines = [f"| {' | '.join(titles)} |", f"|---|---:|---|{'---:|' * len(_COLUMNS)}"]
    return lines + [f"| {' | '.join(row)} |" for row in _rows(systems)]


def _listed(systems: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [f"- {line}" for line in _remarks(systems)]


def _remarks(systems: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = [f"95 %: {name} {_sure(found)}" for name, found in systems.items() if "intervals" in found]
    silent = [
        f"{name} {found['unanswerable']['silence']:.1%}" for name, found in systems.items() if "unanswerable" in found
    ]
    if silent:
        count = next(found["unanswerable"]["n"] for found in systems.values() if "unanswerable" in found)
        lines.append(f"silence at {count} questions without an answer: {', '.join(silent)}")
    for name, figures in systems.get(OURS, {}).get("silence", {}).items():
        heard = "; ".join(repr(text[:40]) for text in figures["heard"][:_WORST_SHOWN])
        lines.append(
            f"silence at {name}: {figures['silence']:.1%} of {figures['n']}{f', not at {heard}' if heard else ''}"
        )
    return lines


def _sure(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {low:.3f} to {high:.3f}" for name in _SURE for low, high in [found["intervals"][name]])
