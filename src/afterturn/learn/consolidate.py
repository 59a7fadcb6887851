"""What can be tidied up in a space (V10): restatements, contradictions, what nobody used. Pure: it only plans.

Rather too little than too much: what is left stands as two memories with their dates, and harms nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from afterturn.base.types import SOURCES_MAX, Entry, Origin
from afterturn.learn.single_value import contradict, single_value

STEPS_MAX = 50
DAY = 86_400.0
TRUST_MIN = Origin.BACKGROUND_REVIEW.trust


class Why(StrEnum):
    RESTATED = "restated"
    OUTDATED = "outdated"
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class Tidying:
    """`entry` goes, because of `by`, which stays. `merged` is what `by` rests on from then on; None: as before.

    `asks`: a person should decide, since it takes the word of somebody who is trusted more.
    """

    why: Why
    entry: Entry
    by: Entry | None = None
    merged: tuple[str, ...] | None = None
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """When memories were last shown, by reference, and after how many days without it they fade; None: never."""

    shown: Mapping[str, float]
    now: float
    fade_days: float | None = None


def plan(entries: Sequence[Entry], restated: Iterable[tuple[Entry, Entry]], usage: Usage) -> list[Tidying]:
    """`restated` are pairs: what is said again, and what says it. Each entry goes once, and none that something stays
    for goes itself. Pinned memories are left alone."""
    found: list[Tidying] = []
    gone: set[str] = set()
    kept: set[str] = set()
    for step in _steps(entries, restated, usage):
        names = {step.by.id} if step.by is not None else set()
        if step.entry.pinned or step.entry.id in gone | kept or names & gone:
            continue
        found.append(step)
        gone.add(step.entry.id)
        kept |= names
    return found[:STEPS_MAX]


def _steps(entries: Sequence[Entry], restated: Iterable[tuple[Entry, Entry]], usage: Usage) -> Iterator[Tidying]:
    for again, says in restated:
        if _are_comparable(again, says):
            yield _restatement(again, says)
    yield from _outdated(entries)
    yield from (Tidying(Why.UNUSED, entry) for entry in entries if _is_unused(entry, usage))


def _are_comparable(again: Entry, says: Entry) -> bool:
    """Of the same kind, so that nothing leaves the system prompt, and nobody's word gives way to one trusted less."""
    one, other = (
        (entry.target, entry.agent, entry.project, entry.metadata.get("kind") or "") for entry in (again, says)
    )
    return one == other and says.trust >= again.trust


def _restatement(again: Entry, says: Entry) -> Tidying:
    """Equally trusted, they become one that rests on what both rested on, and is trusted no more than either.

    Whoever is trusted more stays as they were, since their word needs no other's, and so does what is pinned.
    """
    if again.trust != says.trust or says.pinned or not says.sources:
        return Tidying(Why.RESTATED, again, says)
    # What one of them says on its own account must not go when the other's sources do (M2).
    merged = tuple(dict.fromkeys((*says.sources, *again.sources)))[:SOURCES_MAX] if again.sources else ()
    return Tidying(Why.RESTATED, again, says, merged if set(merged) != set(says.sources) else None)


def _outdated(entries: Sequence[Entry]) -> Iterator[Tidying]:
    """Of what can have one value only, the newest trusted one stands."""
    told: dict[tuple[object, ...], list[tuple[Entry, str]]] = {}
    for entry in entries:
        if (found := single_value(entry.text)) is not None and entry.trust >= TRUST_MIN:
            key = (entry.target, entry.agent, entry.project, entry.speaker, found[0])
            told.setdefault(key, []).append((entry, found[1]))
    for values in told.values():
        values.sort(key=lambda pair: (pair[0].occurred_at, pair[0].id))
        newest, value = values[-1]
        for entry, other in values[:-1]:
            if contradict(other, value):
                yield Tidying(Why.OUTDATED, entry, newest, asks=entry.trust > newest.trust)


def _is_unused(entry: Entry, usage: Usage) -> bool:
    """Only what was learned fades, never what somebody wrote, and not before it had its time."""
    if usage.fade_days is None or entry.origin is not Origin.BACKGROUND_REVIEW:
        return False
    last = max(entry.recorded_at, usage.shown.get(entry.ref, 0.0))
    return last + usage.fade_days * DAY < usage.now
