"""What `doctor` says about a store: schema, integrity, log, permissions, space, copies."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing

import apsw

from afterturn.base.types import Finding
from afterturn.stores.sqlite.backup import automatic_copies, leftovers
from afterturn.stores.sqlite.connection import Place, connect_reader, identify, log_bytes, scalar_text
from afterturn.stores.sqlite.failures import translate

_FREE_BYTES_MIN = 100 * 1024 * 1024
_LOG_BYTES_MAX = 64 * 1024 * 1024
_MEBIBYTE = 1024 * 1024


def find_faults(place: Place) -> list[Finding]:
    """Reads the whole file, on a connection of its own. Raises when the store can not be read at all."""
    with closing(connect_reader(place)) as connection:
        try:
            found = [_schema(connection, place), _integrity(connection)]
        except apsw.Error as error:
            raise translate(error, str(place.path)) from error
    return [*found, _log(place), _permissions(place), _space(place), *_copies(place)]


def _schema(connection: apsw.Connection, place: Place) -> Finding:
    version, newest = identify(connection), len(place.migrations)
    if version == newest:
        return Finding("ok", "schema", f"The schema has version {version}.")
    return Finding(
        "error",
        "schema",
        f"The schema has version {version}; this afterturn works with {newest}.",
        "Upgrade afterturn in every process that uses the store, then open it again.",
    )


def _integrity(connection: apsw.Connection) -> Finding:
    said = scalar_text(connection, "PRAGMA quick_check(1)")
    if said == "ok":
        return Finding("ok", "integrity", "The file is whole.")
    return Finding("error", "integrity", f"The file is damaged: {said}.", "Run `afterturn restore <backup>`.")


def _log(place: Place) -> Finding:
    size = log_bytes(place.path)
    message = f"The write-ahead log has {size / _MEBIBYTE:.1f} MiB."
    if size <= _LOG_BYTES_MAX:
        return Finding("ok", "log", message)
    return Finding("warning", "log", message, "A process reads without end; find it and end it.")


def _permissions(place: Place) -> Finding:
    mode = stat.S_IMODE(os.stat(place.path).st_mode)
    message = f"The file's mode is {mode:04o}."
    if not mode & (stat.S_IRGRP | stat.S_IROTH):
        return Finding("ok", "permissions", message)
    return Finding("warning", "permissions", f"{message} Others can read memories.", f"Run `chmod 600 {place.path}`.")


def _space(place: Place) -> Finding:
    free = shutil.disk_usage(place.path.parent).free
    message = f"{free / _MEBIBYTE:.0f} MiB are free on its disk."
    if free >= max(_FREE_BYTES_MIN, os.stat(place.path).st_size // 4):
        return Finding("ok", "space", message)
    return Finding("warning", "space", message, "Free some space: a full disk stops recording.")


def _copies(place: Place) -> Iterator[Finding]:
    names = ", ".join(item.name for item in automatic_copies(place.path)) or "none"
    yield Finding("ok", "backups", f"Automatic backups beside the store: {names}.")
    for item in leftovers(place.path):
        yield Finding(
            "warning", "backups", f"{item} was left over and may hold memories.", f"Look at it, then `rm {item}`."
        )
