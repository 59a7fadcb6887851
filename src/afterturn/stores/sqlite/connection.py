"""Which files can be opened as a store, and how every connection is set up."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import apsw

from afterturn.config import Config, default_store
from afterturn.errors import ForeignFile, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from afterturn.runtime.files import sync
from afterturn.stores.sqlite.errors import translate

if TYPE_CHECKING:
    from afterturn.ports import Clock

APPLICATION_ID = 0x41465452
_PAGE_BYTES = 4096
_WRITER_CACHE_KIB = 16384
# For each reader. There are several, and the system caches the file too.
_READER_CACHE_KIB = 6144
_WAL_BYTES_KEPT_MAX = 64 * 1024 * 1024
_LOCK_RETRY_SECONDS = 0.001
# How many times its timeout a write waits while other processes write: a minute with the default settings.
_CONTENDED_FACTOR = 12


class Schema(NamedTuple):
    """Scripts in SQL. `create` makes version `first`; `migrations[n]` leads from version `first + n` to the next."""

    create: str
    first: int
    migrations: Sequence[str]

    @property
    def newest(self) -> int:
        return self.first + len(self.migrations)


class StoreLocation(NamedTuple):
    """The absolute path of a store, its settings, and its schema."""

    file: str | os.PathLike[str]
    config: Config
    clock: Clock
    schema: Schema
    vfs: str | None = None

    @property
    def path(self) -> Path:
        """The path as a `Path`."""
        return Path(self.file)


def check_path(path: str | os.PathLike[str]) -> None:
    """Raises StoreUnavailable for a path that SQLite cannot use: its names must be UTF-8."""
    try:
        os.fsencode(path).decode()
    except UnicodeDecodeError as error:
        raise StoreUnavailable(
            f"The path {os.fsencode(path)!r} is not valid UTF-8, which SQLite needs. Use another name or folder."
        ) from error


def check_place(place: StoreLocation) -> None:
    """Refuses a path that cannot be a store; creates a new file that only its owner may read.

    Uses only `stat`: opening and closing the file other than through SQLite would drop the locks of this process.
    """
    check_path(place.file)
    try:
        mode = os.stat(place.file).st_mode
    except FileNotFoundError:
        _create(place.path)
        return
    except (OSError, ValueError) as error:
        raise StoreUnavailable(
            f"The store {place.path} cannot be reached: {error}. Check the path and its permissions."
        ) from error
    if stat.S_ISDIR(mode):
        raise StoreUnavailable(f"{place.path} is a folder. Name a file in it, such as {place.path / 'memory.db'}.")
    if not stat.S_ISREG(mode):
        raise StoreUnavailable(f"{place.path} is not a regular file. Name a regular file.")
    if not os.access(place.file, os.R_OK):
        raise StoreUnavailable(f"You may not read the store {place.path}. Change its owner or mode.")
    if not _is_writable(place.file):
        raise _read_only(place.path, place.path)
    if not _is_writable(os.path.dirname(place.file)):
        raise _read_only(place.path.parent, place.path)


def connect(place: StoreLocation) -> apsw.Connection:
    """Opens a connection for reading and writing. Raises the specific StoreError."""
    try:
        connection = open_connection(place, apsw.SQLITE_OPEN_READWRITE)
        try:
            _set_up(connection, place.config)
        except apsw.Error:
            connection.close()
            raise
    except apsw.NotADBError as error:
        raise _no_database(str(place.path)) from error
    except apsw.Error as error:
        raise translate(error, str(place.path)) from error
    return connection


def connect_reader(place: StoreLocation) -> apsw.Connection:
    """As `connect`, but read-only."""
    connection = connect(place)
    run(connection, "PRAGMA query_only=ON")
    run(connection, f"PRAGMA cache_size=-{_READER_CACHE_KIB}")
    return connection


class StoreConnection(apsw.Connection):
    """A connection of a store. apsw's own attributes cannot be read while another thread uses it; these can."""

    file: str | os.PathLike[str] = ""
    process = 0

    def close(self, *force: bool) -> None:
        _closing.add(self)
        try:
            super().close(*force)
        finally:
            _closing.discard(self)


# apsw.connections() leaves them out although their files are still open.
_closing: set[StoreConnection] = set()


def open_connection(place: StoreLocation, flags: int) -> apsw.Connection:
    _watch_sqlite3()
    _check_other_libraries(place)
    connection = StoreConnection(os.fspath(place.file), flags=flags, vfs=place.vfs)
    connection.file, connection.process = place.file, os.getpid()
    wait_for_locks(connection, lambda: place.config.busy_timeout)
    return connection


def identify(connection: apsw.Connection) -> int:
    """The schema version of a store, 0 for an empty file. Raises ForeignFile for other files."""
    path = connection.filename
    try:
        application = scalar(connection, "PRAGMA application_id")
        version = scalar(connection, "PRAGMA user_version")
        empty = not scalar(connection, "SELECT count(*) FROM sqlite_master")
    except apsw.NotADBError as error:
        raise _no_database(path) from error
    except apsw.Error as error:
        raise translate(error, path) from error
    if application == APPLICATION_ID or (not application and not version and empty):
        return version
    raise ForeignFile(f"{path} is a database of another program (application id {application:#x}). Name another file.")


def _no_database(path: str) -> ForeignFile:
    return ForeignFile(
        f"{path} is not an afterturn store. Name another file; "
        "if it was one, it is damaged: restore a copy with `afterturn restore <backup>`."
    )


def use_wal(connection: apsw.Connection, *, within: float) -> None:
    """Switches to write-ahead logging. SQLite does not wait for locks here, so this does, as for any other lock."""
    patience, mode = LockPatience(connection.filename, lambda: within), ""
    for attempt in itertools.count():
        try:
            mode = scalar_text(connection, "PRAGMA journal_mode=WAL")
            break
        except (apsw.BusyError, apsw.LockedError):
            if not patience.wait(attempt):
                raise
    if mode != "wal":
        raise StoreError(
            f"The store {connection.filename} cannot use a write-ahead log (journal mode {mode!r}). "
            "Move it to a local disk."
        )


class LockPatience:
    """Decides whether to wait longer for a lock: up to `timeout()` seconds while nobody writes.

    While other processes write, the lock is only contended and this one's turn comes: SQLite has no queue, so with many
    processes that can take several times as long. `timeout` is called at every try, so that a wait can be ended.
    """

    def __init__(self, path: str, timeout: Callable[[], float]) -> None:
        self._files = (path, f"{path}-wal")
        self._timeout = timeout
        self._began = self._changed = 0.0
        self._seen: object = None

    def wait(self, attempt: int) -> bool:
        """Sleeps a little and returns True, or returns False. `attempt` counts the tries for one lock, from 0."""
        now, timeout = time.monotonic(), self._timeout()
        if attempt == 0:
            self._began, self._seen = now, None
        if (seen := tuple(map(_last_written, self._files))) != self._seen:
            self._changed, self._seen = now, seen
        if now - self._changed >= timeout or now - self._began >= timeout * _CONTENDED_FACTOR:
            return False
        time.sleep(min(_LOCK_RETRY_SECONDS * 2 ** min(attempt, 6), timeout))
        return True


def wait_for_locks(connection: apsw.Connection, timeout: Callable[[], float]) -> None:
    """Replaces SQLite's own wait, which cannot be ended and counts the time in which others write."""
    connection.set_busy_handler(LockPatience(connection.filename, timeout).wait)


def _last_written(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def run(connection: apsw.Connection, sql: str, values: Sequence[str | int | None] = ()) -> list[tuple[object, ...]]:
    return connection.execute(sql, values).fetchall()


def scalar(connection: apsw.Connection, sql: str) -> int:
    value = run(connection, sql)[0][0]
    assert isinstance(value, int)
    return value


def scalar_text(connection: apsw.Connection, sql: str) -> str:
    return str(run(connection, sql)[0][0])


def log_bytes(path: Path) -> int:
    """The size of a store's write-ahead log."""
    try:
        return os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        return 0


def _set_up(connection: apsw.Connection, config: Config) -> None:
    for pragma in (
        f"PRAGMA page_size={_PAGE_BYTES}",
        f"PRAGMA synchronous={config.synchronous}",
        "PRAGMA secure_delete=ON",
        "PRAGMA foreign_keys=ON",
        "PRAGMA trusted_schema=OFF",
        "PRAGMA mmap_size=0",
        # Temporary files on disk would contain text that scrubbing does not reach.
        "PRAGMA temp_store=MEMORY",
        f"PRAGMA cache_size=-{_WRITER_CACHE_KIB}",
        f"PRAGMA journal_size_limit={_WAL_BYTES_KEPT_MAX}",
    ):
        run(connection, pragma)
    # Otherwise SQLite prepares a statement again for every value that might allow a partial index, which takes longer
    # than running it. Our SQL writes the conditions of such indexes out, so nothing is lost.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _is_writable(item: str | os.PathLike[str]) -> bool:
    return os.access(item, os.W_OK | os.X_OK if os.path.isdir(item) else os.W_OK)


def _read_only(item: Path, path: Path) -> StoreReadOnly:
    return StoreReadOnly(f"The store {path} cannot be written: you may not write {item}. Change its mode or owner.")


_creating = threading.Lock()
os.register_at_fork(before=_creating.acquire, after_in_parent=_creating.release, after_in_child=_creating.release)


def _create(path: Path) -> None:
    if path == default_store():
        _make_folder(path.parent)
    if not path.parent.is_dir():
        raise StoreUnavailable(f"The folder {path.parent} does not exist. Create it with `mkdir -p {path.parent}`.")
    if not _is_writable(path.parent):
        raise _read_only(path.parent, path)
    # Held until after the close: it would drop the locks of another thread that has opened the file meanwhile.
    with _creating:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            sync(path.parent)
        except FileExistsError:
            return
        except OSError as error:
            kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreUnavailable
            raise kind(f"The store {path} cannot be created: {error}. Check the folder and its disk.") from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"The folder {folder} cannot be created: {error}. Create it, or use another store."
        ) from error


def _keep_inherited() -> None:
    """Freeing the parent's connections in a forked child would roll back and unlock in the memory that both share."""
    import ctypes  # 5 ms that only forked children should pay

    for connection in (*apsw.connections(), *_closing):
        if isinstance(connection, StoreConnection):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


os.register_at_fork(after_in_child=_keep_inherited)


@cache
def _watch_sqlite3() -> None:
    """Two copies of SQLite in one process drop each other's locks (sqlite.org/howtocorrupt.html, section 2.2.1), and
    the first that closes a store deletes the log of the other. So sqlite3 may not open the stores that are open here.

    The hook runs at each audited event, such as `open`, an import or `id()`; docs/trust.md has its cost.
    """
    sys.addaudithook(_refuse_sqlite3)


def _refuse_sqlite3(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "sqlite3.connect":
        return
    try:
        name = os.fsdecode(arguments[0])
        path = unquote(urlsplit(name).path) if name.startswith("file:") else name
    except (TypeError, ValueError):
        return  # sqlite3 reports it
    wanted = {file_identity(name), file_identity(path)} - {None}
    for connection in (*apsw.connections(), *_closing):
        if not isinstance(connection, StoreConnection) or connection.process != os.getpid():
            continue
        if file_identity(connection.file) in wanted:
            raise StoreUnavailable(
                f"{name} is open in this process as a store, and sqlite3 here would drop its locks and delete its log. "
                "Use `afterturn list`, open it in another process, or open a copy from `afterturn backup`."
            )


def _check_other_libraries(place: StoreLocation) -> None:
    """Refuses a store whose log is open in this process, but not by apsw: sqlite3 opened it before the hook ran."""
    for connection in (*apsw.connections(), *_closing):
        if not isinstance(connection, StoreConnection) or file_identity(connection.file) == file_identity(place.file):
            return
    file = os.path.realpath(place.file)
    logs = {file_identity(f"{file}-wal"), file_identity(f"{file}-shm")} - {None}
    descriptors = os.listdir("/dev/fd") if logs and os.path.isdir("/dev/fd") else ()
    if any(file_identity(f"/dev/fd/{number}") in logs for number in descriptors):
        raise StoreUnavailable(
            f"The store {place.path} is open in this process, but not by afterturn; probably by sqlite3, which would "
            "drop its locks and delete its log. Close that connection first."
        )


def file_identity(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Device and inode: a file that was replaced has others. None if it is not there."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
