"""What a unit of work changes in a space's figures: frequencies, extent, change rows. Summed up and written once."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from afterturn.stores.sql.session import Session

CHANGES_MAX = 20_000
"""How many changes of a space are kept; whoever is further behind has to rebuild."""
_TRIM_EVERY = 1_000


class _Delta:
    def __init__(self) -> None:
        self.documents = 0
        self.terms_total = 0
        self.frequencies: Counter[str] = Counter()
        self.changed: list[int] = []


class Tally:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._deltas: defaultdict[int, _Delta] = defaultdict(_Delta)

    def entered(self, key: int, space_key: int, terms: Sequence[str]) -> None:
        """An entry became active."""
        delta = self._deltas[space_key]
        delta.documents += 1
        delta.terms_total += len(terms)
        delta.frequencies.update(set(terms))
        delta.changed.append(key)

    def left(self, key: int, space_key: int, terms: Sequence[str]) -> None:
        """An entry is active no more."""
        delta = self._deltas[space_key]
        delta.documents -= 1
        delta.terms_total -= len(terms)
        delta.frequencies.subtract(set(terms))
        delta.changed.append(key)

    def changed(self, key: int, space_key: int) -> None:
        self._deltas[space_key].changed.append(key)

    def settle(self) -> None:
        deltas, self._deltas = self._deltas, defaultdict(_Delta)
        for space_key, delta in deltas.items():
            self._write_frequencies(space_key, delta.frequencies)
            self._write_changes(space_key, delta)

    def _write_frequencies(self, space_key: int, frequencies: Counter[str]) -> None:
        # Sorted, so that two units that share terms lock the rows in the same order.
        moved = sorted((term, count) for term, count in frequencies.items() if count)
        if moved:
            self._session.run_many(
                "INSERT INTO frequency (space_key, term, documents) VALUES (?, ?, ?) ON CONFLICT (space_key, term) "
                "DO UPDATE SET documents = frequency.documents + excluded.documents",
                [(space_key, term, count) for term, count in moved],
            )
        gone = [(space_key, term) for term, count in moved if count < 0]
        if gone:
            self._session.run_many("DELETE FROM frequency WHERE space_key = ? AND term = ? AND documents <= 0", gone)

    def _write_changes(self, space_key: int, delta: _Delta) -> None:
        changed = delta.changed
        self._session.run(
            "UPDATE space SET seq = seq + ?, documents = documents + ?, terms_total = terms_total + ? WHERE key = ?",
            (len(changed), delta.documents, delta.terms_total, space_key),
        )
        row = self._session.row("SELECT seq FROM space WHERE key = ?", (space_key,))
        assert row is not None
        newest: int = row[0]
        first = newest - len(changed) + 1
        self._session.run_many(
            "INSERT INTO change (space_key, seq, entry_key) VALUES (?, ?, ?)",
            [(space_key, first + at, key) for at, key in enumerate(changed)],
        )
        if first // _TRIM_EVERY != (newest + 1) // _TRIM_EVERY:
            self._session.run("DELETE FROM change WHERE space_key = ? AND seq <= ?", (space_key, newest - CHANGES_MAX))
