"""The rows that conversations are, by tenant, owning space and id."""

from afterturn.base.turns import ConversationKey
from afterturn.stores.sql.entries import Entries

FIND = (
    "SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key "
    "WHERE s.tenant = ? AND s.name = ? AND c.id = ?"
)
"""One conversation's key; binds tenant, space and id."""


class ConversationKeys:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces

    def open(self, key: ConversationKey, *, at: float) -> bool:
        """True when it is new."""
        row = self._session.row(
            "INSERT INTO conversation (space_key, id, opened_at, active_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (space_key, id) DO NOTHING RETURNING key",
            (self._spaces.key(key.tenant, key.space), key.id, at, at),
        )
        return row is not None

    def find(self, key: ConversationKey) -> int | None:
        row = self._session.row(FIND, (key.tenant, key.space, key.id))
        return None if row is None else int(row[0])

    def active(self, key: ConversationKey, at: float) -> int:
        """The key of a conversation in which something happens now; made if it is new."""
        self.open(key, at=at)
        found = self.find(key)
        assert found is not None
        self.touch(found, at)
        return found

    def touch(self, found: int, at: float) -> None:
        self._session.run("UPDATE conversation SET active_at = ? WHERE key = ? AND active_at < ?", (at, found, at))
