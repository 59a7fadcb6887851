"""What recall stands beside: a plain search in forty lines, one product of a matrix, one bare query and its vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np

from afterturn.base.terms import terms
from afterturn.stores.sqlite.session import ApswSession
from afterturn.stores.sqlite.text import FtsText

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Reference:
    """The least that finds memories by meaning: texts in SQLite, vectors in a matrix, no filter, no words."""

    def __init__(self, path: Path, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.execute("CREATE TABLE memory (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
        with self._connection:
            self._connection.executemany("INSERT INTO memory VALUES (?, ?)", enumerate(texts))
        self._matrix = vectors

    def search(self, query: NDArray[np.float32], limit: int = 10) -> list[tuple[str, float]]:
        """Best first."""
        scores = self._matrix @ query
        best = np.argpartition(scores, -limit)[-limit:] if limit < len(scores) else np.arange(len(scores))
        best = best[np.argsort(-scores[best])]
        marks = ", ".join("?" * len(best))
        sql = f"SELECT id, text FROM memory WHERE id IN ({marks})"
        found: list[Any] = self._connection.execute(sql, best.tolist()).fetchall()
        texts: dict[int, str] = dict(found)
        return [(texts[at], float(scores[at])) for at in best.tolist()]

    def close(self) -> None:
        self._connection.close()


def random_matrix(rows: int, width: int, seed: int = 1) -> NDArray[np.float32]:
    """The time of a product does not depend on what is in it."""
    random = np.random.default_rng(seed)
    return random.standard_normal((rows, width), dtype=np.float32)


class BareSpace:
    """One connection, set up as SQLite comes, that runs one FTS5 query and reads one space's vectors."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self._session = ApswSession(self._connection)
        self._text = FtsText(self._session)
        self._keys: dict[str, int] = dict(self._session.rows("SELECT name, key FROM space"))
        self._embedder: int = self._session.rows("SELECT max(key) FROM embedder")[0][0]

    def expression(self, space: str, question: str) -> str:
        """What the store itself would look for."""
        return str(self._text.matching([self._keys[space]], terms(question))[1])

    def run(self, space: str, expression: str) -> tuple[list[Any], NDArray[np.float16]]:
        """The keys of the entries that match, and the vectors of all."""
        execute = self._connection.execute
        found = execute("SELECT rowid FROM entry_terms WHERE entry_terms MATCH ?", (expression,)).fetchall()
        rows: list[Any] = execute(
            "SELECT data FROM embedding WHERE embedder_key = ? AND space_key = ?", (self._embedder, self._keys[space])
        ).fetchall()
        return found, np.frombuffer(b"".join([data for (data,) in rows]), dtype="<f2")

    def vectors(self, space: str) -> NDArray[np.float32]:
        """In the order of their entries' keys."""
        rows = self._session.rows(
            "SELECT data FROM embedding WHERE embedder_key = ? AND space_key = ? ORDER BY entry_key",
            (self._embedder, self._keys[space]),
        )
        matrix = np.frombuffer(b"".join([data for (data,) in rows]), dtype="<f2").reshape(len(rows), -1)
        return matrix.astype(np.float32)

    def texts(self, space: str) -> list[str]:
        """In the same order."""
        found = self._session.rows("SELECT text FROM entry WHERE space_key = ? ORDER BY key", (self._keys[space],))
        return [text for (text,) in found]

    def close(self) -> None:
        self._connection.close()
