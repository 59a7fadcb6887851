"""The inbox of a space: proposals, and a person's decisions on them. No tool of a model reaches this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from afterturn.errors import AfterturnError, Conflict
from afterturn.ports import Ids, Unit
from afterturn.space.arguments import LIMIT_MAX, SpaceVerbs, check_conversation
from afterturn.types import Changed, Entry, Filter, Operation, Origin, Scope, Status, Step, Verb
from afterturn.validation import check_id, check_limit

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


class InboxVerbs(SpaceVerbs):
    async def proposals(
        self, *, conversation: str | None = None, limit: int = 50, before: str | None = None
    ) -> Sequence[Entry]:
        """Returns the entries that wait for approval, newest first. `before` is the last id of the previous page.

        `conversation` narrows it to what came out of one conversation. A proposal that nobody has decided for
        30 days is rejected.
        """
        count, last = check_limit(limit, LIMIT_MAX), None if before is None else check_id(before)
        wanted = replace(_PROPOSED, conversation=check_conversation(conversation))
        return await self._services.store.read(
            lambda unit: unit.memories.page(self._scope, wanted, limit=count, before=last), at=self._scope
        )

    async def proposal(self, entry_id: str) -> Proposal:
        """Returns one proposal with what it would change. Raises Conflict if nothing of that id waits, NotFound if
        this space has no such entry."""
        check_id(entry_id)
        return await self._services.store.read(lambda unit: _find_proposal(unit, self._scope, entry_id), at=self._scope)

    async def approve(self, entry_id: str) -> Changed:
        """Applies a proposal; `undo` makes it wait again.

        Raises Conflict if it is not, or is no longer, a proposal, if its memory has changed since, or if the space
        already says so.
        """
        return await self._decide(entry_id, Verb.APPROVE)

    async def reject(self, entry_id: str) -> Changed:
        """Removes a proposal from the inbox; `undo` brings it back.

        Raises Conflict if the entry is not, or is no longer, a proposal.
        """
        return await self._decide(entry_id, Verb.DELETE)

    async def approve_all(self, ids: Iterable[str]) -> Decided:
        """Applies several proposals in one transaction, as one group for `undo`. Those that cannot be applied are
        returned in `skipped`."""
        return await self._decide_all(ids, Verb.APPROVE)

    async def reject_all(self, ids: Iterable[str]) -> Decided:
        """Removes several proposals from the inbox in one transaction, as one group for `undo`."""
        return await self._decide_all(ids, Verb.DELETE)

    async def _decide(self, entry_id: str, verb: Verb) -> Changed:
        check_id(entry_id)
        operation = self._operation(verb)
        decided = await self._services.write_change(operation, lambda unit: self._take(unit, operation, entry_id))
        return Changed(decided, operation.id)

    async def _decide_all(self, ids: Iterable[str], verb: Verb) -> Decided:
        """Oldest first."""
        services, group = self._services, self._services.ids.new()
        operations = {one: self._operation(verb, group=group) for one in sorted({check_id(one) for one in ids})}

        def decide(unit: Unit) -> tuple[Decided, list[Step]]:
            changed, skipped = [], {}
            for entry_id, operation in operations.items():
                try:
                    entry = self._take(unit, operation, entry_id)
                except AfterturnError as error:
                    skipped[entry_id] = str(error)
                else:
                    changed.append(Changed(entry, operation.id))
            steps = unit.operations.steps(self._scope, group=group) if changed else []
            return Decided(group if changed else None, tuple(changed), skipped), steps

        decided, steps = await services.store.write(decide, at=self._scope)
        services.wake_jobs()
        services.events.report_changes(steps)
        return decided

    def _take(self, unit: Unit, operation: Operation, entry_id: str) -> Entry:
        if operation.verb is Verb.APPROVE:
            return self._services.statement_writer.approve(unit, operation, entry_id)
        return _reject(unit, operation, entry_id)


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


def _find_proposal(unit: Unit, scope: Scope, entry_id: str) -> Proposal:
    versions = {entry.version: entry for entry in unit.memories.history(scope, entry_id)}
    waiting = next((entry for entry in versions.values() if entry.status in WAITING), None)
    if waiting is None:
        status = unit.memories.get(scope, entry_id).status
        raise Conflict(f"{entry_id} is {status}, not a proposal. `afterturn show {entry_id}` shows it.")
    number = base_version(unit.operations.steps(scope, entry_id=entry_id), waiting.version)
    base = None if number is None else versions[number]
    current = next((entry for entry in versions.values() if entry.status is Status.ACTIVE), None)
    obstacle = ""
    if base is not None and current is None:
        obstacle = "The memory is no longer active, so this cannot be applied."
    elif base is not None and current is not None and current.version != base.version:
        versions_text = f"it was version {base.version} and is now version {current.version}"
        obstacle = f"The memory has changed since: {versions_text}."
    return Proposal(waiting, base, current, obstacle)


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


def _reject(unit: Unit, operation: Operation, entry_id: str) -> Entry:
    scope = Scope(operation.tenant, (operation.space,))
    versions = unit.memories.history(scope, entry_id)
    if not any(entry.status in WAITING for entry in versions):
        status = unit.memories.get(scope, entry_id).status
        raise Conflict(f"{entry_id} is {status}; only a proposal can be rejected. Delete it instead.")
    return unit.memories.delete(operation, entry_id)
