"""The rows of a store as the database has them, for labs: what no verb may show must not be in a table either.

A store is what `afterturn.open` takes: the path of a file, or the URL of a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeAlias

from afterturn.config import StoreUrl, find_store
from afterturn.stores.sql.session import Row, Session, Value

Store: TypeAlias = str | Path


def is_on_server(store: Store) -> bool:
    return isinstance(find_store(store), StoreUrl)


@contextmanager
def open_tables(store: Store) -> Iterator[Session]:
    """A session outside of the store's own connections. Every statement is committed at once."""
    target = find_store(store)
    if isinstance(target, StoreUrl):
        import psycopg

        from afterturn.stores.postgres.session import PostgresSession, Transaction

        with psycopg.connect(target.connection_url, autocommit=True) as connection:
            # Rows of all tenants, also for a role to which row-level security applies.
            connection.execute(f"SET search_path TO \"{target.schema}\"; SET afterturn.tenant = '*'".encode())
            transaction = Transaction(connection)
            yield PostgresSession(transaction, str(target), _Running())
            transaction.flush()
        return
    import apsw

    from afterturn.stores.sqlite.session import ApswSession

    with closing(apsw.Connection(str(target))) as file:
        yield ApswSession(file)


def read_rows(store: Store, sql: str, values: Sequence[Value] = ()) -> list[Row]:
    with open_tables(store) as session:
        return session.rows(sql, values)


class _Running:
    halted = False
