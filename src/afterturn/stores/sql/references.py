"""Which versions that a conversation names are still there: a late write must not bring back what was forgotten."""

from collections.abc import Collection

from afterturn.base.types import reference
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.rows import FROM_ENTRY


class References:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces

    def living(self, tenant: str, space: str, refs: Collection[str]) -> set[str]:
        """Those of `refs` whose version that space holds, whatever its status."""
        space_key = self._spaces.find(tenant, space)
        if space_key is None or not refs:
            return set()
        condition, value = self._session.among("id", _ids(refs))
        rows = self._session.rows(
            f"SELECT id, version FROM entry WHERE space_key = ? AND {condition}", (space_key, value)
        )
        return {reference(*row) for row in rows} & set(refs)

    def living_ids(self, tenant: str, ids: Collection[str]) -> set[str]:
        """Those of which one of the tenant's spaces holds a version."""
        if not ids:
            return set()
        condition, value = self._session.among("e.id", sorted(ids))
        rows = self._session.rows(
            f"SELECT DISTINCT e.id FROM {FROM_ENTRY} WHERE s.tenant = ? AND {condition}", (tenant, value)
        )
        return {entry_id for (entry_id,) in rows}

    def all_live(self, tenant: str, refs: Collection[str]) -> bool:
        """Whether each is held by one of the tenant's spaces."""
        condition, value = self._session.among("e.id", _ids(refs))
        rows = self._session.rows(
            f"SELECT e.id, e.version FROM {FROM_ENTRY} WHERE s.tenant = ? AND {condition}", (tenant, value)
        )
        return set(refs) <= {reference(*row) for row in rows}


def _ids(refs: Collection[str]) -> list[str]:
    return sorted({ref.partition(".")[0] for ref in refs})
