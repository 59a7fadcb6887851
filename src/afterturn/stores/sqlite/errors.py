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
    for kinds, build in _TRANSLATIONS:
        if isinstance(error, kinds):
            return build(error, path)
    return StoreError(f"The store {path} failed: {error}. Run `afterturn doctor` to check it.")


def _conflict(error: apsw.Error, path: str) -> AfterturnError:
    return Conflict(f"The store {path} refused a row: {error}. Read the current state and try again.")


def _locked(error: apsw.Error, path: str) -> AfterturnError:
    return StoreLocked(
        f"The store {path} is locked by another process: {error}. "
        "Try again, end the process that holds it, or raise `busy_timeout`."
    )


def _full(error: apsw.Error, path: str) -> AfterturnError:
    return StoreFull(f"There is no disk space left for the store {path}. Free some, then try again; nothing was lost.")


def _read_only(error: apsw.Error, path: str) -> AfterturnError:
    return StoreReadOnly(
        f"The store {path} cannot be written: {error}. Make the file and its folder writable, or open a copy."
    )


def corrupt(path: str, detail: str) -> StoreCorrupt:
    return StoreCorrupt(f"The store {path} is damaged: {detail}. Restore a copy with `afterturn restore <backup>`.")


def _corrupt(error: apsw.Error, path: str) -> AfterturnError:
    return corrupt(path, str(error))


def _unavailable(error: apsw.Error, path: str) -> AfterturnError:
    return StoreUnavailable(
        f"The store {path} cannot be opened: {error}. Check that its folder exists and that you may use it."
    )


def _interrupted(error: apsw.Error, path: str) -> AfterturnError:
    return DeadlineExceeded(f"Work on the store {path} was interrupted, and none of it was stored. Try again.")


def _too_large(error: apsw.Error, path: str) -> AfterturnError:
    return TooLarge(
        f"A value is too large for the store {path}. Split it.",
        size_bytes=_VALUE_BYTES_MAX + 1,
        limit_bytes=_VALUE_BYTES_MAX,
    )


def _input_output(error: apsw.Error, path: str) -> AfterturnError:
    # The shared-memory file cannot grow: unlike other failed writes, this one means a full disk.
    if getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHMSIZE:
        return _full(error, path)
    return StoreError(f"The disk failed under the store {path}: {error}. Check the disk, then run `afterturn doctor`.")


_TRANSLATIONS = (
    (apsw.ConstraintError, _conflict),
    ((apsw.BusyError, apsw.LockedError, apsw.ProtocolError), _locked),
    (apsw.FullError, _full),
    (apsw.ReadOnlyError, _read_only),
    ((apsw.CorruptError, apsw.NotADBError), _corrupt),
    ((apsw.CantOpenError, apsw.PermissionsError), _unavailable),
    (apsw.InterruptError, _interrupted),
    (apsw.TooBigError, _too_large),
    (apsw.IOError, _input_output),
)
