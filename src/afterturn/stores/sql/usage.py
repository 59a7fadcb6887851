"""What calls of models came to, one row a space, day and purpose."""

from afterturn.base.reviews import Purpose, Spent
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.session import Row, Value

_ADD = (
    "INSERT INTO usage (space_key, day, purpose, calls, tokens_in, tokens_out, estimated) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (space_key, day, purpose) DO UPDATE SET calls = usage.calls + excluded.calls, "
    "tokens_in = usage.tokens_in + excluded.tokens_in, tokens_out = usage.tokens_out + excluded.tokens_out, "
    "estimated = usage.estimated + excluded.estimated"
)
_FROM = "usage AS u JOIN space AS s ON s.key = u.space_key"


class SqlUsage:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces

    def add(self, tenant: str, spent: Spent) -> None:
        space_key = self._spaces.key(tenant, spent.space)
        counted = (spent.calls, spent.tokens_in, spent.tokens_out, spent.estimated)
        self._session.run(_ADD, (space_key, spent.day, spent.purpose.value, *counted))

    def tokens(self, tenant: str, day: str, *, space: str | None = None) -> int:
        where, values = _within(tenant, space)
        row = self._session.row(
            f"SELECT coalesce(sum(u.tokens_in + u.tokens_out), 0) FROM {_FROM} WHERE {where} AND u.day = ?",
            [*values, day],
        )
        assert row is not None
        return int(row[0])

    def page(self, tenant: str, *, space: str | None = None, limit: int) -> list[Spent]:
        where, values = _within(tenant, space)
        rows = self._session.rows(
            f"SELECT s.name, u.day, u.purpose, u.calls, u.tokens_in, u.tokens_out, u.estimated FROM {_FROM} "
            f"WHERE {where} ORDER BY u.day DESC, s.name, u.purpose LIMIT ?",
            [*values, limit],
        )
        return [_spent(row) for row in rows]


def _within(tenant: str, space: str | None) -> tuple[str, list[Value]]:
    return ("s.tenant = ?", [tenant]) if space is None else ("s.tenant = ? AND s.name = ?", [tenant, space])


def _spent(row: Row) -> Spent:
    space, day, purpose, *counted = row
    return Spent(space, day, Purpose(purpose), *counted)
