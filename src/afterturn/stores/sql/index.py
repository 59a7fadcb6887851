"""The search index: terms, statistics, the change log and vectors, all derived from active entries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from afterturn.stores.sql.entries import (
    ENTRY_COLUMNS,
    INDEXED_COLUMNS,
    SEALED_TEXT_COLUMNS,
    SPACE_LAST,
    Conditions,
    Entries,
    read_indexed_entry,
    reading_sources,
)
from afterturn.stores.sql.sealing import open_entry_text, row_name
from afterturn.stores.sql.session import Row, Statement, Value, find_meta, load_queries
from afterturn.text import terms as terms_of
from afterturn.types import Changes, EmbedderIdentity, Entry, IndexedEntry, LaneQuery, Scope, SpaceStats


def identity_text(embedder: EmbedderIdentity) -> str:
    """The stored form of the identity of the store's embedder."""
    return json.dumps([embedder.name, embedder.version, embedder.dimensions, embedder.normalised])


def read_identity(text: str) -> EmbedderIdentity:
    name, version, dimensions, normalised = json.loads(text)
    return EmbedderIdentity(name, version, dimensions, normalised)


_BYTES_PER_DIMENSION = 2


class _VectorState(NamedTuple):
    """The vectors of one space, as one embedder sees them. 0 for an embedder that the store does not know yet."""

    space_key: int
    own: int
    """The embedder that the space's rows of waiting entries are about."""
    asked: int
    is_adopted: bool

    @property
    def is_own(self) -> bool:
        return self.own == self.asked != 0


_EMBEDDER = "SELECT key FROM embedder WHERE name = ? AND version = ? AND dimensions = ? AND normalised = ?"
_SQL = load_queries(__file__)

_NEIGHBOURS = (
    "e.space_key = c.space_key AND e.conversation = c.conversation AND coalesce(e.owner, '') = coalesce(c.owner, '') "
    "AND e.position BETWEEN c.position - ? AND c.position + ?"
)
# A range and not an equality, and the space in the order too: otherwise PostgreSQL may walk the entries of all spaces
# by key, because it expects those of a large space everywhere. They can be far from the newest.
_ACTIVE_OF_SPACE = "space_key BETWEEN ? AND ? AND status = 'active'"
# For a condition on the keys, which has to come first: by the space, all of its entries would be read.
_ACTIVE_WITH_KEYS = "space_key + 0 = ? AND status = 'active'"
# With the generation of the store, and the newest forget: every recall needs all of them.
_NEWEST = (
    "SELECT (SELECT value FROM meta WHERE key = 'generation'), s.key, s.seq, coalesce((SELECT forgets FROM tenant AS t "
    "WHERE t.name = s.tenant), 0) FROM space AS s WHERE s.tenant = ? AND s.name = ?"
)


_SEALED_TEXT = slice(INDEXED_COLUMNS.count(",") + 1, INDEXED_COLUMNS.count(",") + 4)


class SqlIndex:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._session = entries.session
        self._states: dict[tuple[str, str, EmbedderIdentity], _VectorState] = {}
        self._sealer = entries.sealer
        self._columns = INDEXED_COLUMNS + ("" if entries.sealer is None else SEALED_TEXT_COLUMNS)

    def stats(self, scope: Scope) -> dict[str, SpaceStats]:
        self._entries.flush()
        where = Conditions(self._entries, scope)
        rows = self._session.rows(
            f"SELECT s.name, s.documents, s.terms_total, s.seq FROM space AS s WHERE {where.sql} AND s.documents > 0",
            where.values,
        )
        return {name: SpaceStats(documents, terms_total, seq) for name, documents, terms_total, seq in rows}

    def frequencies(self, scope: Scope, terms: Sequence[str]) -> dict[str, dict[str, int]]:
        self._entries.flush()
        stored = self._stored_terms(scope, terms)
        where = Conditions(self._entries, scope)
        where.among("f.term", list(stored))
        found: dict[str, dict[str, int]] = {}
        for name, term, documents in self._session.rows(
            "SELECT s.name, f.term, f.documents FROM space AS s JOIN frequency AS f ON f.space_key = s.key "
            f"WHERE {where.sql}",
            where.values,
        ):
            found.setdefault(name, {})[stored[term]] = documents
        return found

    def _stored_terms(self, scope: Scope, terms: Sequence[str]) -> dict[str, str]:
        """The terms by what the spaces have for them: each sealed space has its own digests."""
        if self._sealer is None:
            return {term: term for term in terms}
        ciphers = self._sealer.ciphers(scope)
        return {cipher.digest_terms((term,))[0]: term for cipher in ciphers for term in terms}

    def _read_terms(self, row: Row, stored: str) -> tuple[str, ...]:
        """The terms of a row that begins with `self._columns`. Those of a sealed text are analysed again."""
        if self._sealer is None:
            return self._entries.text.terms(stored)
        entry_id, version, text = row[_SEALED_TEXT]
        return tuple(terms_of(open_entry_text(self._sealer.of(row[1]), entry_id, version, text)))

    def matches(
        self, query: LaneQuery, terms: Sequence[str], *, limit: int, terms_max: int | None = None, at_least: int = 1
    ) -> list[IndexedEntry]:
        text, spaces = self._entries.text, self._entries.spaces.named(query.scope)
        if not spaces or len(terms) < at_least:
            return []
        stored = self._stored_terms(query.scope, terms)
        if not stored:
            return []
        condition, value = text.matching(sorted(spaces), list(stored), at_least)
        where = Conditions(self._entries, query.scope)
        where.lane(query, at=query.now)
        rows = self._session.rows(
            f"SELECT {self._columns}, {text.column} FROM {text.source} JOIN space AS s ON {SPACE_LAST} "
            f"WHERE {condition} AND {where.sql} ORDER BY {text.newest} LIMIT ?",
            [value, *where.values, limit],
        )
        if terms_max is not None:
            rows = _short_enough(rows, [text.length(row[-1]) for row in rows], terms_max)
        return [read_indexed_entry(row, spaces, self._read_terms(row, row[-1])) for row in rows]

    def resolve(self, query: LaneQuery, keys: Sequence[int]) -> dict[int, Entry]:
        if not keys:
            return {}
        where = Conditions(self._entries, query.scope)
        where.lane(query, at=query.now)
        where.among("e.key", keys)
        admitted: Statement = (
            f"SELECT {ENTRY_COLUMNS} FROM entry AS e JOIN space AS s ON {SPACE_LAST} "
            f"WHERE e.status = 'active' AND {where.sql}",
            where.values,
        )
        rows, sources = self._session.batch(admitted, reading_sources(self._session, keys))
        return dict(zip([row[0] for row in rows], self._entries.join_sources(rows, sources), strict=True))

    def around(self, query: LaneQuery, keys: Sequence[int], *, reach: int) -> list[tuple[IndexedEntry, bool]]:
        if not keys:
            return []
        where, admitted = Conditions(self._entries, query.scope), Conditions(self._entries, query.scope)
        where.among("c.key", keys)
        admitted.lane(query, at=query.now)
        found = self._session.rows(
            f"SELECT {self._columns}, {admitted.sql} "
            f"FROM entry AS c JOIN entry AS e ON {_NEIGHBOURS} JOIN space AS s ON {SPACE_LAST} "
            f"WHERE e.status = 'active' AND e.kind = 'record' AND e.origin <> 'tool' AND {where.sql}",
            [*admitted.values, reach, reach, *where.values],
        )
        rows = list({row[0]: row for row in found}.values())
        spaces = self._entries.spaces.named(query.scope)
        if self._sealer is None:
            terms = self._entries.text.find([row[0] for row in rows])
        else:
            terms = {row[0]: self._read_terms(row, "") for row in rows}
        return [(read_indexed_entry(row, spaces, terms[row[0]]), bool(row[-1])) for row in rows]

    def speakers(self, scope: Scope, *, limit: int) -> list[str]:
        found: dict[str, None] = {}
        for space_key in sorted(self._entries.spaces.named(scope)):
            rows = self._session.rows(_SQL["speakers"], (space_key, space_key, limit))
            found.update((speaker, None) for (speaker,) in rows if speaker is not None)
        return list(found)

    def newest(self, tenant: str, space: str, *, limit: int) -> list[int]:
        space_key = self._entries.spaces.find(tenant, space)
        rows = self._session.each(
            f"SELECT key FROM entry WHERE {_ACTIVE_OF_SPACE} ORDER BY space_key DESC, key DESC LIMIT ?",
            (space_key, space_key, limit),
        )
        return [key for (key,) in rows]

    def entries(
        self, tenant: str, space: str, *, keys: Sequence[int] | None = None, after: int = 0, limit: int
    ) -> list[IndexedEntry]:
        self._entries.flush()
        text, space_key = self._entries.text, self._entries.spaces.find(tenant, space)
        if space_key is None:
            return []
        chosen = f"{self._session.after_key} AND status = 'active' ORDER BY space_key, key"
        values: list[Value] = [space_key, after, space_key]
        if keys is not None:
            among, value = self._session.among("key", keys)
            chosen, values = f"{_ACTIVE_WITH_KEYS} AND {among} ORDER BY key", [space_key, value]
        rows = self._session.rows(
            f"SELECT {self._columns}, {text.column} FROM {text.source} WHERE {text.key} IN (SELECT key FROM entry "
            f"WHERE {chosen} LIMIT ?) ORDER BY e.key",
            [*values, limit],
        )
        spaces = {space_key: space}
        return [read_indexed_entry(row, spaces, self._read_terms(row, row[-1])) for row in rows]

    def changes(self, tenant: str, space: str, *, since: int) -> Changes:
        self._entries.flush()
        if self._sealer is not None:
            # Every recall passes here: a key that is not the space's any more is let go of.
            self._sealer.find(tenant, space)
        found, rows = self._session.batch((_NEWEST, (tenant, space)), (_SQL["changed"], (tenant, space, since)))
        if not found:
            return Changes(find_meta(self._session, "generation") or "", 0, () if since == 0 else None)
        generation, space_key, newest, self._entries.newest_forgets[tenant] = found[0]
        self._entries.spaces.note(tenant, space, space_key)
        if since == newest:
            return Changes(generation, newest, ())
        if since > newest or len(rows) < newest - since:
            return Changes(generation, newest, None)
        return Changes(generation, newest, tuple(dict.fromkeys(key for (key,) in rows)))

    def keys_of(self, tenant: str, space: str, ids: Sequence[str]) -> dict[str, int]:
        space_key = self._entries.spaces.find(tenant, space)
        chosen, value = self._session.among("id", ids)
        statement = f"SELECT id, key FROM entry WHERE {_ACTIVE_WITH_KEYS} AND {chosen}"
        return {} if space_key is None else dict(self._session.rows(statement, [space_key, value]))

    def vectors(self, tenant: str, space: str, embedder: EmbedderIdentity, keys: Sequence[int]) -> dict[int, bytes]:
        space_key = self._entries.spaces.find(tenant, space)
        if space_key is None:
            return {}
        chosen, value = self._session.among("key", keys)
        rows = self._session.rows(
            f"SELECT entry_key, data FROM embedding WHERE embedder_key = ({_EMBEDDER}) AND space_key = ? "
            f"AND entry_key IN (SELECT key FROM entry WHERE {_ACTIVE_WITH_KEYS} AND {chosen})",
            [*_identity_values(embedder), space_key, space_key, value],
        )
        if self._sealer is None or not rows:
            return dict(rows)
        cipher = self._sealer.of(space_key)
        return {key: cipher.open_bytes("embedding.data", _vector_row(embedder, key), data) for key, data in rows}

    def put_vectors(
        self, tenant: str, space: str, embedder: EmbedderIdentity, vectors: Sequence[tuple[int, bytes]]
    ) -> int:
        size = embedder.dimensions * _BYTES_PER_DIMENSION
        for key, data in vectors:
            if len(data) != size:
                raise ValueError(
                    f"The vector of entry {key} has {len(data)} bytes; {embedder.name} has {size}. Embed it again."
                )
        state = self._find_state(tenant, space, embedder)
        if state is None:
            return 0
        keys = self._entries.backlog.having(state.space_key, {key for key, _ in vectors})
        embedder_key = state.asked or self._add_embedder(embedder)
        cipher = None if self._sealer is None else self._sealer.get(tenant, space)
        self._session.run_many(
            "INSERT INTO embedding (embedder_key, space_key, entry_key, data) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (embedder_key, space_key, entry_key) DO UPDATE SET data = excluded.data",
            [
                (
                    *(embedder_key, state.space_key, key),
                    data if cipher is None else cipher.seal_bytes("embedding.data", _vector_row(embedder, key), data),
                )
                for key, data in dict(vectors).items()
                if key in keys
            ],
        )
        for key in sorted(keys):
            self._entries.stats.changed(key, state.space_key)
        if state.is_own:
            self._entries.backlog.embedded(state.space_key, keys)
        elif not state.own or state.is_adopted:
            self._states.clear()
            self._entries.backlog.begin(state.space_key, embedder_key)
        return len(keys)

    def adopt(self, embedder: EmbedderIdentity) -> list[tuple[str, str]]:
        identity = identity_text(embedder)
        if find_meta(self._session, "embedder") == identity:
            return []
        self._states.clear()
        self._entries.flush()
        self._session.run(
            "INSERT INTO meta (key, value) VALUES ('embedder', ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (identity,),
        )
        rows = self._session.rows("SELECT tenant, name FROM space WHERE documents > 0 ORDER BY key")
        return [(tenant, name) for tenant, name in rows]

    def adopted(self) -> EmbedderIdentity | None:
        text = find_meta(self._session, "embedder")
        return None if text is None else read_identity(text)

    def unembedded(self, tenant: str, space: str, embedder: EmbedderIdentity, *, limit: int) -> list[tuple[int, str]]:
        # Together: a turn asks for both when it is recorded.
        backlog = self._entries.backlog
        states, rows = self._session.batch(
            (_SQL["state"], (*_identity_values(embedder), tenant, space)), backlog.finding(tenant, space, limit=limit)
        )
        if not states:
            return []
        self._states[tenant, space, embedder] = state = _read_state(states[0], embedder)
        if state.is_own:
            return backlog.found(state.space_key, rows, limit=limit)
        return backlog.compare(state.space_key, state.asked, limit=limit)

    def waiting(self, tenant: str, embedder: EmbedderIdentity, *, space: str | None = None) -> int:
        if space is None:
            return self._entries.backlog.count_all(tenant, self._find_embedder(embedder))
        state = self._find_state(tenant, space, embedder)
        return 0 if state is None else self._entries.backlog.count(state.space_key, state.asked, is_own=state.is_own)

    def has_abandoned(self, tenant: str, space: str, embedder: EmbedderIdentity) -> bool:
        state = self._find_adopted(tenant, space, embedder)
        some = "SELECT 1 FROM embedding WHERE embedder_key = ? AND space_key = ? LIMIT 1"
        return state is not None and any(
            self._session.row(some, (key, state.space_key)) for key in self._others(state.asked)
        )

    def drop_abandoned(self, tenant: str, space: str, embedder: EmbedderIdentity, *, limit: int) -> int:
        state, dropped = self._find_adopted(tenant, space, embedder), 0
        if state is None:
            return 0
        if not state.is_own:
            # Rows about an embedder would be wrong once its vectors are gone.
            self._states.clear()
            self._entries.backlog.begin(state.space_key, state.asked)
        for key in self._others(state.asked):
            dropped += self._session.run(
                "DELETE FROM embedding WHERE embedder_key = ? AND space_key = ? AND entry_key IN ("
                "SELECT entry_key FROM embedding WHERE embedder_key = ? AND space_key = ? LIMIT ?)",
                (key, state.space_key, key, state.space_key, limit - dropped),
            )
        return dropped

    def _find_adopted(self, tenant: str, space: str, embedder: EmbedderIdentity) -> _VectorState | None:
        """None unless it is the store's embedder and there is such a space."""
        state = self._find_state(tenant, space, embedder)
        return state if state is not None and state.asked and state.is_adopted else None

    def _others(self, embedder_key: int) -> list[int]:
        rows = self._session.rows("SELECT key FROM embedder WHERE key <> ? ORDER BY key", (embedder_key,))
        return [key for (key,) in rows]

    def _find_state(self, tenant: str, space: str, embedder: EmbedderIdentity) -> _VectorState | None:
        """None if there is no such space."""
        state = self._states.get((tenant, space, embedder))
        if state is None:
            row = self._session.row(_SQL["state"], (*_identity_values(embedder), tenant, space))
            if row is None:
                return None
            self._states[tenant, space, embedder] = state = _read_state(row, embedder)
        return state

    def _find_embedder(self, embedder: EmbedderIdentity) -> int | None:
        row = self._session.row(_EMBEDDER, _identity_values(embedder))
        return None if row is None else int(row[0])

    def _add_embedder(self, embedder: EmbedderIdentity) -> int:
        self._states.clear()
        # A unit of another space may do the same at this moment.
        self._session.run(
            "INSERT INTO embedder (name, version, dimensions, normalised) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name, version, dimensions, normalised) DO NOTHING",
            _identity_values(embedder),
        )
        found = self._find_embedder(embedder)
        assert found is not None
        return found


def _read_state(row: Row, embedder: EmbedderIdentity) -> _VectorState:
    space_key, own, asked, adopted = row
    return _VectorState(space_key, own, asked or 0, is_adopted=adopted == identity_text(embedder))


def _vector_row(embedder: EmbedderIdentity, key: int) -> str:
    return row_name(identity_text(embedder), key)


def _identity_values(embedder: EmbedderIdentity) -> tuple[Value, ...]:
    return (embedder.name, embedder.version, embedder.dimensions, int(embedder.normalised))


def _short_enough(rows: list[Row], lengths: list[int], terms_max: int) -> list[Row]:
    """Drops the longest rows, because reading their terms is slow."""
    if sum(lengths) <= terms_max:
        return rows
    kept: list[int] = []
    for at in sorted(range(len(rows)), key=lengths.__getitem__):
        terms_max -= lengths[at]
        if kept and terms_max < 0:
            break
        kept.append(at)
    return [rows[at] for at in sorted(kept)]
