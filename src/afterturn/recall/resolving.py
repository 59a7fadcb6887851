"""The entries behind a shelf's rows: those that a query admits, from memory where they were read before."""

from collections.abc import Callable, Sequence

from afterturn.base.ports import Index
from afterturn.base.types import Entry, LaneQuery
from afterturn.recall.admitting import admits, is_told_by_entries
from afterturn.recall.stock import Stock


def _uncounted(_: Stock) -> None:
    """For shelves that nobody bounds."""


class Resolver:
    """Valid only inside the unit whose index it was given."""

    def __init__(
        self, stock: Stock, index: Index, *, seq: int | None = None, grown: Callable[[Stock], None] = _uncounted
    ) -> None:
        """`seq` is the newest change of the space that the unit sees; without it, nothing is remembered. `grown` is
        called when more is."""
        self._stock = stock
        self._index = index
        self._seq = seq
        self._grown = grown

    def entries(self, query: LaneQuery, keys: Sequence[int]) -> dict[int, Entry]:
        """Those of `keys` that the query admits."""
        known = self._stock.kept(keys, seq=self._seq) if is_told_by_entries(query) else {}
        is_admitted = {key: admits(query, entry) for key, entry in known.items()}
        found = {key: entry for key, entry in known.items() if is_admitted[key]}
        unsure = [key for key in keys if is_admitted.get(key) is None]
        return found | self._read(query, unsure) if unsure else found

    def _read(self, query: LaneQuery, keys: Sequence[int]) -> dict[int, Entry]:
        read = {match.key: match.entry for match in self._index.resolve(query, keys, with_terms=False)}
        self._stock.keep(read, seq=self._seq)
        self._grown(self._stock)
        return read
