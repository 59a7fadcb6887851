"""Copies of a space inside its store, made by SQLite itself: ten million memories in minutes rather than an hour."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from afterturn.stores.sqlite.connection import run
from afterturn.stores.sqlite.session import ApswSession

# Tables whose rows belong to what a space went through and not to what it holds.
_LEFT_OUT = frozenset(
    (
        *("conversation", "entry", "job", "operation", "recall", "review", "review_message", "spent_block", "step"),
        *("timeline", "tombstone", "usage"),
    )
)
_FAST = ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "cache_size=-1048576", "secure_delete=OFF")
_ID_PREFIX = 9


class Cloner:
    """Works on a store that nobody else has open. What it makes passes for spaces filled by the same import.

    A space's entries must have keys without gaps, as an import into one space at a time gives them.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._session = ApswSession(connection)
        for pragma in _FAST:
            run(connection, f"PRAGMA {pragma}")
        self._derived = [
            (str(table), columns)
            for (table,) in run(
                connection, "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%fts5%'"
            )
            if table not in _LEFT_OUT and {"space_key", "entry_key"} & set(columns := self._columns(str(table)))
        ]

    def clone(self, source: str, names: Sequence[str]) -> None:
        """One transaction for all of them."""
        run(self._connection, "BEGIN")
        for name in names:
            self._clone(source, name)
        run(self._connection, "COMMIT")

    def close(self) -> None:
        """Leaves the store as others expect it."""
        run(self._connection, "PRAGMA locking_mode=NORMAL")
        run(self._connection, "PRAGMA journal_mode=WAL")
        self._connection.close()

    def _clone(self, source: str, name: str) -> None:
        values = self._values(source)
        values["space"] = self._insert_space(source, name)
        self._insert_entries(values)
        self._insert_operations(values)
        for table, columns in self._derived:
            self._insert_derived(table, columns, values)

    def _values(self, source: str) -> dict[str, int]:
        ((key,),) = self._session.rows("SELECT key FROM space WHERE name = ?", (source,))
        ((first, last, count),) = self._session.rows(
            "SELECT min(key), max(key), count(*) FROM entry WHERE space_key = ?", (key,)
        )
        assert last - first + 1 == count, f"the entries of {source} have gaps"
        ((operation,),) = self._session.rows("SELECT min(seq) FROM operation WHERE space_key = ?", (key,))
        ((entry_next,),) = self._session.rows("SELECT max(key) + 1 FROM entry")
        ((operation_next,),) = self._session.rows("SELECT max(seq) + 1 FROM operation")
        shifts = {"shift": entry_next - first, "operations": operation_next - operation}
        return {"source": key, "first": first, "last": last, **shifts}

    def _insert_space(self, source: str, name: str) -> int:
        columns = ", ".join(column for column in self._columns("space") if column not in ("key", "name"))
        self._connection.execute(
            f"INSERT INTO space (name, {columns}) SELECT ?, {columns} FROM space WHERE name = ?", (name, source)
        )
        return self._connection.last_insert_rowid()

    def _insert_entries(self, values: dict[str, int]) -> None:
        columns = ", ".join(column for column in self._columns("entry") if column not in ("key", "id", "space_key"))
        self._connection.execute(
            f"INSERT INTO entry (key, id, space_key, {columns}) "
            f"SELECT key + :shift, substr(id, 1, {_ID_PREFIX}) || printf('%07x', key + :shift), :space, {columns} "
            "FROM entry WHERE key BETWEEN :first AND :last",
            values,
        )
        self._connection.execute(
            "INSERT INTO entry_terms (rowid, terms) "
            "SELECT rowid + :shift, '_' || :space || substr(terms, instr(terms, ' ')) "
            "FROM entry_terms WHERE rowid BETWEEN :first AND :last",
            values,
        )

    def _insert_operations(self, values: dict[str, int]) -> None:
        self._connection.execute(
            "INSERT INTO operation (seq, id, space_key, verb, actor, at, grp) SELECT seq + :operations, "
            f"substr(id, 1, {_ID_PREFIX}) || printf('%07x', seq + :operations), :space, verb, actor, at, grp "
            "FROM operation WHERE space_key = :source",
            values,
        )
        self._connection.execute(
            "INSERT INTO step (operation_seq, ordinal, entry_key, before, after) "
            "SELECT operation_seq + :operations, ordinal, entry_key + :shift, before, after "
            "FROM step WHERE operation_seq IN (SELECT seq FROM operation WHERE space_key = :source)",
            values,
        )

    def _insert_derived(self, table: str, columns: Sequence[str], values: dict[str, int]) -> None:
        moved = {"space_key": ":space", "entry_key": "entry_key + :shift"}
        where = "space_key = :source" if "space_key" in columns else "entry_key BETWEEN :first AND :last"
        if "embedder_key" in columns:
            # Leads the key: without it SQLite would look through the vectors of every space.
            where += " AND embedder_key IN (SELECT key FROM embedder)"
        self._connection.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) "
            f"SELECT {', '.join(moved.get(column, column) for column in columns)} FROM {table} WHERE {where}",
            values,
        )

    def _columns(self, table: str) -> list[str]:
        return [str(row[1]) for row in run(self._connection, f"PRAGMA table_info({table})")]
