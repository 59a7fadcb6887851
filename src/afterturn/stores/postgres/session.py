"""The session and the full-text index that the shared repositories use, on one PostgreSQL connection.

Values are bound by psycopg on this side, and a statement is sent as one text: that needs no prepared statements, so it
works behind a connection pooler, the planner sees the values, and several statements take one round trip. A statement
whose result nobody needs waits for the next one, and is sent with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain, combinations
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.pq import TransactionStatus

from afterturn.errors import DeadlineExceeded, StoreError
from afterturn.ports import Clock
from afterturn.stores.postgres.errors import UNSTORABLE, NotAnswering, translate
from afterturn.stores.sql.session import Halt, Row, Session, Statement, Value

_TABLE = re.compile(r"INSERT INTO (\w+)")
# Its values are placeholders only.
_INSERT = re.compile(r"(INSERT INTO \w+ \([\w, ]+\) VALUES )(\([?, ]+\))( ON CONFLICT .+)?")
# The numeric key of a table, if it has another name than `key`.
_KEY_COLUMNS = {"operation": "seq"}
# A text that has reached this number of statements or bytes is sent.
_STATEMENTS_MAX = 200
_BYTES_MAX = 1_000_000
_ROWS_MAX = 200
_ARRAY_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"'})


class PgConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is given up when the server has said nothing for `answer_timeout` seconds."""

    answer_timeout: float | None = None
    clock: Clock
    is_abandoned = False

    def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        return super().wait(self._limited(gen), *arguments, **options)

    @contextmanager
    def without_limit(self) -> Iterator[None]:
        """For statements that may take as long as they need."""
        limit, self.answer_timeout = self.answer_timeout, None
        try:
            yield
        finally:
            self.answer_timeout = limit

    def _limited(self, gen: PQGen[RV]) -> PQGen[RV]:
        """The same generator, which psycopg calls ten times a second while nothing arrives."""
        heard = self.clock.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = self.clock.monotonic()
                if ready:
                    heard = now
                elif self.is_abandoned or (self.answer_timeout is not None and now - heard > self.answer_timeout):
                    self.close()
                    raise NotAnswering(f"it did not answer within {now - heard:.3g} seconds")
                wanted = gen.send(ready)
        except StopIteration as end:
            value: RV = end.value
            return value


class Transaction:
    """Sends the statements of one transaction. Those that wait are sent with the next one, as one text.

    `begin` waits too, so that a transaction without statements costs nothing. `guard` is a query that follows it, and
    `refuse` makes an error of its rows, which every statement raises then. Other errors are psycopg's.
    """

    def __init__(
        self,
        connection: psycopg.Connection[tuple[Any, ...]],
        begin: bytes = b"",
        guard: bytes = b"",
        refuse: Callable[[Sequence[Row]], StoreError | None] = lambda rows: None,
    ) -> None:
        self._cursor = psycopg.ClientCursor(connection)
        self._beginning = [statement for statement in (begin, guard) if statement]
        self._refuse = refuse
        self.refused: StoreError | None = None
        self._waiting: list[bytes] = []
        self._size = 0
        # Where the statements of the unit begin among those that wait. None when some of them were sent.
        self._unit_at: int | None = None
        self.connection = connection
        self.has_begun = False

    @property
    def is_empty(self) -> bool:
        return not self.has_begun and not self._waiting

    @property
    def is_over(self) -> bool:
        """Whether the server refuses further statements."""
        if not self.has_begun:
            return False
        return self.connection.closed or self.connection.info.transaction_status is not TransactionStatus.INTRANS

    def bind(self, query: bytes, values: Sequence[Value]) -> bytes:
        return self._cursor.mogrify(query, values).encode()

    def add(self, statement: bytes) -> None:
        self._waiting.append(statement)
        self._size += len(statement)
        if len(self._waiting) >= _STATEMENTS_MAX or self._size >= _BYTES_MAX:
            self._send()

    def execute(self, *statements: bytes) -> psycopg.ClientCursor[Row]:
        """Sends them with all that waits. The cursor is at the result of the last one."""
        self._waiting += statements
        self._send()
        return self._cursor.set_result(-1)

    def begin(self) -> None:
        """Sends what waits, if nothing was sent yet."""
        if not self.has_begun:
            self._send()

    def flush(self) -> None:
        """Sends what waits."""
        if self._waiting:
            self._send()

    def begin_unit(self, setting: bytes) -> None:
        """From here to `end_unit` or `undo_unit`, which affect nothing before. `setting` holds until the next unit."""
        self._unit_at = len(self._waiting)
        self._waiting += (b"SAVEPOINT unit", setting)

    def end_unit(self) -> None:
        """Sends all its statements, so that an error is raised here and not in another unit."""
        if self._unit_at is not None and len(self._waiting) == self._unit_at + 2:
            del self._waiting[self._unit_at :]
        elif self._waiting:
            self.execute(b"RELEASE SAVEPOINT unit")
        else:
            self.add(b"RELEASE SAVEPOINT unit")

    def undo_unit(self) -> None:
        if self._unit_at is not None:
            del self._waiting[self._unit_at :]
        else:
            self._waiting = [b"ROLLBACK TO SAVEPOINT unit"]

    def _send(self) -> None:
        if self.refused is not None:
            raise self.refused
        beginning, statements = self._beginning, self._waiting
        self._beginning, self._waiting, self._size = [], [], 0
        self._unit_at, self.has_begun = None, True
        self._cursor.execute(b";\n".join([*beginning, *statements]))
        if len(beginning) > 1:
            self.refused = self._refuse(self._cursor.set_result(-1 - len(statements)).fetchall())
            if self.refused is not None:
                raise self.refused


class PostgresSession:
    """`failure` is the error that ended the transaction: the server refuses every statement after it."""

    skip_locked = " FOR UPDATE SKIP LOCKED"
    after_key = "(space_key, key) > (?, ?) AND space_key <= ?"

    def __init__(self, transaction: Transaction, name: str, halt: Halt) -> None:
        self._transaction = transaction
        self._name = name
        self._halt = halt
        self.failure: psycopg.Error | None = None

    def check(self) -> None:
        if self._halt.halted:
            raise DeadlineExceeded(f"Work on the store {self._name} was stopped, and none of it was stored.")

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        return self._execute_all(((sql, values),)).fetchall()

    def each(self, sql: str, values: Sequence[Value] = ()) -> Iterator[Row]:
        yield from self.rows(sql, values)

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        return self._execute_all(((sql, values),)).fetchone()

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        return self._execute_all(((sql, values),)).rowcount

    def later(self, sql: str, values: Sequence[Value] = ()) -> None:
        self.run_many(sql, (values,))

    def batch(self, *statements: Statement) -> list[list[Row]]:
        cursor = self._execute_all(statements)
        return [cursor.set_result(at).fetchall() for at in range(-len(statements), 0)]

    def end_unit(self) -> None:
        with self._translated():
            self._transaction.end_unit()

    def insert(self, sql: str, values: Sequence[Value]) -> int | None:
        return self.insert_all(((sql, values),))[0]

    def insert_all(self, statements: Sequence[Statement]) -> list[int | None]:
        results = self.batch(*((_returning_key(sql), values) for sql, values in statements))
        return [int(inserted[0][0]) if inserted else None for inserted in results]

    def run_many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        with self._translated():
            for statement in self._statements(sql, rows):
                self._transaction.add(statement)

    def _statements(self, sql: str, rows: Sequence[Sequence[Value]]) -> Iterator[bytes]:
        insert = _INSERT.fullmatch(sql)
        if insert is None:
            for values in rows:
                yield self._bound(sql, values)
            return
        # The server plans a statement of many rows once.
        start, row, end = insert.groups("")
        for at in range(0, len(rows), _ROWS_MAX):
            bound = b", ".join(self._bound(row, values) for values in rows[at : at + _ROWS_MAX])
            yield start.encode() + bound + end.encode()

    def among(self, expression: str, values: Sequence[str] | Sequence[int]) -> tuple[str, Value]:
        # The array has the type of the expression.
        return f"{expression} = ANY (?)", _array(f'"{str(value).translate(_ARRAY_ESCAPES)}"' for value in values)

    def member(self, column: str, name: str) -> tuple[str, Value]:
        # json and not jsonb: it keeps the written form of a number, as the texts to compare with have it.
        return f"CAST(CAST({column} AS json) -> ? AS text)", name

    def _execute_all(self, statements: Sequence[Statement]) -> psycopg.ClientCursor[Row]:
        with self._translated():
            return self._transaction.execute(*(self._bound(*statement) for statement in statements))

    def _bound(self, sql: str, values: Sequence[Value]) -> bytes:
        return self._transaction.bind(_with_placeholders(sql), values)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        self.check()
        try:
            yield
        except (psycopg.Error, *UNSTORABLE) as error:
            if isinstance(error, psycopg.Error) and self._transaction.is_over:
                self.failure = self.failure or error
            raise translate(error, self._name) from error


def _returning_key(sql: str) -> str:
    found = _TABLE.match(sql)
    assert found is not None
    return f"{sql} RETURNING {_KEY_COLUMNS.get(found[1], 'key')}"


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

    def matching(self, space_keys: Sequence[int], terms: Sequence[str], at_least: int) -> tuple[str, Value]:
        self.flush()
        # First all keys, then their rows from the newest on, until there are enough. As one join, the planner would
        # start with the space, which it expects to have as many entries as the average one: 400 ms for one of 100,000.
        condition = "t.entry_key = ANY (ARRAY(SELECT entry_key FROM {}))"
        hashes = [[str(_hash(space_key, term)) for term in terms] for space_key in space_keys]
        if at_least == 1:
            return condition.format("entry_terms WHERE hashes && ?"), _array(chain.from_iterable(hashes))
        groups = chain.from_iterable(combinations(of_space, at_least) for of_space in hashes)
        joined = (
            "unnest(CAST(? AS text[])) AS g (hashes) JOIN entry_terms AS h ON h.hashes @> CAST(g.hashes AS bigint[])"
        )
        return condition.format(joined), _array(f'"{_array(group)}"' for group in groups)

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
