"""Triggers that note which rows have changed in `moving_row`, while a store is being copied."""

from __future__ import annotations

from collections.abc import Sequence

from afterturn.stores.sql.session import Session
from afterturn.stores.sql.tables import Table

_ROWS = {"insert": "NEW", "update": "NEW", "delete": "OLD"}


def note_changes(session: Session, tables: Sequence[Table]) -> None:
    session.run(
        "CREATE TABLE IF NOT EXISTS moving_row (seq INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, "
        "key TEXT NOT NULL)"
    )
    for table in tables:
        for event, row in _ROWS.items():
            key = ", ".join(f"{row}.{column}" for column in table.noted)
            session.run(
                f"CREATE TRIGGER IF NOT EXISTS moving_{table.name}_{event} AFTER {event.upper()} ON {table.name} BEGIN "
                f"INSERT INTO moving_row (name, key) VALUES ('{table.name}', json_array({key})); END"
            )


def forget_changes(session: Session, table: Table) -> None:
    for event in _ROWS:
        session.run(f"DROP TRIGGER IF EXISTS moving_{table.name}_{event}")


def settle_keys(session: Session, tables: Sequence[Table]) -> None:
    """Nothing: SQLite continues after the largest key that was inserted."""
