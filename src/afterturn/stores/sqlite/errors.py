"""Translates SQLite's errors. No `apsw.Error` leaves this folder."""

import apsw

from afterturn.errors import (
    AfterturnError,
    Conflict,
    DeadlineExceeded,
    InvalidInput,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
    TooLarge,
)

_VALUE_BYTES_MAX = 1_000_000_000


# apsw raises these for values that SQLite cannot store: half of a surrogate pair, a number of more than 64 bits.
UNSTORABLE = (UnicodeEncodeError, OverflowError)


def translate(error: apsw.Error | UnicodeEncodeError | OverflowError, path: str) -> AfterturnError:
    """The error to raise instead. A violated constraint is a Conflict; repositories rely on that."""
    if isinstance(error, UNSTORABLE):
        return InvalidInput(
            "A value cannot be stored or searched for: it has half of a surrogate pair, or is a number of more than 64 "
            "bits. Pass plain text and smaller numbers."
        )
    if isinstance(error, apsw.TooBigError):
        limit = {"size_bytes": _VALUE_BYTES_MAX + 1, "limit_bytes": _VALUE_BYTES_MAX}
        return TooLarge(f"A value is too large for the store {path}. Split it.", **limit)
    if isinstance(error, apsw.IOError) and getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHMSIZE:
        # The shared-memory file cannot grow: unlike other failed writes, this one means a full disk.
        return StoreFull(_FULL.format(path=path))
    for kinds, kind, message in _TRANSLATIONS:
        if isinstance(error, kinds):
            return kind(message.format(path=path, error=error))
    return StoreError(f"The store {path} failed: {error}. Run `afterturn doctor` to check it.")


_CORRUPT = "The store {path} is damaged: {error}. Restore a copy with `afterturn restore <backup>`."
_FULL = "There is no disk space left for the store {path}. Free some, then try again; nothing was lost."
_LOCKED = (
    "The store {path} is locked by another process: {error}. "
    "Try again, end the process that holds it, or raise `busy_timeout`."
)
_READ_ONLY = "The store {path} cannot be written: {error}. Make the file and its folder writable, or open a copy."
_NOT_OPENED = "The store {path} cannot be opened: {error}. Check that its folder exists and that you may use it."
_INTERRUPTED = "Work on the store {path} was interrupted, and none of it was stored. Try again."
_CONFLICT = "The store {path} refused a row: {error}. Read the current state and try again."
_DISK = "The disk failed under the store {path}: {error}. Check the disk, then run `afterturn doctor`."
_TRANSLATIONS: tuple[tuple[tuple[type[apsw.Error], ...], type[AfterturnError], str], ...] = (
    ((apsw.ConstraintError,), Conflict, _CONFLICT),
    ((apsw.BusyError, apsw.LockedError, apsw.ProtocolError), StoreLocked, _LOCKED),
    ((apsw.FullError,), StoreFull, _FULL),
    ((apsw.ReadOnlyError,), StoreReadOnly, _READ_ONLY),
    ((apsw.CorruptError, apsw.NotADBError), StoreCorrupt, _CORRUPT),
    ((apsw.CantOpenError, apsw.PermissionsError), StoreUnavailable, _NOT_OPENED),
    ((apsw.InterruptError,), DeadlineExceeded, _INTERRUPTED),
    ((apsw.IOError,), StoreError, _DISK),
)
