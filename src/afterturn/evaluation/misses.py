"""Questions whose evidence did not reach the block: what was looked for, where it stood, what came instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from afterturn.evaluation.conversations import Question, Talk

_FIRST_SHOWN = 3
_CHARS_SHOWN = 72


@dataclass(frozen=True, slots=True)
class Stand:
    """How something did in the ranking. `is_low`: it was not worth telling, by the floor that blocks have."""

    place: int
    score: float
    is_low: bool


@dataclass(frozen=True, slots=True)
class Sought:
    """One piece of evidence. `stand` is None when it is not among those that were looked at."""

    id: str
    text: str
    stand: Stand | None
    is_shown: bool

    def where(self) -> str:
        if self.stand is None:
            return "not ranked"
        what_came = "in the block" if self.is_shown else "below the floor" if self.stand.is_low else "left out"
        return f"place {self.stand.place}, score {self.stand.score:.2f}, {what_came}"


@dataclass(frozen=True, slots=True)
class Miss:
    """`instead` are the first texts of the block that were not sought; `block_entries` counts all of it."""

    talk: str
    id: str
    question: str
    category: str
    delivered: float
    sought: tuple[Sought, ...]
    instead: tuple[str, ...]
    block_entries: int

    def lines(self) -> list[str]:
        """For people; long texts are cut."""
        told = [f"{self.delivered:.0%} delivered, {self.category}, {self.talk}: {_cut(self.question)}"]
        told += [f"    sought, {sought.where()}: {_cut(sought.text)}" for sought in self.sought]
        told += [f"    instead: {_cut(text)}" for text in self.instead]
        return told if self.block_entries else [*told, "    instead: no block"]


def make_miss(
    talk: Talk, question: Question, delivered: float, stands: Mapping[str, Stand], shown: Sequence[str]
) -> Miss:
    """`stands` and `shown` are by the names of items, or of sessions where the question's evidence is given so."""
    texts: dict[str, str] = {}
    for item in talk.items:
        texts.setdefault(item.session if question.by_session else item.id, item.signed)
    others = [name for name in shown if name not in question.evidence]
    return Miss(
        talk=talk.id,
        id=question.id,
        question=question.text,
        category=question.category,
        delivered=delivered,
        sought=tuple(Sought(name, texts[name], stands.get(name), name in shown) for name in question.evidence),
        instead=tuple(texts[name] for name in others[:_FIRST_SHOWN]),
        block_entries=len(shown),
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
