"""Statements on one SQLite connection, as the shared repositories ask for them."""

import json
from collections.abc import Callable, Iterator, Sequence

import apsw

from afterturn.base.errors import DeadlineExceeded
from afterturn.stores.sql.session import Row, Value
from afterturn.stores.sqlite.failures import UNSTORABLE, translate


def _never() -> bool:
    return False


class ApswSession:
    """Runs each statement to its end: apsw alone would stop at the first row.

    `halted` is asked before each statement, because SQLite forgets an interrupt that comes between two of them.
    """

    def __init__(self, connection: apsw.Connection, halted: Callable[[], bool] = _never) -> None:
        self._connection = connection
        self._halted = halted

    def check(self) -> None:
        if self._halted():
            raise DeadlineExceeded(f"Work on the store {self._connection.filename} was stopped; none of it was kept.")

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
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
        found = self.rows(sql, values)
        return found[0] if found else None

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Counts for INSERT, UPDATE and DELETE only; after anything else the number means nothing."""
        self.rows(sql, values)
        return self._connection.changes()

    def insert(self, sql: str, values: Sequence[Value]) -> int | None:
        # Not by RETURNING: it opens a savepoint of its own, at which FTS5 writes out all that it has gathered so far.
        return self._connection.last_insert_rowid() if self.run(sql, values) else None

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
