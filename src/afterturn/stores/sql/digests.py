"""Saved shelves, one row a space."""

from afterturn.base.digest import Digest
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.tombstones import Tombstones

_PUT = (
    "INSERT INTO digest (space_key, seq, forgets, entry_key, form, data) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (space_key) DO UPDATE SET seq = excluded.seq, forgets = excluded.forgets, "
    "entry_key = excluded.entry_key, form = excluded.form, data = excluded.data"
)
_OF_SPACE = "FROM digest WHERE space_key = (SELECT key FROM space WHERE tenant = ? AND name = ?)"


class SqlDigests:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces
        self._tombstones = Tombstones(entries.session)

    def find(self, tenant: str, space: str) -> Digest | None:
        row = self._session.row(f"SELECT seq, forgets, entry_key, form, data {_OF_SPACE}", (tenant, space))
        return None if row is None else Digest(*row)

    def seq(self, tenant: str, space: str) -> int | None:
        row = self._session.row(f"SELECT seq {_OF_SPACE}", (tenant, space))
        return None if row is None else int(row[0])

    def put(self, tenant: str, space: str, digest: Digest) -> bool:
        if self._tombstones.newest() != digest.forgets:
            return False
        saved = (digest.seq, digest.forgets, digest.first_key, digest.form, digest.data)
        self._session.run(_PUT, (self._spaces.key(tenant, space), *saved))
        return True
