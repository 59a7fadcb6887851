"""Clears what SQLite leaves behind in the unused middle of its pages.

`secure_delete` zeroes what is deleted, but not what is moved: when a page overfills, SQLite copies rows to a neighbour
and rebuilds the page without clearing the gap. A row deleted later is zeroed where it is, not where it had been.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import apsw

from afterturn.stores.sqlite.connection import log_bytes, run, scalar
from afterturn.stores.sqlite.failures import translate
from afterturn.stores.sqlite.writes import Writer

_BATCH_PAGES = 256
_FILE_HEADER_BYTES = 100
# b-tree page types by their first byte, with the size of the header that follows.
_HEADER_BYTES = {0x02: 12, 0x05: 12, 0x0A: 8, 0x0D: 8}
# The other pages begin with a page number, whose first byte could be mistaken for a type only beyond 128 GiB.
_PAGES_MAX = 1 << 25
_TELL = (
    "INSERT INTO meta (key, value) VALUES ('scrubbed', '1') "
    "ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1"
)


def scrub(writer: Writer) -> bool:
    """Makes the bytes of deleted rows go from file and log. False when somebody reads or writes: try again later."""
    with writer.lock:
        return writer.empty_log() and _scrub_file(writer) and writer.empty_log()


def _scrub_file(writer: Writer) -> bool:
    connection = writer.connection
    try:
        if scalar(connection, "PRAGMA auto_vacuum"):
            # Somebody's choice, not ours. Its pointer-map pages can be taken for b-tree pages, so all is written anew.
            run(connection, "VACUUM")
            return True
        # Pages in this connection's cache still have their old gaps.
        connection.release_memory()
        run(connection, "BEGIN IMMEDIATE")
        if log_bytes(Path(connection.filename)):
            return False
        if clear_gaps(connection):
            # A commit makes every other connection drop its cache before it writes again.
            run(connection, _TELL)
        run(connection, "COMMIT")
        return True
    except (apsw.BusyError, apsw.LockedError):
        return False
    except apsw.Error as error:
        raise translate(error, connection.filename) from error
    finally:
        if connection.in_transaction:
            run(connection, "ROLLBACK")


def clear_gaps(connection: apsw.Connection) -> int:
    """Zeroes the gap of every page in place; how many pages needed it.

    The log must be empty and the write lock held, so that nobody moves pages meanwhile. Readers do not mind: the bytes
    of a gap mean nothing. Connections that cache pages have to be told, or they write the old gaps back.
    """
    page_bytes = scalar(connection, "PRAGMA page_size")
    # By the connection's own VFS: closing a file opened otherwise would drop the locks of this process.
    flags = [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB, 0]
    file = apsw.VFSFile(connection.open_vfs, connection.filename, flags)
    try:
        return _clear(file, page_bytes)
    finally:
        file.xClose()


def _clear(file: apsw.VFSFile, page_bytes: int) -> int:
    cleared = 0
    if file.xFileSize() // page_bytes < _PAGES_MAX:
        for start, page in _pages(file, page_bytes):
            first, last = _gap(page, _FILE_HEADER_BYTES if start == 0 else 0)
            if any(page[first:last]):
                file.xWrite(bytes(last - first), start + first)
                cleared += 1
    if cleared:
        file.xSync(apsw.SQLITE_SYNC_FULL)
    return cleared


def _pages(file: apsw.VFSFile, page_bytes: int) -> Iterator[tuple[int, bytes]]:
    size = file.xFileSize()
    for batch in range(0, size, _BATCH_PAGES * page_bytes):
        content = file.xRead(min(_BATCH_PAGES * page_bytes, size - batch), batch)
        for at in range(0, len(content), page_bytes):
            yield batch + at, content[at : at + page_bytes]


def _gap(page: bytes, offset: int) -> tuple[int, int]:
    """Where the unused middle of a page begins and ends; nowhere for a page that is no sound b-tree page."""
    header = _HEADER_BYTES.get(page[offset])
    if header is None:
        return 0, 0
    cells, content = struct.unpack_from(">HH", page, offset + 3)
    first = offset + header + 2 * cells
    last = content or 65536
    if not first <= last <= len(page):
        return 0, 0
    pointers = struct.unpack_from(f">{cells}H", page, offset + header)
    return (first, last) if all(last <= pointer < len(page) for pointer in pointers) else (0, 0)
