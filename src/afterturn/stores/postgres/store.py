"""The Store port on PostgreSQL, and what `doctor` checks on its server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from afterturn.config import Config, StoreUrl
from afterturn.ports import Clock, KeyProvider
from afterturn.runtime.worker import ThreadWorker
from afterturn.stores.postgres.connection import StoreServer
from afterturn.stores.postgres.engine import PostgresEngine, open_engine
from afterturn.stores.postgres.errors import translate
from afterturn.stores.postgres.migration import find_version
from afterturn.stores.postgres.schema import ISOLATED
from afterturn.stores.postgres.session import PgConnection
from afterturn.stores.sql.session import load_queries
from afterturn.stores.threaded_store import ThreadedStore, Workers, schema_finding
from afterturn.types import Finding


def open_store(
    url: StoreUrl,
    config: Config,
    clock: Clock,
    *,
    worker: Workers = ThreadWorker,
    keys: KeyProvider | None = None,
) -> PostgresStore:
    """Blocks while the server is checked and the schema is migrated: do not call it on an event loop. Raises a
    StoreError."""
    return PostgresStore(open_engine(url, config, clock, keys=keys), worker)


class PostgresStore(ThreadedStore):
    def __init__(self, engine: PostgresEngine, worker: Workers = ThreadWorker) -> None:
        super().__init__(engine, partial(find_faults, engine.server), worker)
        self.engine = engine
        self.write_now = engine.write_now
        self.read_now = engine.read_now

    async def size_bytes(self) -> int:
        return await self._run_aside(lambda stopped: self.engine.size_bytes())


_MEBIBYTE = 1024 * 1024
_LONG_TRANSACTION = "10 minutes"
# Values are part of a statement's text, and the server logs statements that fail unless a setting forbids it. Only a
# superuser may change these settings, so a session cannot do it.
_SILENT = {
    "log_min_error_statement": ("panic",),
    "log_statement": ("none", "ddl"),
    "log_min_duration_statement": ("-1",),
}
_ALIVE_SECONDS = 3 * 3600.0
_JOB_LATE_SECONDS = 3600.0
_CONNECTIONS_SHARE_MAX = 0.8
_LAG_BYTES_MAX = 64 * _MEBIBYTE
_DEAD_ROWS_MIN = 10_000
_SQL = load_queries(__file__)
_SLOTS = "SELECT slot_name FROM pg_replication_slots WHERE NOT active ORDER BY 1"


class _Role(NamedTuple):
    bypasses: bool
    may_write: bool
    is_owner: bool


def find_faults(server: StoreServer) -> list[Finding]:
    """On a connection of its own. Raises a StoreError if the server cannot be reached."""
    with server.open() as connection:
        try:
            version = find_version(connection, server)
            schema = schema_finding(f"The schema {server.schema!r}", version, len(server.migrations))
            findings = [schema, *_find_server_faults(connection, server)]
            if version:
                findings += _find_store_faults(connection, server)
            return findings
        except psycopg.Error as error:
            raise translate(error, server.name) from error


def _find_server_faults(connection: PgConnection, server: StoreServer) -> Iterator[Finding]:
    vector = _row(connection, "SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    extension = f", with pgvector {vector[0]}" if vector else ""
    yield Finding("ok", "server", f"PostgreSQL {_text(connection, 'SHOW server_version')}{extension}.")
    if _text(connection, "SHOW synchronous_commit") == "off" and server.config.synchronous == "full":
        yield Finding(
            "warning",
            "durability",
            "The server acknowledges commits before they are on its disk (synchronous_commit is off).",
            "Set it to on for this database or role: a crash of the server would lose the last turns.",
        )
    values = {name: _text(connection, f"SHOW {name}") for name in _SILENT}
    if logged := [f"{name} = {value}" for name, value in values.items() if value not in _SILENT[name]]:
        yield Finding(
            "warning",
            "server log",
            f"The server may write texts of memories to its log, where forget cannot reach them: {', '.join(logged)}.",
            "As a superuser: ALTER ROLE … SET log_min_error_statement = panic; the same with log_statement = none "
            "and log_min_duration_statement = -1.",
        )
    yield _connections_finding(connection)
    if long := int(_text(connection, _SQL["long"], _LONG_TRANSACTION)):
        yield Finding(
            "warning",
            "transactions",
            f"{long} transactions of this database have been open for more than {_LONG_TRANSACTION}.",
            "End them: they keep the server from cleaning up deleted rows.",
        )
    if blocked := _row(connection, _SQL["blocked"]):
        count, waiting, blocker, program, state = blocked
        yield Finding(
            "warning",
            "locks",
            f"{count} sessions wait for locks. Process {waiting} waits for process {blocker} ({program}, {state}).",
            f"If that lasts, end the session that blocks: SELECT pg_terminate_backend({blocker}).",
        )
    yield from _find_replication_faults(connection)


def _connections_finding(connection: PgConnection) -> Finding:
    row = _row(connection, _SQL["connections"])
    assert row is not None
    used, limit = row
    message = f"{used} of {limit} connections are in use."
    if used > _CONNECTIONS_SHARE_MAX * limit:
        remedy = "Raise max_connections, or put PgBouncer in between: a process of afterturn opens up to eight."
        return Finding("warning", "connections", message, remedy)
    return Finding("ok", "connections", message)


def _find_replication_faults(connection: PgConnection) -> Iterator[Finding]:
    if _text(connection, "SELECT pg_is_in_recovery()") == "True":
        yield Finding(
            "error",
            "replication",
            "This server is a standby, and cannot be written.",
            "Name all servers in the URL, with target_session_attrs=read-write.",
        )
        return
    for name, state, sync, lag in connection.execute(_SQL["standbys"]).fetchall():
        behind = "unknown to this role" if lag < 0 else f"{lag / _MEBIBYTE:.1f} MiB"
        message = f"The standby {name!r} is {state} ({sync}); it is behind by {behind}."
        if state == "?" or (state == "streaming" and lag <= _LAG_BYTES_MAX):
            yield Finding("ok", "replication", message)
        else:
            yield Finding(
                "warning", "replication", message, "Check its network and disk: it is not ready to take over."
            )
    for (name,) in connection.execute(_SLOTS).fetchall():
        yield Finding(
            "warning",
            "replication",
            f"Nobody reads from the replication slot {name!r}, so the server keeps its log for it.",
            "Start the standby again, or drop the slot: its log would fill the disk.",
        )


def _find_store_faults(connection: PgConnection, server: StoreServer) -> Iterator[Finding]:
    schema = sql.Identifier(server.schema).as_string(connection)
    found = _row(connection, _SQL["role"], sql.Identifier(server.schema, "entry").as_string(connection))
    role = _Role(*found) if found else _Role(bypasses=False, may_write=False, is_owner=False)
    yield _role_finding(role)
    yield _isolation_finding(role, int(_text(connection, _SQL["isolated"], schema)))
    yield _hosts_finding(connection, server)
    yield _jobs_finding(connection, server)
    size = int(_text(connection, _SQL["size"], schema))
    # As of the last vacuum: measuring would wait for every table that somebody has locked.
    yield Finding("ok", "size", f"The tables and indexes have about {size / _MEBIBYTE:.1f} MiB.")
    for table, dead, live, vacuumed in connection.execute(_SQL["bloat"], (schema, _DEAD_ROWS_MIN)).fetchall():
        yield Finding(
            "warning",
            "bloat",
            f"The table {table} has {dead} dead rows and {live} live ones; its last vacuum: {vacuumed}.",
            f"Run VACUUM {schema}.{table}. If that does not help, end long transactions.",
        )


def _role_finding(role: _Role) -> Finding:
    if role.bypasses:
        return Finding(
            "warning",
            "role",
            "The role is a superuser or may bypass row-level security.",
            "Use a role that owns only its schema, or one with the rights of a host.",
        )
    rights = "owns the tables" if role.is_owner else "may read and write" if role.may_write else "may only read"
    return Finding("ok", "role", f"The role {rights}.")


def _isolation_finding(role: _Role, protected: int) -> Finding:
    if protected < len(ISOLATED):
        return Finding(
            "warning",
            "row-level security",
            f"Row-level security is off for {len(ISOLATED) - protected} of {len(ISOLATED)} tables.",
            "Tenants are separated there by the conditions of the queries only. To get all policies, move the store to "
            "a new schema with `afterturn migrate`, as a role that may create policies.",
        )
    if role.bypasses:
        return Finding("warning", "row-level security", "It does not apply to this role.", "Use another role.")
    return Finding("ok", "row-level security", "Each unit of work sees rows of its own tenant only.")


def _hosts_finding(connection: PgConnection, server: StoreServer) -> Finding:
    table = sql.Identifier(server.schema, "last_commit")
    query = sql.SQL("SELECT schema_version, count(*) FROM {} WHERE at > %s GROUP BY 1 ORDER BY 1").format(table)
    alive = connection.execute(query, (server.clock.now() - _ALIVE_SECONDS,)).fetchall()
    hosts = ", ".join(f"{count} of version {version}" for version, count in alive) or "none"
    return Finding("ok", "hosts", f"Processes that wrote in the last {_ALIVE_SECONDS / 3600:g} hours: {hosts}.")


def _jobs_finding(connection: PgConnection, server: StoreServer) -> Finding:
    connection.execute(server.begin_read(None))
    try:
        counts: dict[str, int] = dict(connection.execute("SELECT state, count(*) FROM job GROUP BY state").fetchall())
        late = "SELECT count(*) FROM job WHERE state = 'ready' AND run_at < %s"
        row = connection.execute(late, (server.clock.now() - _JOB_LATE_SECONDS,)).fetchone()
    finally:
        connection.execute("ROLLBACK")
    overdue = row[0] if row else 0
    ready, leased, dead = (counts.get(state, 0) for state in ("ready", "leased", "dead"))
    message = f"Jobs of all tenants: {ready} waiting, {leased} running, {dead} given up."
    if dead:
        return Finding("warning", "jobs", message, "Fix the cause, then run `afterturn worker --retry`.")
    if overdue:
        remedy = "Start `afterturn worker` on another machine."
        return Finding("warning", "jobs", f"{message} {overdue} are late by more than an hour.", remedy)
    return Finding("ok", "jobs", message)


def _row(connection: PgConnection, query: str, *values: object) -> tuple[Any, ...] | None:
    return connection.execute(query.encode(), values or None).fetchone()


def _text(connection: PgConnection, query: str, *values: object) -> str:
    row = _row(connection, query, *values)
    return "" if row is None else str(row[0])
