"""Statements: added once, superseded, hidden, and read back by id, by page or as of a time."""

from afterturn.base.errors import Conflict, InvalidInput
from afterturn.base.types import (
    Added,
    Admitted,
    Entry,
    Filter,
    Kind,
    LaneQuery,
    Operation,
    Scope,
    SpaceSummary,
    Status,
    Target,
    Verb,
    Verdict,
)
from afterturn.stores.sql.approval import Approval
from afterturn.stores.sql.conditions import Conditions
from afterturn.stores.sql.current import Current, has_ended, no_such_memory
from afterturn.stores.sql.entries import Entries, with_status
from afterturn.stores.sql.promotion import promoted
from afterturn.stores.sql.rows import FROM_ENTRY, SELECTED, read_entries
from afterturn.stores.sql.session import Value

# What a version's status was after the last step taken by then.
_ACTIVE_THEN = (
    "'active' = (SELECT p.after FROM step AS p JOIN operation AS o ON o.seq = p.operation_seq "
    "WHERE p.entry_key = e.key AND o.at <= ? ORDER BY o.seq DESC, p.ordinal DESC LIMIT 1)"
)
# What a memory says now comes before whatever is newer and waits, was rejected, or was undone.
_NOW = "e.status = 'active'"
_BETTER = (
    "NOT EXISTS (SELECT 1 FROM entry AS n WHERE n.space_key = e.space_key AND n.id = e.id "
    f"AND (n.status = 'active', n.version) > ({_NOW}, e.version) AND {{condition}})"
)


class SqlMemories:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._session = entries.session
        self._current = Current(entries)
        self._approval = Approval(entries, self._current)

    def add(self, operation: Operation, admitted: Admitted) -> Added:
        if admitted.verdict is Verdict.QUARANTINE:
            return Added(self._insert(operation, admitted), created=True, operation=operation.id)
        if admitted.draft.proposed:
            return self._approval.propose(operation, admitted)
        entry = self._entries.insert(operation, admitted, admitted.id)
        if entry is not None:
            return Added(entry, created=True, operation=operation.id)
        found = self._find_duplicate(operation, admitted)
        if found is None:
            raise Conflict(
                f"{operation.space} has an entry {admitted.id!r} already. Update it, or add it without an id."
            )
        key, existing = found
        if has_ended(existing, admitted.recorded_at):
            self._entries.move(operation, key, Status.ACTIVE, Status.EXPIRED)
            return Added(self._insert(operation, admitted), created=True, operation=operation.id)
        if admitted.trust > existing.trust:
            return self._promote(operation, admitted, key, existing)
        if admitted.trust == existing.trust:
            existing = self._entries.rest_also(operation, key, existing, admitted.draft.sources)
        return Added(existing, created=False, operation=None)

    def update(self, operation: Operation, entry_id: str, admitted: Admitted, *, expected_version: int | None) -> Entry:
        key, current = self._get_statement(operation, entry_id, expected_version)
        if admitted.verdict is Verdict.QUARANTINE:
            return self._insert_version(operation, admitted, entry_id)
        duplicate = self._find_duplicate(operation, admitted)
        if duplicate is not None and duplicate[1].id != entry_id:
            raise Conflict(f"{duplicate[1].id} says the same already. Delete one of the two, or choose another text.")
        if admitted.draft.proposed:
            return self._approval.propose_change(operation, current, admitted)
        self._entries.move(operation, key, Status.ACTIVE, Status.SUPERSEDED)
        return self._insert_version(operation, admitted, entry_id)

    def propose_delete(self, operation: Operation, entry_id: str, *, expected_version: int | None) -> Entry:
        _, current = self._get_statement(operation, entry_id, expected_version)
        return self._approval.propose_delete(operation, current)

    def approve(self, operation: Operation, entry_id: str) -> Entry:
        return self._approval.approve(operation, entry_id)

    def delete(self, operation: Operation, entry_id: str) -> Entry:
        waiting = self._current.find_waiting(operation, entry_id)
        if waiting is not None:
            return self._approval.reject(operation, waiting)
        key, current = self._current.get_active(operation, entry_id)
        self._entries.move(operation, key, Status.ACTIVE, Status.DELETED)
        return with_status(current, Status.DELETED)

    def get(self, scope: Scope, entry_id: str, *, version: int | None = None) -> Entry:
        where = Conditions(self._session, scope)
        where.add("e.id = ?", entry_id)
        if version is not None:
            where.add("e.version = ?", version)
        found = self._select(where, f"ORDER BY {_NOW} DESC, e.version DESC, e.key DESC LIMIT 1")
        if not found:
            raise no_such_memory(entry_id, scope.spaces, version)
        return found[0]

    def page(self, scope: Scope, filter: Filter, *, limit: int, before: str | None = None) -> list[Entry]:
        where = self._listed(scope, filter)
        if before is not None:
            where.add("e.id < ?", before)
        return self._select(where, "ORDER BY e.id DESC, s.name LIMIT ?", limit)

    def newest(self, scope: Scope, filter: Filter, *, limit: int, before: str | None = None) -> list[Entry]:
        where = self._listed(scope, filter)
        if before is not None:
            last = self._listed_at(scope, filter, before)
            where.add("(e.occurred_at < ? OR (e.occurred_at = ? AND e.id < ?))", last, last, before)
        return self._select(where, "ORDER BY e.occurred_at DESC, e.id DESC, s.name LIMIT ?", limit)

    def _listed(self, scope: Scope, filter: Filter) -> Conditions:
        where = Conditions(self._session, scope)
        where.filter(filter)
        where.among("e.status", filter.statuses)
        if filter.statuses != (Status.ACTIVE,):
            condition, value = self._session.among("n.status", filter.statuses)
            where.add(_BETTER.format(condition=condition), value)
        return where

    def _listed_at(self, scope: Scope, filter: Filter, entry_id: str) -> float:
        """The time by which a page lists this memory: of the version on it, or of the newest if none is on it now."""
        where = Conditions(self._session, scope)
        where.add("e.id = ?", entry_id)
        condition, value = self._session.among("e.status", filter.statuses)
        row = self._session.row(
            f"SELECT e.occurred_at FROM {FROM_ENTRY} WHERE {where.sql} "
            f"ORDER BY CASE WHEN {condition} THEN 0 ELSE 1 END, {_NOW} DESC, e.version DESC LIMIT 1",
            [*where.values, value],
        )
        if row is None:
            raise no_such_memory(entry_id, scope.spaces)
        return float(row[0])

    def history(self, scope: Scope, entry_id: str) -> list[Entry]:
        where = Conditions(self._session, scope)
        where.add("e.id = ?", entry_id)
        found = self._select(where, "ORDER BY s.name, e.version")
        if not found:
            raise no_such_memory(entry_id, scope.spaces)
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

    def spaces(self, tenant: str) -> list[SpaceSummary]:
        rows = self._session.rows(
            "SELECT s.name, count(CASE WHEN e.kind = 'statement' AND e.status = 'active' THEN 1 END), "
            "count(CASE WHEN e.kind = 'record' AND e.status = 'active' THEN 1 END), "
            "max(CASE WHEN e.status = 'active' THEN e.occurred_at END) "
            f"FROM {FROM_ENTRY} WHERE s.tenant = ? GROUP BY s.name ORDER BY s.name",
            [tenant],
        )
        return [SpaceSummary(*row) for row in rows]

    def weigh(self, scope: Scope, target: Target) -> tuple[int, int]:
        where = Conditions(self._session, scope)
        where.add("e.target = ? AND e.kind = 'statement' AND e.status = 'active'", target.value)
        row = self._session.row(
            f"SELECT count(*), coalesce(sum(octet_length(e.text)), 0) FROM {FROM_ENTRY} WHERE {where.sql}", where.values
        )
        assert row is not None
        return int(row[0]), int(row[1])

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
        version = self._current.next_version(operation, entry_id)
        return self._insert(operation, admitted, entry_id=entry_id, version=version)

    def _promote(self, operation: Operation, admitted: Admitted, key: int, existing: Entry) -> Added:
        self._entries.move(operation, key, Status.ACTIVE, Status.SUPERSEDED)
        entry = self._insert_version(operation, promoted(existing, admitted), existing.id)
        if operation.verb is Verb.ADD:
            self._entries.journal.rename(operation, Verb.PROMOTE)
        return Added(entry, created=False, operation=operation.id)

    def _find_duplicate(self, operation: Operation, admitted: Admitted) -> tuple[int, Entry] | None:
        return self._current.find_duplicate(operation, admitted) if admitted.draft.kind is Kind.STATEMENT else None

    def _get_statement(self, operation: Operation, entry_id: str, expected_version: int | None) -> tuple[int, Entry]:
        """The active version of what somebody wants to change."""
        key, current = self._current.get_active(operation, entry_id)
        if current.kind is not Kind.STATEMENT:
            raise InvalidInput(
                f"{entry_id} is a recorded message, which is never updated. Delete it, or add a statement."
            )
        if expected_version is not None and current.version != expected_version:
            raise Conflict(
                f"{entry_id} is at version {current.version}, not {expected_version}. Read it again, then change it."
            )
        return key, current
