"""Vectors of embedders that the store no longer has: looked for and taken away, a few at a time."""

from __future__ import annotations

import json

from afterturn.base.types import EmbedderIdentity
from afterturn.stores.sql.session import Session


def identity_text(embedder: EmbedderIdentity) -> str:
    """As the store remembers whose vectors it wants."""
    return json.dumps([embedder.name, embedder.version, embedder.dimensions, embedder.normalised])


def read_identity(text: str) -> EmbedderIdentity:
    name, version, dimensions, normalised = json.loads(text)
    return EmbedderIdentity(name, version, dimensions, normalised)


class Abandoned:
    """What others than one embedder, the store's own, have left in a space."""

    def __init__(self, session: Session, embedder_key: int, space_key: int) -> None:
        self._session = session
        self._embedder_key = embedder_key
        self._space_key = space_key

    def is_there(self) -> bool:
        return any(
            self._session.row(
                "SELECT 1 FROM embedding WHERE embedder_key = ? AND space_key = ? LIMIT 1", (key, self._space_key)
            )
            for key in self._others()
        )

    def drop(self, limit: int) -> int:
        dropped = 0
        for key in self._others():
            # First: what it claims would else outlive the vectors, should somebody come back to that embedder.
            self._session.run("DELETE FROM embedded WHERE embedder_key = ? AND space_key = ?", (key, self._space_key))
            dropped += self._session.run(
                "DELETE FROM embedding WHERE embedder_key = ? AND space_key = ? AND entry_key IN ("
                "SELECT entry_key FROM embedding WHERE embedder_key = ? AND space_key = ? LIMIT ?)",
                (key, self._space_key, key, self._space_key, limit - dropped),
            )
        return dropped

    def _others(self) -> list[int]:
        rows = self._session.rows("SELECT key FROM embedder WHERE key <> ? ORDER BY key", (self._embedder_key,))
        return [key for (key,) in rows]
