"""The inbox of a space: proposals, and a person's decisions on them. No tool of a model reaches this."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from afterturn.errors import Conflict
from afterturn.ports import Unit
from afterturn.space.arguments import LIMIT_MAX
from afterturn.types import Changed, Entry, Filter, Operation, Origin, Scope, Status, Step, Verb
from afterturn.validation import check_id, check_limit

if TYPE_CHECKING:
    from afterturn.services import Services

WAITING = (Status.PROPOSED, Status.WITHDRAWAL)
_PROPOSED = Filter(statuses=WAITING)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A new memory, a change or a deletion that waits for approval; `entry` is the version that waits.

    For a change or deletion, `base` is the version that it was made for, and `current` the active version, None if
    there is none any more. `obstacle` says why it cannot be approved now; empty if it can.
    """

    entry: Entry
    base: Entry | None
    current: Entry | None
    obstacle: str = ""


async def list_proposals(services: Services, space: str, *, limit: int, before: str | None) -> list[Entry]:
    count, last = check_limit(limit, LIMIT_MAX), None if before is None else check_id(before)
    scope = Scope(services.tenant, (space,))
    return await services.store.read(lambda unit: unit.memories.page(scope, _PROPOSED, limit=count, before=last))


async def get_proposal(services: Services, space: str, entry_id: str) -> Proposal:
    """Raises Conflict if nothing of that id waits, NotFound if the space has no such id."""
    check_id(entry_id)
    scope = Scope(services.tenant, (space,))
    return await services.store.read(lambda unit: _find_proposal(unit, scope, entry_id))


def _find_proposal(unit: Unit, scope: Scope, entry_id: str) -> Proposal:
    versions = {entry.version: entry for entry in unit.memories.history(scope, entry_id)}
    waiting = next((entry for entry in versions.values() if entry.status in WAITING), None)
    if waiting is None:
        status = unit.memories.get(scope, entry_id).status
        raise Conflict(f"{entry_id} is {status}, not a proposal. `afterturn show {entry_id}` shows it.")
    number = base_version(unit.operations.steps(scope, entry_id=entry_id), waiting.version)
    base = None if number is None else versions[number]
    current = next((entry for entry in versions.values() if entry.status is Status.ACTIVE), None)
    return Proposal(waiting, base, current, _obstacle(base, current))


def base_version(steps: Iterable[Step], version: int) -> int | None:
    """The version that was active when `version` was written, from the memory's steps, oldest first."""
    active: int | None = None
    for step in steps:
        if step.version == version and step.before is None:
            return active
        if step.after is Status.ACTIVE:
            active = step.version
        elif step.version == active:
            active = None
    return None


def _obstacle(base: Entry | None, current: Entry | None) -> str:
    if base is None:
        return ""
    if current is None:
        return "The memory is no longer active, so this cannot be applied."
    if current.version != base.version:
        return f"The memory has changed since: it was version {base.version} and is now version {current.version}."
    return ""


async def approve(services: Services, space: str, entry_id: str) -> Changed:
    check_id(entry_id)
    operation = _operation(services, space, Verb.APPROVE)
    approved = await services.write_change(
        operation, lambda unit: services.statement_writer.approve(unit, operation, entry_id)
    )
    return Changed(approved, operation.id)


async def reject(services: Services, space: str, entry_id: str) -> Changed:
    check_id(entry_id)
    scope, operation = Scope(services.tenant, (space,)), _operation(services, space, Verb.DELETE)

    def work(unit: Unit) -> Entry:
        versions = unit.memories.history(scope, entry_id)
        if not any(entry.status in WAITING for entry in versions):
            status = unit.memories.get(scope, entry_id).status
            raise Conflict(f"{entry_id} is {status}; only a proposal can be rejected. Delete it instead.")
        return unit.memories.delete(unit.operations.start(operation), entry_id)

    return Changed(await services.write_change(operation, work), operation.id)


def _operation(services: Services, space: str, verb: Verb) -> Operation:
    return Operation(services.ids.new(), services.tenant, space, verb, Origin.USER, services.clock.now())
