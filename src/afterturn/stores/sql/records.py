"""Recorded messages: written together, read by conversation, erased when their retention ends."""

from collections.abc import Sequence
from dataclasses import replace

from afterturn.errors import Conflict
from afterturn.stores.sql.entries import ENTRY_COLUMNS, FROM_ENTRY, OWNED, Conditions, Entries
from afterturn.stores.sql.session import Row, Statement, Value
from afterturn.types import Admitted, Entry, Filter, Operation, Scope


class SqlRecords:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._session = entries.session

    def add(self, operation: Operation, admitted: Sequence[Admitted]) -> list[Entry]:
        entries: list[Entry] = []
        for item, entry in zip(admitted, self._entries.insert_all(operation, admitted), strict=True):
            if entry is None:
                raise Conflict(f"{operation.space} already has an entry {item.id!r}. Give each record its own id.")
            entries.append(entry)
        return entries

    def of_conversation(self, scope: Scope, conversation: str, *, limit: int, owner: str | None = None) -> list[Entry]:
        where = Conditions(self._entries, scope)
        where.add("e.conversation = ? AND e.kind = 'record' AND e.status = 'active'", conversation)
        if owner is not None:
            where.add(OWNED, owner)
        sql = f"SELECT {ENTRY_COLUMNS} FROM {FROM_ENTRY} WHERE {where.sql} ORDER BY e.position DESC, e.key DESC LIMIT ?"
        return self._entries.read(self._session.rows(sql, [*where.values, limit])[::-1])

    def most_telling(self, scope: Scope, filter: Filter, *, limit: int) -> list[Entry]:
        found: list[Entry] = []
        for space in scope.spaces:
            # One space at a time, so that the index has the order, and no more than `limit` rows are read.
            where = Conditions(self._entries, replace(scope, spaces=(space,)))
            where.filter(filter)
            where.add("e.kind = 'record' AND e.status = 'active' AND e.telling > 0")
            tail = "ORDER BY e.telling DESC, e.id DESC LIMIT ?"
            sql = f"SELECT {ENTRY_COLUMNS} FROM {FROM_ENTRY} WHERE {where.sql} {tail}"
            found += self._entries.read(self._session.rows(sql, [*where.values, limit]))
        return found

    def next_position(self, tenant: str, space: str, conversation: str, *, owner: str | None = None) -> int:
        return read_position(self._session.rows(*finding_position(tenant, space, conversation, owner=owner)))

    def older_than(self, tenant: str, recorded_before: float, *, limit: int) -> list[tuple[str, str]]:
        rows = self._session.rows(
            f"SELECT s.name, e.id FROM {FROM_ENTRY} WHERE e.tenant = ? AND e.kind = 'record' AND e.recorded_at < ? "
            "ORDER BY e.recorded_at, e.key LIMIT ?",
            (tenant, recorded_before, limit),
        )
        return [(name, entry_id) for name, entry_id in rows]

    def spaces_of(
        self, tenant: str, owner: str, *, conversation: str | None = None, speaker: str | None = None
    ) -> list[str]:
        where = "e.tenant = ? AND e.owner = ? AND e.kind = 'record' AND e.conversation IS NOT NULL AND s.name <> ?"
        values: list[Value] = [tenant, owner, owner]
        for column, value in (("conversation", conversation), ("speaker", speaker)):
            if value is not None:
                where += f" AND e.{column} = ?"
                values.append(value)
        rows = self._session.rows(f"SELECT DISTINCT s.name FROM {FROM_ENTRY} WHERE {where} ORDER BY s.name", values)
        return [name for (name,) in rows]


def finding_position(tenant: str, space: str, conversation: str, *, owner: str | None) -> Statement:
    """The statement that finds the conversation's last record, for `read_position`."""
    sql = (
        "SELECT max(position) FROM entry WHERE space_key = (SELECT key FROM space WHERE tenant = ? AND name = ?) "
        "AND conversation = ? AND coalesce(owner, '') = ? AND kind = 'record'"
    )
    return sql, (tenant, space, conversation, "" if owner is None or owner == space else owner)


def read_position(rows: Sequence[Row]) -> int:
    """The position of the next record."""
    return 0 if not rows or rows[0][0] is None else rows[0][0] + 1
