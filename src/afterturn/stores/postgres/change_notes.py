"""Triggers that note which rows have changed in `moving_row`, while a store is being copied."""

from __future__ import annotations

from collections.abc import Sequence

from afterturn.stores.sql.session import Session
from afterturn.stores.sql.tables import Table


def note_changes(session: Session, tables: Sequence[Table]) -> None:
    session.run(
        "CREATE TABLE IF NOT EXISTS moving_row (seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        "name TEXT NOT NULL, key TEXT NOT NULL)"
    )
    for table in tables:
        # With the rights of the owner: a host's role need not have any on `moving_row`.
        session.run(
            f"CREATE OR REPLACE FUNCTION moving_{table.name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
            f"SET search_path FROM CURRENT AS $$ BEGIN IF TG_OP = 'DELETE' THEN {_note(table, 'OLD')} "
            f"ELSE {_note(table, 'NEW')} END IF; RETURN NULL; END $$"
        )
        session.run(
            f"CREATE OR REPLACE TRIGGER moving_{table.name} AFTER INSERT OR UPDATE OR DELETE ON {table.name} "
            f"FOR EACH ROW EXECUTE FUNCTION moving_{table.name}()"
        )


def _note(table: Table, row: str) -> str:
    key = ", ".join(f"{row}.{column}" for column in table.noted)
    return f"INSERT INTO moving_row (name, key) VALUES ('{table.name}', json_build_array({key})::text);"


def forget_changes(session: Session, table: Table) -> None:
    """May raise StoreLocked soon: who wants to read the table waits behind a statement that waits for its readers. But
    the server ends its own vacuum of the table only for a statement that has waited for a second."""
    session.run(
        "SELECT set_config('lock_timeout', '300ms', true) WHERE NOT EXISTS (SELECT 1 FROM pg_locks "
        f"WHERE relation = '{table.name}'::regclass AND mode = 'ShareUpdateExclusiveLock' AND granted)"
    )
    session.run(f"DROP TRIGGER IF EXISTS moving_{table.name} ON {table.name}")
    session.run(f"DROP FUNCTION IF EXISTS moving_{table.name}()")


def settle_keys(session: Session, tables: Sequence[Table]) -> None:
    """Lets the sequences continue after the largest key: they do not see keys that were inserted."""
    for table in tables:
        if (column := table.own_key) is not None:
            session.run(
                f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column}'), "
                f"greatest((SELECT max({column}) FROM {table.name}), "
                f"nextval(pg_get_serial_sequence('{table.name}', '{column}'))))"
            )


def start_keys(session: Session, tables: Sequence[Table], first: int) -> None:
    """Lets the sequences begin at a number, so that no two stores of a group use the same keys."""
    for table in tables:
        if (column := table.own_key) is not None:
            session.run(f"ALTER TABLE {table.name} ALTER COLUMN {column} RESTART WITH {first}")
