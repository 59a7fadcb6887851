"""Whether the model sees what a statement was learned from: what a store's query leaves out, told of one entry (L9)."""

from __future__ import annotations

from collections.abc import Callable

from afterturn.base.errors import NotFound
from afterturn.base.ports import Unit
from afterturn.base.types import Entry, Kind, Scope


def is_learned_from_seen(unit: Unit, tenant: str, entry: Entry, is_seen: Callable[[Entry], bool]) -> bool:
    """Whether all that a statement rests on are records of its space, and each `is_seen`."""
    if entry.kind is not Kind.STATEMENT or not entry.sources:
        return False
    scope = Scope(tenant, (entry.space,))
    try:
        sources = (unit.memories.get(scope, source) for source in entry.sources)
        return all(source.kind is Kind.RECORD and is_seen(source) for source in sources)
    except NotFound:
        return False
