"""The session and the full-text index that the shared repositories use, on one PostgreSQL connection.

Values are bound by psycopg on this side, and a statement is sent as one text: that needs no prepared statements, so it
works behind a connection pooler, the planner sees the values, and several statements take one round trip.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus

from afterturn.errors import DeadlineExceeded
from afterturn.stores.postgres.errors import UNSTORABLE, translate
from afterturn.stores.sql.session import Row, Session, Value

PgConnection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_TABLE = re.compile(r"INSERT INTO (\w+)")
# The numeric key of a table, if it has another name than `key`.
_KEY_COLUMNS = {"operation": "seq"}
# How many statements are sent as one text.
_BATCH = 200
_ARRAY_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"'})


class Stoppable(Protocol):
    """Work that can be stopped from another thread."""

    @property
    def halted(self) -> bool: ...


class PostgresSession:
    """`failure` is the error that ended the transaction: the server refuses every statement after it."""

    skip_locked = " FOR UPDATE SKIP LOCKED"

    def __init__(self, connection: PgConnection, name: str, halt: Stoppable) -> None:
        self._connection = connection
        self._cursor = psycopg.ClientCursor(connection)
        self._name = name
        self._halt = halt
        self.failure: psycopg.Error | None = None

    def check(self) -> None:
        if self._halt.halted:
            raise DeadlineExceeded(f"Work on the store {self._name} was stopped, and none of it was stored.")

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        return self._execute(_with_placeholders(sql), values).fetchall()

    def each(self, sql: str, values: Sequence[Value] = ()) -> Iterator[Row]:
        yield from self.rows(sql, values)

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        return self._execute(_with_placeholders(sql), values).fetchone()

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        return self._execute(_with_placeholders(sql), values).rowcount

    def insert(self, sql: str, values: Sequence[Value]) -> int | None:
        found = _TABLE.match(sql)
        assert found is not None
        row = self.row(f"{sql} RETURNING {_KEY_COLUMNS.get(found[1], 'key')}", values)
        return None if row is None else int(row[0])

    def run_many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        query = _with_placeholders(sql)
        for start in range(0, len(rows), _BATCH):
            try:
                bound = [self._cursor.mogrify(query, values) for values in rows[start : start + _BATCH]]
            except (psycopg.Error, *UNSTORABLE) as error:
                raise translate(error, self._name) from error
            self._execute(";\n".join(bound).encode())

    def among(self, expression: str, values: Sequence[str] | Sequence[int]) -> tuple[str, Value]:
        # The array has the type of the expression.
        return f"{expression} = ANY (?)", _array(f'"{str(value).translate(_ARRAY_ESCAPES)}"' for value in values)

    def member(self, column: str, name: str) -> tuple[str, Value]:
        # json and not jsonb: it keeps the written form of a number, as the texts to compare with have it.
        return f"CAST(CAST({column} AS json) -> ? AS text)", name

    def _execute(self, query: bytes, values: Sequence[Value] | None = None) -> psycopg.ClientCursor[Row]:
        self.check()
        try:
            return self._cursor.execute(query, values)
        except (psycopg.Error, *UNSTORABLE) as error:
            if isinstance(error, psycopg.Error) and self._is_over():
                self.failure = self.failure or error
            raise translate(error, self._name) from error

    def _is_over(self) -> bool:
        return self._connection.closed or self._connection.info.transaction_status is not TransactionStatus.INTRANS


@lru_cache(maxsize=1024)
def _with_placeholders(sql: str) -> bytes:
    """The shared SQL has no question mark in its texts."""
    return sql.replace("%", "%%").replace("?", "%s").encode()


def _array(items: Iterable[str]) -> str:
    return f"{{{','.join(items)}}}"


class HashedTerms:
    """`TextIndex` on an inverted index over 64-bit hashes of (space, term), so that a search reads the postings of its
    own spaces only. A row that matches by a collision of two hashes does no harm: terms are compared afterwards."""

    source = "entry_terms AS t JOIN entry AS e ON e.key = t.entry_key"
    column = "t.terms"
    key = "t.entry_key"
    newest = "t.entry_key DESC"

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: list[tuple[int, str, str]] = []

    def put(self, key: int, space_key: int, terms: Sequence[str]) -> None:
        hashes = sorted({_hash(space_key, term) for term in terms})
        self._waiting.append((key, _array(map(str, hashes)), json.dumps(list(terms), ensure_ascii=False)))

    def take(self, keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
        self.flush()
        condition, value = self._session.among("entry_key", keys)
        rows = self._session.rows(f"DELETE FROM entry_terms WHERE {condition} RETURNING entry_key, terms", (value,))
        return {key: self.terms(stored) for key, stored in rows}

    def find(self, keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
        self.flush()
        condition, value = self._session.among("entry_key", keys)
        rows = self._session.rows(f"SELECT entry_key, terms FROM entry_terms WHERE {condition}", (value,))
        return {key: self.terms(stored) for key, stored in rows}

    def matching(self, space_keys: Sequence[int], terms: Sequence[str]) -> tuple[str, Value]:
        self.flush()
        hashes = sorted({_hash(space_key, term) for space_key in space_keys for term in terms})
        return "t.hashes && ?", _array(map(str, hashes))

    def terms(self, stored: str) -> tuple[str, ...]:
        return tuple(json.loads(stored))

    def length(self, stored: str) -> int:
        # A blank between each two: no term has one.
        return stored.count(" ") + (stored != "[]")

    def flush(self) -> None:
        if self._waiting:
            rows, self._waiting = self._waiting, []
            self._session.run_many("INSERT INTO entry_terms (entry_key, hashes, terms) VALUES (?, ?, ?)", rows)


def _hash(space_key: int, term: str) -> int:
    content = f"{space_key} {term}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big", signed=True)
