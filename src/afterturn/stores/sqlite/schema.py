"""The schema of a store in a file, and the function that creates it or brings a file to its newest version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from afterturn.errors import StoreTooNew, StoreUnavailable
from afterturn.stores.sqlite.connection import APPLICATION_ID, Schema, StoreLocation, identify, run, wait_for_locks
from afterturn.stores.sqlite.errors import translate

_MIGRATION_WAIT = 30.0

SCHEMA = Schema(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"), first=18, migrations=())


def migrate(connection: apsw.Connection, place: StoreLocation, keep_copy: Callable[[int], None]) -> None:
    """Brings a file to the newest schema in one transaction. Other processes may do the same meanwhile.

    `keep_copy(version)` is called under the lock, before an existing store changes.
    """
    schema = place.schema
    if (version := check_version(connection, place)) == schema.newest:
        return
    if version:
        wait_for_locks(connection, lambda: max(_MIGRATION_WAIT, place.config.busy_timeout))
    try:
        run(connection, "BEGIN IMMEDIATE")
        # Another process may have done it while this one waited for the lock.
        if (version := check_version(connection, place)) == schema.newest:
            return
        if version:
            keep_copy(version)
        else:
            run(connection, f"PRAGMA application_id={APPLICATION_ID}")
            run(connection, schema.create)
        for script in schema.migrations[max(version - schema.first, 0) :]:
            run(connection, script)
        run(connection, f"PRAGMA user_version={schema.newest}")
        run(connection, "COMMIT")
    except apsw.Error as error:
        raise translate(error, str(place.path)) from error
    finally:
        if connection.in_transaction:
            run(connection, "ROLLBACK")
        wait_for_locks(connection, lambda: place.config.busy_timeout)


def check_version(connection: apsw.Connection, place: StoreLocation) -> int:
    """The schema version of a store that this program can open, 0 for an empty file. Raises a StoreError."""
    version, schema = identify(connection), place.schema
    if version > schema.newest:
        raise too_new(place, version)
    if 0 < version < schema.first:
        raise StoreUnavailable(
            f"The store {connection.filename} has schema version {version}, from before the first release; this "
            f"afterturn opens version {schema.first} and later. Export it with the afterturn that wrote it and import "
            "the file into a new store, or remove it."
        )
    return version


def too_new(place: StoreLocation, version: int) -> StoreTooNew:
    return StoreTooNew(
        f"The store {place.path} has schema version {version}; this afterturn knows up to {place.schema.newest}. "
        "Upgrade afterturn in this process, or open another store."
    )
