"""Questions whose evidence did not reach the block: what was looked for, where it stood, what came instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterturn.lab.eval.conversations import Item, Question

_FIRST_SHOWN = 3
_CHARS_SHOWN = 72


@dataclass(frozen=True, slots=True)
class Sought:
    """One piece of evidence. `place` in the ranking is None when it is not among those that were looked at."""

    id: str
    text: str
    place: int | None


@dataclass(frozen=True, slots=True)
class Miss:
    """`first` are the texts that were ranked first."""

    talk: str
    id: str
    question: str
    category: str
    delivered: float
    sought: tuple[Sought, ...]
    first: tuple[str, ...]

    def lines(self) -> list[str]:
        """For people; long texts are cut."""
        told = [f"{self.delivered:.0%} delivered, {self.category}, {self.talk}: {_cut(self.question)}"]
        for sought in self.sought:
            where = "not ranked" if sought.place is None else f"place {sought.place}"
            told.append(f"    sought, {where}: {_cut(sought.text)}")
        return told + [f"    instead, place {place}: {_cut(text)}" for place, text in enumerate(self.first, start=1)]


def make_miss(talk: str, question: Question, delivered: float, ranked: Sequence[str], items: Sequence[Item]) -> Miss:
    """`ranked` are names of items, or of sessions where the question's evidence is given so."""
    texts: dict[str, str] = {}
    for item in items:
        texts.setdefault(item.session if question.by_session else item.id, item.signed)
    places = {name: place for place, name in enumerate(ranked, start=1)}
    return Miss(
        talk=talk,
        id=question.id,
        question=question.text,
        category=question.category,
        delivered=delivered,
        sought=tuple(Sought(name, texts[name], places.get(name)) for name in question.evidence),
        first=tuple(texts[name] for name in ranked[:_FIRST_SHOWN]),
    )


def worst(misses: Sequence[Miss], count: int) -> list[Miss]:
    """Of each category in turn, those of which the least was delivered first."""
    by_category: dict[str, list[Miss]] = {}
    for miss in sorted(misses, key=lambda miss: miss.delivered):
        by_category.setdefault(miss.category, []).append(miss)
    longest = max(map(len, by_category.values()), default=0)
    in_turn = [part[at] for at in range(longest) for part in by_category.values() if at < len(part)]
    return in_turn[:count]


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CHARS_SHOWN else f"{line[: _CHARS_SHOWN - 1]}…"
