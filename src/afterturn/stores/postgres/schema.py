"""The schema of the store on a server, as ordered migrations, and its row-level security. `migration.py` runs them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple


class Migration(NamedTuple):
    """Leads from one version of the schema to the next.

    `script` is run while no unit of work writes. `isolated` names its tables that row-level security protects, and the
    column that says whose each row is.
    """

    script: str
    isolated: Mapping[str, str] = MappingProxyType({})


ALL_TENANTS = "*"
"""The value of `afterturn.tenant` for work on rows of several tenants. No tenant has this name."""
_PARENTS = {
    "space_key": ("space", "key"),
    "conversation_key": ("conversation", "key"),
    "entry_key": ("entry", "key"),
    "operation_seq": ("operation", "seq"),
}
ISOLATED = MappingProxyType(
    {
        "tenant": "name",
        **dict.fromkeys(("space", "entry", "turn", "usage", "review", "job", "unembedded"), "tenant"),
        **dict.fromkeys(
            ("conversation", "operation", "timeline", "tombstone", "recall", "review_message"), "space_key"
        ),
        **dict.fromkeys(("frequency", "change", "embedding", "spent_block"), "space_key"),
        **dict.fromkeys(("block", "block_ref", "carried", "standing", "standing_ref"), "conversation_key"),
        "source": "entry_key",
        "step": "operation_seq",
    }
)
"""The protected tables, with the column that names the tenant or a row that belongs to one."""


def isolation(table: str, column: str) -> tuple[str, ...]:
    """The statements that let a transaction see and write rows of its own tenant only.

    Without a tenant (the setting is missing, or empty after a transaction) it sees and writes nothing. The subqueries
    for the setting are evaluated once in a statement. A row without a tenant of its own is seen if the row that it
    belongs to is: one lookup by a primary key for each row.
    """
    setting = "(SELECT nullif(current_setting('afterturn.tenant', true), ''))"
    if column in _PARENTS:
        parent, key = _PARENTS[column]
        # Not EXISTS: the server might read all spaces of the tenant for that.
        own = f"{setting} = '{ALL_TENANTS}' OR (SELECT true FROM {parent} AS p WHERE p.{key} = {table}.{column})"
        check = own
    else:
        own = f"{column} = {setting} OR {setting} = '{ALL_TENANTS}'"
        check = f"({own}) AND {column} NOT IN ('', '{ALL_TENANTS}')"
    return (
        f"CREATE POLICY tenant ON {table} USING ({own}) WITH CHECK ({check})",
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    )


MIGRATIONS: tuple[Migration, ...] = (
    Migration(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"), isolated=ISOLATED),
)
"""`MIGRATIONS[n]` leads from version n to n + 1."""
