"""Writes versions and moves their status, and keeps index, figures and history in step with both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from afterturn.base.errors import Conflict
from afterturn.base.terms import terms
from afterturn.base.types import SOURCES_MAX, Admitted, Entry, Kind, Operation, Status, Verdict
from afterturn.stores.sql.journal import Journal
from afterturn.stores.sql.rows import INSERT, new_entry, values_of
from afterturn.stores.sql.session import Session
from afterturn.stores.sql.spaces import Spaces
from afterturn.stores.sql.tally import Tally
from afterturn.stores.sql.text import TextIndex


class Entries:
    """The only place that inserts an entry or changes a status, so that no path forgets the index."""

    def __init__(self, session: Session, text: TextIndex) -> None:
        self.session = session
        self.text = text
        self.spaces = Spaces(session)
        self.tally = Tally(session)
        self.journal = Journal(session, self.spaces)

    def insert(self, operation: Operation, admitted: Admitted, entry_id: str, *, version: int = 1) -> Entry | None:
        """None when a constraint forbids it; then nothing changed."""
        status = _first_status(admitted)
        entry = new_entry(admitted, entry_id, version=version, space=operation.space, status=status)
        key = self._put(operation, entry)
        if key is None:
            return None
        if status is Status.ACTIVE:
            self._enter(key, self.spaces.key(operation.tenant, operation.space), admitted.terms)
        return entry

    def insert_waiting(self, operation: Operation, entry: Entry, *, base: int) -> None:
        """A version that would take the place of version `base`; for whoever knows that there is room for it."""
        assert entry.status in (Status.PROPOSED, Status.WITHDRAWAL)
        key = self._put(operation, entry)
        if key is None:
            raise Conflict(f"Something waits for {entry.id} or says the same already. Read it and try again.")
        self.session.run("UPDATE entry SET base = ? WHERE key = ?", (base, key))

    def move(self, operation: Operation, key: int, before: Status, after: Status) -> None:
        """Changes a version's status. `Conflict` when what becomes active has an active duplicate."""
        self.session.run("UPDATE entry SET status = ? WHERE key = ?", (after.value, key))
        space_key = self.spaces.key(operation.tenant, operation.space)
        if before is Status.ACTIVE:
            self._leave(key, space_key)
        elif after is Status.ACTIVE:
            self._return(key, space_key)
        self.journal.step(operation, key, before, after)

    def reinstate(self, space_key: int, key: int) -> None:
        """Makes a version active again whose successor is erased, with the operation that made it one."""
        self.session.run("UPDATE entry SET status = ? WHERE key = ?", (Status.ACTIVE.value, key))
        self._return(key, space_key)

    def withdraw(self, space_key: int, keys: Sequence[int]) -> None:
        """Takes versions that are about to be erased out of index and figures."""
        found = self.text.take(keys)
        for key in keys:
            if key in found:
                self.tally.left(key, space_key, found[key])
            else:
                self.tally.changed(key, space_key)

    def rest_also(self, operation: Operation, key: int, entry: Entry, sources: Sequence[str]) -> Entry:
        """What was said again rests on that too, if it rests on anything: erasing the first leaves the other (M2)."""
        room = SOURCES_MAX - len(entry.sources)
        new = [source for source in dict.fromkeys(sources) if source not in entry.sources][:room]
        if not entry.sources or not new:
            return entry
        self.session.run_many(
            "INSERT INTO source (entry_key, ordinal, source) "
            "SELECT ?, max(ordinal) + 1, ? FROM source WHERE entry_key = ?",
            [(key, source, key) for source in new],
        )
        self.tally.changed(key, self.spaces.key(operation.tenant, operation.space))
        return replace(entry, sources=(*entry.sources, *new))

    def settle(self) -> None:
        self.text.settle()
        self.journal.settle()
        self.tally.settle()

    def _put(self, operation: Operation, entry: Entry) -> int | None:
        key = self.session.insert(INSERT, values_of(entry, self.spaces.key(operation.tenant, operation.space)))
        if key is None:
            return None
        if entry.sources:
            self.session.run_many(
                "INSERT INTO source (entry_key, ordinal, source) VALUES (?, ?, ?)",
                [(key, ordinal, source) for ordinal, source in enumerate(entry.sources)],
            )
        self.journal.step(operation, key, None, entry.status)
        return key

    def _enter(self, key: int, space_key: int, analysed: Sequence[str]) -> None:
        self.text.put(key, space_key, analysed)
        self.tally.entered(key, space_key, analysed)

    def _leave(self, key: int, space_key: int) -> None:
        found = self.text.take((key,))
        self.tally.left(key, space_key, found[key])

    def _return(self, key: int, space_key: int) -> None:
        row = self.session.row("SELECT text FROM entry WHERE key = ?", (key,))
        assert row is not None
        self._enter(key, space_key, terms(row[0]))
        # It may have been away before it got a vector.
        self.session.run(
            "UPDATE embedded SET entry_key = ? WHERE space_key = ? AND entry_key >= ?", (key - 1, space_key, key)
        )


def _first_status(admitted: Admitted) -> Status:
    if admitted.verdict is Verdict.QUARANTINE:
        return Status.QUARANTINED
    return Status.PROPOSED if admitted.draft.proposed and admitted.draft.kind is Kind.STATEMENT else Status.ACTIVE


def with_status(entry: Entry, status: Status) -> Entry:
    return replace(entry, status=status)
