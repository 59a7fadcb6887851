"""The Store port on SQLite, and the findings of `doctor` about a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw

from afterturn.config import Config
from afterturn.ports import Clock, KeyProvider
from afterturn.runtime.worker import ThreadWorker
from afterturn.stores.engine import Progress
from afterturn.stores.sqlite.backup import automatic_copies, leftovers
from afterturn.stores.sqlite.connection import StoreLocation, connect_reader, identify, log_bytes, scalar_text
from afterturn.stores.sqlite.engine import Engine, open_engine
from afterturn.stores.sqlite.errors import translate
from afterturn.stores.threaded_store import ThreadedStore, Workers, schema_finding
from afterturn.types import Finding

_FREE_BYTES_MIN = 100 * 1024 * 1024
_LOG_BYTES_MAX = 64 * 1024 * 1024
_MEBIBYTE = 1024 * 1024


def find_faults(place: StoreLocation) -> list[Finding]:
    """The findings of `doctor` about a file, on a connection of its own. Raises if the store cannot be read at all."""
    with closing(connect_reader(place)) as connection:
        try:
            schema = schema_finding("The schema", identify(connection), place.schema.newest)
            found = [schema, _integrity(connection)]
        except apsw.Error as error:
            raise translate(error, str(place.path)) from error
    return [*found, _log(place), _permissions(place), _space(place), *_copies(place)]


def _integrity(connection: apsw.Connection) -> Finding:
    result = scalar_text(connection, "PRAGMA quick_check(1)")
    if result == "ok":
        return Finding("ok", "integrity", "The file is not damaged.")
    return Finding("error", "integrity", f"The file is damaged: {result}.", "Run `afterturn restore <backup>`.")


def _log(place: StoreLocation) -> Finding:
    size = log_bytes(place.path)
    message = f"The write-ahead log has {size / _MEBIBYTE:.1f} MiB."
    if size <= _LOG_BYTES_MAX:
        return Finding("ok", "log", message)
    return Finding(
        "warning", "log", message, "A process does not end its reading transaction. Find that process and stop it."
    )


def _permissions(place: StoreLocation) -> Finding:
    mode = stat.S_IMODE(os.stat(place.path).st_mode)
    message = f"The file's mode is {mode:04o}."
    if not mode & (stat.S_IRGRP | stat.S_IROTH):
        return Finding("ok", "permissions", message)
    return Finding("warning", "permissions", f"{message} Others can read memories.", f"Run `chmod 600 {place.path}`.")


def _space(place: StoreLocation) -> Finding:
    disk = os.statvfs(place.path.parent)
    free = disk.f_bavail * disk.f_frsize
    message = f"{free / _MEBIBYTE:.0f} MiB are free on the store's disk."
    if free >= max(_FREE_BYTES_MIN, os.stat(place.path).st_size // 4):
        return Finding("ok", "space", message)
    return Finding("warning", "space", message, "Free some space: a full disk stops recording.")


def _copies(place: StoreLocation) -> Iterator[Finding]:
    names = ", ".join(item.name for item in automatic_copies(place.path)) or "none"
    yield Finding("ok", "backups", f"Automatic backups next to the store: {names}.")
    for item in leftovers(place.path):
        yield Finding(
            "warning", "backups", f"{item} is left over and may contain memories.", f"Check it, then run `rm {item}`."
        )


def open_store(
    path: Path,
    config: Config,
    clock: Clock,
    *,
    vfs: str | None = None,
    worker: Workers = ThreadWorker,
    keys: KeyProvider | None = None,
) -> SqliteStore:
    """Blocks while the file is checked and migrated: do not call it on an event loop. Raises a StoreError."""
    return SqliteStore(open_engine(path, config, clock, vfs=vfs, keys=keys), worker)


class SqliteStore(ThreadedStore):
    def __init__(self, engine: Engine, worker: Workers = ThreadWorker) -> None:
        super().__init__(engine, partial(find_faults, engine.place), worker)
        self.engine = engine
        self.write_now = engine.write_now
        self.read_now = engine.read_now
        self.backups = engine.backups

    async def backup(self, target: Path, *, progress: Progress) -> None:
        await self._run_aside(lambda stopped: self.engine.backup(target, progress, stopped))

    async def restore(self, source: Path, *, progress: Progress) -> None:
        await self._run_aside(lambda stopped: self.engine.restore(source, progress, stopped))
        if self._keys is not None:
            # The backup may name a key again that a forget could not destroy yet.
            await self._destroy_keys(self._keys)
