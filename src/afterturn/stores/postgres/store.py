"""The Store port on PostgreSQL, and the findings of `doctor` about a server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import psycopg
from psycopg import sql

from afterturn.config import Config, StoreUrl
from afterturn.ports import Clock
from afterturn.runtime.worker import ThreadWorker
from afterturn.stores.postgres.connection import StoreServer
from afterturn.stores.postgres.engine import PostgresEngine, open_engine
from afterturn.stores.postgres.errors import translate
from afterturn.stores.postgres.migration import find_state
from afterturn.stores.postgres.session import PgConnection
from afterturn.stores.postgres.shards import Directory, ShardEngine
from afterturn.stores.sql.moved import WATCHED, copy_findings
from afterturn.stores.threaded_store import ThreadedStore, Workers
from afterturn.types import Finding

_MEBIBYTE = 1024 * 1024
_LONG_TRANSACTION = "10 minutes"
# Values are part of a statement's text, and the server logs statements that fail unless it is told not to. Only a
# superuser may change these settings, so a session cannot do it.
_SILENT = {
    "log_min_error_statement": ("panic",),
    "log_statement": ("none", "ddl"),
    "log_min_duration_statement": ("-1",),
}
_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = CAST(%s AS regnamespace)"
)
_LONG = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND xact_start < now() - CAST(%s AS interval)"
)


def open_store(url: StoreUrl, config: Config, clock: Clock, *, worker: Workers = ThreadWorker) -> PostgresStore:
    """Blocks while the server is checked and the schema is migrated: do not call it on an event loop. Raises a
    StoreError."""
    return PostgresStore(open_engine(url, config, clock), worker)


class PostgresStore(ThreadedStore):
    def __init__(self, engine: PostgresEngine, worker: Workers = ThreadWorker) -> None:
        super().__init__(engine, partial(find_faults, engine.server), worker)
        self.engine = engine
        self.write_now = engine.write_now
        self.read_now = engine.read_now


def open_shard(url: StoreUrl, config: Config, clock: Clock, *, worker: Workers = ThreadWorker) -> ShardStore:
    """Opens the bucket of the configured tenant, by the directory at `url`. Blocks; raises a StoreError."""
    return ShardStore(ShardEngine(Directory(url, config, clock), config, clock), worker)


class ShardStore(ThreadedStore):
    def __init__(self, engine: ShardEngine, worker: Workers = ThreadWorker) -> None:
        super().__init__(engine, lambda: find_faults(engine.current.server), worker)
        self.engine = engine


def find_faults(server: StoreServer) -> list[Finding]:
    """The findings of `doctor` about a server, on a connection of its own. Raises if the server cannot be reached."""
    with server.open() as connection:
        try:
            return list(_find_faults(connection, server))
        except psycopg.Error as error:
            raise translate(error, server.name) from error


def _find_faults(connection: PgConnection, server: StoreServer) -> Iterator[Finding]:
    state, newest = find_state(connection, server), len(server.migrations)
    version = state.version
    if state.oldest <= newest <= version:
        yield Finding("ok", "schema", f"The schema {server.schema!r} has version {version}.")
    else:
        yield Finding(
            "error",
            "schema",
            f"The schema {server.schema!r} has version {version}; this afterturn works with {newest}.",
            "Upgrade afterturn in every process that uses the store, then open it again.",
        )
    yield Finding("ok", "server", f"PostgreSQL {_text(connection, 'SHOW server_version')}.")
    size = int(_text(connection, _SIZE, sql.Identifier(server.schema).as_string(connection)))
    yield Finding("ok", "size", f"The tables and indexes have {size / _MEBIBYTE:.1f} MiB.")
    watched = sql.SQL("SELECT value FROM {}.meta WHERE key = %s").format(sql.Identifier(server.schema))
    yield from copy_findings(connection.execute(watched, (WATCHED,)).fetchone())
    if _text(connection, "SHOW synchronous_commit") == "off" and server.config.synchronous == "full":
        yield Finding(
            "warning",
            "durability",
            "The server acknowledges commits before they are on its disk (synchronous_commit is off).",
            "Set it to on for this database or role: a crash of the server would lose the last turns.",
        )
    if _text(connection, "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user") == "True":
        yield Finding(
            "warning",
            "role",
            "The role is a superuser or may bypass row-level security.",
            "Use a role that owns only its schema.",
        )
    if logged := _logging(connection):
        yield Finding(
            "warning",
            "server log",
            f"The server may write texts of memories to its log, where forget cannot reach them: {', '.join(logged)}.",
            "As a superuser: ALTER ROLE … SET log_min_error_statement = panic; the same with log_statement = none "
            "and log_min_duration_statement = -1.",
        )
    if long := int(_text(connection, _LONG, _LONG_TRANSACTION)):
        yield Finding(
            "warning",
            "transactions",
            f"{long} transactions of this database have been open for more than {_LONG_TRANSACTION}.",
            "End them: they keep the server from cleaning up deleted rows.",
        )


def _logging(connection: PgConnection) -> list[str]:
    values = {name: _text(connection, f"SHOW {name}") for name in _SILENT}
    return [f"{name} = {value}" for name, value in values.items() if value not in _SILENT[name]]


def _text(connection: PgConnection, query: str, *values: str) -> str:
    row = connection.execute(query.encode(), values or None).fetchone()
    return "" if row is None else str(row[0])
