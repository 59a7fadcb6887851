"""The tables that move with a store: their columns, primary keys, and the columns that hold keys of other rows.

A test compares this list with the schemas of both stores, so that a new table or column cannot be left behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from afterturn.stores.sql.session import Value

_SPACES = "space_key IN (SELECT key FROM space WHERE tenant = ?)"
_BY_COLUMN = {
    "tenant": "tenant = ?",
    "space_key": _SPACES,
    "entry_key": f"entry_key IN (SELECT key FROM entry WHERE {_SPACES})",
    "operation_seq": f"operation_seq IN (SELECT seq FROM operation WHERE {_SPACES})",
    "conversation_key": f"conversation_key IN (SELECT key FROM conversation WHERE {_SPACES})",
}


@dataclass(frozen=True, slots=True)
class Table:
    """`numbers` gives for each column with a numeric key the table that the key belongs to."""

    name: str
    columns: tuple[str, ...]
    primary: tuple[str, ...]
    numbers: Mapping[str, str] = field(default_factory=dict)

    @property
    def of_tenant(self) -> str:
        """A condition on the rows of one tenant, with one value to bind. True for a table that tenants share."""
        if self.name == "tenant":
            return "name = ?"
        if self.name == "turn":
            # No index has the tenants of all turns.
            return _BY_COLUMN["conversation_key"]
        return next((sql for column, sql in _BY_COLUMN.items() if column in self.columns), "? IS NOT NULL")

    @property
    def own_key(self) -> str | None:
        """The column with the numeric key that the database gives to each row."""
        return next((column for column, table in self.numbers.items() if table == self.name), None)

    def primary_of(self, row: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(row[self.columns.index(column)] for column in self.primary)


_REFERENCES = {
    "space_key": "space",
    "entry_key": "entry",
    "operation_seq": "operation",
    "conversation_key": "conversation",
    "embedder_key": "embedder",
}


def _table(name: str, primary: str, others: str) -> Table:
    columns = (*primary.split(), *others.split())
    numbers = {column: table for column, table in _REFERENCES.items() if column in columns}
    if primary in ("key", "seq"):
        numbers[primary] = name
    return Table(name, columns, tuple(primary.split()), numbers)


# The columns of the primary key, and the others.
_COLUMNS: dict[str, tuple[str, str]] = json.loads(Path(__file__).with_suffix(".json").read_bytes())
TABLES = tuple(_table(name, *columns) for name, columns in _COLUMNS.items())
"""In an order in which rows come after the rows that they refer to."""
