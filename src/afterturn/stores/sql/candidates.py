"""Rows of recalls as JSON and back: what is queried has columns, the rest is one text."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from afterturn.base.turns import Candidate, CarriedRow, Cause, Outcome, Phase, RecallRow
from afterturn.base.types import Lane
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.references import References
from afterturn.stores.sql.session import Row

RECALL_COLUMNS = ("correlation", "phase", "turn", "delivered_in", "asked_at")
"""The fields of a recall row that have columns of their own."""
_CANDIDATE = tuple(item.name for item in fields(Candidate))
_TUPLES = ("reads", "missing", "excluded", "visible")


class Candidates:
    def __init__(self, entries: Entries) -> None:
        self._references = References(entries)

    def living(self, tenant: str, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Without those that were forgotten, each looked for in its own space."""
        named: dict[str, set[str]] = {}
        for candidate in candidates:
            named.setdefault(candidate.space, set()).add(candidate.ref)
        living = {space: self._references.living(tenant, space, refs) for space, refs in named.items()}
        return tuple(candidate for candidate in candidates if candidate.ref in living[candidate.space])


def names_of(candidates: Iterable[Candidate], others: Iterable[str] = ()) -> str:
    """References hold no spaces, so that one text can list them."""
    return " ".join(dict.fromkeys((*(candidate.ref for candidate in candidates), *others)))


def encode_recall(recall: RecallRow) -> str:
    return _encoded(recall, RECALL_COLUMNS)


def decode_recall(row: Row) -> RecallRow:
    """Of `RECALL_COLUMNS` and the detail."""
    values = {**json.loads(row[-1]), **dict(zip(RECALL_COLUMNS, row[:-1], strict=True))}
    for name in _TUPLES:
        values[name] = tuple(values[name])
    values["candidates"] = _candidates(values["candidates"])
    values["cause"] = Cause(values["cause"])
    values["phase"] = Phase(values["phase"])
    values["outcome"] = Outcome(values["outcome"])
    return RecallRow(**values)


def encode_carried(carried: CarriedRow) -> str:
    return _encoded(carried, ("correlation", "turn"))


def decode_carried(correlation: str, turn: str, detail: str) -> CarriedRow:
    values = json.loads(detail)
    values["phases"] = tuple(Phase(phase) for phase in values["phases"])
    values["candidates"] = _candidates(values["candidates"])
    return CarriedRow(correlation=correlation, turn=turn, **values)


def _encoded(row: RecallRow | CarriedRow, columns: Sequence[str]) -> str:
    detail = {item.name: getattr(row, item.name) for item in fields(row) if item.name not in columns}
    detail["candidates"] = [[getattr(candidate, name) for name in _CANDIDATE] for candidate in row.candidates]
    if isinstance(row, RecallRow):
        detail["settings"] = dict(row.settings)
    # Escaped: a question is a host's text, in which half a surrogate pair would not be stored otherwise.
    return json.dumps(detail, separators=(",", ":"))


def _candidates(rows: list[list[Any]]) -> tuple[Candidate, ...]:
    return tuple(Candidate(row[0], row[1], Lane(row[2]), *row[3:]) for row in rows)
