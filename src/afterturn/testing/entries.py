"""Entries and hits for tests of what comes after a store: ranking, budgets, rendering."""

from typing import Any

from afterturn.text import content_hash
from afterturn.types import Entry, Hit, Kind, Lane, Origin, Status, Target

NOW = 1_800_000_000.0
DAY = 86_400.0


def entry(text: str, *, id: str = "e001", origin: Origin = Origin.USER, **fields: Any) -> Entry:
    """An active statement of user:ada, a day older than NOW; further arguments are fields of the entry."""
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
    """As recall would give it by words alone; further arguments are those of `entry`."""
    kind = Kind.STATEMENT if lane is Lane.LONG_TERM else Kind.RECORD
    return Hit(entry(text, **{"kind": kind, **fields}), lane, score, score, None, terms)
