"""The events of a space, a limited number of them."""

from collections.abc import Sequence

from afterturn.stores.sql.entries import Conditions, Entries, decode_metadata, encode_metadata
from afterturn.stores.sql.session import Row
from afterturn.types import Event, Scope


class SqlTimeline:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces

    def add(self, events: Sequence[Event], *, entries_max: int) -> None:
        by_space: dict[int, list[Event]] = {}
        for event in events:
            by_space.setdefault(self._spaces.key(event.tenant, event.space), []).append(event)
        for space_key, group in by_space.items():
            self._append(space_key, group, entries_max)

    def page(self, scope: Scope, *, conversation: str | None = None, limit: int, skip: int = 0) -> list[Event]:
        where = Conditions(self._session, scope)
        if conversation is not None:
            where.add("t.conversation = ?", conversation)
        rows = self._session.rows(
            "SELECT t.name, t.at, s.tenant, s.name, t.conversation, t.turn, t.data FROM timeline AS t "
            f"JOIN space AS s ON s.key = t.space_key WHERE {where.sql} ORDER BY t.at DESC, t.seq DESC LIMIT ? OFFSET ?",
            [*where.values, limit, skip],
        )
        return [_event(row) for row in reversed(rows)]

    def _append(self, space_key: int, events: Sequence[Event], entries_max: int) -> None:
        row = self._session.row("SELECT max(seq) FROM timeline WHERE space_key = ?", (space_key,))
        last = 0 if row is None or row[0] is None else int(row[0])
        self._session.run_many(
            "INSERT INTO timeline (space_key, seq, at, name, conversation, turn, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (space_key, seq, event.at, event.name, event.conversation, event.turn, encode_metadata(event.data))
                for seq, event in enumerate(events, last + 1)
            ],
        )
        self._session.run(
            "DELETE FROM timeline WHERE space_key = ? AND seq <= ?", (space_key, last + len(events) - entries_max)
        )


def _event(row: Row) -> Event:
    name, at, tenant, space, conversation, turn, data = row
    return Event(name, at, tenant, space, conversation, turn, decode_metadata(data))
