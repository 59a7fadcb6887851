"""Scopes, filters and lanes as SQL conditions on `entry AS e` and `space AS s`, so that they apply before any LIMIT."""

import json
from collections.abc import Sequence
from typing import assert_never

from afterturn.stores.sql.session import Session, Value
from afterturn.types import Filter, Lane, LaneQuery, Scope
from afterturn.validation import seconds

_REFERENCE = "CASE WHEN e.version = 1 THEN e.id ELSE e.id || '.' || e.version END"
_VALID = (
    "(e.expires_at IS NULL OR e.expires_at > ?) AND (e.valid_from IS NULL OR e.valid_from <= ?) "
    "AND (e.valid_to IS NULL OR e.valid_to > ?)"
)

# A statement all of whose sources are visible records of its own space.
_LEARNED = (
    "e.kind = 'statement' AND e.has_sources = 1 AND NOT EXISTS (SELECT 1 FROM source AS o "
    "WHERE o.entry_key = e.key AND NOT EXISTS (SELECT 1 FROM entry AS r WHERE r.space_key = e.space_key "
    "AND r.id = o.source AND r.kind = 'record' AND ({visible})))"
)

_OWNED = "coalesce({row}.owner, s.name) = ?"
OWNED = _OWNED.format(row="e")
"""The entry's conversation is owned by this space; binds the space's name."""


class Conditions:
    """Builds a WHERE clause with its values. It starts from a scope: no query reads a space that was not named."""

    def __init__(self, session: Session, scope: Scope) -> None:
        self._session = session
        self._clauses: list[str] = []
        self._values: list[Value] = []
        self.add("s.tenant = ?", scope.tenant)
        if len(scope.spaces) == 1:
            self.add("s.name = ?", scope.spaces[0])
        else:
            self.among("s.name", scope.spaces)

    @property
    def sql(self) -> str:
        return " AND ".join(self._clauses)

    @property
    def values(self) -> list[Value]:
        return self._values

    def add(self, clause: str, *values: Value) -> None:
        self._clauses.append(clause)
        self._values.extend(values)

    def among(self, expression: str, values: Sequence[str] | Sequence[int], *, negated: bool = False) -> None:
        clause, value = self._session.among(expression, values)
        self.add(f"NOT ({clause})" if negated else clause, value)

    def filter(self, wanted: Filter) -> None:
        """Adds everything except the statuses, which each query interprets in its own way."""
        for column in ("kind", "target", "agent", "project", "conversation"):
            value = getattr(wanted, column)
            if value is not None:
                self.add(f"e.{column} = ?", str(value))
        if wanted.pinned is not None:
            self.add("e.pinned = ?", int(wanted.pinned))
        if wanted.since is not None:
            self.add("e.occurred_at >= ?", seconds(wanted.since))
        if wanted.until is not None:
            self.add("e.occurred_at < ?", seconds(wanted.until))
        for name, allowed in wanted.metadata.items():
            member, value = self._session.member("e.metadata", name)
            options = allowed if isinstance(allowed, tuple) else (allowed,)
            condition, encoded = self._session.among(member, [json.dumps(item, ensure_ascii=False) for item in options])
            self.add(condition, value, encoded)

    def lane(self, query: LaneQuery, *, at: float) -> None:
        """Adds lane, validity at `at`, exclusions and filter. The caller adds the condition on the status."""
        self.add(_VALID, at, at, at)
        if query.lane is not None:
            self._lane(query.lane, query)
        if not query.evidence:
            self.add("NOT (e.kind = 'record' AND e.origin = 'tool')")
        for expression, excluded in (
            (_REFERENCE, query.excluded_refs),
            ("e.id", query.excluded_ids),
            ("e.content_hash", query.visible_hashes),
        ):
            if excluded:
                self.among(expression, sorted(excluded), negated=True)
        # A record is visible by its hash, or because it was recorded after `seen_since` in this conversation. A
        # statement that was learned from visible records alone is left out too.
        visible: list[str] = []
        values: list[Value] = []
        if query.visible_hashes:
            clause, value = self._session.among("r.content_hash", sorted(query.visible_hashes))
            visible, values = [clause], [value]
        if query.seen_since is not None and query.conversation is not None:
            this, key = _conversation(query)
            unseen = f"e.kind <> 'record' OR e.recorded_at <= ? OR e.conversation IS NULL OR NOT ({this})"
            self.add(f"({unseen})", query.seen_since, *key)
            this, key = _conversation(query, "r")
            visible.append(f"r.recorded_at > ? AND {this}")
            values += [query.seen_since, *key]
        if visible:
            self.add(f"NOT ({_LEARNED.format(visible=' OR '.join(visible))})", *values)
        self.filter(query.filter)

    def _lane(self, lane: Lane, query: LaneQuery) -> None:
        this, values = _conversation(query)
        match lane:
            case Lane.LONG_TERM:
                self.add("e.kind = 'statement'")
            case Lane.SHORT_TERM:
                self.add(f"e.kind = 'record' AND {this}", *values)
            case Lane.EPISODIC:
                self.add("e.kind = 'record'")
                if query.conversation is not None:
                    self.add(f"(e.conversation IS NULL OR NOT ({this}))", *values)
            case _:
                assert_never(lane)


def _conversation(query: LaneQuery, row: str = "e") -> tuple[str, list[Value]]:
    if query.owner is None:
        return f"{row}.conversation = ?", [query.conversation]
    return f"{row}.conversation = ? AND {_OWNED.format(row=row)}", [query.conversation, query.owner]
