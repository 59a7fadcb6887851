"""What conversations keep of entries beside the entries: block texts, standing blocks, carried recalls, recall rows.

`forget.py` decides what goes; here is how it goes.
"""

from collections.abc import Iterable, Set

from afterturn.stores.sql.candidates import without
from afterturn.stores.sql.conversation_keys import FIND
from afterturn.stores.sql.session import Row, Session

_UNRECORDED = (
    "conversation_key IN (SELECT key FROM conversation WHERE space_key = ?) AND NOT EXISTS "
    "(SELECT 1 FROM turn AS t WHERE t.conversation_key = {table}.conversation_key AND t.id = {table}.turn "
    "AND t.recorded_at IS NOT NULL)"
)
_ASKING = ("recall", "carried")


class Traces:
    def __init__(self, session: Session) -> None:
        self._session = session

    def hide_texts(self, tenant: str, refs: Set[str]) -> None:
        """In every conversation of the tenant, since blocks do not say from which space they show something."""
        shown = self._naming("block_ref", "r.conversation_key, r.hash", tenant, refs)
        self._session.run_many(
            "UPDATE block SET text = '' WHERE conversation_key = ? AND hash = ? AND text <> ''", shown
        )
        standing = self._naming("standing_ref", "r.conversation_key", tenant, refs)
        for table in ("standing", "standing_ref"):
            self._session.run_many(f"DELETE FROM {table} WHERE conversation_key = ?", standing)

    def erase_names(self, space_key: int, space: str, refs: Set[str]) -> None:
        """From what the space's own conversations weighed. One look through it, however many are erased."""
        for table in _ASKING:
            rows = [(*without(detail, space, refs), key) for key, detail in self._weighing(table, space_key, refs)]
            self._session.run_many(f"UPDATE {table} SET names = ?, detail = ? WHERE key = ?", rows)

    def erase_turns(self, tenant: str, turns: Iterable[tuple[str, str, str]]) -> None:
        """What was asked in turns, each by owner, conversation and id: a question is what somebody said."""
        rows = [(tenant, *turn) for turn in turns]
        for table in _ASKING:
            self._session.run_many(f"DELETE FROM {table} WHERE conversation_key = ({FIND}) AND turn = ?", rows)

    def erase_unrecorded(self, space_key: int) -> None:
        """What was asked in turns of which no record tells who spoke."""
        for table in _ASKING:
            self._session.run(f"DELETE FROM {table} WHERE {_UNRECORDED.format(table=table)}", (space_key,))

    def erase_questions(self, space_key: int, conversation: str) -> None:
        within = "conversation_key IN (SELECT key FROM conversation WHERE space_key = ? AND id = ?)"
        for table in _ASKING:
            self._session.run(f"DELETE FROM {table} WHERE {within}", (space_key, conversation))

    def _naming(self, table: str, columns: str, tenant: str, refs: Set[str]) -> list[Row]:
        condition, value = self._session.among("r.ref", sorted(refs))
        return self._session.rows(
            f"SELECT DISTINCT {columns} FROM {table} AS r JOIN conversation AS c ON c.key = r.conversation_key "
            f"JOIN space AS s ON s.key = c.space_key WHERE {condition} AND s.tenant = ?",
            (value, tenant),
        )

    def _weighing(self, table: str, space_key: int, refs: Set[str]) -> list[Row]:
        """(key, detail) of the rows that name one of `refs`; of the others, no more is read than the names."""
        rows = self._session.rows(
            f"SELECT r.key, r.names FROM {table} AS r JOIN conversation AS c ON c.key = r.conversation_key "
            "WHERE c.space_key = ?",
            (space_key,),
        )
        keys = [key for key, names in rows if not refs.isdisjoint(names.split())]
        if not keys:
            return []
        condition, value = self._session.among("key", keys)
        return self._session.rows(f"SELECT key, detail FROM {table} WHERE {condition}", (value,))
