"""Backups: written while others use the store, restored as a whole, and kept before a migration."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import apsw

from afterturn.errors import DeadlineExceeded, ForeignFile, InvalidFile, StoreCorrupt, StoreError, StoreUnavailable
from afterturn.log import logger
from afterturn.runtime.files import sync
from afterturn.stores.engine import Progress, never, no_progress
from afterturn.stores.sql.sealing import is_sealed_store, keep_keys, keys_to_destroy
from afterturn.stores.sqlite.connection import (
    StoreLocation,
    check_path,
    connect,
    identify,
    open_connection,
    run,
    scalar_text,
)
from afterturn.stores.sqlite.errors import translate
from afterturn.stores.sqlite.schema import check_version, migrate
from afterturn.stores.sqlite.session import ApswSession

_STEP_PAGES = 256
# Of automatic copies. The newest is the way back; older ones help if a fault is noticed late.
BACKUPS_MAX = 3
_SIDE_FILES = ("-wal", "-shm", "-journal")


def write_backup(place: StoreLocation, target: Path, progress: Progress, stopped: Callable[[], bool] = never) -> None:
    """Writes a consistent copy to `target`, which must not exist. Others can read and write meanwhile."""
    target = target.absolute()
    check_path(target)
    if os.path.lexists(target):
        raise InvalidFile(f"{target} already exists. Name a new file, or remove it first.")
    if not target.parent.is_dir():
        raise InvalidFile(f"The folder {target.parent} does not exist. Create it with `mkdir -p {target.parent}`.")
    with partial_file(target) as partial, closing(connect(place)) as source:
        # An open read transaction keeps the snapshot; without it every commit of others would restart the copy.
        run(source, "BEGIN")
        run(source, "SELECT count(*) FROM sqlite_master")
        _copy_to_file(source, place._replace(file=partial), progress, stopped)
        os.rename(partial, target)
        sync(target.parent)


def prepare_restore(
    place: StoreLocation, source: Path, partial: Path, progress: Progress, stopped: Callable[[], bool]
) -> None:
    """Writes the future content of the store to `partial`: verified, migrated, and marked as a new generation.

    Raises InvalidFile if `source` is not a store or is damaged, StoreTooNew if this afterturn does not know its schema.
    """
    origin = place._replace(file=source.absolute())
    copy = place._replace(file=partial)
    check_path(origin.path)
    if not origin.path.is_file():
        raise InvalidFile(f"{source} is not a file. Name a backup, such as one that `afterturn backup` wrote.")
    try:
        with closing(_open_origin(origin)) as connection:
            if not check_version(connection, origin):
                raise InvalidFile(f"{source} is empty. Name a backup, such as one that `afterturn backup` wrote.")
            _copy_to_file(connection, copy, progress, stopped)
        with closing(connect(copy)) as connection:
            if (found := scalar_text(connection, "PRAGMA quick_check(1)")) != "ok":
                raise InvalidFile(f"{source} is damaged: {found}. Name another backup.")
            identify(connection)
            migrate(connection, copy, lambda version: None)
            run(connection, "INSERT OR REPLACE INTO meta (key, value) VALUES ('generation', ?)", [os.urandom(8).hex()])
    except (ForeignFile, StoreCorrupt) as error:
        raise InvalidFile(f"{source} cannot be restored: {error}") from error
    except apsw.Error as error:
        raise translate(error, str(source)) from error


def copy_into(writer: apsw.Connection, place: StoreLocation, prepared: Path, progress: Progress) -> None:
    """Replaces the content of the open store in one transaction. The caller holds the writer's lock."""
    try:
        with closing(connect(place._replace(file=prepared))) as source:
            # So that later forgets have higher numbers than the open turns have noted.
            for name, forgets in run(writer, "SELECT name, forgets FROM tenant"):
                run(source, _KEEP_COUNT, [str(name), int(str(forgets))])
            # Copies that were made since the backup are still known.
            for key, value in run(writer, "SELECT key, value FROM meta WHERE key GLOB ?", [f"{_NOTE}*"]):
                run(source, "INSERT OR IGNORE INTO meta (key, value) VALUES (?, ?)", [str(key), str(value)])
            _keep_keys(writer, source)
            _copy_pages(writer, source, progress, never)
    except apsw.Error as error:
        raise translate(error, str(place.path)) from error


def rescue(place: StoreLocation, source: Path, progress: Progress = no_progress) -> Path:
    """Replaces a store that is too damaged to open with a backup. Returns the new name of the damaged file.

    Processes that have the damaged file open continue to use it, so end them first.
    """
    aside = place.path.with_name(f"{place.path.name}.damaged-{_stamp(place)}")
    with partial_file(place.path) as partial:
        prepare_restore(place, source, partial, progress, never)
        _try_to_keep_keys(place, place._replace(file=partial))
        for suffix in ("", *_SIDE_FILES):
            side = Path(f"{place.path}{suffix}")
            if side.exists():
                os.rename(side, f"{aside}{suffix}")
        os.rename(partial, place.path)
        sync(place.path.parent)
    return aside


def keep_automatic_copy(place: StoreLocation, version: int) -> None:
    """Writes the copy before a migration, and removes old copies beyond `BACKUPS_MAX`."""
    target = place.path.with_name(f"{place.path.name}.backup-v{version}-{_stamp(place)}")
    if not target.exists():
        write_backup(place, target, no_progress)
    for old in automatic_copies(place.path)[BACKUPS_MAX:]:
        old.unlink(missing_ok=True)


_NOTE = "backup of "
_NOTES_MAX = 1000


def note_copy(writer: apsw.Connection, target: Path, at: float) -> None:
    """Notes in the store that `target` is a copy of it, for the report of a forget."""
    run(writer, "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", [f"{_NOTE}{target.absolute()}", f"{at:f}"])
    run(
        writer,
        "DELETE FROM meta WHERE key IN (SELECT key FROM meta WHERE key GLOB ? "
        "ORDER BY CAST(value AS REAL) DESC LIMIT -1 OFFSET ?)",
        [f"{_NOTE}*", _NOTES_MAX],
    )


def noted_copies(connection: apsw.Connection) -> list[Path]:
    """The copies that were noted, oldest first, without those that were removed from a folder that still exists."""
    rows = run(connection, "SELECT key FROM meta WHERE key GLOB ? ORDER BY CAST(value AS REAL), key", [f"{_NOTE}*"])
    paths = [Path(str(key).removeprefix(_NOTE)) for (key,) in rows]
    return [path for path in paths if path.exists() or not path.parent.exists()]


def _keep_keys(replaced: apsw.Connection, prepared: apsw.Connection) -> None:
    """After a restore, keys are still destroyed that a forget dropped since the backup, or that it will drop."""
    from afterturn.types import JobKind

    old, new = ApswSession(replaced), ApswSession(prepared)
    with prepared:
        keep_keys(old, new)
        for job_id, tenant, space, payload, run_at in old.rows(_JOBS, (JobKind.SCRUB,)) if keys_to_destroy(old) else ():
            new.run("INSERT INTO space (tenant, name) VALUES (?, ?) ON CONFLICT DO NOTHING", (tenant, space))
            new.run(_KEEP_JOB, (job_id, JobKind.SCRUB, payload, run_at, tenant, space))


_JOBS = (
    "SELECT j.id, s.tenant, s.name, j.payload, j.run_at FROM job AS j JOIN space AS s ON s.key = j.space_key "
    "WHERE j.kind = ?"
)
_KEEP_COUNT = (
    "INSERT INTO tenant (name, forgets) VALUES (?, ?) "
    "ON CONFLICT (name) DO UPDATE SET forgets = max(forgets, excluded.forgets)"
)
_KEEP_JOB = (
    "INSERT OR IGNORE INTO job (id, space_key, tenant, kind, payload, run_at) "
    "SELECT ?, key, tenant, ?, ?, ? FROM space WHERE tenant = ? AND name = ?"
)


def _try_to_keep_keys(damaged: StoreLocation, prepared: StoreLocation) -> None:
    with closing(connect(prepared)) as target:
        if not is_sealed_store(ApswSession(target)):
            return
        try:
            with closing(_open_origin(damaged)) as source:
                _keep_keys(source, target)
        except (apsw.Error, StoreError) as error:
            logger.warning(
                "the keys of spaces could not be read from %s, so a later forget may not destroy all keys of a space, "
                "and spaces that were forgotten since the backup are to be forgotten again: %s",
                damaged.path,
                error,
            )


def automatic_copies(path: Path) -> list[Path]:
    """Newest first."""
    pattern = re.compile(re.escape(path.name) + r"\.backup-v\d+-(\d{8}T\d{12}Z)")
    found = [(match[1], item) for item in path.parent.iterdir() if (match := pattern.fullmatch(item.name))]
    return [item for _, item in sorted(found, reverse=True)]


def leftovers(path: Path) -> list[Path]:
    """Files of interrupted copies next to the store, and damaged stores that were replaced."""
    names = re.compile(rf"\.{re.escape(path.name)}.*\.partial.*|{re.escape(path.name)}\.damaged-.*")
    return sorted(item for item in path.parent.iterdir() if names.fullmatch(item.name))


def _stamp(place: StoreLocation) -> str:
    return datetime.fromtimestamp(place.clock.now(), UTC).strftime("%Y%m%dT%H%M%S%fZ")


@contextmanager
def partial_file(target: Path) -> Iterator[Path]:
    """A private, empty file next to `target`. It is removed at the end if it still exists."""
    partial = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.partial")
    try:
        try:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            raise StoreUnavailable(f"No copy can be written next to {target}: {error}. Check the folder.") from error
        yield partial
    finally:
        for suffix in ("", *_SIDE_FILES):
            Path(f"{partial}{suffix}").unlink(missing_ok=True)


def _open_origin(origin: StoreLocation) -> apsw.Connection:
    try:
        return open_connection(origin, apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        raise translate(error, str(origin.path)) from error


def _copy_to_file(
    source: apsw.Connection, target: StoreLocation, progress: Progress, stopped: Callable[[], bool]
) -> None:
    try:
        with closing(open_connection(target, apsw.SQLITE_OPEN_READWRITE)) as connection:
            run(connection, "PRAGMA synchronous=OFF")
            _copy_pages(connection, source, progress, stopped)
            # The copy is in write-ahead mode like its source; a backup should be one file.
            scalar_text(connection, "PRAGMA journal_mode=DELETE")
    except apsw.Error as error:
        raise translate(error, str(target.path)) from error
    sync(target.path)


def _copy_pages(
    target: apsw.Connection, source: apsw.Connection, progress: Progress, stopped: Callable[[], bool]
) -> None:
    with target.backup("main", source, "main") as backup:
        while not backup.done:
            if stopped():
                raise DeadlineExceeded(f"The copy of {source.filename} was stopped; nothing was changed.")
            backup.step(_STEP_PAGES)
            progress(backup.page_count - backup.remaining, backup.page_count)
