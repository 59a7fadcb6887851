"""The database interface of the shared repositories. Values are bound as `?`, never pasted into SQL.

A store that was moved, or is sealed and opened without keys, refuses writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from afterturn.errors import KeysUnavailable, StoreError, StoreMoved

MOVED = "moved_to"
"""A row of `meta`: what to open instead."""
SEALED_WITH_KEYS = "keys"
"""A row of `meta`: the store is sealed, and must not be written without keys."""
FIND_MARKS = f"SELECT key, value FROM meta WHERE key IN ('{MOVED}', '{SEALED_WITH_KEYS}') ORDER BY key DESC"


def refusal(rows: Sequence[Row], name: str, *, has_keys: bool) -> StoreError | None:
    """The error for a write, by the rows of FIND_MARKS."""
    marks: dict[str, str] = dict(rows)
    if (target := marks.get(MOVED)) is not None:
        return StoreMoved(
            f"The store {name} was moved to {target} and accepts no writes. Open that one: it has everything.",
            target=target,
        )
    if SEALED_WITH_KEYS in marks and not has_keys:
        return KeysUnavailable(
            f"The store {name} is sealed with keys. Set `keys` to their folder, or pass `Components(keys=...)`."
        )
    return None


Value: TypeAlias = str | int | float | bytes | None
Row: TypeAlias = tuple[Any, ...]
Statement: TypeAlias = tuple[str, Sequence[Value]]

SET_META = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


def load_queries(module_file: str) -> dict[str, str]:
    """The statements in the SQL file next to a module, by name."""
    queries = {}
    for part in Path(module_file).with_suffix(".sql").read_text(encoding="utf-8").split("-- name: ")[1:]:
        name, *lines = part.splitlines()
        queries[name] = " ".join(line for line in lines if line and not line.startswith("--"))
    return queries


def values_clause(rows: Sequence[Sequence[Value]]) -> tuple[str, list[Value]]:
    """The SQL after VALUES for these rows, of which there must be at least one, and the values to bind."""
    row = f"({', '.join('?' * len(rows[0]))})"
    return ", ".join([row] * len(rows)), [value for values in rows for value in values]


class Halt(Protocol):
    """Work that can be stopped from another thread."""

    @property
    def halted(self) -> bool: ...


class Session(Protocol):
    """The statements of one transaction. Errors are translated into `StoreError`s."""

    @property
    def skip_locked(self) -> str:
        """SQL after a SELECT that locks its rows and leaves out those that others have locked. Blank if nobody else can
        write meanwhile."""

    @property
    def after_key(self) -> str:
        """The condition that an entry is in a space and its key is larger; binds space, key and space. The two query
        planners need different ones to read on from that key, and not from the first of the space."""

    def check(self) -> None:
        """Raises DeadlineExceeded if the caller has given up."""

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Runs one statement and returns all its rows."""

    def each(self, sql: str, values: Sequence[Value] = ()) -> Iterator[Row]:
        """As `rows`, one row at a time: a thousand rows at once would start Python's garbage collector."""

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        """Runs one statement and returns its first row."""

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Runs one statement and returns the number of changed rows."""

    def later(self, sql: str, values: Sequence[Value] = ()) -> None:
        """Runs one statement whose result nobody needs. It may be sent together with the next one, or at the end of the
        unit: an error is raised then, and the unit fails."""

    def batch(self, *statements: Statement) -> list[list[Row]]:
        """Runs statements that do not need one another's results, in one round trip, and returns the rows of each."""

    def insert(self, sql: str, values: Sequence[Value]) -> int | None:
        """Inserts one row and returns its numeric key. None if a conflict prevented it."""

    def insert_all(self, statements: Sequence[Statement]) -> list[int | None]:
        """As `insert` for each of them, in one round trip."""

    def run_many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        """Runs one statement for each of `rows`, as `later` does, or fewer that do the same. So the rows of an INSERT
        with ON CONFLICT DO UPDATE must differ in what they conflict about."""

    def among(self, expression: str, values: Sequence[str] | Sequence[int]) -> tuple[str, Value]:
        """SQL that tests whether `expression` is one of the values, and the one value to bind for it."""

    def member(self, column: str, name: str) -> tuple[str, Value]:
        """SQL for one member of the flat JSON object in `column`, as JSON text, and the value to bind for it."""


class TextIndex(Protocol):
    """The full-text index. It contains the active entries only."""

    @property
    def source(self) -> str:
        """A FROM clause that joins the index with `entry AS e`."""

    @property
    def column(self) -> str:
        """The column of `source` with the stored terms, which `terms` reads."""

    @property
    def key(self) -> str:
        """The column of `source` to find rows by key: a condition on `e.key` may not use the index."""

    @property
    def newest(self) -> str:
        """An ORDER BY term that walks `source` from the newest entry on."""

    def put(self, key: int, space_key: int, terms: Sequence[str]) -> None:
        """May be buffered until `flush`. Every other method sees it at once."""

    def take(self, keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """Removes entries and returns the terms of those that were in the index."""

    def find(self, keys: Sequence[int]) -> dict[int, tuple[str, ...]]: ...

    def matching(self, space_keys: Sequence[int], terms: Sequence[str], at_least: int) -> tuple[str, Value]:
        """A condition on `source`: in one of the spaces, with `at_least` of the terms. There are at least as many."""

    def terms(self, stored: str) -> tuple[str, ...]:
        """The terms that `put` received, in order, repeats included."""

    def length(self, stored: str) -> int:
        """The number of terms, repeats included, without reading them, which is slow."""

    def flush(self) -> None: ...


def find_meta(session: Session, key: str) -> str | None:
    row = session.row("SELECT value FROM meta WHERE key = ?", (key,))
    return None if row is None else str(row[0])


def set_meta(session: Session, key: str, value: str) -> None:
    session.run(SET_META, (key, value))
