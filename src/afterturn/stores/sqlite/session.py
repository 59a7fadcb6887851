"""Statements on one SQLite connection, as the shared repositories ask for them."""

import json
from collections.abc import Sequence

import apsw

from afterturn.stores.sql.session import Row, Value
from afterturn.stores.sqlite.failures import translate


class ApswSession:
    """Runs each statement to its end: apsw alone would stop at the first row."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except apsw.Error as error:
            raise translate(error, self._connection.filename) from error

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        found = self.rows(sql, values)
        return found[0] if found else None

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Counts for INSERT, UPDATE and DELETE only; after anything else the number means nothing."""
        self.rows(sql, values)
        return self._connection.changes()

    def run_many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        try:
            self._connection.executemany(sql, rows).fetchall()
        except apsw.Error as error:
            raise translate(error, self._connection.filename) from error

    def among(self, expression: str, values: Sequence[str] | Sequence[int]) -> tuple[str, Value]:
        return f"{expression} IN (SELECT value FROM json_each(?))", json.dumps(list(values))
