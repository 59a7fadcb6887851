"""Rows of recalls as JSON and back: what is queried has columns, the rest is one text."""

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import fields
from itertools import chain
from typing import Any

from afterturn.base.turns import Candidate, CarriedRow, Cause, Outcome, Phase, RecallRow, Why
from afterturn.base.types import Lane
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.references import References
from afterturn.stores.sql.session import Row

RECALL_COLUMNS = ("correlation", "phase", "turn", "delivered_in", "asked_at")
"""The fields of a recall row that have columns of their own."""
_CANDIDATE = tuple(item.name for item in fields(Candidate))
_TUPLES = ("reads", "missing", "excluded", "visible", "terms")


class Candidates:
    def __init__(self, entries: Entries) -> None:
        self._references = References(entries)

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
    values["cause"] = Cause(values["cause"])
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
        Candidate(ref, space, Lane(lane), score, lexical, similarity, Why(decision) if decision else None)
        for ref, space, lane, score, lexical, similarity, decision in rows
    )
