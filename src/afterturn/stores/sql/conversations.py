"""Conversations with their turns, counters and all that they keep from one turn to the next."""

from collections.abc import Collection

from afterturn.base.turns import (
    BlockRow,
    CarriedRow,
    ConversationKey,
    ConversationState,
    StandingRow,
    TurnRow,
    TurnStatus,
)
from afterturn.stores.sql.blocks import Blocks
from afterturn.stores.sql.carried import Carried
from afterturn.stores.sql.conversation_keys import FIND, ConversationKeys
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.session import Row, Value
from afterturn.stores.sql.standing import Standing

_BEFORE = (
    "AND (c.active_at, c.key) < (SELECT b.active_at, b.key FROM conversation AS b "
    "WHERE b.space_key = c.space_key AND b.id = ?)"
)
_TURNS = f"SELECT id, status, started_at, user_hash, ended_at, recorded_at FROM turn WHERE conversation_key = ({FIND})"
_STATE = (
    "SELECT c.turns, c.compactions, c.compacted_at FROM conversation AS c JOIN space AS s ON s.key = c.space_key "
    "WHERE s.tenant = ? AND s.name = ? AND c.id = ?"
)


class SqlConversations:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._keys = ConversationKeys(entries)
        self._find, self._active = self._keys.find, self._keys.active
        self._blocks = Blocks(entries)
        self._carried = Carried(entries)
        self._standing = Standing(entries)

    def open(self, key: ConversationKey, *, at: float) -> bool:
        return self._keys.open(key, at=at)

    def start_turn(self, key: ConversationKey, turn: TurnRow) -> bool:
        conversation = self._active(key, turn.started_at)
        row = self._session.row(
            "INSERT INTO turn (conversation_key, id, status, started_at, touched_at, user_hash, ended_at, recorded_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (conversation_key, id) DO NOTHING RETURNING id",
            (
                conversation,
                turn.id,
                turn.status.value,
                turn.started_at,
                turn.started_at,
                turn.user_hash,
                turn.ended_at,
                turn.recorded_at,
            ),
        )
        return row is not None

    def find_turn(self, key: ConversationKey, turn_id: str) -> TurnRow | None:
        row = self._session.row(f"{_TURNS} AND id = ?", (key.tenant, key.space, key.id, turn_id))
        return None if row is None else _turn(row)

    def turns(self, key: ConversationKey) -> list[TurnRow]:
        rows = self._session.rows(f"{_TURNS} ORDER BY started_at, id", (key.tenant, key.space, key.id))
        return [_turn(row) for row in rows]

    def end_turn(self, key: ConversationKey, turn_id: str, *, status: TurnStatus, at: float, recorded: bool) -> bool:
        found = self._find(key)
        if found is None:
            return False
        values: list[Value] = [status.value, at, at if recorded else None, found, turn_id]
        still = "recorded_at IS NULL" if recorded else "status = 'open'"
        ended = self._session.run(
            "UPDATE turn SET status = ?, ended_at = ?, recorded_at = ? "
            f"WHERE conversation_key = ? AND id = ? AND {still}",
            values,
        )
        if ended:
            self._keys.touch(found, at)
        if recorded and ended:
            self._session.run("UPDATE conversation SET turns = turns + 1 WHERE key = ?", (found,))
        return recorded and ended == 1

    def touch_turn(self, key: ConversationKey, turn_id: str, *, at: float) -> None:
        self._session.run(
            f"UPDATE turn SET touched_at = ? WHERE conversation_key = ({FIND}) AND id = ? AND status = 'open'",
            (at, key.tenant, key.space, key.id, turn_id),
        )

    def abandon_turns(self, tenant: str, *, idle_since: float, at: float) -> int:
        return self._session.run(
            "UPDATE turn SET status = 'abandoned', ended_at = ? WHERE status = 'open' AND touched_at < ? AND EXISTS "
            "(SELECT 1 FROM conversation AS c JOIN space AS s ON s.key = c.space_key "
            "WHERE c.key = turn.conversation_key AND s.tenant = ?)",
            (at, idle_since, tenant),
        )

    def add_block(self, key: ConversationKey, block: BlockRow) -> None:
        self._blocks.add(key.tenant, self._active(key, block.injected_at), block)

    def blocks(self, key: ConversationKey) -> list[BlockRow]:
        return self._blocks.known(key, self._find(key), in_full=True)

    def known_blocks(self, key: ConversationKey) -> list[BlockRow]:
        return self._blocks.known(key, self._find(key), in_full=False)

    def last_shown(self, tenant: str, refs: Collection[str]) -> dict[str, float]:
        return self._blocks.last_shown(tenant, refs)

    def state(self, key: ConversationKey) -> ConversationState:
        row = self._session.row(_STATE, (key.tenant, key.space, key.id))
        return ConversationState() if row is None else ConversationState(*row)

    def clear(self, key: ConversationKey, *, at: float, compacted: bool, still: Collection[str] = ()) -> None:
        conversation = self._active(key, at)
        self._session.run(
            "UPDATE conversation SET cleared_at = ? WHERE key = ? AND (cleared_at IS NULL OR cleared_at < ?)",
            (at, conversation, at),
        )
        if compacted:
            self._session.run(
                "UPDATE conversation SET compactions = compactions + 1, compacted_at = ? WHERE key = ?",
                (at, conversation),
            )
        self._blocks.hide(conversation, still)
        self._carried.clear(conversation)

    def carry(self, key: ConversationKey, carried: CarriedRow) -> None:
        self._carried.put(key.tenant, self._active(key, carried.settled_at), carried)

    def find_carried(self, key: ConversationKey) -> CarriedRow | None:
        found = self._find(key)
        return None if found is None else self._carried.find(key.tenant, found)

    def drop_carried(self, key: ConversationKey, correlation: str) -> bool:
        found = self._find(key)
        return found is not None and self._carried.drop(found, correlation)

    def find_standing(self, key: ConversationKey) -> StandingRow | None:
        found = self._find(key)
        return None if found is None else self._standing.find(found)

    def put_standing(self, key: ConversationKey, standing: StandingRow | None) -> None:
        if standing is not None:
            self._standing.put(key.tenant, self._active(key, standing.made_at), standing)
        elif (found := self._find(key)) is not None:
            self._standing.clear(found)

    def page(self, tenant: str, space: str, *, limit: int, before: str | None = None) -> list[str]:
        after, values = ("", [tenant, space]) if before is None else (_BEFORE, [tenant, space, before])
        rows = self._session.rows(
            "SELECT c.id FROM conversation AS c JOIN space AS s ON s.key = c.space_key "
            f"WHERE s.tenant = ? AND s.name = ? {after} ORDER BY c.active_at DESC, c.key DESC LIMIT ?",
            [*values, limit],
        )
        return [conversation for (conversation,) in rows]


def _turn(row: Row) -> TurnRow:
    turn_id, status, started_at, user_hash, ended_at, recorded_at = row
    return TurnRow(turn_id, TurnStatus(status), started_at, user_hash, ended_at, recorded_at)
