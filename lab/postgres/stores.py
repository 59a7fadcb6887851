"""Empty stores for labs and tests, each a new schema in a database of a server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from lab.postgres.server import PostgresServer


class PostgresStores:
    """`url` names the database, as a role that may create schemas."""

    def __init__(self, url: str) -> None:
        self._url = url.partition("?")[0]

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """The URL of an empty store, which is dropped afterwards."""
        schema = f"lab_{uuid.uuid4().hex[:12]}"
        try:
            yield f"{self._url}?schema={schema}"
        finally:
            self._drop(schema)

    def _drop(self, schema: str) -> None:
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


@contextmanager
def find_url(target: str) -> Iterator[str]:
    """`postgresql:` starts a server that stops at the end; a URL uses one that runs."""
    if target != "postgresql:":
        yield target
        return
    with PostgresServer() as server:
        yield server.url()


class PostgresTarget:
    """The stores of a lab on a server, opened by an ordinary role, for which row-level security is on.

    `statements` sees none: the proxy that could count them is not between the lab and the server.
    """

    kind = "postgresql"

    def __init__(self, server: PostgresServer) -> None:
        import psycopg

        self._stores = PostgresStores(server.url())
        self._role = server.url(user="memory").partition("?")[0]
        with psycopg.connect(server.url().partition("?")[0], autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'memory'").fetchall():
                connection.execute("CREATE ROLE memory LOGIN; GRANT CREATE ON DATABASE postgres TO memory")

    @contextmanager
    def fresh(self) -> Iterator[str]:
        with self._stores.fresh() as store:
            yield f"{self._role}?{store.partition('?')[2]}"

    def files(self, store: Path | str) -> list[Path]:
        return []

    def transaction(self, store: Path | str, *, writes: bool) -> AbstractContextManager[None]:
        raise NotImplementedError("Labs that hold a transaction open run on SQLite.")

    def statements(self) -> AbstractContextManager[list[str]]:
        return nullcontext([])

    def read_tables(self, store: Path | str, tenant: str | None) -> str:
        """Every row and statistic that the role sees: with the setting of a tenant, or with None without it.

        Without `entry_terms`, the table of words, which has no policy: docs/production.md says why.
        """
        import psycopg
        from psycopg import sql

        schema, seen = str(store).partition("schema=")[2], []
        with psycopg.connect(self._role) as connection:
            connection.execute("SELECT set_config('search_path', %s, false)", (schema,))
            if tenant is not None:
                connection.execute("SELECT set_config('afterturn.tenant', %s, false)", (tenant,))
            tables = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'entry_terms'", (schema,)
            ).fetchall()
            for (table,) in tables:
                seen.append(
                    repr(connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall())
                )
            statistics = (
                "SELECT most_common_vals::text, most_common_elems::text FROM pg_stats "
                "WHERE schemaname = %s AND tablename <> 'entry_terms'"
            )
            seen.append(repr(connection.execute(statistics, (schema,)).fetchall()))
        return "\n".join(seen)


@contextmanager
def open_target() -> Iterator[PostgresTarget]:
    """Starts a server, which stops at the end."""
    with PostgresServer() as server:
        yield PostgresTarget(server)
