"""What was measured of the rules, as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from afterturn.lab.eval.rules import TURNS_UNIT, Measured, Score, Writes

_EXCERPT_CHARACTERS = 100


def as_text(measured: Measured, *, shown: int = 0) -> str:
    """`shown`: so many of what was wrong and missed in the open half, and of what dialogue taught, are told."""
    parts = [
        "\n".join(_labelled(name, part, score, shown))
        for name, scores in measured.scores.items()
        for part, score in scores.items()
    ]
    parts += ["\n".join(_dialogue(name, writes, shown)) for name, writes in measured.writes.items()]
    return "\n\n".join(parts)


def _labelled(name: str, part: str, score: Score, shown: int) -> Iterator[str]:
    found = score.figures()
    yield f"{name}, {part.replace('_', ' ')}: {found['messages']} messages"
    yield f"  precision {_number(found['precision'])} ({found['right']} right, {found['wrong']} wrong)"
    yield f"  recall    {_number(found['recall'])} ({found['missed']} missed)"
    yield f"  kind      {_number(found['kind_right'])} of what was right"
    for group in ("kinds", "languages"):
        yield f"  {group}: " + ", ".join(_group(title, figures) for title, figures in found[group].items())
    # What is held out stays so, or the next rule is written for it.
    if part == "dev":
        yield from _listed("wrong", score.wrong, shown)
        yield from _listed("missed", score.missed, shown)


def _dialogue(name: str, writes: Writes, shown: int) -> Iterator[str]:
    rate = writes.figures()[f"writes_per_{TURNS_UNIT}_turns"]
    yield f"{name}: {writes.turns} user turns, {len(writes.found)} writes, {rate:.2f} per {TURNS_UNIT} turns"
    told = [f"{lesson.kind}, {lesson.target}: {lesson.text}" for _, lesson in writes.found]
    yield from _listed("written", told, shown)


def _listed(title: str, lines: Sequence[str], shown: int) -> Iterator[str]:
    for line in lines[:shown]:
        flat = " ".join(line.split())
        yield f"  {title}: {flat[:_EXCERPT_CHARACTERS]}{'…' if len(flat) > _EXCERPT_CHARACTERS else ''}"


def _group(title: str, figures: dict[str, Any]) -> str:
    return f"{title} {_number(figures['recall'])} of {figures['n']}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
