"""Checks that every unit of work on SQLite writes only where its `at` says.

SQLite needs no `at`, but a store that locks by it would let two units change the same rows at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest

from afterturn.stores.engine import Write, WriteOutcome
from afterturn.stores.sqlite.engine import Writer
from afterturn.types import JobQueue, Scope, Tenant, UnitScope

_run = Writer._run
_outside: list[str] = []
# Table and column of a row that belongs to a space, and how the space is found. The first that a table has is used.
_OWNERS = {
    "space_key": "SELECT tenant, name FROM space WHERE key = ?",
    "conversation_key": (
        "SELECT s.tenant, s.name FROM conversation AS c JOIN space AS s ON s.key = c.space_key WHERE c.key = ?"
    ),
    "entry_key": "SELECT s.tenant, s.name FROM entry AS e JOIN space AS s ON s.key = e.space_key WHERE e.key = ?",
}


@contextmanager
def checked_scopes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "_run", _checked_run)
        yield


def take_writes_outside() -> list[str]:
    """What units wrote outside their `at` since the last call."""
    found = list(_outside)
    _outside.clear()
    return found


def _checked_run(self: Writer, write: Write, *, isolated: bool) -> WriteOutcome:
    if write.at is None:
        return _run(self, write, isolated=isolated)
    rows: set[tuple[str, tuple[Any, ...]]] = set()

    def note(change: apsw.PreUpdate) -> None:
        rows.update((change.table_name, row) for row in (change.old, change.new) if row is not None)

    self.connection.preupdate_hook(note, id=note)
    try:
        outcome = _run(self, write, isolated=isolated)
    finally:
        self.connection.preupdate_hook(None, id=note)
    if self.connection.in_transaction:
        for place in {_place(self.connection, table, row) for table, row in rows} - {None}:
            if not _covers(write.at, *place):
                _outside.append(f"{write.work} at {write.at} wrote {place}")
    return outcome


def _place(connection: apsw.Connection, table: str, row: tuple[Any, ...]) -> tuple[str, str, str] | None:
    """Table, tenant and space of a row. None for a row that belongs to no space, or to one that the unit deleted."""
    columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
    if table == "space":
        return table, row[columns.index("tenant")], row[columns.index("name")]
    for column, sql in _OWNERS.items():
        if column in columns:
            found = connection.execute(sql, (row[columns.index(column)],)).fetchone()
            return None if found is None else (table, *found)
    return None


def _covers(at: UnitScope, table: str, tenant: str, space: str) -> bool:
    match at:
        case Scope():
            return tenant == at.tenant and space in at.spaces
        case Tenant():
            return tenant == at.name
        case JobQueue():
            return table == "job"
        case None:
            return True
