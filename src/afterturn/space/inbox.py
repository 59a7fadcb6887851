"""The inbox of a space: proposals, and a person's decisions on them. No tool of a model reaches this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from afterturn.errors import AfterturnError, Conflict
from afterturn.ports import Ids, Unit
from afterturn.space.arguments import LIMIT_MAX, check_conversation
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


@dataclass(frozen=True, slots=True)
class Decided:
    """The result of deciding several proposals at once. `undo` takes `group`, None if nothing was decided.

    `skipped` says, by id, why a proposal could not be decided. It still waits.
    """

    group: str | None
    changed: tuple[Changed, ...]
    skipped: Mapping[str, str]


async def list_proposals(
    services: Services, space: str, *, limit: int, before: str | None, conversation: str | None
) -> list[Entry]:
    count, last = check_limit(limit, LIMIT_MAX), None if before is None else check_id(before)
    wanted = replace(_PROPOSED, conversation=check_conversation(conversation))
    scope = Scope(services.tenant, (space,))
    return await services.store.read(lambda unit: unit.memories.page(scope, wanted, limit=count, before=last), at=scope)


async def decide_all(services: Services, space: str, ids: Iterable[str], verb: Verb) -> Decided:
    """Approves (`Verb.APPROVE`) or rejects (`Verb.DELETE`) proposals in one transaction, oldest first."""
    checked = sorted({check_id(one) for one in ids})
    group = services.ids.new()
    work = [(one, replace(_operation(services, space, verb), group=group)) for one in checked]
    scope = Scope(services.tenant, (space,))

    def decide(unit: Unit) -> tuple[Decided, list[Step]]:
        changed, skipped = [], {}
        for entry_id, operation in work:
            try:
                entry = (
                    services.statement_writer.approve(unit, operation, entry_id)
                    if verb is Verb.APPROVE
                    else _reject(unit, operation, entry_id)
                )
            except AfterturnError as error:
                skipped[entry_id] = str(error)
            else:
                changed.append(Changed(entry, operation.id))
        steps = unit.operations.steps(scope, group=group) if changed else []
        return Decided(group if changed else None, tuple(changed), skipped), steps

    decided, steps = await services.store.write(decide, at=scope)
    services.wake_jobs()
    services.events.report_changes(steps)
    return decided


def expire_proposals(unit: Unit, proposals: Iterable[tuple[str, str]], tenant: str, at: float, ids: Ids) -> int:
    """Rejects proposals, given as (space, id). Returns how many were still waiting."""
    count = 0
    for space, entry_id in proposals:
        operation = Operation(ids.new(), tenant, space, Verb.DELETE, Origin.USER, at)
        try:
            _reject(unit, operation, entry_id)
        except AfterturnError:
            continue  # decided meanwhile
        count += 1
    return count


async def get_proposal(services: Services, space: str, entry_id: str) -> Proposal:
    """Raises Conflict if nothing of that id waits, NotFound if the space has no such id."""
    check_id(entry_id)
    scope = Scope(services.tenant, (space,))
    return await services.store.read(lambda unit: _find_proposal(unit, scope, entry_id), at=scope)


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
    operation = _operation(services, space, Verb.DELETE)
    rejected = await services.write_change(operation, lambda unit: _reject(unit, operation, entry_id))
    return Changed(rejected, operation.id)


def _reject(unit: Unit, operation: Operation, entry_id: str) -> Entry:
    scope = Scope(operation.tenant, (operation.space,))
    versions = unit.memories.history(scope, entry_id)
    if not any(entry.status in WAITING for entry in versions):
        status = unit.memories.get(scope, entry_id).status
        raise Conflict(f"{entry_id} is {status}; only a proposal can be rejected. Delete it instead.")
    return unit.memories.delete(unit.operations.start(operation), entry_id)


def _operation(services: Services, space: str, verb: Verb) -> Operation:
    return Operation(services.ids.new(), services.tenant, space, verb, Origin.USER, services.clock.now())
