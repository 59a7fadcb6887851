"""Writes statements. The only way into the store for them: trust, quota, approval, and the embedding job."""

from dataclasses import replace

from afterturn.config import Config
from afterturn.errors import Conflict, NotAllowed
from afterturn.guard.gate import lowered
from afterturn.guard.quotas import Quota
from afterturn.guard.trust import check_change, check_privileges, find_entry, is_privileged, lineage_of, waits
from afterturn.ports import Unit
from afterturn.types import Added, Admitted, Entry, JobKind, Kind, Operation, Origin, Scope, Status, Verdict, new_job

_WAITING = (Status.PROPOSED, Status.WITHDRAWAL)


class StatementWriter:
    """Call it inside a unit of work. A call that raises has written nothing, so you can continue with the next one.

    With `approval`, writes of some origins wait: a new statement or version is `proposed`, and a delete adds a version
    with the status `withdrawal`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._quota = Quota(config)

    def add(self, unit: Unit, operation: Operation, admitted: Admitted) -> Added:
        """Raises NotAllowed if the origin is not trusted enough, OverBudget if there is no room."""
        added = self.put(unit, operation, admitted)
        embed_later(unit, operation)
        return added

    def put(self, unit: Unit, operation: Operation, admitted: Admitted) -> Added:
        """As `add`, without the embedding job: for callers that add many, and call `embed_later` once."""
        ready = self._ready(unit, operation, admitted)
        check_privileges(ready.draft, ready.trust)
        if ready.verdict is not Verdict.QUARANTINE:
            self._quota.check_new(unit, operation, ready)
        return unit.memories.add(operation, ready)

    def update(
        self, unit: Unit, operation: Operation, entry_id: str, admitted: Admitted, *, expected_version: int | None
    ) -> Entry:
        """Raises Conflict as the store does, NotAllowed for a pinned or more trusted memory, OverBudget for no room."""
        ready, current = self._ready(unit, operation, admitted), unit.memories.get(_scope(operation), entry_id)
        if operation.actor is not Origin.USER:
            check_change(current, ready.trust)
        if (ready.draft.firm and not current.firm) or (is_privileged(ready.draft) and not is_privileged(current)):
            check_privileges(ready.draft, ready.trust)
        if ready.verdict is not Verdict.QUARANTINE:
            held = current if current.status is Status.ACTIVE else None
            self._quota.check_change(unit, operation, held, ready.text, ready.draft.target)
        entry = unit.memories.update(operation, entry_id, ready, expected_version=expected_version)
        embed_later(unit, operation)
        return entry

    def put_item(self, unit: Unit, operation: Operation, admitted: Admitted) -> Entry:
        """Stores a statement under its own id: as a new memory, or as the next version of one, also of a deleted one.

        For programs that use memory as a store of items. An item is trusted as a tool's output is, since nobody knows
        whose words it has, but it is not quarantined for that: a program reads what it has written, and a line that
        looks like an instruction is left out when a block is rendered. Raises as `add` and `update` do.
        """
        item = admitted._replace(trust=min(admitted.trust, Origin.TOOL.trust))
        current = find_entry(unit, _scope(operation), item.id)
        if current is None:
            return self.add(unit, operation, item).entry
        if current.status is Status.ACTIVE:
            return self.update(unit, operation, item.id, item, expected_version=None)
        ready = self._ready(unit, operation, item)
        self._quota.check_new(unit, operation, ready)
        entry = unit.memories.add_again(operation, ready)
        embed_later(unit, operation)
        return entry

    def delete(
        self,
        unit: Unit,
        operation: Operation,
        entry_id: str,
        *,
        trust: int,
        expected_version: int | None = None,
        asks: bool = False,
    ) -> Entry:
        """Hides the entry, and rejects a waiting change of it. Returns the entry as it is then.

        With `asks`, the delete waits for approval whatever its origin.
        """
        current = unit.memories.get(_scope(operation), entry_id)
        if expected_version is not None and current.version != expected_version:
            raise Conflict(
                f"{entry_id} is at version {current.version}, not {expected_version}. Read it again, then delete it."
            )
        check_change(current, trust)
        if current.status is Status.ACTIVE and (asks or waits(self._config, operation.actor)):
            if current.kind is Kind.RECORD:
                raise NotAllowed(f"{entry_id} is a recorded message. Only its user may delete it.")
            return unit.memories.propose_delete(operation, entry_id, expected_version=current.version)
        deleted = unit.memories.delete(operation, entry_id)
        if current.status is Status.ACTIVE and deleted.version != current.version:
            deleted = unit.memories.delete(operation, entry_id)
        return deleted

    def approve(self, unit: Unit, operation: Operation, entry_id: str) -> Entry:
        """Applies a proposal. Raises OverBudget if there is no room for it now, and Conflict as the store does."""
        scope = _scope(operation)
        waiting = next((entry for entry in unit.memories.history(scope, entry_id) if entry.status in _WAITING), None)
        if waiting is not None and waiting.status is Status.PROPOSED:
            current = unit.memories.get(scope, entry_id)
            held = current if current.status is Status.ACTIVE else None
            self._quota.check_change(unit, operation, held, waiting.text, waiting.target)
        entry = unit.memories.approve(operation, entry_id)
        embed_later(unit, operation)
        return entry

    def _ready(self, unit: Unit, operation: Operation, admitted: Admitted) -> Admitted:
        """Marks the draft as proposed if its origin needs approval. Else lowers the trust to that of the sources:
        a proposal counts only once a person has approved it, and the person has seen the sources."""
        draft = admitted.draft
        if draft.proposed:
            return admitted
        if waits(self._config, draft.origin):
            return admitted._replace(draft=replace(draft, proposed=True))
        if draft.sources:
            admitted = lowered(admitted, lineage_of(unit, _scope(operation), draft.sources))
        return admitted


def embed_later(unit: Unit, operation: Operation) -> None:
    """Adds the embedding job. It has the operation's id, because an operation adds one job."""
    job = new_job(JobKind.EMBED, operation.id, operation.tenant, operation.space, operation.at)
    unit.jobs.add(job, coalesce=True)


def _scope(operation: Operation) -> Scope:
    return Scope(operation.tenant, (operation.space,))
