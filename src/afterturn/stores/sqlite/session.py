"""The session and the full-text index that the shared repositories use, on one SQLite connection.

`read_once` reads with nothing else, for hooks and short commands.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import apsw

from afterturn.config import Config
from afterturn.errors import DeadlineExceeded, StoreError, StoreUnavailable
from afterturn.stores.keys import KeyRing
from afterturn.stores.sql.sealing import check_keys
from afterturn.stores.sql.session import FIND_MARKS, Halt, Row, Session, Statement, Value, refusal
from afterturn.stores.sql.unit import SqlUnit
from afterturn.stores.sqlite.connection import StoreLocation, open_connection, run
from afterturn.stores.sqlite.errors import UNSTORABLE, translate
from afterturn.stores.sqlite.schema import SCHEMA, check_version
from afterturn.text import regex

if TYPE_CHECKING:
    from afterturn.ports import Clock, Unit

R = TypeVar("R")


class ApswSession:
    """Runs each statement to its end: apsw alone would stop at the first row.

    `halt.halted` is read before each statement, because SQLite forgets an interrupt that arrives between two of them.
    """

    skip_locked = ""
    after_key = "space_key = ? AND key > ? AND space_key <= ?"

    def __init__(self, connection: apsw.Connection, halt: Halt | None = None) -> None:
        self._connection = connection
        self._halt = halt

    def check(self) -> None:
        if self._halt is not None and self._halt.halted:
            raise DeadlineExceeded(
                f"Work on the store {self._connection.filename} was stopped, and none of it was stored."
            )

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        if self._halt is not None and self._halt.halted:
            self.check()
        try:
            return self._connection.execute(sql, values).fetchall()
        except (apsw.Error, *UNSTORABLE) as error:
            raise translate(error, self._connection.filename) from error

    def each(self, sql: str, values: Sequence[Value] = ()) -> Iterator[Row]:
        self.check()
        try:
            yield from self._connection.execute(sql, values)
        except (apsw.Error, *UNSTORABLE) as error:
            raise translate(error, self._connection.filename) from error

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        # All rows: a statement that is not run to its end may not have written everything.
        found = self.rows(sql, values)
        return found[0] if found else None

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        """The number is valid only after INSERT, UPDATE and DELETE."""
        self.rows(sql, values)
        return self._connection.changes()

    def later(self, sql: str, values: Sequence[Value] = ()) -> None:
        self.rows(sql, values)

    def batch(self, *statements: Statement) -> list[list[Row]]:
        return [self.rows(*statement) for statement in statements]

    def insert(self, sql: str, values: Sequence[Value]) -> int | None:
        # Not by RETURNING: it opens a savepoint of its own, at which FTS5 writes out all that it has gathered so far.
        self.rows(sql, values)
        return self._connection.last_insert_rowid() if self._connection.changes() else None

    def insert_all(self, statements: Sequence[Statement]) -> list[int | None]:
        return [self.insert(*statement) for statement in statements]

    def run_many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        self.check()
        try:
            self._connection.executemany(sql, rows).fetchall()
        except (apsw.Error, *UNSTORABLE) as error:
            raise translate(error, self._connection.filename) from error

    def among(self, expression: str, values: Sequence[str] | Sequence[int]) -> tuple[str, Value]:
        return f"{expression} IN (SELECT value FROM json_each(?))", json.dumps(list(values))

    def member(self, column: str, name: str) -> tuple[str, Value]:
        return f"({column} -> ?)", "$." + json.dumps(name, ensure_ascii=False)


# FTS5's ascii tokenizer keeps every byte above 127, so terms of all scripts are stored as they are. Terms that it would
# fold or split are written in hexadecimal after `_x`; no term contains `_`, so neither these nor the token of a space
# can be forged. The patterns list what is excluded, because the opposite takes a hundred times as long to compile.
_PLAIN = regex(r"[^\x00-\x1f!-/:-`{-\x7f\ud800-\udfff]*")
_PLAIN_TERM = r"[^\x00-/:-`{-\x7f\ud800-\udfff]+"
_ENCODED = "_x"
# FTS5 erases the terms of a row one by one, 1.4 ms a row in an index of 60,000; rebuilding that index takes 40 ms.
_MANY = 200


class FtsText:
    """`TextIndex` on FTS5. Each row has the token of its space and the terms. Rows are buffered until `flush`."""

    source = "entry_terms AS t CROSS JOIN entry AS e ON e.key = t.rowid"
    column = "t.terms"
    key = "t.rowid"
    newest = "t.rowid DESC"

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: list[tuple[int, str]] = []

    def put(self, key: int, space_key: int, terms: Sequence[str]) -> None:
        self._waiting.append((key, f"_{space_key} {_encode(terms)}"))

    def take(self, keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
        found = self.find(keys)
        if len(found) < _MANY:
            self._delete(found)
        else:
            self._set("secure-delete", 0)
            self._delete(found)
            self._session.run("INSERT INTO entry_terms (entry_terms) VALUES ('optimize')")
            self._set("secure-delete", 1)
        return found

    def find(self, keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
        self.flush()
        condition, value = self._session.among("rowid", keys)
        stored = self._session.rows(f"SELECT rowid, terms FROM entry_terms WHERE {condition}", (value,))
        return {key: self.terms(content) for key, content in stored}

    def matching(self, space_keys: Sequence[int], terms: Sequence[str], at_least: int) -> tuple[str, Value]:
        self.flush()
        spaces = " OR ".join(f'"_{key}"' for key in space_keys)
        quoted = [f'"{_encode((term,))}"' for term in terms]
        wanted = " OR ".join(f"({' AND '.join(group)})" for group in combinations(quoted, at_least))
        return "entry_terms MATCH ?", f"({spaces}) AND ({wanted})"

    def terms(self, stored: str) -> tuple[str, ...]:
        found = stored.split(" ")[1:]
        if _ENCODED not in stored:
            return tuple(filter(None, found))
        return tuple(_decode(term) for term in found if term)

    def length(self, stored: str) -> int:
        # A blank before each term.
        return stored.count(" ")

    def flush(self) -> None:
        if self._waiting:
            rows, self._waiting = self._waiting, []
            self._session.run_many("INSERT INTO entry_terms (rowid, terms) VALUES (?, ?)", rows)

    def _delete(self, keys: Iterable[int]) -> None:
        self._session.run_many("DELETE FROM entry_terms WHERE rowid = ?", [(key,) for key in keys])

    def _set(self, option: str, value: int) -> None:
        self._session.run("INSERT INTO entry_terms (entry_terms, rank) VALUES (?, ?)", (option, value))


def _encode(terms: Sequence[str]) -> str:
    joined = " ".join(terms)
    if _PLAIN.fullmatch(joined) and joined.count(" ") == max(len(terms) - 1, 0):
        return joined
    return " ".join(
        term if re.fullmatch(_PLAIN_TERM, term) else _ENCODED + term.encode("utf-8", "surrogatepass").hex()
        for term in terms
    )


def _decode(token: str) -> str:
    if not token.startswith(_ENCODED):
        return token
    return bytes.fromhex(token[len(_ENCODED) :]).decode("utf-8", "surrogatepass")


def sql_unit(session: ApswSession, keys: KeyRing | None = None) -> SqlUnit:
    return SqlUnit(session, FtsText(session), keys)


def find_refusal(connection: apsw.Connection, *, has_keys: bool) -> StoreError | None:
    return refusal(run(connection, FIND_MARKS), connection.filename, has_keys=has_keys)


def read_once(path: Path, config: Config, clock: Clock, work: Callable[[Unit], R], *, keys: KeyRing | None = None) -> R:
    """Runs one read in the caller's thread on a read-only connection. Creates, migrates and writes nothing."""
    place = StoreLocation(absolute(path), config, clock, SCHEMA)
    if not os.path.isfile(place.file):
        raise StoreUnavailable(f"There is no store at {place.path}. Open it once with `afterturn.open` to create it.")
    try:
        connection = open_connection(place, apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        raise translate(error, str(place.path)) from error
    try:
        version = check_version(connection, place)
        if version < SCHEMA.newest:
            raise StoreUnavailable(
                f"The store {place.path} has schema version {version}, and this afterturn needs {SCHEMA.newest}. "
                "Open it once with `afterturn.open` to migrate it."
            )
        connection.execute("BEGIN")
        if (refused := find_refusal(connection, has_keys=keys is not None)) is not None:
            raise refused
        session = ApswSession(connection)
        check_keys(session, keys, str(place.path))
        return work(sql_unit(session, keys))
    except apsw.Error as error:
        raise translate(error, str(place.path)) from error
    finally:
        connection.close(True)


def absolute(path: str | os.PathLike[str]) -> str:
    return os.path.join("" if os.path.isabs(path) else os.getcwd(), path)
