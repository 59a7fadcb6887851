"""The standing block that a conversation is frozen to, with the versions of memories in it."""

from afterturn.base.turns import StandingRow
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.references import References


class Standing:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._references = References(entries)

    def put(self, tenant: str, conversation: int, standing: StandingRow) -> None:
        """Replaces it. One that shows what was forgotten meanwhile is not kept: it is made anew."""
        self.clear(conversation)
        if not self._references.all_live(tenant, standing.refs):
            return
        self._session.run(
            "INSERT INTO standing (conversation_key, made_at, text) VALUES (?, ?, ?)",
            (conversation, standing.made_at, standing.text),
        )
        self._session.run_many(
            "INSERT INTO standing_ref (conversation_key, ordinal, ref) VALUES (?, ?, ?)",
            [(conversation, ordinal, ref) for ordinal, ref in enumerate(standing.refs)],
        )

    def find(self, conversation: int) -> StandingRow | None:
        row = self._session.row("SELECT text, made_at FROM standing WHERE conversation_key = ?", (conversation,))
        if row is None:
            return None
        refs = self._session.rows(
            "SELECT ref FROM standing_ref WHERE conversation_key = ? ORDER BY ordinal", (conversation,)
        )
        return StandingRow(text=row[0], refs=tuple(ref for (ref,) in refs), made_at=row[1])

    def clear(self, conversation: int) -> None:
        for table in ("standing", "standing_ref"):
            self._session.run(f"DELETE FROM {table} WHERE conversation_key = ?", (conversation,))
