"""What the shared repositories ask of a database: run a statement, get rows. Values are bound as `?`, never pasted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

Value: TypeAlias = str | int | float | bytes | None
Row: TypeAlias = tuple[Any, ...]


class Session(Protocol):
    """One transaction's view of one connection. Errors come out as `StoreError`s, already translated."""

    def check(self) -> None:
        """Raises DeadlineExceeded when nobody waits for this transaction any more."""

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Runs one statement to its end and gives all its rows."""

    def each(self, sql: str, values: Sequence[Value] = ()) -> Iterator[Row]:
        """The same, a row at a time: a thousand of them at once set Python's garbage collector to work."""

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        """Runs one statement to its end and gives its first row."""

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Runs one statement to its end; how many rows it changed."""

    def insert(self, sql: str, values: Sequence[Value]) -> int | None:
        """Inserts one row into a table with a numeric key and gives that key; None when a conflict left it out."""

    def run_many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        """Runs one statement for each of `rows`."""

    def among(self, expression: str, values: Sequence[str] | Sequence[int]) -> tuple[str, Value]:
        """SQL that tests whether `expression` is one of any number of values, and the one value to bind for it."""

    def member(self, column: str, name: str) -> tuple[str, Value]:
        """SQL for one member of the flat JSON object in `column`, as JSON text, and the value to bind for it."""


# What the shared repositories ask of a database's full-text index. It holds the active entries and nothing else.


class TextIndex(Protocol):
    @property
    def source(self) -> str:
        """A FROM clause that joins the index with `entry AS e`."""

    @property
    def column(self) -> str:
        """Where `source` has the stored terms, for `terms` to read."""

    @property
    def key(self) -> str:
        """Where `source` has the entry's key, to look rows up by: a condition on `e.key` may not reach the index."""

    @property
    def newest(self) -> str:
        """An ORDER BY term that walks `source` from the newest entry on."""

    def put(self, key: int, space_key: int, terms: Sequence[str]) -> None:
        """May wait until `settle`; every other method sees it at once."""

    def take(self, keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """Removes them; the terms of those that were there."""

    def find(self, keys: Sequence[int]) -> dict[int, tuple[str, ...]]: ...

    def matching(self, space_keys: Sequence[int], terms: Sequence[str]) -> tuple[str, Value]:
        """A condition on `source`: in one of the spaces, with one of the terms. Neither may be empty."""

    def terms(self, stored: str) -> tuple[str, ...]:
        """What `put` was given, in order, repeats included."""

    def settle(self) -> None: ...
