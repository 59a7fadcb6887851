"""The number behind each (tenant, space). Nothing is read or written without one."""

from afterturn.base.types import Scope
from afterturn.stores.sql.session import Session


class Spaces:
    """Remembers what it looked up: a unit of work mostly asks for the same space."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._keys: dict[tuple[str, str], int] = {}

    def key(self, tenant: str, name: str) -> int:
        """Makes the space if it is new."""
        found = self.find(tenant, name)
        if found is not None:
            return found
        row = self._session.row(
            "INSERT INTO space (tenant, name) VALUES (?, ?) "
            "ON CONFLICT (tenant, name) DO UPDATE SET name = excluded.name RETURNING key",
            (tenant, name),
        )
        assert row is not None
        self._keys[tenant, name] = key = int(row[0])
        return key

    def find(self, tenant: str, name: str) -> int | None:
        key = self._keys.get((tenant, name))
        if key is None:
            row = self._session.row("SELECT key FROM space WHERE tenant = ? AND name = ?", (tenant, name))
            if row is None:
                return None
            self._keys[tenant, name] = key = int(row[0])
        return key

    def name(self, key: int) -> str:
        row = self._session.row("SELECT name FROM space WHERE key = ?", (key,))
        assert row is not None
        return str(row[0])

    def named(self, scope: Scope) -> dict[int, str]:
        """Those of the scope's spaces that exist."""
        found = {self.find(scope.tenant, name): name for name in scope.spaces}
        return {key: name for key, name in found.items() if key is not None}
