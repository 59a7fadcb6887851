"""The rows that conversations are, by tenant, owning space and id."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import fields
from itertools import chain
from typing import Any

from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.rows import FROM_ENTRY
from afterturn.stores.sql.session import Row
from afterturn.types import (
    Candidate,
    CarriedRow,
    ConversationKey,
    Decision,
    Lane,
    Outcome,
    Phase,
    RecallCause,
    RecallRow,
    reference,
)

FIND = (
    "SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key "
    "WHERE s.tenant = ? AND s.name = ? AND c.id = ?"
)
"""One conversation's key; binds tenant, space and id."""


class ConversationKeys:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces

    def open(self, key: ConversationKey, *, at: float) -> bool:
        """True when it is new."""
        row = self._session.row(
            "INSERT INTO conversation (space_key, id, opened_at, active_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (space_key, id) DO NOTHING RETURNING key",
            (self._spaces.key(key.tenant, key.space), key.id, at, at),
        )
        return row is not None

    def find(self, key: ConversationKey) -> int | None:
        row = self._session.row(FIND, (key.tenant, key.space, key.id))
        return None if row is None else int(row[0])

    def active(self, key: ConversationKey, at: float) -> int:
        """The key of a conversation in which something happens now; made if it is new."""
        self.open(key, at=at)
        found = self.find(key)
        assert found is not None
        self.touch(found, at)
        return found

    def touch(self, found: int, at: float) -> None:
        self._session.run("UPDATE conversation SET active_at = ? WHERE key = ? AND active_at < ?", (at, found, at))


# Which versions that a conversation names are still there: a late write must not bring back what was forgotten.


class LiveRefs:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces

    def living(self, tenant: str, space: str, refs: Collection[str]) -> set[str]:
        """Those of `refs` whose version that space holds, whatever its status."""
        space_key = self._spaces.find(tenant, space)
        if space_key is None or not refs:
            return set()
        condition, value = self._session.among("id", _ids(refs))
        rows = self._session.rows(
            f"SELECT id, version FROM entry WHERE space_key = ? AND {condition}", (space_key, value)
        )
        return {reference(*row) for row in rows} & set(refs)

    def living_ids(self, tenant: str, ids: Collection[str]) -> set[str]:
        """Those of which one of the tenant's spaces holds a version."""
        if not ids:
            return set()
        condition, value = self._session.among("e.id", sorted(ids))
        rows = self._session.rows(
            f"SELECT DISTINCT e.id FROM {FROM_ENTRY} WHERE s.tenant = ? AND {condition}", (tenant, value)
        )
        return {entry_id for (entry_id,) in rows}

    def all_live(self, tenant: str, refs: Collection[str]) -> bool:
        """Whether each is held by one of the tenant's spaces."""
        condition, value = self._session.among("e.id", _ids(refs))
        rows = self._session.rows(
            f"SELECT e.id, e.version FROM {FROM_ENTRY} WHERE s.tenant = ? AND {condition}", (tenant, value)
        )
        return set(refs) <= {reference(*row) for row in rows}


def _ids(refs: Collection[str]) -> list[str]:
    return sorted({ref.partition(".")[0] for ref in refs})


# Rows of recalls as JSON and back: what is queried has columns, the rest is one text.

RECALL_COLUMNS = ("correlation", "phase", "turn", "delivered_in", "asked_at")
"""The fields of a recall row that have columns of their own."""
_CANDIDATE = tuple(item.name for item in fields(Candidate))
_TUPLES = ("reads", "missing", "excluded", "visible", "terms")


class CandidateRows:
    def __init__(self, entries: Entries) -> None:
        self._references = LiveRefs(entries)

    def living(self, tenant: str, *several: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
        """Each without those that were forgotten, which are looked for in their own spaces, all at once."""
        named: dict[str, set[str]] = {}
        for candidate in chain.from_iterable(several):
            named.setdefault(candidate.space, set()).add(candidate.ref)
        living = {space: self._references.living(tenant, space, refs) for space, refs in named.items()}
        return [
            tuple(candidate for candidate in candidates if candidate.ref in living[candidate.space])
            for candidates in several
        ]


def names_of(candidates: Iterable[Candidate], others: Iterable[str] = ()) -> str:
    return _joined((*(candidate.ref for candidate in candidates), *others))


def encode_recall(recall: RecallRow) -> str:
    return _encoded(recall, RECALL_COLUMNS)


def decode_recall(row: Row) -> RecallRow:
    """Of `RECALL_COLUMNS` and the detail."""
    values = {**json.loads(row[-1]), **dict(zip(RECALL_COLUMNS, row[:-1], strict=True))}
    for name in _TUPLES:
        values[name] = tuple(values[name])
    values["candidates"] = _candidates(values["candidates"])
    values["cause"] = RecallCause(values["cause"])
    values["phase"] = Phase(values["phase"])
    values["outcome"] = Outcome(values["outcome"])
    return RecallRow(**values)


def encode_carried(carried: CarriedRow) -> str:
    return _encoded(carried, ("correlation", "turn"))


def decode_carried(correlation: str, turn: str, detail: str) -> CarriedRow:
    values = json.loads(detail)
    values["phases"] = tuple(Phase(phase) for phase in values["phases"])
    values["candidates"] = _candidates(values["candidates"])
    values["cause"] = RecallCause(values["cause"])
    values["refined"], values["speakers"] = tuple(values["refined"]), tuple(values["speakers"])
    return CarriedRow(correlation=correlation, turn=turn, **values)


def without(detail: str, space: str, refs: Set[str]) -> tuple[str, str]:
    """Names and detail of either row, once these versions of that space are forgotten. Nothing else is looked at."""
    values = json.loads(detail)
    values["candidates"] = [row for row in values["candidates"] if row[1] != space or row[0] not in refs]
    excluded = [ref for ref in values.get("excluded", ()) if ref not in refs]
    if "excluded" in values:
        values["excluded"] = excluded
    return _joined((*(row[0] for row in values["candidates"]), *excluded)), _written(values)


def _joined(refs: Iterable[str]) -> str:
    """References hold no spaces, so that one text can list them."""
    return " ".join(dict.fromkeys(refs))


def _written(values: Mapping[str, Any]) -> str:
    # Escaped: a question is a host's text, in which half a surrogate pair would not be stored otherwise.
    return json.dumps(values, separators=(",", ":"))


def _encoded(row: RecallRow | CarriedRow, columns: Sequence[str]) -> str:
    detail = {item.name: getattr(row, item.name) for item in fields(row) if item.name not in columns}
    detail["candidates"] = [[getattr(candidate, name) for name in _CANDIDATE] for candidate in row.candidates]
    if isinstance(row, RecallRow):
        detail["settings"] = dict(row.settings)
    return _written(detail)


def _candidates(rows: list[list[Any]]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(ref, space, Lane(lane), score, lexical, similarity, Decision(decision) if decision else None)
        for ref, space, lane, score, lexical, similarity, decision in rows
    )
