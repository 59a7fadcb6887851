"""What recalls came to, kept to a bounded number in each space."""

from dataclasses import replace

from afterturn.stores.sql.conversation_rows import (
    RECALL_COLUMNS,
    CandidateRows,
    ConversationKeys,
    decode_recall,
    encode_recall,
    names_of,
)
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.session import Value
from afterturn.types import ConversationKey, RecallRow

_PUT = (
    "INSERT INTO recall "
    "(space_key, conversation_key, correlation, phase, turn, delivered_in, asked_at, names, detail) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (conversation_key, correlation, phase) DO UPDATE SET "
    "turn = excluded.turn, delivered_in = excluded.delivered_in, asked_at = excluded.asked_at, "
    "names = excluded.names, detail = excluded.detail"
)
_TRIM = (
    "DELETE FROM recall WHERE space_key = ? AND key <= "
    "(SELECT key FROM recall WHERE space_key = ? ORDER BY key DESC LIMIT 1 OFFSET ?)"
)


class SqlRecalls:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces
        self._keys = ConversationKeys(entries)
        self._candidates = CandidateRows(entries)

    def add(self, key: ConversationKey, recall: RecallRow, *, entries_max: int) -> None:
        space_key, conversation = self._spaces.key(key.tenant, key.space), self._keys.active(key, recall.asked_at)
        (living,) = self._candidates.living(key.tenant, recall.candidates)
        kept = replace(recall, candidates=living)
        values: list[Value] = [
            space_key,
            conversation,
            kept.correlation,
            kept.phase.value,
            kept.turn,
            kept.delivered_in,
            kept.asked_at,
            names_of(kept.candidates, kept.excluded),
            encode_recall(kept),
        ]
        self._session.run(_PUT, values)
        self._session.run(_TRIM, (space_key, space_key, entries_max))

    def page(self, key: ConversationKey, *, turn: str | None = None, limit: int = 1000) -> list[RecallRow]:
        conversation = self._keys.find(key)
        if conversation is None:
            return []
        values: list[Value] = [conversation]
        within = ""
        if turn is not None:
            within = "AND (turn = ? OR delivered_in = ?)"
            values += [turn, turn]
        rows = self._session.rows(
            f"SELECT {', '.join(RECALL_COLUMNS)}, detail FROM recall "
            f"WHERE conversation_key = ? {within} ORDER BY asked_at DESC, key DESC LIMIT ?",
            [*values, limit],
        )
        recalls = [decode_recall(row) for row in reversed(rows)]
        living = self._candidates.living(key.tenant, *(recall.candidates for recall in recalls))
        return [replace(recall, candidates=left) for recall, left in zip(recalls, living, strict=True)]
