"""Everything held on a space as JSON-able lines, read page by page from one snapshot (M4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from typing import Any, TypeAlias

from afterturn.base.ports import Unit
from afterturn.base.reviews import ReviewRow
from afterturn.base.turns import ConversationKey, ConversationState
from afterturn.base.types import Entry, Event, Filter, Operation, Scope, Status, Step

EXPORT_FORMAT = 1
PAGE = 1000
# More than any space keeps.
ROWS_MAX = 10_000_000

Line: TypeAlias = dict[str, Any]


def export_lines(unit: Unit, scope: Scope, now: float) -> list[Line]:
    """A header, then one line a thing, under the name of its kind.

    Not among them: what is derived from entries, work that waits, and the hashes that are kept of what was forgotten.
    """
    (space,) = scope.spaces
    header: Line = {"afterturn_export": EXPORT_FORMAT, "tenant": scope.tenant, "space": space, "exported_at": now}
    return [
        header,
        *_entry_lines(unit, scope),
        *_operation_lines(unit, scope),
        *_conversation_lines(unit, scope.tenant, space),
        *_review_lines(unit, scope.tenant, space),
        *({"usage": asdict(spent)} for spent in unit.usage.page(scope.tenant, space=space, limit=ROWS_MAX)),
        *({"event": asdict(event)} for event in _events(unit, scope)),
    ]


def _entry_lines(unit: Unit, scope: Scope) -> Iterator[Line]:
    for entry in _entries(unit, scope):
        for version in unit.memories.history(scope, entry.id):
            yield {"entry": asdict(version)}


def _operation_lines(unit: Unit, scope: Scope) -> Iterator[Line]:
    """Oldest first, each with what it did."""
    for operation in reversed(list(_operations(unit, scope))):
        yield {"operation": asdict(operation)}
        for step in unit.operations.steps(scope, operation_id=operation.id):
            yield {"step": _flat(step)}


def _conversation_lines(unit: Unit, tenant: str, space: str) -> Iterator[Line]:
    for conversation in every_conversation(unit, tenant, space):
        key = ConversationKey(tenant, space, conversation)
        yield {"conversation": conversation}
        for turn in unit.conversations.turns(key):
            yield {"turn": {"conversation": conversation, **asdict(turn)}}
        for block in unit.conversations.blocks(key):
            # Those of forgotten conversations come with every other, and belong to no turn.
            if block.turn:
                yield {"block": {"conversation": conversation, **asdict(block)}}
        yield from _kept_lines(unit, key)


def _kept_lines(unit: Unit, key: ConversationKey) -> Iterator[Line]:
    """What the conversation takes along from turn to turn, if anything, and what its recalls came to."""
    state = unit.conversations.state(key)
    kept = {
        "state": None if state == ConversationState() else state,
        "carried": unit.conversations.find_carried(key),
        "standing": unit.conversations.find_standing(key),
    }
    for name, row in kept.items():
        if row is not None:
            yield {name: {"conversation": key.id, **asdict(row)}}
    for recall in unit.recalls.page(key, limit=ROWS_MAX):
        yield {"recall": {"conversation": key.id, **asdict(recall)}}


def _review_lines(unit: Unit, tenant: str, space: str) -> Iterator[Line]:
    """Oldest first; one that waits is followed by what it is to read."""
    for review in reversed(list(_reviews(unit, tenant, space))):
        yield {"review": asdict(review)}
        for message in unit.reviews.messages(tenant, review.id):
            yield {"review_message": {"review": review.id, **asdict(message)}}


def _flat(step: Step) -> Line:
    return {**asdict(step), "operation": step.operation.id}


def _entries(unit: Unit, scope: Scope) -> Iterator[Entry]:
    before: str | None = None
    while page := unit.memories.page(scope, Filter(statuses=tuple(Status)), limit=PAGE, before=before):
        yield from page
        before = page[-1].id


def _operations(unit: Unit, scope: Scope) -> Iterator[Operation]:
    before: str | None = None
    while page := unit.operations.page(scope, limit=PAGE, before=before):
        yield from page
        before = page[-1].id


def _reviews(unit: Unit, tenant: str, space: str) -> Iterator[ReviewRow]:
    before: str | None = None
    while page := unit.reviews.page(tenant, space, limit=PAGE, before=before):
        yield from page
        before = page[-1].id


def every_conversation(unit: Unit, tenant: str, space: str) -> Iterator[str]:
    before: str | None = None
    while page := unit.conversations.page(tenant, space, limit=PAGE, before=before):
        yield from page
        before = page[-1]


def _events(unit: Unit, scope: Scope) -> Iterator[Event]:
    pages: list[list[Event]] = []
    while page := unit.timeline.page(scope, limit=PAGE, skip=PAGE * len(pages)):
        pages.append(page)
    return chain.from_iterable(reversed(pages))
