"""The events of a space, a limited number of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from afterturn.errors import KeyMissing
from afterturn.log import logger
from afterturn.stores.sql.entries import Conditions, Entries, decode_metadata, encode_metadata
from afterturn.stores.sql.sealing import Sealer, row_name
from afterturn.stores.sql.session import load_queries, values_clause
from afterturn.types import Event, Scope
from afterturn.types.operations import TimelinePage

SEALED_DATA = "sealed"
_ROWS_MAX = 100
_SPACE = "(SELECT key FROM space WHERE tenant = ? AND name = ?)"
_SQL = load_queries(__file__)


class SqlTimeline:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._session = entries.session
        self._sealer = entries.sealer
        self._spaces = entries.spaces

    def add(self, events: Sequence[Event], *, entries_max: int) -> None:
        by_space: dict[tuple[str, str], list[Event]] = {}
        for event in events:
            by_space.setdefault((event.tenant, event.space), []).append(event)
        if self._sealer is not None:
            self._sealer.require_to_seal(by_space)
        for place, group in by_space.items():
            try:
                self._append(place, group, entries_max)
            except KeyMissing as error:
                # Events of other spaces are in the same unit.
                logger.warning("%d events are not stored: %s", len(group), error)

    def page(self, scope: Scope, *, conversation: str | None = None, limit: int, skip: int = 0) -> list[Event]:
        where = Conditions(self._entries, scope)
        if conversation is not None:
            where.add("t.conversation = ?", conversation)
        rows = self._session.rows(
            "SELECT t.name, t.at, s.tenant, s.name, t.conversation, t.turn, t.data FROM timeline AS t "
            f"JOIN space AS s ON s.key = t.space_key WHERE {where.sql} ORDER BY t.at DESC, t.seq DESC LIMIT ? OFFSET ?",
            [*where.values, limit, skip],
        )
        events = [read_event(row) for row in reversed(rows)]
        return events if self._sealer is None else [open_event(self._sealer, event) for event in events]

    def follow(self, tenant: str, after: Mapping[str, tuple[int, float]] | None, *, limit: int) -> TimelinePage:
        ends = self._session.rows(_SQL["ends"], (tenant,))
        heads: Mapping[str, tuple[int, float]] = {name: (seq, at) for _, name, seq, at in ends}
        if after is None:
            # No more than the newest `limit` events are wanted, so no more spaces than that.
            ends = sorted(ends, key=lambda row: row[3], reverse=True)[:limit]
        events = list[Event]()
        for key, name, *head in ends:
            since, last = (after or {}).get(name, (0, 0.0))
            if (since, last) == tuple(head):
                continue
            if self._session.rows(_SQL["at"], (key, since)) == [(last,)]:
                last = 0.0
            else:
                # A forget has erased its newest events, and their numbers are used again.
                since = 0
            rows = self._session.rows(_SQL["newer"], (key, since, last, limit))
            events += [self._read_whole((one, at, tenant, name, *rest)) for one, at, *rest in rows]
        events.sort(key=lambda one: one.at)
        return TimelinePage(tuple(events[-limit:]), heads)

    def _read_whole(self, row: Sequence[Any]) -> Event:
        event = read_event(row)
        try:
            return event if self._sealer is None else open_event(self._sealer, event)
        except KeyMissing:
            return replace(event, data={})

    def _append(self, place: tuple[str, str], events: Sequence[Event], entries_max: int) -> None:
        """Without reading anything first, so that a commit of events takes one round trip."""
        if self._sealer is not None:
            cipher = self._sealer.get(*place)
            sealed = (
                {SEALED_DATA: cipher.seal("timeline.data", _row(one), encode_metadata(one.data))} if one.data else {}
                for one in events
            )
            events = [replace(event, data=data) for event, data in zip(events, sealed, strict=True)]
        self._spaces.ensure(*place)
        for start in range(0, len(events), _ROWS_MAX):
            rows, values = values_clause(
                [
                    (ordinal, event.at, event.name, event.conversation, event.turn, encode_metadata(event.data))
                    for ordinal, event in enumerate(events[start : start + _ROWS_MAX], 1)
                ]
            )
            self._session.later(_SQL["append"].format(rows=rows), [*values, *place, *place])
        self._session.later(
            f"DELETE FROM timeline WHERE space_key = {_SPACE} "
            f"AND seq <= (SELECT max(seq) FROM timeline WHERE space_key = {_SPACE}) - ?",
            (*place, *place, entries_max),
        )


def open_event(sealer: Sealer, event: Event) -> Event:
    if not event.data:
        return event
    cipher = sealer.opener(event.tenant, event.space)
    sealed = str(event.data.get(SEALED_DATA, ""))
    return replace(event, data=decode_metadata(cipher.open("timeline.data", _row(event), sealed)))


def _row(event: Event) -> str:
    return row_name(event.name, float(event.at), event.conversation, event.turn)


def read_event(row: Sequence[Any]) -> Event:
    name, at, tenant, space, conversation, turn, data = row
    return Event(name, at, tenant, space, conversation, turn, decode_metadata(data))
