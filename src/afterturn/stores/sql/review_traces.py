"""What reviews keep of what is forgotten: those of a conversation or a space go whole, of others some messages go.

`forget.py` decides what goes; here is how it goes.
"""

from collections.abc import Collection, Sequence

from afterturn.stores.sql.conversation_keys import FIND
from afterturn.stores.sql.session import Session, Value

_WRITING = (
    "EXISTS (SELECT 1 FROM review AS r JOIN space AS s ON s.key = r.space_key "
    "WHERE r.space_key = review_message.space_key AND r.id = review_message.review AND s.tenant = ? AND r.writes = ?"
)
"""A message of a review that may write into this space, whoever owns the conversation; binds tenant and space."""
# The tenant is asked of each message: a tenant has more spaces than a record has messages.
BY_SOURCE = (
    "DELETE FROM review_message WHERE {condition} "
    "AND EXISTS (SELECT 1 FROM space WHERE key = review_message.space_key AND tenant = ?)"
)

# As `Records.next_position` counts.
_NEXT = (
    "SELECT coalesce(max(position) + 1, 0) AS position FROM entry "
    "WHERE space_key = (SELECT key FROM space WHERE tenant = ? AND name = ?) "
    "AND conversation = ? AND coalesce(owner, '') = ? AND kind = 'record'"
)
_SET_BACK = (
    f"UPDATE conversation SET unread_position = n.position FROM ({_NEXT}) AS n "
    f"WHERE key = ({FIND}) AND unread_position > n.position"
)


class ReviewTraces:
    def __init__(self, session: Session) -> None:
        self._session = session

    def erase(self, space_key: int, conversations: Sequence[str] | None) -> set[str]:
        """Reviews that the space owns, of these conversations or all of them; their ids, by which jobs name them."""
        values: list[Value] = [space_key]
        within = "space_key = ?"
        if conversations is not None:
            condition, value = self._session.among("conversation", conversations)
            within, values = f"{within} AND {condition}", [space_key, value]
        ids = {review for (review,) in self._session.rows(f"SELECT id FROM review WHERE {within}", values)}
        rows = [(space_key, review) for review in sorted(ids)]
        self._session.run_many("DELETE FROM review_message WHERE space_key = ? AND review = ?", rows)
        self._session.run_many("DELETE FROM review WHERE space_key = ? AND id = ?", rows)
        return ids

    def erase_sources(self, tenant: str, names: Collection[str]) -> None:
        """Messages of these records in all of the tenant's reviews: a source does not name its record's space."""
        condition, value = self._session.among("source", sorted(names))
        self._session.run(BY_SOURCE.format(condition=condition), (value, tenant))

    def erase_unrecorded(self, tenant: str, conversations: Collection[tuple[str, str]]) -> None:
        """Messages that no record holds, by owner and conversation: nothing tells which record they came to."""
        self._session.run_many(
            "DELETE FROM review_message WHERE space_key = (SELECT key FROM space WHERE tenant = ? AND name = ?) "
            "AND source IS NULL AND EXISTS (SELECT 1 FROM review AS r WHERE r.space_key = review_message.space_key "
            "AND r.id = review_message.review AND r.conversation = ?)",
            [(tenant, *conversation) for conversation in sorted(conversations)],
        )

    def set_back(self, tenant: str, space: str, conversations: Collection[tuple[str, str]]) -> None:
        """Once records of conversations are erased, by owner and id: what is recorded next in this space may have the
        positions of the last of them, and was read by nobody."""
        self._session.run_many(
            _SET_BACK,
            [
                (tenant, space, conversation, "" if owner == space else owner, tenant, owner, conversation)
                for owner, conversation in sorted(conversations)
            ],
        )

    def erase_speaker(self, tenant: str, space_key: int, space: str, speaker: str) -> None:
        self._session.run(
            f"DELETE FROM review_message WHERE speaker = ? AND (space_key = ? OR {_WRITING}))",
            (speaker, space_key, tenant, space),
        )

    def erase_written(self, tenant: str, space: str, conversation: str | None) -> None:
        """What others' conversations say into this space: of one conversation's id, or of all."""
        values: list[Value] = [tenant, space]
        named = ""
        if conversation is not None:
            named, values = " AND r.conversation = ?", [*values, conversation]
        self._session.run(f"DELETE FROM review_message WHERE {_WRITING}{named})", values)
