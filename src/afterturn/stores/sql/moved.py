"""Stores that accept no writes: one that was moved to another place, and one that is not complete yet."""

from __future__ import annotations

import json
from collections.abc import Sequence

from afterturn.errors import StoreError, StoreMoved, StoreUnavailable
from afterturn.stores.sql.session import Row

MOVED, FILLED = "moved_to", "filled_from"
"""Rows of `meta`: the name of the store to open instead, and what is being copied into this one."""
FIND_MOVED = f"SELECT key, value FROM meta WHERE key IN ('{MOVED}', '{FILLED}')"


def refusal(rows: Sequence[Row], name: str) -> StoreError | None:
    """The error for a write, by the rows of FIND_MOVED."""
    if not rows:
        return None
    key, value = rows[0]
    if key == MOVED:
        return StoreMoved(
            f"The store {name} was moved to {value} and accepts no writes. Open that one: it has everything.",
            target=value,
        )
    source = json.loads(value)["name"]
    return StoreUnavailable(
        f"The store {name} is not complete: it is being filled from {source}. Run `afterturn migrate` again to finish."
    )
