"""What the shared repositories ask of a database's full-text index. It holds the active entries and nothing else."""

from collections.abc import Sequence
from typing import Protocol

from afterturn.stores.sql.session import Value


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
