"""Stores and tenants that accept no writes here: they were moved to another place, or are not complete yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from afterturn.errors import KeysUnavailable, StoreError, StoreMoved, StoreUnavailable
from afterturn.stores.sql.session import Row
from afterturn.types import Finding, RemainingBytes

MOVED, FILLED = "moved_to", "filled_from"
"""Rows of `meta`: what to open instead, and what is being copied into this store. `moved_to/acme` is for one tenant."""
HOUSEKEPT = "housekeeping"
"""`housekeeping/acme` is a row of `meta` that says when the tenant's housekeeping is due."""
SEALED_WITH_KEYS = "keys"
"""A row of `meta`: the store is sealed, and must not be written without keys."""
WATCHED = "watched_for"
"""A row of `meta`: the copy for which changes are noted, as a JSON list. The last item is its name."""
FIND_WATCHED = f"SELECT value FROM meta WHERE key = '{WATCHED}'"


def watched_copy(row: Row | None) -> str | None:
    """The name of the copy, by the row of FIND_WATCHED."""
    return None if row is None else str(json.loads(row[0])[-1])


def remaining_copy(row: Row | None) -> tuple[RemainingBytes, ...]:
    """What `forget` says of it, because it gets changes later."""
    name = watched_copy(row)
    return () if name is None else (RemainingBytes(f"the unfinished copy {name}", "it is complete, or you delete it"),)


def copy_findings(row: Row | None) -> Iterator[Finding]:
    """What `doctor` says of it."""
    if (name := watched_copy(row)) is not None:
        yield Finding(
            "warning",
            "copy",
            f"The store is being copied to {name}, and changes are noted for that.",
            "If no `afterturn migrate` or `afterturn shards move` is running, run it again, or with --cancel.",
        )


def marks(tenant: str) -> tuple[str, ...]:
    """The keys of the rows of `meta` that concern a tenant."""
    return MOVED, FILLED, SEALED_WITH_KEYS, f"{MOVED}/{tenant}", f"{FILLED}/{tenant}"


FIND_MARKS = "SELECT key, value FROM meta WHERE key IN (?, ?, ?, ?, ?) ORDER BY key DESC"


class TenantMoved(StoreMoved):
    """One tenant was moved. `number` counts the tenant's moves: of two marks, the higher one is right."""

    def __init__(self, message: str, *, target: str, tenant: str, number: int) -> None:
        super().__init__(message, target=target)
        self.tenant = tenant
        self.number = number


class NotComplete(StoreUnavailable):
    """The store or the tenant is being copied into this place."""


def refusal(rows: Sequence[Row], name: str, tenant: str, *, has_keys: bool = False) -> StoreError | None:
    """The error for a write of a tenant, by the rows of FIND_MARKS."""
    known = set(marks(tenant)) - ({SEALED_WITH_KEYS} if has_keys else set())
    found = next((row for row in rows if row[0] in known), None)
    if found is None:
        return None
    key, value = found
    if key == SEALED_WITH_KEYS:
        return KeysUnavailable(
            f"The store {name} is sealed with keys. Set `keys` to their folder, or pass `Components(keys=...)`."
        )
    place, slash, _ = key.partition("/")
    if place == MOVED and slash:
        mark = json.loads(value)
        return TenantMoved(
            f"The tenant {tenant!r} of {name} was moved to the bucket {mark['bucket']!r}. Open the URL of the "
            "directory of shards, which finds it.",
            target=mark["bucket"],
            tenant=tenant,
            number=mark["number"],
        )
    if place == MOVED:
        return StoreMoved(
            f"The store {name} was moved to {value} and accepts no writes. Open that one: it has everything.",
            target=value,
        )
    source = json.loads(value)["name"]
    return NotComplete(
        f"The store {name} is not complete: it is being filled from {source}. Run the same command again to finish."
    )
