"""Stores that accept no writes here: they were moved to another place, or are sealed and opened without keys."""

from __future__ import annotations

from collections.abc import Sequence

from afterturn.errors import KeysUnavailable, StoreError, StoreMoved
from afterturn.stores.sql.session import Row

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
