"""Bringing a file to the current schema, step by step, safely beside other processes that do the same."""

from collections.abc import Callable

import apsw

from afterturn.errors import StoreTooNew
from afterturn.stores.sqlite.connection import APPLICATION_ID, StoreLocation, identify, milliseconds, run
from afterturn.stores.sqlite.errors import translate
from afterturn.stores.sqlite.session import ApswSession

_MIGRATION_WAIT = 30.0


def migrate(connection: apsw.Connection, place: StoreLocation, keep_copy: Callable[[int], None]) -> int:
    """How many steps were taken. `keep_copy(version)` is called under the lock, before an existing store changes."""
    version = check_version(connection, place)
    if version == len(place.migrations):
        return 0
    if version:
        connection.set_busy_timeout(milliseconds(max(_MIGRATION_WAIT, place.config.busy_timeout)))
    taken = 0
    try:
        for step in range(version, len(place.migrations)):
            if _step(connection, place, step, keep_copy if not taken else _keep_nothing):
                taken += 1
    except apsw.Error as error:
        raise translate(error, str(place.path)) from error
    finally:
        connection.set_busy_timeout(milliseconds(place.config.busy_timeout))
    return taken


def check_version(connection: apsw.Connection, place: StoreLocation) -> int:
    version = identify(connection)
    if version > len(place.migrations):
        raise StoreTooNew(
            f"The store {connection.filename} has schema version {version}; this afterturn knows up to "
            f"{len(place.migrations)}. Upgrade afterturn, or open another store."
        )
    return version


def _step(connection: apsw.Connection, place: StoreLocation, step: int, keep_copy: Callable[[int], None]) -> bool:
    run(connection, "BEGIN IMMEDIATE")
    try:
        # Another process may have taken this step while this one waited for the lock.
        if check_version(connection, place) != step:
            run(connection, "ROLLBACK")
            return False
        if step:
            keep_copy(step)
        else:
            run(connection, f"PRAGMA application_id={APPLICATION_ID}")
        for statement in place.migrations[step]:
            run(connection, statement)
        if derive := place.after.get(step + 1):
            derive(ApswSession(connection))
        run(connection, f"PRAGMA user_version={step + 1}")
        run(connection, "COMMIT")
    except BaseException:
        if connection.in_transaction:
            run(connection, "ROLLBACK")
        raise
    return True


def _keep_nothing(version: int) -> None:
    return None
