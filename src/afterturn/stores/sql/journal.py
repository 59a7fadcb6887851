"""Operations and their steps as they are written: an operation is stored with the first step it takes."""

from __future__ import annotations

from afterturn.base.errors import Conflict
from afterturn.base.types import Operation, Status, Verb
from afterturn.stores.sql.session import Session
from afterturn.stores.sql.spaces import Spaces

_STEP = "INSERT INTO step (operation_seq, ordinal, entry_key, before, after) VALUES (?, ?, ?, ?, ?)"
_OPERATION = (
    "INSERT INTO operation (id, space_key, verb, actor, at, grp) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
)


class Journal:
    """Keeps steps back until `settle`, so that a bulk import writes them together."""

    def __init__(self, session: Session, spaces: Spaces) -> None:
        self._session = session
        self._spaces = spaces
        self._seqs: dict[str, int] = {}
        self._ordinals: dict[int, int] = {}
        self._waiting: list[tuple[int, int, int, str | None, str]] = []

    def step(self, operation: Operation, entry_key: int, before: Status | None, after: Status) -> None:
        seq = self._seqs.get(operation.id)
        if seq is None:
            seq = self._store(operation)
        ordinal = self._ordinals[seq] = self._ordinals[seq] + 1
        self._waiting.append((seq, ordinal, entry_key, None if before is None else before.value, after.value))

    def rename(self, operation: Operation, verb: Verb) -> None:
        """For an operation that turned out to do something else than it set out to."""
        self._session.run("UPDATE operation SET verb = ? WHERE seq = ?", (verb.value, self._seqs[operation.id]))

    def settle(self) -> None:
        if self._waiting:
            rows, self._waiting = self._waiting, []
            self._session.run_many(_STEP, rows)

    def _store(self, operation: Operation) -> int:
        space_key = self._spaces.key(operation.tenant, operation.space)
        verb, actor = operation.verb.value, operation.actor.value
        values = (operation.id, space_key, verb, actor, operation.at, operation.group)
        seq = self._session.insert(_OPERATION, values)
        if seq is None:
            raise Conflict(f"There is an operation {operation.id!r} already. Give each operation an id of its own.")
        self._seqs[operation.id] = seq
        self._ordinals[seq] = -1
        return seq
