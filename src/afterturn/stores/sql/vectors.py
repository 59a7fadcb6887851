"""Which entries wait for a vector: one row each, written with the entry and deleted when it gets its vector.

The rows of a space are about one embedder, `space.embedder_key`: the first that gave the space a vector, later the
store's. For any other embedder the space's entries are compared with its vectors, until it takes the space over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence, Set

from afterturn.stores.sql.sealing import Sealer, open_entry_text
from afterturn.stores.sql.session import Row, Session, Statement, load_queries
from afterturn.types import Entry, Kind, Origin

# A batch of long records must fit into memory, and embedders use only the beginning of a text.
_EMBEDDED_CHARS_MAX = 16_384
# A recorded tool output is never recalled by its meaning.
_NEEDS_VECTOR = "e.status = 'active' AND NOT (e.kind = 'record' AND e.origin = 'tool')"
_SQL = load_queries(__file__)
_WITHOUT = _SQL["without"]
_MISSING = f"e.space_key = ? AND {_NEEDS_VECTOR} AND {_WITHOUT.format(embedder='?')}"
_ADD = (
    "INSERT INTO unembedded (tenant, space_key, entry_key) SELECT s.tenant, e.space_key, e.key FROM entry AS e "
    f"JOIN space AS s ON s.key = e.space_key WHERE {{chosen}} AND {_NEEDS_VECTOR} AND s.embedder_key <> 0 "
    f"AND {_WITHOUT.format(embedder='s.embedder_key')} ON CONFLICT DO NOTHING"
)
# Both sides of the embedder, so that the index leads to the spaces of others without reading the rest.
_WAITING = (
    "SELECT (SELECT count(*) FROM unembedded AS u JOIN space AS s ON s.key = u.space_key "
    "WHERE u.tenant = ? AND s.embedder_key = ?) + (SELECT count(*) FROM space AS s JOIN entry AS e "
    "ON e.space_key = s.key WHERE ((s.tenant = ? AND s.embedder_key < ?) OR (s.tenant = ? AND s.embedder_key > ?)) "
    f"AND {_NEEDS_VECTOR} AND {_WITHOUT.format(embedder='?')})"
)


class VectorBacklog:
    """New entries are kept in memory until `flush`: one that gets its vector in the same unit needs no row."""

    def __init__(self, session: Session, sealer: Sealer | None = None) -> None:
        self._session = session
        self._sealer = sealer
        # A sealed text is cut after it is opened.
        self._text = f"substr(e.text, 1, {_EMBEDDED_CHARS_MAX})" if sealer is None else "e.text"
        self._new: defaultdict[int, dict[int, str]] = defaultdict(dict)
        self._left: list[tuple[int, int]] = []

    def entered(self, key: int, space_key: int, entry: Entry) -> None:
        """Adds an entry that this unit has inserted as active."""
        if not (entry.kind is Kind.RECORD and entry.origin is Origin.TOOL):
            self._new[space_key][key] = entry.text[:_EMBEDDED_CHARS_MAX]

    def came_back(self, key: int) -> None:
        """Adds an entry that has become active again, unless it has kept its vector."""
        self._flush_left()
        self._session.run(_ADD.format(chosen="e.key = ?"), (key,))

    def left(self, key: int, space_key: int) -> None:
        """Removes an entry that is not active any more."""
        self._new[space_key].pop(key, None)
        self._left.append((space_key, key))

    def embedded(self, space_key: int, keys: Collection[int]) -> None:
        """Removes entries that got a vector of the space's embedder."""
        for key in keys:
            if self._new[space_key].pop(key, None) is None:
                self._left.append((space_key, key))

    def begin(self, space_key: int, embedder_key: int) -> None:
        """Makes this the embedder that the space's rows are about. All entries without a vector of it wait from now on.

        Costs as much as the space has entries, once for each change of the embedder.
        """
        # Otherwise they would be taken from the rows of the new embedder at the end of the unit.
        self._flush_left()
        self._session.run("UPDATE space SET embedder_key = ? WHERE key = ?", (embedder_key, space_key))
        self._session.run("DELETE FROM unembedded WHERE space_key = ?", (space_key,))
        self._session.run(_ADD.format(chosen="e.space_key = ?"), (space_key,))
        self._new.pop(space_key, None)

    def having(self, space_key: int, keys: Set[int]) -> set[int]:
        """Those of `keys` that the space has."""
        known = keys & self._new[space_key].keys()
        if len(known) < len(keys):
            condition, value = self._session.among("key", list(keys))
            rows = self._session.rows(f"SELECT key FROM entry WHERE space_key = ? AND {condition}", (space_key, value))
            known = {key for (key,) in rows}
        return known

    def finding(self, tenant: str, space: str, *, limit: int) -> Statement:
        """The statement that reads the entries without a vector of the space's embedder, oldest first, for `found`."""
        self._flush_left()
        return (
            f"SELECT e.key, {self._text}, e.id, e.version FROM unembedded AS u JOIN entry AS e ON e.key = u.entry_key "
            "WHERE u.space_key = (SELECT key FROM space WHERE tenant = ? AND name = ?) ORDER BY u.entry_key LIMIT ?",
            (tenant, space, limit),
        )

    def found(self, space_key: int, rows: Sequence[Row], *, limit: int) -> list[tuple[int, str]]:
        """(key, text) of each, with those that this unit has added."""
        return _oldest([*self._opened(space_key, rows), *self._new[space_key].items()], limit)

    def _opened(self, space_key: int, rows: Sequence[Row]) -> list[tuple[int, str]]:
        if self._sealer is None or not rows:
            return [(key, text) for key, text, *_ in rows]
        cipher = self._sealer.of(space_key)
        return [
            (key, open_entry_text(cipher, entry_id, version, text)[:_EMBEDDED_CHARS_MAX])
            for key, text, entry_id, version in rows
        ]

    def compare(self, space_key: int, embedder_key: int, *, limit: int) -> list[tuple[int, str]]:
        """The same for any embedder. Reads the space's entries."""
        rows = self._session.rows(
            f"SELECT e.key, {self._text}, e.id, e.version FROM entry AS e WHERE {_MISSING} ORDER BY e.key LIMIT ?",
            (space_key, embedder_key, limit),
        )
        return _oldest(self._opened(space_key, rows), limit)

    def count(self, space_key: int, embedder_key: int, *, is_own: bool) -> int:
        """How many entries of the space wait. `is_own`: for the embedder that its rows are about."""
        self.flush()
        if is_own:
            row = self._session.row("SELECT count(*) FROM unembedded WHERE space_key = ?", (space_key,))
        else:
            row = self._session.row(f"SELECT count(*) FROM entry AS e WHERE {_MISSING}", (space_key, embedder_key))
        assert row is not None
        return int(row[0])

    def count_all(self, tenant: str, embedder_key: int | None) -> int:
        """The same in all spaces of the tenant. Without a key, for an embedder that the store does not know yet."""
        self.flush()
        # 0 is the key of spaces without an embedder.
        key = -1 if embedder_key is None else embedder_key
        row = self._session.row(_WAITING, (tenant, key, tenant, key, tenant, key, key))
        assert row is not None
        return int(row[0])

    def flush(self) -> None:
        self._flush_left()
        new, self._new = self._new, defaultdict(dict)
        if keys := [(key,) for entries in new.values() for key in entries]:
            self._session.run_many(_ADD.format(chosen="e.key = ?"), keys)

    def _flush_left(self) -> None:
        if self._left:
            left, self._left = self._left, []
            self._session.run_many("DELETE FROM unembedded WHERE space_key = ? AND entry_key = ?", left)


def _oldest(rows: Sequence[tuple[int, str]], limit: int) -> list[tuple[int, str]]:
    return sorted(rows)[:limit]
