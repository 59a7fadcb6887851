"""The blocks that were really injected into a conversation, by the hash of their bytes."""

from collections.abc import Collection

from afterturn.base.turns import BlockRow, ConversationKey
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.references import References
from afterturn.stores.sql.session import Value

_INSERT = (
    "INSERT INTO block (conversation_key, hash, size_bytes, turn, injected_at, point, anchor, in_sight) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (conversation_key, hash) DO NOTHING RETURNING hash"
)
# What is in sight stands where it was first put. What was lost from sight stands where it is put now.
_PUT_AGAIN = (
    "UPDATE block SET turn = ?, injected_at = ?, point = ?, anchor = ?, in_sight = ? "
    "WHERE conversation_key = ? AND hash = ? AND in_sight = 0"
)
# Of one hash there is one text, whoever brings it: a recording may come first, and without.
_SAY = "UPDATE block SET text = ? WHERE conversation_key = ? AND hash = ? AND text = ''"
_SELECT = (
    "SELECT hash, turn, size_bytes, injected_at, point, anchor, text, in_sight FROM block WHERE conversation_key = ? "
    "ORDER BY injected_at, hash"
)
_SELECT_IN_SIGHT = (
    "SELECT hash, turn, size_bytes, injected_at, point, anchor, CASE WHEN in_sight = 1 THEN text ELSE '' END, in_sight "
    "FROM block WHERE conversation_key = ? ORDER BY injected_at, hash"
)
_REFS = "SELECT hash, ref FROM block_ref WHERE conversation_key = ? ORDER BY hash, ordinal"
_REFS_IN_SIGHT = (
    "SELECT r.hash, r.ref FROM block AS b JOIN block_ref AS r "
    "ON r.conversation_key = b.conversation_key AND r.hash = b.hash "
    "WHERE b.conversation_key = ? AND b.in_sight = 1 ORDER BY r.hash, r.ordinal"
)
# What stands in a system prompt is shown as long as its conversation goes on, as well as what was injected into a turn.
_SHOWING = (
    (
        "b.injected_at",
        "block_ref AS r JOIN block AS b ON b.conversation_key = r.conversation_key AND b.hash = r.hash",
    ),
    ("c.active_at", "standing_ref AS r"),
)


class Blocks:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._references = References(entries)

    def add(self, tenant: str, conversation: int, block: BlockRow) -> None:
        in_sight = block.in_sight and self._is_after_clearing(conversation, block.injected_at)
        placed: list[Value] = [block.turn, block.injected_at, block.point, block.anchor, int(in_sight)]
        if self._session.row(_INSERT, [conversation, block.hash, block.size_bytes, *placed]) is not None:
            self._session.run_many(
                "INSERT INTO block_ref (conversation_key, hash, ordinal, ref) VALUES (?, ?, ?, ?)",
                [(conversation, block.hash, ordinal, ref) for ordinal, ref in enumerate(block.refs)],
            )
        elif in_sight:
            self._session.run(_PUT_AGAIN, [*placed, conversation, block.hash])
        if block.text and self._references.all_live(tenant, block.refs):
            self._session.run(_SAY, (block.text, conversation, block.hash))

    def known(self, key: ConversationKey, conversation: int | None, *, in_full: bool) -> list[BlockRow]:
        """Those of the space's forgotten conversations, then this one's, oldest first.

        Unless `in_full`, those out of sight come without text and references.
        """
        own = [] if conversation is None else self._own(conversation, in_full=in_full)
        known = {block.hash for block in own}
        return [block for block in self._spent(key) if block.hash not in known] + own

    def hide(self, conversation: int, still: Collection[str]) -> None:
        """All but those whose hashes are `still` in sight."""
        condition, value = self._session.among("hash", sorted(still))
        self._session.run(
            f"UPDATE block SET in_sight = 0 WHERE conversation_key = ? AND in_sight = 1 AND NOT ({condition})",
            (conversation, value),
        )

    def last_shown(self, tenant: str, refs: Collection[str]) -> dict[str, float]:
        condition, value = self._session.among("r.ref", sorted(refs))
        shown = " UNION ALL ".join(
            f"SELECT r.ref AS ref, {at} AS at FROM {naming} "
            "JOIN conversation AS c ON c.key = r.conversation_key JOIN space AS s ON s.key = c.space_key "
            f"WHERE {condition} AND s.tenant = ?"
            for at, naming in _SHOWING
        )
        rows = self._session.rows(
            f"SELECT ref, max(at) FROM ({shown}) AS shown GROUP BY ref", (value, tenant) * len(_SHOWING)
        )
        return dict(rows)

    def _is_after_clearing(self, conversation: int, at: float) -> bool:
        """A turn's blocks are stored again when it is recorded, which may be long after the host lost sight of them."""
        row = self._session.row("SELECT cleared_at FROM conversation WHERE key = ?", (conversation,))
        return row is None or row[0] is None or at >= row[0]

    def _own(self, conversation: int, *, in_full: bool) -> list[BlockRow]:
        refs: dict[str, list[str]] = {}
        for block_hash, ref in self._session.rows(_REFS if in_full else _REFS_IN_SIGHT, (conversation,)):
            refs.setdefault(block_hash, []).append(ref)
        return [
            BlockRow(
                hash=row[0],
                turn=row[1],
                refs=tuple(refs.get(row[0], ())),
                size_bytes=row[2],
                injected_at=row[3],
                point=row[4],
                anchor=row[5],
                text=row[6],
                in_sight=bool(row[7]),
            )
            for row in self._session.rows(_SELECT if in_full else _SELECT_IN_SIGHT, (conversation,))
        ]

    def _spent(self, key: ConversationKey) -> list[BlockRow]:
        rows = self._session.rows(
            "SELECT b.hash, b.size_bytes FROM spent_block AS b JOIN space AS s ON s.key = b.space_key "
            "WHERE s.tenant = ? AND s.name = ? ORDER BY b.hash",
            (key.tenant, key.space),
        )
        return [BlockRow(block_hash, "", (), size_bytes, 0.0, in_sight=False) for block_hash, size_bytes in rows]
