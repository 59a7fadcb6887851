"""Which forgets there were, by number: what keeps a turn that was under way from bringing back what was forgotten."""

import hashlib
from collections.abc import Iterable

from afterturn.stores.sql.session import Session


class Tombstones:
    """Names are kept as hashes: a tombstone says that something was forgotten, not what it was called."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def newest(self) -> int:
        row = self._session.row("SELECT value FROM meta WHERE key = 'forgets'")
        assert row is not None
        return int(row[0])

    def count(self) -> None:
        """Before anything else: of two forgets at once, the second waits here for the first."""
        self._session.run("UPDATE meta SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT) WHERE key = 'forgets'")

    def leave(self, space_key: int, kind: str, name: str, *, at: float) -> None:
        self._session.run(
            "INSERT INTO tombstone (space_key, kind, hash, seq, at) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (space_key, kind, hash) DO UPDATE SET seq = excluded.seq, at = excluded.at",
            (space_key, kind, _hash(kind, name), self.newest(), at),
        )

    def cover(self, space_key: int, *, conversation: str, speakers: Iterable[str], since: int) -> bool:
        hashes = [_hash("everything", ""), _hash("conversation", conversation)]
        hashes += [_hash("speaker", speaker) for speaker in speakers]
        condition, value = self._session.among("hash", hashes)
        row = self._session.row(
            f"SELECT 1 FROM tombstone WHERE space_key = ? AND seq > ? AND {condition} LIMIT 1",
            (space_key, since, value),
        )
        return row is not None


def _hash(kind: str, name: str) -> str:
    return hashlib.blake2b(f"{kind}\0{name}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
