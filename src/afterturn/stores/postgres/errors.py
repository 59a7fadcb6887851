"""Translates psycopg's errors. No `psycopg.Error` leaves this folder."""

from __future__ import annotations

import psycopg

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
    StoreTooNew,
    StoreUnavailable,
    TooLarge,
)

VERSION_CHECK = "last_commit_schema_version"
"""The constraint by which the server refuses the commits of programs that are too old for the schema."""
_VALUE_BYTES_MAX = 1_000_000_000
# psycopg raises these for values that cannot be sent: half of a surrogate pair, a number that is too large.
UNSTORABLE = (UnicodeEncodeError, OverflowError)
_UNSTORABLE_REMEDY = (
    "A value cannot be stored or searched for: it has a NUL character, half of a surrogate pair, or is a number of "
    "more than 64 bits. Pass plain text and smaller numbers."
)
# A serialisation failure, a deadlock, a lock that was not free in time: the transaction may succeed the next time.
_RERUN_STATES = ("40001", "40P01", "55P03")
# The server is stopping or starting, or has ended a session that was idle for too long.
_LOST_STATES = ("57P01", "57P02", "57P03", "57P05", "25P03")


class NotAnswering(psycopg.OperationalError):
    """The server did not answer within `SERVER_TIMEOUT`, and the connection was closed. The server may still run the
    statement, but does not commit it, unless it was a COMMIT."""


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone, or the server is stopping or starting."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith("08") or state in _LOST_STATES


def may_rerun(error: psycopg.Error) -> bool:
    """Whether the transaction was rolled back for a reason that may be over now. A caller who has waited for a server
    that does not answer does not wait again."""
    return error.sqlstate in _RERUN_STATES or (is_lost(error) and not isinstance(error, NotAnswering))


def describe_error(error: psycopg.Error) -> str:
    """The server's sentence, without its details: those quote rows, and so memories."""
    text = error.diag.message_primary or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


def translate(error: psycopg.Error | UnicodeEncodeError | OverflowError, name: str) -> AfterturnError:
    """The error to raise instead. A violated constraint is a Conflict; repositories rely on that."""
    if isinstance(error, UNSTORABLE):
        return InvalidInput(_UNSTORABLE_REMEDY)
    if isinstance(error, psycopg.DataError):
        return InvalidInput(f"{_UNSTORABLE_REMEDY} PostgreSQL says: {describe_error(error)}.")
    said = describe_error(error)
    if isinstance(error, NotAnswering):
        return StoreUnavailable(
            f"The store {name} is not available: {said}. Nothing was stored. Check the server's disk, load and "
            "network, then try again."
        )
    if is_lost(error):
        return StoreUnavailable(_UNREACHABLE.format(name=name, said=said))
    if error.diag.constraint_name == VERSION_CHECK:
        return StoreTooNew(
            f"The store {name} has been migrated to a newer schema version than this afterturn can write. Upgrade "
            "afterturn in this process. Nothing of this write was stored."
        )
    state = error.sqlstate or ""
    if state.startswith("54"):
        limit = {"size_bytes": _VALUE_BYTES_MAX + 1, "limit_bytes": _VALUE_BYTES_MAX}
        return TooLarge(f"A value is too large for the store {name}. Split it.", **limit)
    for beginnings, kind, message in _TRANSLATIONS:
        if state.startswith(beginnings):
            return kind(message.format(name=name, said=said))
    return StoreError(f"The store {name} failed: {said}. Run `afterturn doctor` to check it.")


_UNREACHABLE = (
    "The store {name} cannot be reached: {said}. Check that the server runs, and its host, port, database, user and "
    "password."
)
_CONFLICT = "The store {name} refused a row: {said}. Read the current state and try again."
_LOCKED = (
    "The store {name} is locked by another session: {said}. Try again, end the session that holds the lock, or raise "
    "`busy_timeout`."
)
_FULL = "The server has no disk space left for the store {name}. Free some, then try again; nothing was lost."
_READ_ONLY = (
    "The store {name} cannot be written: {said}. Connect to the primary server, for example with "
    "target_session_attrs=read-write, as a role that may write."
)
_CORRUPT = "The store {name} is damaged: {said}. Restore a backup of the server, for example with pg_restore."
_INTERRUPTED = (
    "Work on the store {name} was interrupted, and none of it was stored: {said}. Try again. If the server's "
    "statement_timeout or transaction_timeout is too low for this role, raise it."
)
_MISSING = "The store {name} is not there any more: {said}. Open it again to create its tables."
_TRANSLATIONS: tuple[tuple[tuple[str, ...], type[AfterturnError], str], ...] = (
    (("23",), Conflict, _CONFLICT),
    (_RERUN_STATES, StoreLocked, _LOCKED),
    (("53100",), StoreFull, _FULL),
    (("53300", "28", "3D000", "0A000"), StoreUnavailable, _UNREACHABLE),
    (("25006", "42501"), StoreReadOnly, _READ_ONLY),
    (("XX001", "XX002"), StoreCorrupt, _CORRUPT),
    (("57014", "25P04"), DeadlineExceeded, _INTERRUPTED),
    (("42P01", "3F000"), StoreUnavailable, _MISSING),
)
