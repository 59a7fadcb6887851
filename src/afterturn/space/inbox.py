"""One proposal, with what it would change and whether it can still be approved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from afterturn.errors import Conflict
from afterturn.ports import Unit
from afterturn.types import Entry, Scope, Status, Step
from afterturn.validation import check_id

if TYPE_CHECKING:
    from afterturn.services import Services

WAITING = (Status.PROPOSED, Status.WITHDRAWAL)


@dataclass(frozen=True, slots=True)
class Proposal:
    """`entry` is what waits. For a change or a withdrawal, `base` is the version that it was made for, and `current`
    what the memory says now, None when it says nothing any more.

    `obstacle` says why it cannot be approved now; empty if it can.
    """

    entry: Entry
    base: Entry | None
    current: Entry | None
    obstacle: str = ""


async def get_proposal(services: Services, space: str, entry_id: str) -> Proposal:
    """Conflict when nothing of that id waits; NotFound when the space has no such id."""
    check_id(entry_id)
    scope = Scope(services.tenant, (space,))
    return await services.store.read(lambda unit: _proposal(unit, scope, entry_id))


def _proposal(unit: Unit, scope: Scope, entry_id: str) -> Proposal:
    versions = {entry.version: entry for entry in unit.memories.history(scope, entry_id)}
    waiting = next((entry for entry in versions.values() if entry.status in WAITING), None)
    if waiting is None:
        status = unit.memories.get(scope, entry_id).status
        raise Conflict(f"{entry_id} is {status}, and nothing of it waits. `afterturn show {entry_id}` shows it.")
    number = base_version(unit.operations.steps(scope, entry_id=entry_id), waiting.version)
    base = None if number is None else versions[number]
    current = next((entry for entry in versions.values() if entry.status is Status.ACTIVE), None)
    return Proposal(waiting, base, current, _obstacle(base, current))


def base_version(steps: Iterable[Step], version: int) -> int | None:
    """Which version of a memory was active when `version` of it came to be, by the steps taken on it, oldest first."""
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
