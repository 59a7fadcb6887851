"""Conversations with their turns and the blocks that were really injected into them."""

from afterturn.base.turns import BlockRow, ConversationKey, TurnRow, TurnStatus
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.session import Row, Value

_FIND = (
    "SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key "
    "WHERE s.tenant = ? AND s.name = ? AND c.id = ?"
)
_BEFORE = (
    "AND (c.active_at, c.key) < (SELECT b.active_at, b.key FROM conversation AS b "
    "WHERE b.space_key = c.space_key AND b.id = ?)"
)
_TURNS = f"SELECT id, status, started_at, user_hash, ended_at, recorded_at FROM turn WHERE conversation_key = ({_FIND})"


class SqlConversations:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces

    def open(self, key: ConversationKey, *, at: float) -> bool:
        row = self._session.row(
            "INSERT INTO conversation (space_key, id, opened_at, active_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (space_key, id) DO NOTHING RETURNING key",
            (self._spaces.key(key.tenant, key.space), key.id, at, at),
        )
        return row is not None

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
        values: list[Value] = [status.value, at, at if recorded else None, found[0], turn_id]
        still = "recorded_at IS NULL" if recorded else "status = 'open'"
        ended = self._session.run(
            "UPDATE turn SET status = ?, ended_at = ?, recorded_at = ? "
            f"WHERE conversation_key = ? AND id = ? AND {still}",
            values,
        )
        if ended:
            self._touch(found[0], at)
        return recorded and ended == 1

    def touch_turn(self, key: ConversationKey, turn_id: str, *, at: float) -> None:
        self._session.run(
            f"UPDATE turn SET touched_at = ? WHERE conversation_key = ({_FIND}) AND id = ? AND status = 'open'",
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
        conversation = self._active(key, block.injected_at)
        row = self._session.row(
            "INSERT INTO block (conversation_key, hash, turn, size_bytes, injected_at) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (conversation_key, hash) DO NOTHING RETURNING hash",
            (conversation, block.hash, block.turn, block.size_bytes, block.injected_at),
        )
        if row is not None:
            self._session.run_many(
                "INSERT INTO block_ref (conversation_key, hash, ordinal, ref) VALUES (?, ?, ?, ?)",
                [(conversation, block.hash, ordinal, ref) for ordinal, ref in enumerate(block.refs)],
            )

    def blocks(self, key: ConversationKey) -> list[BlockRow]:
        found = self._find(key)
        own = [] if found is None else self._blocks(found)
        known = {block.hash for block in own}
        return [block for block in self._spent_blocks(key) if block.hash not in known] + own

    def page(self, tenant: str, space: str, *, limit: int, before: str | None = None) -> list[str]:
        after, values = ("", [tenant, space]) if before is None else (_BEFORE, [tenant, space, before])
        rows = self._session.rows(
            "SELECT c.id FROM conversation AS c JOIN space AS s ON s.key = c.space_key "
            f"WHERE s.tenant = ? AND s.name = ? {after} ORDER BY c.active_at DESC, c.key DESC LIMIT ?",
            [*values, limit],
        )
        return [conversation for (conversation,) in rows]

    def _spent_blocks(self, key: ConversationKey) -> list[BlockRow]:
        rows = self._session.rows(
            "SELECT b.hash, b.size_bytes FROM spent_block AS b JOIN space AS s ON s.key = b.space_key "
            "WHERE s.tenant = ? AND s.name = ? ORDER BY b.hash",
            (key.tenant, key.space),
        )
        return [BlockRow(block_hash, "", (), size_bytes, 0.0) for block_hash, size_bytes in rows]

    def _blocks(self, found: Row) -> list[BlockRow]:
        refs: dict[str, list[str]] = {}
        for block_hash, ref in self._session.rows(
            "SELECT hash, ref FROM block_ref WHERE conversation_key = ? ORDER BY hash, ordinal", found
        ):
            refs.setdefault(block_hash, []).append(ref)
        rows = self._session.rows(
            "SELECT hash, turn, size_bytes, injected_at FROM block WHERE conversation_key = ? "
            "ORDER BY injected_at, hash",
            found,
        )
        return [
            BlockRow(block_hash, turn, tuple(refs.get(block_hash, ())), size_bytes, injected_at)
            for block_hash, turn, size_bytes, injected_at in rows
        ]

    def _find(self, key: ConversationKey) -> Row | None:
        return self._session.row(_FIND, (key.tenant, key.space, key.id))

    def _active(self, key: ConversationKey, at: float) -> int:
        """The key of a conversation in which something happens now; made if it is new."""
        self.open(key, at=at)
        row = self._find(key)
        assert row is not None
        self._touch(row[0], at)
        return int(row[0])

    def _touch(self, key: int, at: float) -> None:
        self._session.run("UPDATE conversation SET active_at = ? WHERE key = ? AND active_at < ?", (at, key, at))


def _turn(row: Row) -> TurnRow:
    turn_id, status, started_at, user_hash, ended_at, recorded_at = row
    return TurnRow(turn_id, TurnStatus(status), started_at, user_hash, ended_at, recorded_at)
