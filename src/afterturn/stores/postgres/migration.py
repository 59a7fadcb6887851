"""Brings the schema of a store to the current version while hosts of the version before read and write.

Opening a store runs what the new version needs (`migrate`). Everything else waits for the background
(`continue_migrations`), and the last part for the end of the older hosts.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import NamedTuple, TypeVar

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from afterturn.errors import ForeignFile, StoreLocked, StoreTooNew, StoreUnavailable
from afterturn.log import logger
from afterturn.stores.postgres.connection import StoreServer
from afterturn.stores.postgres.errors import VERSION_CHECK, describe_error, translate
from afterturn.stores.postgres.schema import Backfill, Migration, NewIndex, isolation
from afterturn.stores.postgres.session import PgConnection

R = TypeVar("R")
_TRIES_MAX = 100
_PAUSE = 0.3
_BATCH_ROWS = 1000
# Housekeeping refreshes the row of an idle host every hour. One that has missed two is taken for dead.
ALIVE_SECONDS = 3 * 3600.0


class MigrationPhase(StrEnum):
    """How far a migration is. In all but the last two, hosts of the version before may work."""

    INDEXING = "indexing"
    EXPANDED = "expanded"
    CLOSED = "closed"
    """Older hosts are refused, and rows are filled in once more."""
    DONE = "done"


class SchemaState(NamedTuple):
    """0 and 0 if there is no store. Programs from version `oldest` on may use it; `unfinished` migrations still have
    work for the background."""

    version: int
    oldest: int
    unfinished: tuple[int, ...]


def find_state(connection: PgConnection, server: StoreServer) -> SchemaState:
    """Raises a StoreError."""
    try:
        return _find_state(connection, server)
    except psycopg.Error as error:
        raise translate(error, server.name) from error


def check_version(state: SchemaState, server: StoreServer) -> None:
    """Raises StoreTooNew if this program is too old for the store."""
    if state.oldest > len(server.migrations):
        raise StoreTooNew(
            f"The store {server.name} has schema version {state.version} and needs programs from version "
            f"{state.oldest} on; this afterturn has version {len(server.migrations)}. Upgrade afterturn, or open "
            "another store."
        )


def check_migrated(state: SchemaState, server: StoreServer) -> None:
    """For programs that migrate nothing. Raises StoreTooNew or StoreUnavailable."""
    check_version(state, server)
    if state.version < len(server.migrations):
        raise StoreUnavailable(
            f"The store {server.name} has schema version {state.version}, and this afterturn needs "
            f"{len(server.migrations)}. Open it once with `afterturn.open` to create or migrate it."
        )


def migrate(connection: PgConnection, server: StoreServer) -> None:
    """Brings the schema to the current version. Others may do the same meanwhile: each step runs once.

    Creates the schema if it is missing and the role may do that. Raises a StoreError.
    """
    try:
        state = _find_state(connection, server)
        check_version(state, server)
        for version in range(state.version + 1, len(server.migrations) + 1):
            _retried(connection, server, partial(_expand, connection, server, version))
            if server.migrations[version - 1].indexes:
                _retried(connection, server, partial(_build_indexes, connection, server, version))
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreUnavailable(
            f"The role may not create or change the tables of the store {server.name}: {describe_error(error)}. Let an "
            f'administrator run CREATE SCHEMA "{server.schema}" AUTHORIZATION <role>, or open it once as the owner.'
        ) from error
    except psycopg.errors.DuplicateTable as error:
        raise ForeignFile(
            f"The schema {server.schema!r} has tables of another program: {describe_error(error)}. Name another schema "
            "with ?schema= in the URL."
        ) from error
    except psycopg.Error as error:
        raise translate(error, server.name) from error


def continue_migrations(server: StoreServer, stopped: Callable[[], bool]) -> None:
    """Fills in rows, and finishes the migrations that no older host needs any more. May be stopped between batches.
    Only a process of the owner can finish them.

    Blocks; uses a connection of its own. Raises a StoreError.
    """
    with server.open() as connection:
        if not find_state(connection, server).unfinished:
            return
        for version in range(1, len(server.migrations) + 1):
            try:
                while _retried(connection, server, partial(_advance, connection, server, version)):
                    if stopped():
                        return
            except psycopg.errors.InsufficientPrivilege as error:
                logger.info("a migration of %s waits for the owner: %s", server.name, describe_error(error))
                return
            except psycopg.Error as error:
                raise translate(error, server.name) from error
            if version in find_state(connection, server).unfinished:
                return


def _find_state(connection: PgConnection, server: StoreServer) -> SchemaState:
    phases = _find_phases(connection, server)
    return SchemaState(
        max((version for version, phase in phases.items() if phase is not MigrationPhase.INDEXING), default=0),
        max(
            (version for version, phase in phases.items() if phase in (MigrationPhase.CLOSED, MigrationPhase.DONE)),
            default=0,
        ),
        tuple(
            version
            for version, phase in phases.items()
            if phase is not MigrationPhase.DONE
            and version <= len(server.migrations)
            and _has_rest(server.migrations[version - 1])
        ),
    )


def _find_phases(connection: PgConnection, server: StoreServer) -> dict[int, MigrationPhase]:
    """By version, in order. Empty if there is no store."""
    table = sql.Identifier(server.schema, "migration")
    found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table.as_string(connection),)).fetchone()
    if found is None or not found[0]:
        return {}
    rows = connection.execute(sql.SQL("SELECT version, phase FROM {} ORDER BY version").format(table))
    return {int(version): MigrationPhase(phase) for version, phase in rows}


def _has_rest(migration: Migration) -> bool:
    return bool(migration.backfills or migration.contract)


def _retried(connection: PgConnection, server: StoreServer, work: Callable[[], R]) -> R:
    """Runs `work` in a transaction under the lock of migrations.

    Waits for other locks in short tries: those who want a table queue behind a statement that waits for it.
    """
    pause = threading.Event()
    for _ in range(_TRIES_MAX):
        try:
            with connection.without_limit():
                connection.execute(server.begin_migration())
                value = work()
                connection.execute("COMMIT")
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            # Rolled back below, so that it holds no lock during the pause.
            pass
        else:
            return value
        finally:
            if not connection.closed and connection.info.transaction_status is not TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        pause.wait(_PAUSE)
    raise StoreLocked(
        f"The tables of the store {server.name} are in use by other sessions, so they could not be migrated. End long "
        "transactions, wait for a migration that another process runs, then open it again."
    )


# Before the first host of the new version works


def _expand(connection: PgConnection, server: StoreServer, version: int) -> None:
    if version in _find_phases(connection, server):
        return
    if version == 1:
        _create_schema(connection, server)
    migration = server.migrations[version - 1]
    for statement in migration.expand:
        connection.execute(_collated(statement).encode())
    _isolate(connection, server, migration.isolated)
    if version == 1:
        connection.execute("INSERT INTO meta (key, value) VALUES ('generation', %s)", (uuid.uuid4().hex,))
    phase = MigrationPhase.INDEXING if migration.indexes else MigrationPhase.EXPANDED
    connection.execute("INSERT INTO migration (version, phase) VALUES (%s, %s)", (version, phase.value))


def _isolate(connection: PgConnection, server: StoreServer, tables: Mapping[str, str]) -> None:
    """Turns row-level security on, if the server lets this role do it. `doctor` says whether it is on."""
    if not tables:
        return
    connection.execute("SAVEPOINT isolation")
    try:
        for table, column in tables.items():
            for statement in isolation(table, column):
                connection.execute(statement.encode())
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported) as error:
        connection.execute("ROLLBACK TO SAVEPOINT isolation")
        logger.warning("row-level security is off in %s: %s", server.name, describe_error(error))


def _build_indexes(guard: PgConnection, server: StoreServer, version: int) -> None:
    """On another connection, since an index that lets others write is not built in a transaction. The transaction of
    `guard` keeps the lock of migrations meanwhile; it has no snapshot that the server would wait for."""
    if _find_phases(guard, server)[version] is not MigrationPhase.INDEXING:
        return
    with server.open() as connection, connection.without_limit():
        for index in server.migrations[version - 1].indexes:
            _build_index(connection, server, index)
    _set_phase(guard, version, MigrationPhase.EXPANDED)


def _build_index(connection: PgConnection, server: StoreServer, index: NewIndex) -> None:
    name = sql.Identifier(server.schema, index.name)
    query = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
    found = connection.execute(query, (name.as_string(connection),)).fetchone()
    if found is not None and found[0]:
        return
    if found is not None:
        # The process that built it was ended.
        connection.execute(sql.SQL("DROP INDEX CONCURRENTLY {}").format(name))
    create = sql.SQL("CREATE {} INDEX CONCURRENTLY {} ON {}.{}").format(
        sql.SQL("UNIQUE" if index.unique else ""),
        sql.Identifier(index.name),
        sql.Identifier(server.schema),
        sql.SQL(index.on),  # type: ignore[arg-type]
    )
    connection.execute(create)


def _create_schema(connection: PgConnection, server: StoreServer) -> None:
    """Asks first: CREATE SCHEMA IF NOT EXISTS needs the right to create one, even if it is there."""
    if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (server.schema,)).fetchone() is None:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(server.schema)))


def _collated(statement: str) -> str:
    """Texts are compared byte by byte, as in every store, whatever the database's own order is."""
    return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', statement)


# In the background


def _advance(connection: PgConnection, server: StoreServer, version: int) -> bool:
    """Does the next part of a migration, in the open transaction. False: there is nothing more to do now."""
    migration = server.migrations[version - 1]
    query = "SELECT phase, backfill, position FROM migration WHERE version = %s"
    row = connection.execute(query, (version,)).fetchone()
    if row is None or not _has_rest(migration) or row[0] in (MigrationPhase.INDEXING, MigrationPhase.DONE):
        return False
    phase, done, position = row
    if done < len(migration.backfills):
        _run_batch(connection, version, migration.backfills[done], position)
        return True
    if phase == MigrationPhase.EXPANDED:
        return _close(connection, server, version)
    for statement in migration.contract:
        connection.execute(_collated(statement).encode())
    _set_phase(connection, version, MigrationPhase.DONE)
    logger.info("the migration of %s to schema version %d is finished", server.name, version)
    return True


def _run_batch(connection: PgConnection, version: int, backfill: Backfill, position: int | None) -> None:
    """Fills in the rows of the next range of keys, or goes on to the next backfill if there are none."""
    table, key = sql.Identifier(backfill.table), sql.Identifier(backfill.key)
    after = sql.SQL("WHERE {} > {}").format(key, position) if position is not None else sql.SQL("")
    query = sql.SQL("SELECT min(key), max(key) FROM (SELECT {} AS key FROM {} {} ORDER BY 1 LIMIT {}) AS batch")
    row = connection.execute(query.format(key, table, after, _BATCH_ROWS)).fetchone()
    assert row is not None
    first, last = row
    if last is None:
        connection.execute(
            "UPDATE migration SET backfill = backfill + 1, position = NULL WHERE version = %s", (version,)
        )
        return
    connection.execute(backfill.statement.encode(), {"first": first - 1, "last": last})
    connection.execute("UPDATE migration SET position = %s WHERE version = %s", (last, version))


def _close(connection: PgConnection, server: StoreServer, version: int) -> bool:
    """Refuses older hosts from now on, unless some are alive. Rows that they wrote meanwhile are filled in afterwards.

    An older host that was taken for dead and comes back cannot commit: the check is on the row that each commit writes.
    """
    connection.execute(server.lock_store)
    alive = "SELECT count(*) FROM last_commit WHERE schema_version < %s AND at > %s"
    row = connection.execute(alive, (version, server.clock.now() - ALIVE_SECONDS)).fetchone()
    if row is not None and row[0]:
        logger.info("the migration of %s to version %d waits for %d older hosts", server.name, version, row[0])
        return False
    connection.execute("DELETE FROM last_commit WHERE schema_version < %s", (version,))
    check = sql.SQL("ALTER TABLE last_commit DROP CONSTRAINT IF EXISTS {0}, ADD CONSTRAINT {0} CHECK ({1})")
    connection.execute(check.format(sql.Identifier(VERSION_CHECK), sql.SQL("schema_version >= {}").format(version)))
    connection.execute("UPDATE migration SET backfill = 0, position = NULL WHERE version = %s", (version,))
    _set_phase(connection, version, MigrationPhase.CLOSED)
    return True


def _set_phase(connection: PgConnection, version: int, phase: MigrationPhase) -> None:
    connection.execute("UPDATE migration SET phase = %s WHERE version = %s", (phase.value, version))
