"""A recall that settled too late for its turn, kept for the conversation's next one."""

from dataclasses import replace

from afterturn.base.turns import CarriedRow
from afterturn.stores.sql.candidates import Candidates, decode_carried, encode_carried, names_of
from afterturn.stores.sql.entries import Entries

_PUT = (
    "INSERT INTO carried (conversation_key, correlation, turn, names, detail) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (conversation_key) DO UPDATE SET correlation = excluded.correlation, turn = excluded.turn, "
    "names = excluded.names, detail = excluded.detail"
)


class Carried:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._candidates = Candidates(entries)

    def put(self, tenant: str, conversation: int, carried: CarriedRow) -> None:
        (living,) = self._candidates.living(tenant, carried.candidates)
        kept = replace(carried, candidates=living)
        names = names_of(kept.candidates)
        self._session.run(_PUT, (conversation, kept.correlation, kept.turn, names, encode_carried(kept)))

    def find(self, tenant: str, conversation: int) -> CarriedRow | None:
        """Looked for again when it is read: another space's forget does not reach this row."""
        row = self._session.row(
            "SELECT correlation, turn, detail FROM carried WHERE conversation_key = ?", (conversation,)
        )
        if row is None:
            return None
        carried = decode_carried(*row)
        (living,) = self._candidates.living(tenant, carried.candidates)
        return replace(carried, candidates=living) if living else None

    def drop(self, conversation: int, correlation: str) -> bool:
        dropped = self._session.run(
            "DELETE FROM carried WHERE conversation_key = ? AND correlation = ?", (conversation, correlation)
        )
        return dropped == 1

    def clear(self, conversation: int) -> None:
        self._session.run("DELETE FROM carried WHERE conversation_key = ?", (conversation,))
