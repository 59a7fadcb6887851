"""Statements: added once, superseded, hidden, and read back by id, by page or as of a time."""

from afterturn.base.errors import Conflict, InvalidInput, NotFound
from afterturn.base.types import (
    Added,
    Admitted,
    Entry,
    Filter,
    Kind,
    LaneQuery,
    Operation,
    Scope,
    Status,
    Verb,
    Verdict,
)
from afterturn.stores.sql.conditions import Conditions
from afterturn.stores.sql.entries import Entries, with_status
from afterturn.stores.sql.promotion import promoted
from afterturn.stores.sql.rows import FROM_ENTRY, SELECTED, read_entries
from afterturn.stores.sql.session import Value

# The status is pasted: a bound one would keep SQLite from the indexes that hold one status alone.
_DUPLICATE = (
    f"SELECT {SELECTED} FROM {FROM_ENTRY} WHERE e.space_key = ? AND e.target = ? AND coalesce(e.agent, '') = ? "
    "AND coalesce(e.project, '') = ? AND e.content_hash = ? AND e.kind = 'statement' AND e.status = '{status}'"
)
_CURRENT = f"SELECT {SELECTED} FROM {FROM_ENTRY} WHERE e.space_key = ? AND e.id = ? AND e.status = '{{status}}'"
# What a version's status was after the last step taken by then.
_ACTIVE_THEN = (
    "'active' = (SELECT p.after FROM step AS p JOIN operation AS o ON o.seq = p.operation_seq "
    "WHERE p.entry_key = e.key AND o.at <= ? ORDER BY o.seq DESC, p.ordinal DESC LIMIT 1)"
)
_NEWER = (
    "NOT EXISTS (SELECT 1 FROM entry AS n WHERE n.space_key = e.space_key AND n.id = e.id AND n.version > e.version "
    "AND {condition})"
)


class SqlMemories:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._session = entries.session

    def add(self, operation: Operation, admitted: Admitted) -> Added:
        if admitted.verdict is Verdict.QUARANTINE:
            return Added(self._insert(operation, admitted), created=True, operation=operation.id)
        if admitted.draft.proposed:
            return self._propose(operation, admitted)
        entry = self._entries.insert(operation, admitted, admitted.id)
        if entry is not None:
            return Added(entry, created=True, operation=operation.id)
        found = self._find_duplicate(operation, admitted)
        if found is None:
            raise Conflict(
                f"{operation.space} has an entry {admitted.id!r} already. Update it, or add it without an id."
            )
        key, existing = found
        if _has_ended(existing, admitted.recorded_at):
            self._entries.move(operation, key, Status.ACTIVE, Status.EXPIRED)
            return Added(self._insert(operation, admitted), created=True, operation=operation.id)
        if admitted.trust > existing.trust:
            return self._promote(operation, admitted, key, existing)
        return Added(existing, created=False, operation=None)

    def update(self, operation: Operation, entry_id: str, admitted: Admitted, *, expected_version: int | None) -> Entry:
        if admitted.draft.proposed:
            raise InvalidInput(f"A change of {entry_id} can not be proposed. Propose a statement of its own.")
        key, current = self._get_active(operation, entry_id)
        if current.kind is not Kind.STATEMENT:
            raise InvalidInput(
                f"{entry_id} is a recorded message, which is never updated. Delete it, or add a statement."
            )
        if expected_version is not None and current.version != expected_version:
            raise Conflict(
                f"{entry_id} is at version {current.version}, not {expected_version}. Read it again, then update it."
            )
        if admitted.verdict is Verdict.QUARANTINE:
            return self._insert_version(operation, admitted, entry_id)
        duplicate = self._find_duplicate(operation, admitted)
        if duplicate is not None and duplicate[1].id != entry_id:
            raise Conflict(f"{duplicate[1].id} says the same already. Delete one of the two, or choose another text.")
        self._entries.move(operation, key, Status.ACTIVE, Status.SUPERSEDED)
        return self._insert_version(operation, admitted, entry_id)

    def approve(self, operation: Operation, entry_id: str) -> Entry:
        found = self._find_current(operation, entry_id, Status.PROPOSED)
        if found is None:
            newest = self.get(Scope(operation.tenant, (operation.space,)), entry_id)
            raise Conflict(f"{entry_id} is {newest.status}; only what is proposed can be approved.")
        key, proposal = found
        rival = self._find_like(operation, _signature(proposal), Status.ACTIVE)
        if rival is not None and not _has_ended(rival[1], operation.at):
            raise Conflict(f"{rival[1].id} says the same and is active. Delete one of the two.")
        if rival is not None:
            self._entries.move(operation, rival[0], Status.ACTIVE, Status.EXPIRED)
        self._entries.move(operation, key, Status.PROPOSED, Status.ACTIVE)
        return with_status(proposal, Status.ACTIVE)

    def delete(self, operation: Operation, entry_id: str) -> Entry:
        waiting = self._find_current(operation, entry_id, Status.PROPOSED)
        key, current = waiting or self._get_active(operation, entry_id)
        self._entries.move(operation, key, current.status, Status.DELETED)
        return with_status(current, Status.DELETED)

    def get(self, scope: Scope, entry_id: str, *, version: int | None = None) -> Entry:
        where = Conditions(self._session, scope)
        where.add("e.id = ?", entry_id)
        if version is not None:
            where.add("e.version = ?", version)
        found = self._select(where, "ORDER BY e.version DESC, e.key DESC LIMIT 1")
        if not found:
            raise _not_found(entry_id, scope.spaces, version)
        return found[0]

    def page(self, scope: Scope, filter: Filter, *, limit: int, before: str | None = None) -> list[Entry]:
        where = Conditions(self._session, scope)
        where.filter(filter)
        where.among("e.status", filter.statuses)
        if filter.statuses != (Status.ACTIVE,):
            condition, value = self._session.among("n.status", filter.statuses)
            where.add(_NEWER.format(condition=condition), value)
        if before is not None:
            where.add("e.id < ?", before)
        return self._select(where, "ORDER BY e.id DESC, s.name LIMIT ?", limit)

    def history(self, scope: Scope, entry_id: str) -> list[Entry]:
        where = Conditions(self._session, scope)
        where.add("e.id = ?", entry_id)
        found = self._select(where, "ORDER BY s.name, e.version")
        if not found:
            raise _not_found(entry_id, scope.spaces)
        return found

    def known_at(self, query: LaneQuery, at: float) -> list[Entry]:
        self._entries.settle()
        where = Conditions(self._session, query.scope)
        where.lane(query, at=at)
        where.add(_ACTIVE_THEN, at)
        return self._select(where, "ORDER BY e.key DESC")

    def counts(self, scope: Scope) -> dict[tuple[str, Kind, Status], int]:
        where = Conditions(self._session, scope)
        rows = self._session.rows(
            f"SELECT s.name, e.kind, e.status, count(*) FROM {FROM_ENTRY} WHERE {where.sql} "
            "GROUP BY s.name, e.kind, e.status",
            where.values,
        )
        return {(name, Kind(kind), Status(status)): count for name, kind, status, count in rows}

    def _select(self, where: Conditions, tail: str, *values: Value) -> list[Entry]:
        sql = f"SELECT {SELECTED} FROM {FROM_ENTRY} WHERE {where.sql} {tail}"
        return read_entries(self._session, self._session.rows(sql, [*where.values, *values]))

    def _insert(self, operation: Operation, admitted: Admitted, *, entry_id: str = "", version: int = 1) -> Entry:
        entry = self._entries.insert(operation, admitted, entry_id or admitted.id, version=version)
        if entry is None:
            raise Conflict(
                f"{operation.space} has {entry_id or admitted.id} or its like already. Read it and try again."
            )
        return entry

    def _insert_version(self, operation: Operation, admitted: Admitted, entry_id: str) -> Entry:
        space_key = self._entries.spaces.key(operation.tenant, operation.space)
        row = self._session.row("SELECT max(version) FROM entry WHERE space_key = ? AND id = ?", (space_key, entry_id))
        assert row is not None
        return self._insert(operation, admitted, entry_id=entry_id, version=row[0] + 1)

    def _promote(self, operation: Operation, admitted: Admitted, key: int, existing: Entry) -> Added:
        self._entries.move(operation, key, Status.ACTIVE, Status.SUPERSEDED)
        entry = self._insert_version(operation, promoted(existing, admitted), existing.id)
        if operation.verb is Verb.ADD:
            self._entries.journal.rename(operation, Verb.PROMOTE)
        return Added(entry, created=False, operation=operation.id)

    def _propose(self, operation: Operation, admitted: Admitted) -> Added:
        for status in (Status.ACTIVE, Status.PROPOSED):
            found = self._find_duplicate(operation, admitted, status)
            if found is not None and not _has_ended(found[1], admitted.recorded_at):
                return Added(found[1], created=False, operation=None)
            if found is not None and status is Status.PROPOSED:
                self._entries.move(operation, found[0], Status.PROPOSED, Status.EXPIRED)
        return Added(self._insert(operation, admitted), created=True, operation=operation.id)

    def _find_duplicate(
        self, operation: Operation, admitted: Admitted, status: Status = Status.ACTIVE
    ) -> tuple[int, Entry] | None:
        draft = admitted.draft
        if draft.kind is not Kind.STATEMENT:
            return None
        signature = (draft.target.value, draft.agent or "", draft.project or "", admitted.content_hash)
        return self._find_like(operation, signature, status)

    def _find_like(self, operation: Operation, signature: tuple[str, ...], status: Status) -> tuple[int, Entry] | None:
        space_key = self._entries.spaces.key(operation.tenant, operation.space)
        return self._find(_DUPLICATE.format(status=status.value), (space_key, *signature))

    def _get_active(self, operation: Operation, entry_id: str) -> tuple[int, Entry]:
        found = self._find_current(operation, entry_id, Status.ACTIVE)
        if found is not None:
            return found
        newest = self.get(Scope(operation.tenant, (operation.space,)), entry_id)
        remedy = "Approve or delete it first." if newest.status is Status.PROPOSED else "Undo that first."
        raise Conflict(f"{entry_id} is {newest.status}, so there is nothing to change. {remedy}")

    def _find_current(self, operation: Operation, entry_id: str, status: Status) -> tuple[int, Entry] | None:
        space_key = self._entries.spaces.key(operation.tenant, operation.space)
        return self._find(_CURRENT.format(status=status.value), (space_key, entry_id))

    def _find(self, sql: str, values: tuple[Value, ...]) -> tuple[int, Entry] | None:
        row = self._session.row(sql, values)
        return None if row is None else (row[0], read_entries(self._session, [row])[0])


def _signature(entry: Entry) -> tuple[str, ...]:
    return (entry.target.value, entry.agent or "", entry.project or "", entry.content_hash)


def _has_ended(entry: Entry, now: float) -> bool:
    return any(end is not None and end <= now for end in (entry.expires_at, entry.valid_to))


def _not_found(entry_id: str, spaces: tuple[str, ...], version: int | None = None) -> NotFound:
    what = entry_id if version is None else f"{entry_id} with version {version}"
    return NotFound(f"There is no memory {what} in {', '.join(spaces)}. `afterturn list` shows the ids of a space.")
