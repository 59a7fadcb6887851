"""What conversations keep of entries beside the entries: block texts, standing blocks, carried recalls, recall rows.

`forget.py` decides what goes; here is how it goes.
"""

from collections.abc import Iterable, Set
from dataclasses import replace

from afterturn.base.turns import Candidate
from afterturn.stores.sql.candidates import (
    RECALL_COLUMNS,
    decode_carried,
    decode_recall,
    encode_carried,
    encode_recall,
    names_of,
)
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

        def stays(candidate: Candidate) -> bool:
            return candidate.space != space or candidate.ref not in refs

        for row in self._weighing("carried", "r.key, r.correlation, r.turn, r.detail", space_key, refs):
            carried = decode_carried(*row[1:])
            carried = replace(carried, candidates=tuple(filter(stays, carried.candidates)))
            self._rewrite("carried", row[0], names_of(carried.candidates), encode_carried(carried))
        columns = ", ".join(f"r.{column}" for column in RECALL_COLUMNS)
        for row in self._weighing("recall", f"r.key, {columns}, r.detail", space_key, refs):
            recall = decode_recall(row[1:])
            excluded = tuple(ref for ref in recall.excluded if ref not in refs)
            recall = replace(recall, candidates=tuple(filter(stays, recall.candidates)), excluded=excluded)
            self._rewrite("recall", row[0], names_of(recall.candidates, excluded), encode_recall(recall))

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

    def _weighing(self, table: str, columns: str, space_key: int, refs: Set[str]) -> list[Row]:
        """The rows that name one of `refs`; of the others, no more is read than the names."""
        rows = self._session.rows(
            f"SELECT r.key, r.names FROM {table} AS r JOIN conversation AS c ON c.key = r.conversation_key "
            "WHERE c.space_key = ?",
            (space_key,),
        )
        condition, value = self._session.among(
            "r.key", [key for key, names in rows if not refs.isdisjoint(names.split())]
        )
        return self._session.rows(f"SELECT {columns} FROM {table} AS r WHERE {condition}", (value,))

    def _rewrite(self, table: str, key: int, names: str, detail: str) -> None:
        self._session.run(f"UPDATE {table} SET names = ?, detail = ? WHERE key = ?", (names, detail, key))
