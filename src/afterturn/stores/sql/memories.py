"""Statements: added once, superseded, proposed, hidden, and read by id, by page or as of a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from afterturn.errors import Conflict, InvalidInput, NotFound
from afterturn.stores.sql.entries import (
    ENTRY_COLUMNS,
    FROM_ENTRY,
    REFERENCE,
    SPACE_LAST,
    Conditions,
    Entries,
    encode_metadata,
    new_entry,
)
from afterturn.stores.sql.sealing import TEXT_SIZE
from afterturn.stores.sql.session import Value, load_queries
from afterturn.types.entries import (
    SOURCES_MAX,
    Entry,
    EntryFields,
    Kind,
    Metadata,
    Scope,
    Status,
    Target,
    Verb,
    Verdict,
)
from afterturn.types.operations import Added, Admitted, Operation, SpaceSummary
from afterturn.types.searches import Filter, LaneQuery
from afterturn.validation import METADATA_BYTES_MAX


def promoted(existing: Entry, admitted: Admitted) -> Admitted:
    """The new statement, with the fields of the existing one that the draft leaves open."""
    draft = admitted.draft
    valid_from = existing.valid_from if draft.valid_from is None else draft.valid_from
    valid_to = existing.valid_to if draft.valid_to is None else draft.valid_to
    if valid_from is not None and valid_to is not None and valid_to <= valid_from:
        valid_from, valid_to = draft.valid_from, draft.valid_to
    return admitted._replace(
        draft=replace(
            draft,
            pinned=draft.pinned or existing.pinned,
            firm=draft.firm or existing.firm,
            metadata=_merged_metadata(existing.metadata, draft.metadata),
            # A new statement without sources depends on nothing, so it gets none: it must outlive the old sources.
            sources=tuple(dict.fromkeys((*draft.sources, *existing.sources)))[:SOURCES_MAX] if draft.sources else (),
            expires_at=existing.expires_at if draft.expires_at is None else draft.expires_at,
            valid_from=valid_from,
            valid_to=valid_to,
        ),
    )


def _merged_metadata(existing: Metadata, new: Metadata) -> Metadata:
    """Both, the new values first. Old ones are dropped if the sum would exceed the limit."""
    merged = {**existing, **new}
    for name in existing:
        if len(encode_metadata(merged).encode()) <= METADATA_BYTES_MAX:
            break
        if name not in new:
            del merged[name]
    return merged


_SQL = load_queries(__file__)
_ACTIVE = f"SELECT {ENTRY_COLUMNS} FROM {FROM_ENTRY} WHERE e.space_key = ? AND e.id = ? AND e.status = 'active'"


class PendingProposal(NamedTuple):
    """A proposal. `base` is the version that it would replace, None for a new statement."""

    key: int
    entry: Entry
    base: int | None


class VersionFinder:
    """Finds the version that an operation is about, by status or by text."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._session = entries.session

    def find_active(self, operation: Operation, entry_id: str) -> tuple[int, Entry] | None:
        return self._find(_ACTIVE, (self._space(operation), entry_id))

    def get_active(self, operation: Operation, entry_id: str) -> tuple[int, Entry]:
        """Raises Conflict if there is no active version, NotFound if the space has no such id."""
        found = self.find_active(operation, entry_id)
        if found is not None:
            return found
        status = self.newest_status(operation, entry_id)
        waits = status in (Status.PROPOSED, Status.WITHDRAWAL)
        remedy = "Approve or delete it first." if waits else "Undo that first."
        raise Conflict(f"{entry_id} is {status}, so it cannot be changed. {remedy}")

    def find_waiting(self, operation: Operation, entry_id: str) -> PendingProposal | None:
        row = self._session.row(_SQL["waiting"], (self._space(operation), entry_id))
        return None if row is None else PendingProposal(row[0], self._entries.read([row])[0], row[-1])

    def find_like(
        self, operation: Operation, statement: EntryFields, content_hash: str, status: Status = Status.ACTIVE
    ) -> tuple[int, Entry] | None:
        """The statement with that status and the same text."""
        stored_hash = self._entries.stored_hash(operation, content_hash)
        signature = (statement.target.value, statement.agent or "", statement.project or "", stored_hash)
        return self._find(_SQL["like"].format(status=status.value), (self._space(operation), *signature))

    def newest_status(self, operation: Operation, entry_id: str) -> Status:
        row = self._session.row(
            "SELECT status FROM entry WHERE space_key = ? AND id = ? ORDER BY version DESC LIMIT 1",
            (self._space(operation), entry_id),
        )
        if row is None:
            raise no_such_memory(entry_id, (operation.space,))
        return Status(row[0])

    def next_version(self, operation: Operation, entry_id: str) -> int:
        row = self._session.row(
            "SELECT max(version), max(spent) FROM entry WHERE space_key = ? AND id = ?",
            (self._space(operation), entry_id),
        )
        assert row is not None
        return int(max(row)) + 1

    def _space(self, operation: Operation) -> int:
        return self._entries.spaces.key(operation.tenant, operation.space)

    def _find(self, sql: str, values: tuple[Value, ...]) -> tuple[int, Entry] | None:
        row = self._session.row(sql, values)
        return None if row is None else (row[0], self._entries.read([row])[0])


def has_ended(entry: Entry, now: float) -> bool:
    return any(end is not None and end <= now for end in (entry.expires_at, entry.valid_to))


def no_such_memory(entry_id: str, spaces: tuple[str, ...], version: int | None = None) -> NotFound:
    what = entry_id if version is None else f"{entry_id} with version {version}"
    return NotFound(f"There is no memory {what} in {', '.join(spaces)}. `afterturn list` shows the ids of a space.")


class Approval:
    """Proposals: new statements, changes and withdrawals that wait for approval."""

    def __init__(self, entries: Entries, current: VersionFinder) -> None:
        self._entries = entries
        self._current = current

    def propose(self, operation: Operation, admitted: Admitted) -> Added:
        """Adds a proposed statement, or returns the active or proposed one with the same text."""
        for status in (Status.ACTIVE, Status.PROPOSED):
            found = self._current.find_like(operation, admitted.draft, admitted.content_hash, status)
            if found is not None and not has_ended(found[1], admitted.recorded_at):
                return Added(found[1], created=False, operation=None)
            if found is not None and status is Status.PROPOSED:
                self._entries.move(operation, found[0], Status.PROPOSED, Status.EXPIRED)
        return Added(self._entries.insert_new(operation, admitted, admitted.id), created=True, operation=operation.id)

    def propose_change(self, operation: Operation, base: Entry, admitted: Admitted) -> Entry:
        ended = self._check_room(operation, base.id, admitted.recorded_at)
        like = self._current.find_like(operation, admitted.draft, admitted.content_hash, Status.PROPOSED)
        if like is not None and like[1].id != base.id:
            if not has_ended(like[1], admitted.recorded_at):
                raise Conflict(f"{like[1].id} is a proposal with the same text. Approve or reject it first.")
            ended.append(like)
        version = self._current.next_version(operation, base.id)
        change = new_entry(admitted, base.id, version=version, space=operation.space, status=Status.PROPOSED)
        return self._wait(operation, change, base.version, ended)

    def propose_delete(self, operation: Operation, base: Entry) -> Entry:
        """The proposal has the same text and sources, so that it is forgotten together with the memory."""
        ended = self._check_room(operation, base.id, operation.at)
        version = self._current.next_version(operation, base.id)
        copy = replace(base, version=version, status=Status.WITHDRAWAL, recorded_at=operation.at)
        return self._wait(operation, copy, base.version, ended)

    def approve(self, operation: Operation, entry_id: str) -> Entry:
        waiting = self._current.find_waiting(operation, entry_id)
        if waiting is None:
            status = self._current.newest_status(operation, entry_id)
            raise Conflict(f"{entry_id} is {status}; only a proposal can be approved.")
        if waiting.entry.status is Status.WITHDRAWAL:
            self._entries.move(operation, self._get_base(operation, waiting), Status.ACTIVE, Status.DELETED)
            return self.reject(operation, waiting)
        replaced = None if waiting.base is None else self._get_base(operation, waiting)
        rival = self._current.find_like(operation, waiting.entry, waiting.entry.content_hash)
        if rival is not None and rival[0] != replaced:
            if not has_ended(rival[1], operation.at):
                raise Conflict(f"{rival[1].id} has the same text and is active. Delete one of the two.")
            self._entries.move(operation, rival[0], Status.ACTIVE, Status.EXPIRED)
        if replaced is not None:
            self._entries.move(operation, replaced, Status.ACTIVE, Status.SUPERSEDED)
        self._entries.move(operation, waiting.key, Status.PROPOSED, Status.ACTIVE)
        return replace(waiting.entry, status=Status.ACTIVE)

    def reject(self, operation: Operation, waiting: PendingProposal) -> Entry:
        self._entries.move(operation, waiting.key, waiting.entry.status, Status.DELETED)
        return replace(waiting.entry, status=Status.DELETED)

    def _get_base(self, operation: Operation, waiting: PendingProposal) -> int:
        active, entry_id = self._current.find_active(operation, waiting.entry.id), waiting.entry.id
        if active is None:
            raise Conflict(
                f"{entry_id} is no longer active, so the change proposed for it does not apply. Reject the proposal."
            )
        if active[1].version != waiting.base:
            raise Conflict(
                f"{entry_id} has changed since this was proposed, from version {waiting.base} to version "
                f"{active[1].version} now. Reject the proposal, and propose it again if it still applies."
            )
        return active[0]

    def _check_room(self, operation: Operation, entry_id: str, now: float) -> list[tuple[int, Entry]]:
        """Raises Conflict if another change of the memory waits. One that has expired is returned, to be replaced."""
        waiting = self._current.find_waiting(operation, entry_id)
        if waiting is None:
            return []
        if not has_ended(waiting.entry, now):
            raise Conflict(f"A change of {entry_id} is already waiting for approval. Approve or reject it first.")
        return [(waiting.key, waiting.entry)]

    def _wait(self, operation: Operation, change: Entry, base: int, ended: Sequence[tuple[int, Entry]]) -> Entry:
        for key, entry in ended:
            self._entries.move(operation, key, entry.status, Status.EXPIRED)
        self._entries.insert_waiting(operation, change, base=base)
        return change


# It follows every other one, so a prefix with it is behind all names with that prefix.
_LAST_CHARACTER = "\U0010ffff"
# The active version comes before newer ones that wait, were rejected or were undone.
_NOW = "e.status = 'active'"


class SqlMemories:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._session = entries.session
        self._current = VersionFinder(entries)
        self._approval = Approval(entries, self._current)

    def add(self, operation: Operation, admitted: Admitted) -> Added:
        if admitted.verdict is Verdict.QUARANTINE:
            return Added(
                self._entries.insert_new(operation, admitted, admitted.id), created=True, operation=operation.id
            )
        if admitted.draft.proposed:
            return self._approval.propose(operation, admitted)
        entry = self._entries.insert(operation, admitted, admitted.id)
        if entry is not None:
            return Added(entry, created=True, operation=operation.id)
        found = self._find_duplicate(operation, admitted)
        if found is None:
            raise Conflict(
                f"{operation.space} already has an entry {admitted.id!r}. Update it, or add the memory without an id."
            )
        key, existing = found
        if has_ended(existing, admitted.recorded_at):
            self._entries.move(operation, key, Status.ACTIVE, Status.EXPIRED)
            return Added(
                self._entries.insert_new(operation, admitted, admitted.id), created=True, operation=operation.id
            )
        if admitted.trust > existing.trust:
            self._entries.move(operation, key, Status.ACTIVE, Status.SUPERSEDED)
            entry = self._insert_version(operation, promoted(existing, admitted), existing.id)
            if operation.verb is Verb.ADD:
                self._entries.journal.rename(operation, Verb.PROMOTE)
            return Added(entry, created=False, operation=operation.id)
        if admitted.trust == existing.trust:
            existing = self._entries.add_sources(operation, key, existing, admitted.draft.sources)
        return Added(existing, created=False, operation=None)

    def update(self, operation: Operation, entry_id: str, admitted: Admitted, *, expected_version: int | None) -> Entry:
        key, current = self._get_statement(operation, entry_id, expected_version)
        if admitted.verdict is Verdict.QUARANTINE:
            return self._insert_version(operation, admitted, entry_id)
        duplicate = self._find_duplicate(operation, admitted)
        if duplicate is not None and duplicate[1].id != entry_id:
            raise Conflict(f"{duplicate[1].id} already has the same text. Delete one of the two, or use another text.")
        if admitted.draft.proposed:
            return self._approval.propose_change(operation, current, admitted)
        self._entries.move(operation, key, Status.ACTIVE, Status.SUPERSEDED)
        return self._insert_version(operation, admitted, entry_id)

    def add_again(self, operation: Operation, admitted: Admitted) -> Entry:
        status = self._current.newest_status(operation, admitted.id)
        if self._current.find_active(operation, admitted.id) is not None or status is Status.PROPOSED:
            raise Conflict(
                f"{admitted.id} is {status}, so it cannot be added again. Update it, or decide on its proposal."
            )
        return self._insert_version(operation, admitted, admitted.id)

    def postpone(self, operation: Operation, entry_id: str, *, expires_at: float) -> None:
        key, _ = self._current.get_active(operation, entry_id)
        self._entries.set_expiry(operation, key, expires_at)

    def propose_delete(self, operation: Operation, entry_id: str, *, expected_version: int | None) -> Entry:
        _, current = self._get_statement(operation, entry_id, expected_version)
        return self._approval.propose_delete(operation, current)

    def waiting_since(self, tenant: str, recorded_before: float, *, limit: int) -> list[tuple[str, str]]:
        rows = self._session.rows(
            f"SELECT s.name, e.id FROM {FROM_ENTRY} WHERE e.tenant = ? AND e.status IN ('proposed', 'withdrawal') "
            "AND e.recorded_at < ? ORDER BY e.recorded_at, e.key LIMIT ?",
            (tenant, recorded_before, limit),
        )
        return [(name, entry_id) for name, entry_id in rows]

    def approve(self, operation: Operation, entry_id: str) -> Entry:
        return self._approval.approve(operation, entry_id)

    def delete(self, operation: Operation, entry_id: str) -> Entry:
        waiting = self._current.find_waiting(operation, entry_id)
        if waiting is not None:
            return self._approval.reject(operation, waiting)
        key, current = self._current.get_active(operation, entry_id)
        self._entries.move(operation, key, Status.ACTIVE, Status.DELETED)
        return replace(current, status=Status.DELETED)

    def hide(self, operation: Operation, entry_id: str) -> Entry:
        key, current = self._current.get_active(operation, entry_id)
        self._entries.journal.step(operation, key, Status.ACTIVE, Status.ACTIVE)
        return current

    def get(self, scope: Scope, entry_id: str, *, version: int | None = None) -> Entry:
        where = Conditions(self._entries, scope)
        where.add("e.id = ?", entry_id)
        if version is not None:
            where.add("e.version = ?", version)
        found = self._select(where, f"ORDER BY {_NOW} DESC, e.version DESC, e.key DESC LIMIT 1")
        if not found:
            raise no_such_memory(entry_id, scope.spaces, version)
        return found[0]

    def versions(self, scope: Scope, refs: Collection[str]) -> dict[str, Entry]:
        if not refs:
            return {}
        where = Conditions(self._entries, scope)
        where.among("e.id", sorted({ref.partition(".")[0] for ref in refs}))
        where.among(REFERENCE, sorted(refs))
        return {entry.ref: entry for entry in self._select(where, "ORDER BY e.key")}

    def learned_from(self, scope: Scope, sources: Collection[str], statuses: Collection[Status]) -> list[Entry]:
        where = Conditions(self._entries, scope)
        condition, value = self._session.among("source", sorted(sources))
        where.add(f"e.kind = 'statement' AND e.key IN (SELECT entry_key FROM source WHERE {condition})", value)
        where.among("e.status", sorted(statuses))
        sql = f"SELECT {ENTRY_COLUMNS} FROM entry AS e JOIN space AS s ON {SPACE_LAST} WHERE {where.sql} ORDER BY e.key"
        return self._entries.read(self._session.rows(sql, where.values))

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
        where = Conditions(self._entries, scope)
        where.filter(filter)
        if filter.statuses == (Status.ACTIVE,):
            where.add("e.status = 'active'")
        else:
            where.among("e.status", filter.statuses)
            condition, value = self._session.among("n.status", filter.statuses)
            where.add(_SQL["better"].format(condition=condition), value)
        return where

    def _listed_at(self, scope: Scope, filter: Filter, entry_id: str) -> float:
        """The time of the version that a page lists, or of the newest if it lists none."""
        where = Conditions(self._entries, scope)
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
        where = Conditions(self._entries, scope)
        where.add("e.id = ?", entry_id)
        found = self._select(where, "ORDER BY s.name, e.version")
        if not found:
            raise no_such_memory(entry_id, scope.spaces)
        return found

    def known_at(self, query: LaneQuery, at: float) -> list[Entry]:
        self._entries.flush()
        where = Conditions(self._entries, query.scope)
        where.lane(query, at=at)
        where.add(_SQL["active_then"], at)
        return self._select(where, "ORDER BY e.key DESC")

    def counts(self, scope: Scope) -> dict[tuple[str, Kind, Status], int]:
        where = Conditions(self._entries, scope)
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

    def space_names(self, tenant: str, prefix: str) -> list[str]:
        rows = self._session.rows(
            "SELECT name FROM space WHERE tenant = ? AND name >= ? AND name < ? ORDER BY name",
            (tenant, prefix, prefix + _LAST_CHARACTER),
        )
        return [row[0] for row in rows]

    def size(self, scope: Scope, target: Target) -> tuple[int, int]:
        where = Conditions(self._entries, scope)
        where.add("e.target = ? AND e.kind = 'statement' AND e.status = 'active'", target.value)
        size = "octet_length(e.text)" if self._entries.sealer is None else TEXT_SIZE
        row = self._session.row(
            f"SELECT count(*), coalesce(sum({size}), 0) FROM {FROM_ENTRY} WHERE {where.sql}", where.values
        )
        assert row is not None
        return int(row[0]), int(row[1])

    def _select(self, where: Conditions, tail: str, *values: Value) -> list[Entry]:
        sql = f"SELECT {ENTRY_COLUMNS} FROM {FROM_ENTRY} WHERE {where.sql} {tail}"
        return self._entries.read(self._session.rows(sql, [*where.values, *values]))

    def _insert_version(self, operation: Operation, admitted: Admitted, entry_id: str) -> Entry:
        version = self._current.next_version(operation, entry_id)
        return self._entries.insert_new(operation, admitted, entry_id, version=version)

    def _find_duplicate(self, operation: Operation, admitted: Admitted) -> tuple[int, Entry] | None:
        if admitted.draft.kind is not Kind.STATEMENT:
            return None
        return self._current.find_like(operation, admitted.draft, admitted.content_hash)

    def _get_statement(self, operation: Operation, entry_id: str, expected_version: int | None) -> tuple[int, Entry]:
        """The active version of the statement to change."""
        key, current = self._current.get_active(operation, entry_id)
        if current.kind is not Kind.STATEMENT:
            raise InvalidInput(
                f"{entry_id} is a recorded message, which cannot be updated. Delete it, or add a statement."
            )
        if expected_version is not None and current.version != expected_version:
            raise Conflict(
                f"{entry_id} is at version {current.version}, not {expected_version}. Read it again, then change it."
            )
        return key, current
