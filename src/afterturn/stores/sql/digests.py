"""Saved shelves, one row a space."""

from afterturn.base.digest import Digest, Moment
from afterturn.stores.sql.entries import Entries

_MOMENT = (
    "SELECT (SELECT value FROM meta WHERE key = 'generation'), "
    "CAST((SELECT value FROM meta WHERE key = 'forgets') AS INTEGER)"
)
_FIND = (
    "SELECT d.seq, d.entry_key, d.form, d.data FROM digest AS d JOIN space AS s ON s.key = d.space_key "
    "WHERE s.tenant = ? AND s.name = ?"
)
_PUT = (
    "INSERT INTO digest (space_key, seq, entry_key, form, data) VALUES (?, ?, ?, ?, ?) ON CONFLICT (space_key) "
    "DO UPDATE SET seq = excluded.seq, entry_key = excluded.entry_key, form = excluded.form, data = excluded.data"
)


class SqlDigests:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces

    def moment(self) -> Moment:
        row = self._session.row(_MOMENT)
        assert row is not None
        return Moment(*row)

    def find(self, tenant: str, space: str) -> Digest | None:
        row = self._session.row(_FIND, (tenant, space))
        return None if row is None else Digest(*row)

    def put(self, tenant: str, space: str, digest: Digest, *, begun: Moment) -> bool:
        if self.moment() != begun:
            return False
        saved = (digest.seq, digest.first_key, digest.form, digest.data)
        self._session.run(_PUT, (self._spaces.key(tenant, space), *saved))
        return True

    def drop(self, tenant: str, space: str) -> None:
        self._session.run("DELETE FROM digest WHERE space_key = ?", (self._spaces.find(tenant, space),))
