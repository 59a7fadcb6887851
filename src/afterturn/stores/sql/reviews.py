"""Reviews, the messages that they are to read, and the usage of models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace

from afterturn.errors import Conflict, NotFound
from afterturn.ports import REVIEWS_MAX
from afterturn.stores.sql.conversations import FIND_CONVERSATION, LiveRefs
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.sealing import SEALED, open_text, row_name, seal_text
from afterturn.stores.sql.session import Row, Value, load_queries
from afterturn.types import ConversationKey, Purpose, ReviewKind, ReviewMessage, ReviewRow, ReviewState, UsageRow

_SQL = load_queries(__file__)
_FROM = "usage AS u JOIN space AS s ON s.key = u.space_key"


class SqlUsage:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces

    def add(self, tenant: str, spent: UsageRow) -> None:
        space_key = self._spaces.key(tenant, spent.space)
        counted = (spent.calls, spent.tokens_in, spent.tokens_out, spent.estimated)
        self._session.run(_SQL["add"], (tenant, space_key, spent.day, spent.purpose.value, *counted))

    def tokens(self, tenant: str, day: str, *, space: str | None = None) -> int:
        where, values = _within(tenant, space)
        row = self._session.row(
            f"SELECT coalesce(sum(u.tokens_in + u.tokens_out), 0) FROM {_FROM} WHERE {where} AND u.day = ?",
            [*values, day],
        )
        assert row is not None
        return int(row[0])

    def page(self, tenant: str, *, space: str | None = None, limit: int) -> list[UsageRow]:
        where, values = _within(tenant, space)
        rows = self._session.rows(
            f"SELECT s.name, u.day, u.purpose, u.calls, u.tokens_in, u.tokens_out, u.estimated FROM {_FROM} "
            f"WHERE {where} ORDER BY u.day DESC, s.name, u.purpose LIMIT ?",
            [*values, limit],
        )
        return [UsageRow(space, day, Purpose(purpose), *counted) for space, day, purpose, *counted in rows]


def _within(tenant: str, space: str | None) -> tuple[str, list[Value]]:
    return ("u.tenant = ?", [tenant]) if space is None else ("s.tenant = ? AND s.name = ?", [tenant, space])


# Every field of a row is a column, except tenant and space.
_COLUMNS = tuple(item.name for item in fields(ReviewRow) if item.name not in ("tenant", "space"))
# The columns that are written when a review ends.
_ENDS = _COLUMNS[_COLUMNS.index("state") :]
_LISTS = tuple(item.name for item in fields(ReviewRow) if item.default == ())
_MESSAGE = tuple(item.name for item in fields(ReviewMessage))

_SELECT = (
    f"SELECT s.tenant, s.name, {', '.join(f'r.{column}' for column in _COLUMNS)} "
    "FROM review AS r JOIN space AS s ON s.key = r.space_key"
)
_INSERT = (
    f"INSERT INTO review (tenant, space_key, {', '.join(_COLUMNS)}) VALUES ({', '.join('?' * (len(_COLUMNS) + 2))})"
)
_END = (
    f"UPDATE review SET {', '.join(f'{column} = ?' for column in _ENDS)} "
    "WHERE space_key = ? AND id = ? AND state = 'waiting'"
)
_ADD_MESSAGE = (
    f"INSERT INTO review_message (space_key, review, ordinal, {', '.join(_MESSAGE)}) "
    f"VALUES ({', '.join('?' * (len(_MESSAGE) + 3))})"
)
_CONSOLIDATED = "UPDATE space SET consolidated_at = ? WHERE key = ? AND consolidated_at < ?"
# Each half is in the order of its own index, so that it reads no more than `limit` spaces.
_DUE = "SELECT name, consolidated_at FROM space WHERE tenant = ? AND {due} ORDER BY consolidated_at, name LIMIT ?"
_UNCONSOLIDATED = (
    f"SELECT name FROM (SELECT * FROM ({_DUE.format(due='changed_at > consolidated_at')}) AS a UNION "
    f"SELECT * FROM ({_DUE.format(due='changed_at > 0 AND consolidated_at < ?')}) AS b) AS due "
    "ORDER BY consolidated_at, name LIMIT ?"
)


class SqlReviews:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces
        self._sealer = entries.sealer
        self._live_refs = LiveRefs(entries)

    def add(self, review: ReviewRow, messages: Sequence[ReviewMessage]) -> None:
        if self._find(review.tenant, review.id) is not None:
            raise Conflict(f"There is already a review {review.id!r}. Give each review its own id.")
        key = ConversationKey(review.tenant, review.space, review.conversation)
        if review.kind.takes_turns and (waiting := self.find_waiting(key)):
            raise Conflict(
                f"Review {waiting.id} of {review.conversation!r} is already waiting. Add these messages to it."
            )
        space_key = self._spaces.key(review.tenant, review.space)
        self._session.run(_INSERT, [review.tenant, space_key, *self._values(review, _COLUMNS)])
        if review.kind is ReviewKind.CONSOLIDATION:
            self._session.run(_CONSOLIDATED, (review.created_at, space_key, review.created_at))
        if review.state is ReviewState.WAITING:
            self._put_messages(review.tenant, space_key, review.id, messages)
        else:
            self._session.run(_SQL["trim"], (space_key, space_key, REVIEWS_MAX, space_key))

    def get(self, tenant: str, review_id: str) -> ReviewRow:
        found = self._find(tenant, review_id)
        if found is None:
            raise NotFound(f"There is no review {review_id!r}. `afterturn review log` lists those of a space.")
        return found

    def find_waiting(self, key: ConversationKey) -> ReviewRow | None:
        space_key = self._spaces.find(key.tenant, key.space)
        row = None if space_key is None else self._session.row(_SQL["waiting"], (space_key, key.id))
        return None if row is None else self._review(row)

    def messages(self, tenant: str, review_id: str) -> list[ReviewMessage]:
        rows = self._session.rows(
            f"SELECT m.space_key, m.ordinal, {', '.join(f'm.{column}' for column in _MESSAGE)} FROM review AS r "
            "JOIN review_message AS m ON m.space_key = r.space_key AND m.review = r.id "
            "WHERE r.tenant = ? AND r.id = ? ORDER BY m.ordinal",
            (tenant, review_id),
        )
        found: list[ReviewMessage] = []
        for space_key, ordinal, *row in rows:
            values = dict(zip(_MESSAGE, row, strict=True))
            if self._sealer is not None:
                cipher, name = self._sealer.of(space_key), row_name(review_id, ordinal)
                values["text"] = open_text(cipher, "review_message.text", name, values["text"])
            values["fresh"] = bool(values["fresh"])
            found.append(ReviewMessage(**values))
        return found

    def replace_messages(self, tenant: str, review_id: str, messages: Sequence[ReviewMessage]) -> None:
        review = self._find(tenant, review_id)
        # A review that has ended or was forgotten must not store text again.
        if review is not None and review.state is ReviewState.WAITING:
            space_key = self._spaces.key(tenant, review.space)
            self._drop_messages(space_key, review_id)
            self._put_messages(tenant, space_key, review_id, messages)

    def end(self, review: ReviewRow) -> bool:
        assert review.state is not ReviewState.WAITING
        space_key = self._spaces.find(review.tenant, review.space)
        if space_key is None or not self._session.run(_END, [*self._values(review, _ENDS), space_key, review.id]):
            return False
        self._drop_messages(space_key, review.id)
        self._session.run(_SQL["trim"], (space_key, space_key, REVIEWS_MAX, space_key))
        return True

    def page(
        self, tenant: str, space: str, *, conversation: str | None = None, limit: int, before: str | None = None
    ) -> list[ReviewRow]:
        where, values = "s.tenant = ? AND s.name = ?", [tenant, space]
        for condition, value in (("r.conversation = ?", conversation), ("r.id < ?", before)):
            if value is not None:
                where, values = f"{where} AND {condition}", [*values, value]
        rows = self._session.rows(f"{_SELECT} WHERE {where} ORDER BY r.id DESC LIMIT ?", [*values, limit])
        return [self._review(row) for row in rows]

    def count_turn(self, key: ConversationKey) -> int:
        row = self._session.row(
            f"UPDATE conversation SET unreviewed_turns = unreviewed_turns + 1 WHERE key = ({FIND_CONVERSATION}) "
            "RETURNING unreviewed_turns",
            (key.tenant, key.space, key.id),
        )
        return 0 if row is None else int(row[0])

    def unreviewed(self, key: ConversationKey) -> tuple[int, int]:
        row = self._session.row(
            f"SELECT unreviewed_turns, unread_position FROM conversation WHERE key = ({FIND_CONVERSATION})",
            (key.tenant, key.space, key.id),
        )
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    def scheduled(self, key: ConversationKey, *, position: int) -> None:
        # The position only grows: a review that was scheduled earlier may end later.
        self._session.run(
            "UPDATE conversation SET unreviewed_turns = 0, unread_position = "
            f"CASE WHEN unread_position < ? THEN ? ELSE unread_position END WHERE key = ({FIND_CONVERSATION})",
            (position, position, key.tenant, key.space, key.id),
        )

    def reopen(self, key: ConversationKey, *, position: int) -> None:
        self._session.run(
            f"UPDATE conversation SET unread_position = ? WHERE key = ({FIND_CONVERSATION}) AND unread_position > ?",
            (position, key.tenant, key.space, key.id, position),
        )

    def unconsolidated(self, tenant: str, *, before: float, limit: int) -> list[str]:
        rows = self._session.rows(_UNCONSOLIDATED, (tenant, limit, tenant, before, limit, limit))
        return [name for (name,) in rows]

    def _find(self, tenant: str, review_id: str) -> ReviewRow | None:
        row = self._session.row(f"{_SELECT} WHERE r.tenant = ? AND r.id = ?", (tenant, review_id))
        return None if row is None else self._review(row)

    def _put_messages(self, tenant: str, space_key: int, review_id: str, messages: Sequence[ReviewMessage]) -> None:
        """Stores the messages whose record still exists, and those without a record."""
        live = self._live_refs.live_ids(tenant, {item.source for item in messages if item.source is not None})
        kept = [item for item in messages if item.source is None or item.source in live]
        rows: list[Sequence[Value]] = []
        for ordinal, message in enumerate(map(_storable, kept)):
            if self._sealer is not None:
                row, cipher = row_name(review_id, ordinal), self._sealer.get_of(space_key)
                message = replace(message, text=seal_text(cipher, "review_message.text", row, message.text))
            values: list[Value] = [getattr(message, column) for column in _MESSAGE[:-1]]
            values.append(int(message.fresh))
            rows.append((space_key, review_id, ordinal, *values))
        self._session.run_many(_ADD_MESSAGE, rows)

    def _values(self, review: ReviewRow, columns: Sequence[str]) -> list[Value]:
        values = {column: getattr(review, column) for column in columns}
        values |= {column: json.dumps(values[column]) for column in _LISTS if column in values}
        if self._sealer is not None:
            cipher = self._sealer.get(review.tenant, review.space)
            for column in values.keys() & set(SEALED["review"]):
                values[column] = seal_text(cipher, f"review.{column}", row_name(review.id), str(values[column]))
        return list(values.values())

    def _review(self, row: Row) -> ReviewRow:
        tenant, space, *found = row
        values = dict(zip(_COLUMNS, found, strict=True))
        if self._sealer is not None:
            cipher = self._sealer.opener(tenant, space)
            for column in SEALED["review"]:
                values[column] = open_text(cipher, f"review.{column}", row_name(values["id"]), values[column])
        for column in _LISTS:
            values[column] = tuple(json.loads(values[column]))
        values["kind"], values["state"] = ReviewKind(values["kind"]), ReviewState(values["state"])
        return ReviewRow(tenant=tenant, space=space, **values)

    def _drop_messages(self, space_key: int, review_id: str) -> None:
        self._session.run("DELETE FROM review_message WHERE space_key = ? AND review = ?", (space_key, review_id))


def _storable(message: ReviewMessage) -> ReviewMessage:
    # The guard has not seen this text: half of a surrogate pair and NUL cannot be stored everywhere.
    return replace(message, text=message.text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd"))
