"""What may be opened as a store, and how every connection to one is set up."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import apsw

from afterturn.config import Config, default_store
from afterturn.errors import ForeignFile, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from afterturn.ports import Clock
from afterturn.runtime.files import sync
from afterturn.stores.sql.session import Session
from afterturn.stores.sqlite.errors import translate

APPLICATION_ID = 0x41465452
_PAGE_BYTES = 4096
_WRITER_CACHE_KIB = 16384
# Of each reader: what it does not find there is in the system's cache, and there are several of them.
_READER_CACHE_KIB = 6144
_WAL_BYTES_KEPT_MAX = 64 * 1024 * 1024
_TIMEOUT_MILLISECONDS_MAX = 2**31 - 1
_WAL_RETRY_SECONDS = 0.01
_LOCK_RETRY_SECONDS = 0.001


class StoreLocation(NamedTuple):
    """Where a store is (an absolute path), how it is to be used, and the schema it is brought to.

    `migrations[n]` leads from version n to n + 1; `after` derives what a version needs, in the same transaction.
    """

    file: str | os.PathLike[str]
    config: Config
    clock: Clock
    migrations: Sequence[Sequence[str]]
    after: Mapping[int, Callable[[Session], None]] = MappingProxyType({})
    vfs: str | None = None

    @property
    def path(self) -> Path:
        """For who does more with it than open it: loading paths takes 5 ms, half as long as opening a store."""
        return Path(self.file)


def check_place(place: StoreLocation) -> None:
    """Refuses what can not become or be a store; makes a new file that only its owner may read.

    Looks at the file's entry only: opening and closing the file itself, other than through SQLite, would drop the
    locks that this process holds on it.
    """
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
    """A connection that reads and writes, set up alike everywhere. Raises the specific StoreError."""
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
    """As `connect`, for work that must not write."""
    connection = connect(place)
    run(connection, "PRAGMA query_only=ON")
    run(connection, f"PRAGMA cache_size=-{_READER_CACHE_KIB}")
    return connection


def open_connection(place: StoreLocation, flags: int) -> apsw.Connection:
    connection = apsw.Connection(os.fspath(place.file), flags=flags, vfs=place.vfs)
    _inheritable.add(connection)
    connection.set_busy_timeout(milliseconds(place.config.busy_timeout))
    return connection


def identify(connection: apsw.Connection) -> int:
    """The schema version of a store, 0 for an empty file. ForeignFile when it is something else."""
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
    """Switches to write-ahead logging. SQLite waits for no lock there, so this tries again for `within` seconds."""
    deadline = time.monotonic() + within
    while (mode := _try_wal(connection, last=time.monotonic() >= deadline)) is None:
        time.sleep(_WAL_RETRY_SECONDS)
    if mode != "wal":
        raise StoreError(
            f"The store {connection.filename} cannot use a write-ahead log (journal mode {mode!r}). "
            "Move it to a local disk."
        )


def _try_wal(connection: apsw.Connection, *, last: bool) -> str | None:
    try:
        return scalar_text(connection, "PRAGMA journal_mode=WAL")
    except (apsw.BusyError, apsw.LockedError):
        if last:
            raise
        return None


def wait_for_locks(connection: apsw.Connection, patience: Callable[[], float]) -> None:
    """Waits for others' locks up to `patience()` seconds, asked at every try: SQLite's own wait has no early end."""
    began = 0.0

    def wait(attempt: int) -> bool:
        nonlocal began
        now = time.monotonic()
        if attempt == 0:
            began = now
        if now - began >= patience():
            return False
        time.sleep(min(_LOCK_RETRY_SECONDS * 2 ** min(attempt, 6), patience()))
        return True

    connection.set_busy_handler(wait)


def run(connection: apsw.Connection, sql: str, values: Sequence[str | int | None] = ()) -> list[tuple[object, ...]]:
    return connection.execute(sql, values).fetchall()


def scalar(connection: apsw.Connection, sql: str) -> int:
    value = run(connection, sql)[0][0]
    assert isinstance(value, int)
    return value


def scalar_text(connection: apsw.Connection, sql: str) -> str:
    return str(run(connection, sql)[0][0])


def milliseconds(seconds: float) -> int:
    return min(int(seconds * 1000), _TIMEOUT_MILLISECONDS_MAX)


def log_bytes(path: Path) -> int:
    """The size of the write-ahead log beside a store."""
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
        # Temporary files on disk would hold memory text that no scrub finds.
        "PRAGMA temp_store=MEMORY",
        f"PRAGMA cache_size=-{_WRITER_CACHE_KIB}",
        f"PRAGMA journal_size_limit={_WAL_BYTES_KEPT_MAX}",
    ):
        run(connection, pragma)
    # Where a value might tell that a partial index will do, SQLite prepares the statement anew for every value, which
    # takes longer than to run it. Conditions that such an index needs are written out, so nothing is lost.
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
    # Held over the close too: were another thread to open the file in between, its locks would be dropped.
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


# A forked child inherits connections that are the parent's. Were they freed there, SQLite would roll back and unlock in
# the memory that both share; so the child holds on to them for ever, past the end of its interpreter.
_inheritable: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()


def _keep_inherited() -> None:
    import ctypes  # 5 ms that only forked children should pay

    for connection in list(_inheritable):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _inheritable.clear()


os.register_at_fork(after_in_child=_keep_inherited)
