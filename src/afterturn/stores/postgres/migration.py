"""Creates the schema of a store on a server, or brings it to the newest version: ordered steps under one lock."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from afterturn.errors import ForeignFile, StoreLocked, StoreTooNew, StoreUnavailable
from afterturn.log import logger
from afterturn.stores.postgres.connection import StoreServer
from afterturn.stores.postgres.errors import VERSION_CHECK, describe_error, translate
from afterturn.stores.postgres.schema import isolation
from afterturn.stores.postgres.session import PgConnection


def find_version(connection: PgConnection, server: StoreServer) -> int:
    """The version of the schema, 0 if there is no store. Raises a StoreError."""
    try:
        return _find_version(connection, server)
    except psycopg.Error as error:
        raise translate(error, server.name) from error


def check_version(version: int, server: StoreServer) -> None:
    """Raises StoreTooNew if this program is too old for the store."""
    if version > len(server.migrations):
        raise StoreTooNew(
            f"The store {server.name} has schema version {version}; this afterturn knows up to "
            f"{len(server.migrations)}. Upgrade afterturn, or open another store."
        )


def check_migrated(version: int, server: StoreServer) -> None:
    """For programs that migrate nothing. Raises StoreTooNew or StoreUnavailable."""
    check_version(version, server)
    if version < len(server.migrations):
        raise StoreUnavailable(
            f"The store {server.name} has schema version {version}, and this afterturn needs "
            f"{len(server.migrations)}. Open it once with `afterturn.open` to create or migrate it."
        )


def migrate(connection: PgConnection, server: StoreServer) -> None:
    """Brings the schema to the newest version in one transaction, while writers wait. Others may do the same meanwhile.

    Creates the schema if it is missing and the role may do that. Raises a StoreError.
    """
    try:
        version = _find_version(connection, server)
        check_version(version, server)
        if version < len(server.migrations):
            with connection.without_limit():
                _take_steps(connection, server)
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
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        raise StoreLocked(
            f"The tables of the store {server.name} are in use by other sessions, so they could not be migrated. End "
            "long transactions, wait for a migration that another process runs, then open it again."
        ) from error
    except psycopg.Error as error:
        raise translate(error, server.name) from error


def _find_version(connection: PgConnection, server: StoreServer) -> int:
    table = sql.Identifier(server.schema, "migration")
    found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table.as_string(connection),)).fetchone()
    if found is None or not found[0]:
        return 0
    row = connection.execute(sql.SQL("SELECT max(version) FROM {}").format(table)).fetchone()
    return int(row[0] or 0) if row else 0


def _take_steps(connection: PgConnection, server: StoreServer) -> None:
    try:
        connection.execute(server.begin_migration())
        # Another process may have taken steps while this one waited for the lock.
        version = _find_version(connection, server)
        check_version(version, server)
        if not version:
            # Asked first: CREATE SCHEMA IF NOT EXISTS needs the right to create one, even if it is there.
            found = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
            if connection.execute(found, (server.schema,)).fetchone() is None:
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(server.schema)))
        for number, migration in enumerate(server.migrations[version:], version + 1):
            connection.execute(migration.script.encode())
            _isolate(connection, server, migration.isolated)
            connection.execute("INSERT INTO migration (version) VALUES (%s)", (number,))
        if not version:
            connection.execute("INSERT INTO meta (key, value) VALUES ('generation', %s)", (uuid.uuid4().hex,))
        # Every commit writes its row of this table, so the server refuses the commits of older programs. NOT VALID: the
        # rows that they have written stay.
        refuse = sql.SQL(
            "ALTER TABLE last_commit DROP CONSTRAINT IF EXISTS {0}, ADD CONSTRAINT {0} CHECK ({1}) NOT VALID"
        )
        newest = sql.SQL("schema_version >= {}").format(len(server.migrations))
        connection.execute(refuse.format(sql.Identifier(VERSION_CHECK), newest))
        connection.execute("COMMIT")
    finally:
        if not connection.closed and connection.info.transaction_status is not TransactionStatus.IDLE:
            connection.execute("ROLLBACK")


def _isolate(connection: PgConnection, server: StoreServer, tables: Mapping[str, str]) -> None:
    """Turns row-level security on, if the server lets this role do it. `doctor` says whether it is on."""
    connection.execute("SAVEPOINT isolation")
    try:
        for table, column in tables.items():
            for statement in isolation(table, column):
                connection.execute(statement.encode())
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported) as error:
        connection.execute("ROLLBACK TO SAVEPOINT isolation")
        logger.warning("row-level security is off in %s: %s", server.name, describe_error(error))
