"""Drafts, operations, entries and hits for tests that need no guard or no store."""

from __future__ import annotations

from typing import Any

from afterturn.testing.clock import SequentialIds
from afterturn.text import content_hash, terms
from afterturn.types import Admitted, Draft, Entry, Hit, Kind, Lane, Operation, Origin, Status, Target, Verb, Verdict

_ids = SequentialIds("d")
_operations = SequentialIds("o")


def admit(
    text: str,
    *,
    at: float = 100.0,
    id: str | None = None,
    verdict: Verdict = Verdict.ALLOW,
    telling: int = 0,
    **draft: Any,
) -> Admitted:
    """An admitted draft, recorded at `at`, without a guard. Further arguments are fields of the draft."""
    asked = Draft(text, id=id, **draft)
    return Admitted(
        draft=asked,
        id=id or _ids.new(),
        text=text,
        content_hash=content_hash(text),
        terms=terms(text),
        trust=asked.origin.trust,
        recorded_at=at,
        verdict=verdict,
        reason="" if verdict is Verdict.ALLOW else "test",
        telling=telling,
    )


def operation(
    verb: Verb = Verb.ADD,
    *,
    space: str = "user:ada",
    at: float = 100.0,
    tenant: str = "default",
    group: str | None = None,
) -> Operation:
    """An operation with a new id."""
    return Operation(_operations.new(), tenant, space, verb, Origin.USER, at, group)


NOW = 1_800_000_000.0
DAY = 86_400.0


def entry(text: str, *, id: str = "e001", origin: Origin = Origin.USER, **fields: Any) -> Entry:
    """An active statement in user:ada, one day older than NOW. Further arguments are fields of the entry."""
    defaults: dict[str, Any] = {
        "version": 1,
        "kind": Kind.STATEMENT,
        "space": "user:ada",
        "status": Status.ACTIVE,
        "trust": origin.trust,
        "target": Target.USER,
        "content_hash": content_hash(text),
        "recorded_at": NOW - DAY,
        "occurred_at": NOW - DAY,
    }
    return Entry(id=id, text=text, origin=origin, **{**defaults, **fields})


def hit(
    text: str, *, lane: Lane = Lane.LONG_TERM, score: float = 0.5, terms: tuple[str, ...] = (), **fields: Any
) -> Hit:
    """A hit of a search by words only. Further arguments are those of `entry`."""
    kind = Kind.STATEMENT if lane is Lane.LONG_TERM else Kind.RECORD
    return Hit(entry(text, **{"kind": kind, **fields}), lane, score, score, None, terms)
