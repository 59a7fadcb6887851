"""Empty stores for labs and tests, each a new schema in a database of a server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

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
