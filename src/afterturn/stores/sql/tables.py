"""The tables that move with a store: their columns, primary keys, and the columns that hold keys of other rows.

A test compares this list with the schemas of both stores, so that a new table or column cannot be left behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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


TABLES = (
    _table("tenant", "name", "forgets"),
    _table("embedder", "key", "name version dimensions normalised"),
    _table("space", "key", "tenant name seq documents terms_total embedder_key changed_at consolidated_at"),
    _table(
        "entry",
        "key",
        "tenant id version space_key kind status text target origin trust content_hash agent project conversation "
        "owner turn position speaker occurred_at recorded_at valid_from valid_to expires_at pinned metadata reason "
        "has_sources base spent telling firm",
    ),
    _table("source", "entry_key ordinal", "source"),
    _table("operation", "seq", "id space_key verb actor at grp"),
    _table("step", "operation_seq ordinal", "entry_key before after"),
    _table("frequency", "space_key term", "documents"),
    _table("embedding", "embedder_key space_key entry_key", "data"),
    _table("unembedded", "space_key entry_key", "tenant"),
    _table(
        "conversation",
        "key",
        "space_key id opened_at active_at turns compactions compacted_at cleared_at unreviewed_turns unread_position "
        "incognito",
    ),
    _table(
        "turn",
        "conversation_key id",
        "tenant status started_at touched_at user_hash ended_at recorded_at taint incognito",
    ),
    _table("block", "conversation_key hash", "turn size_bytes injected_at point anchor text in_sight"),
    _table("block_ref", "conversation_key hash ordinal", "ref"),
    _table("spent_block", "space_key hash", "size_bytes"),
    _table("carried", "key", "conversation_key correlation turn names detail"),
    _table("standing", "conversation_key", "made_at text"),
    _table("standing_ref", "conversation_key ordinal", "ref"),
    _table(
        "recall",
        "key",
        "space_key conversation_key correlation phase turn delivered_in asked_at names detail",
    ),
    _table("job", "id", "space_key tenant kind payload run_at attempts state error owner leased_until place"),
    _table("timeline", "space_key seq", "at name conversation turn data"),
    _table("tombstone", "space_key kind hash", "seq at"),
    _table(
        "review",
        "space_key id",
        "tenant kind writes created_at conversation turn reads agent project forgets state ended_at written proposed "
        "refusals calls tokens reason spaces notes environment",
    ),
    _table("review_message", "space_key review ordinal", "role speaker text source trust occurred_at fresh"),
    _table("usage", "space_key day purpose", "tenant calls tokens_in tokens_out estimated"),
)
"""In an order in which rows come after the rows that they refer to."""
