"""The inbox of a space: what was proposed, and somebody's word on it. No tool of a model's reaches this (A3, V8)."""

from __future__ import annotations

from afterturn.base.errors import Conflict
from afterturn.base.limits import check_limit
from afterturn.base.names import check_id
from afterturn.base.ports import Unit
from afterturn.base.types import (
    Changed,
    Entry,
    Filter,
    Operation,
    Origin,
    Scope,
    Status,
    Verb,
)
from afterturn.guard.writing import Writing
from afterturn.space.parts import SpaceParts
from afterturn.space.questions import LIMIT_MAX

_WAITING = (Status.PROPOSED, Status.WITHDRAWAL)
_PROPOSED = Filter(statuses=_WAITING)


async def list_proposals(parts: SpaceParts, space: str, *, limit: int, before: str | None) -> list[Entry]:
    count, last = check_limit(limit, LIMIT_MAX), None if before is None else check_id(before)
    scope = Scope(parts.tenant, (space,))
    return await parts.store.read(lambda unit: unit.memories.page(scope, _PROPOSED, limit=count, before=last))


async def approve(parts: SpaceParts, space: str, entry_id: str) -> Changed:
    check_id(entry_id)
    operation, writing = _operation(parts, space, Verb.APPROVE), Writing(parts.config)

    def work(unit: Unit) -> Entry:
        return writing.approve(unit, operation, entry_id)

    approved = await parts.store.write(work)
    parts.on_write()
    return Changed(approved, operation.id)


async def reject(parts: SpaceParts, space: str, entry_id: str) -> Changed:
    check_id(entry_id)
    scope, operation = Scope(parts.tenant, (space,)), _operation(parts, space, Verb.DELETE)

    def work(unit: Unit) -> Entry:
        versions = unit.memories.history(scope, entry_id)
        if not any(entry.status in _WAITING for entry in versions):
            status = unit.memories.get(scope, entry_id).status
            raise Conflict(f"{entry_id} is {status}; only what is proposed can be rejected. Delete it instead.")
        return unit.memories.delete(unit.operations.start(operation), entry_id)

    return Changed(await parts.store.write(work), operation.id)


def _operation(parts: SpaceParts, space: str, verb: Verb) -> Operation:
    return Operation(parts.ids.new(), parts.tenant, space, verb, Origin.USER, parts.clock.now())
