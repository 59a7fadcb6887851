"""Entries in SQL: how versions are written, stored as rows, and selected by scope, filter and lane.

Index, statistics and history follow every change of an entry.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from afterturn.errors import Conflict
from afterturn.stores.sql.sealing import (
    Sealer,
    hidden,
    member_name,
    member_value,
    open_entry,
    open_entry_text,
    seal_entry,
)
from afterturn.stores.sql.session import Row, Session, Statement, TextIndex, Value, load_queries
from afterturn.stores.sql.vectors import VectorBacklog
from afterturn.text import terms
from afterturn.types import Status, Target, Verb, Verdict
from afterturn.types.entries import PASTED, SOURCES_MAX, TRUSTED_MIN, Entry, EntryFields, Kind, Origin, ReadMetadata
from afterturn.types.searches import IndexedEntry, Lane
from afterturn.validation import seconds

if TYPE_CHECKING:
    from afterturn.types import Admitted, ConversationKey, Filter, LaneQuery, Metadata, Operation, Scope

# Writing


class Spaces:
    """The key of each (tenant, space). Cached, because a unit of work mostly uses one space."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._keys: dict[tuple[str, str], int] = {}

    def key(self, tenant: str, name: str) -> int:
        """Creates the space if it is new."""
        found = self.find(tenant, name)
        if found is not None:
            return found
        row = self._session.row(
            "INSERT INTO space (tenant, name) VALUES (?, ?) "
            "ON CONFLICT (tenant, name) DO UPDATE SET name = excluded.name RETURNING key",
            (tenant, name),
        )
        assert row is not None
        self._keys[tenant, name] = key = int(row[0])
        return key

    def find(self, tenant: str, name: str) -> int | None:
        key = self._keys.get((tenant, name))
        if key is None:
            row = self._session.row("SELECT key FROM space WHERE tenant = ? AND name = ?", (tenant, name))
            if row is None:
                return None
            self._keys[tenant, name] = key = int(row[0])
        return key

    def ensure(self, tenant: str, name: str) -> None:
        """Creates the space if it is new, without reading its key."""
        self._session.later(
            "INSERT INTO space (tenant, name) SELECT ?, ? WHERE NOT EXISTS "
            "(SELECT 1 FROM space WHERE tenant = ? AND name = ?) ON CONFLICT (tenant, name) DO NOTHING",
            (tenant, name, tenant, name),
        )

    def note(self, tenant: str, name: str, key: int) -> None:
        """For a caller that has read a key."""
        self._keys[tenant, name] = key

    def name(self, key: int) -> str:
        row = self._session.row("SELECT name FROM space WHERE key = ?", (key,))
        assert row is not None
        return str(row[0])

    def named(self, scope: Scope) -> dict[int, str]:
        """The spaces of the scope that exist, by key."""
        found = {self.find(scope.tenant, name): name for name in scope.spaces}
        return {key: name for key, name in found.items() if key is not None}


CHANGES_MAX = 20_000
"""How many changes of a space the log keeps. An index that is further behind is rebuilt."""
# Each time the number of the newest change passes a multiple of 1,000.
_TRIM_CHANGES = (
    f"DELETE FROM change WHERE space_key = ? AND seq <= (SELECT seq - {CHANGES_MAX} FROM space WHERE key = ?) "
    "AND (SELECT seq / 1000 <> (seq - ?) / 1000 FROM space WHERE key = ?)"
)


class _Delta:
    def __init__(self) -> None:
        self.documents = 0
        self.terms_total = 0
        self.frequencies: Counter[str] = Counter()
        # In order. An entry that changed twice is named once.
        self.changed: dict[int, None] = {}


class StatsDelta:
    """The changes of a unit of work to frequencies, sizes and the change log, summed and written once per space."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._deltas: defaultdict[int, _Delta] = defaultdict(_Delta)

    def entered(self, key: int, space_key: int, terms: Sequence[str]) -> None:
        """Counts an entry that became active."""
        delta = self._deltas[space_key]
        delta.documents += 1
        delta.terms_total += len(terms)
        delta.frequencies.update(set(terms))
        delta.changed[key] = None

    def left(self, key: int, space_key: int, terms: Sequence[str]) -> None:
        """Counts an entry that is no longer active."""
        delta = self._deltas[space_key]
        delta.documents -= 1
        delta.terms_total -= len(terms)
        delta.frequencies.subtract(set(terms))
        delta.changed[key] = None

    def changed(self, key: int, space_key: int) -> None:
        self._deltas[space_key].changed[key] = None

    def flush(self) -> None:
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
        count = len(delta.changed)
        self._session.later(
            "UPDATE space SET seq = seq + ?, documents = documents + ?, terms_total = terms_total + ? WHERE key = ?",
            (count, delta.documents, delta.terms_total, space_key),
        )
        self._session.run_many(
            "INSERT INTO change (space_key, seq, entry_key) SELECT key, seq - ?, ? FROM space WHERE key = ?",
            [(count - at, key, space_key) for at, key in enumerate(delta.changed, 1)],
        )
        self._session.later(_TRIM_CHANGES, (space_key, space_key, count, space_key))


_STEP = "INSERT INTO step (operation_seq, ordinal, entry_key, before, after) VALUES (?, ?, ?, ?, ?)"
_CHANGED = "UPDATE space SET changed_at = ? WHERE key = ? AND changed_at < ?"
_OPERATION = (
    "INSERT INTO operation (id, space_key, verb, actor, at, grp) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
)


class Journal:
    """Writes operations, each with its first step. Steps are buffered until `flush`, for bulk imports."""

    def __init__(self, session: Session, spaces: Spaces) -> None:
        self._session = session
        self._spaces = spaces
        self._seqs: dict[str, int] = {}
        self._ordinals: dict[int, int] = {}
        self._waiting: list[tuple[int, int, int, str | None, str]] = []
        self._changed_at: dict[int, float] = {}

    def insert_with(self, operation: Operation, statements: Sequence[Statement]) -> list[int | None]:
        """Runs inserts that belong to the operation, and writes the operation first if it has no step yet."""
        if operation.id in self._seqs:
            return self._session.insert_all(statements) if statements else []
        space_key = self._spaces.key(operation.tenant, operation.space)
        verb, actor = operation.verb.value, operation.actor.value
        values = (operation.id, space_key, verb, actor, operation.at, operation.group)
        seq, *keys = self._session.insert_all([(_OPERATION, values), *statements])
        if seq is None:
            raise Conflict(f"There is already an operation {operation.id!r}. Give each operation its own id.")
        self._seqs[operation.id] = seq
        self._ordinals[seq] = -1
        if operation.verb not in (Verb.RECORD, Verb.UNDO):
            self._changed_at[space_key] = max(operation.at, self._changed_at.get(space_key, 0.0))
        return keys

    def step(self, operation: Operation, entry_key: int, before: Status | None, after: Status) -> None:
        self.insert_with(operation, ())
        seq = self._seqs[operation.id]
        ordinal = self._ordinals[seq] = self._ordinals[seq] + 1
        self._waiting.append((seq, ordinal, entry_key, None if before is None else before.value, after.value))

    def rename(self, operation: Operation, verb: Verb) -> None:
        """Changes the verb of a started operation."""
        self._session.run("UPDATE operation SET verb = ? WHERE seq = ?", (verb.value, self._seqs[operation.id]))

    def flush(self) -> None:
        if self._waiting:
            rows, self._waiting = self._waiting, []
            self._session.run_many(_STEP, rows)
        if self._changed_at:
            changed, self._changed_at = self._changed_at, {}
            self._session.run_many(_CHANGED, [(at, key, at) for key, at in sorted(changed.items())])


class Entries:
    """The only class that inserts an entry or changes a status, so that index, statistics and history always follow."""

    def __init__(self, session: Session, text: TextIndex, sealer: Sealer | None = None) -> None:
        self.session = session
        self.text = text
        # None if the store is not sealed.
        self.sealer = sealer
        self.spaces = Spaces(session)
        self.stats = StatsDelta(session)
        self.backlog = VectorBacklog(session, sealer)
        self.journal = Journal(session, self.spaces)
        # When the conversations that this unit has made active were last active.
        self.active_conversations: dict[ConversationKey, float] = {}
        # By tenant, the number of the newest forget, as far as this unit has read it.
        self.newest_forgets: dict[str, int] = {}

    def insert(self, operation: Operation, admitted: Admitted, entry_id: str, *, version: int = 1) -> Entry | None:
        """None if a constraint forbids it; then nothing has changed."""
        status = _first_status(admitted)
        entry = new_entry(admitted, entry_id, version=version, space=operation.space, status=status)
        is_stored = self._put(operation, entry, admitted.telling, admitted.terms) is not None
        return entry if is_stored else None

    def insert_new(self, operation: Operation, admitted: Admitted, entry_id: str, *, version: int = 1) -> Entry:
        """As `insert`. Raises Conflict if a constraint forbids it."""
        entry = self.insert(operation, admitted, entry_id, version=version)
        if entry is None:
            raise Conflict(
                f"{operation.space} already has {entry_id} or a memory with the same text. Read it and try again."
            )
        return entry

    def insert_all(self, operation: Operation, admitted: Sequence[Admitted]) -> list[Entry | None]:
        """Inserts first versions, each under its own id. None for those that a constraint forbids."""
        space_key = self.spaces.key(operation.tenant, operation.space)
        entries = [
            new_entry(item, item.id, version=1, space=operation.space, status=_first_status(item)) for item in admitted
        ]
        statements: list[Statement] = [
            (_INSERT, self._values(operation, entry, space_key, item.telling))
            for entry, item in zip(entries, admitted, strict=True)
        ]
        keys = self.journal.insert_with(operation, statements) if statements else []
        for key, entry, item in zip(keys, entries, admitted, strict=True):
            if key is not None:
                self._follow(operation, key, entry, item.terms)
        return [None if key is None else entry for key, entry in zip(keys, entries, strict=True)]

    def insert_waiting(self, operation: Operation, entry: Entry, *, base: int) -> None:
        """Inserts a proposal to replace version `base`. The caller has checked that no other proposal is waiting."""
        assert entry.status in (Status.PROPOSED, Status.WITHDRAWAL)
        key = self._put(operation, entry)
        if key is None:
            raise Conflict(
                f"A change of {entry.id} is already waiting, or another memory has the same text. "
                "Read them and try again."
            )
        self.session.run("UPDATE entry SET base = ? WHERE key = ?", (base, key))

    def move(self, operation: Operation, key: int, before: Status, after: Status) -> None:
        """Changes a version's status. Raises Conflict if it becomes active and has an active duplicate."""
        self.session.run("UPDATE entry SET status = ? WHERE key = ?", (after.value, key))
        space_key = self.spaces.key(operation.tenant, operation.space)
        if before is Status.ACTIVE:
            found = self.text.take((key,))
            self.stats.left(key, space_key, found[key])
            self.backlog.left(key, space_key)
        elif after is Status.ACTIVE:
            self._index_again(key, space_key)
        self.journal.step(operation, key, before, after)

    def reinstate(self, space_key: int, key: int) -> None:
        """Makes a version active again after its successor was erased."""
        self.session.run("UPDATE entry SET status = ? WHERE key = ?", (Status.ACTIVE.value, key))
        self._index_again(key, space_key)

    def withdraw(self, space_key: int, keys: Sequence[int]) -> None:
        """Removes versions from index and statistics, before they are erased."""
        found = self.text.take(keys)
        for key in keys:
            self.backlog.left(key, space_key)
            if key in found:
                self.stats.left(key, space_key, found[key])
            else:
                self.stats.changed(key, space_key)

    def add_sources(self, operation: Operation, key: int, entry: Entry, sources: Sequence[str]) -> Entry:
        """Adds the sources of an equal statement, if the entry has sources: it then outlives the first of them."""
        room = SOURCES_MAX - len(entry.sources)
        new = [source for source in dict.fromkeys(sources) if source not in entry.sources][:room]
        if not entry.sources or not new:
            return entry
        self.session.run_many(
            "INSERT INTO source (entry_key, ordinal, source) "
            "SELECT ?, max(ordinal) + 1, ? FROM source WHERE entry_key = ?",
            [(key, source, key) for source in new],
        )
        self.stats.changed(key, self.spaces.key(operation.tenant, operation.space))
        return replace(entry, sources=(*entry.sources, *new))

    def set_expiry(self, operation: Operation, key: int, expires_at: float) -> None:
        self.session.run("UPDATE entry SET expires_at = ? WHERE key = ?", (expires_at, key))
        self.stats.changed(key, self.spaces.key(operation.tenant, operation.space))

    def flush(self) -> None:
        self.text.flush()
        self.journal.flush()
        self.stats.flush()
        self.backlog.flush()

    def _put(self, operation: Operation, entry: Entry, telling: int = 0, terms: Sequence[str] = ()) -> int | None:
        space_key = self.spaces.key(operation.tenant, operation.space)
        key = self.session.insert(_INSERT, self._values(operation, entry, space_key, telling))
        if key is not None:
            self._follow(operation, key, entry, terms)
        return key

    def _values(self, operation: Operation, entry: Entry, space_key: int, telling: int) -> tuple[Value, ...]:
        if self.sealer is not None:
            entry = seal_entry(self.sealer.get(operation.tenant, operation.space), entry)
        return (operation.tenant, *values_of(entry, space_key, telling))

    def read(self, rows: Sequence[Row]) -> list[Entry]:
        """The entries of rows that begin with `ENTRY_COLUMNS`, in the same order."""
        keys = [row[0] for row in rows if row[2]]
        return self.join_sources(rows, self.session.rows(*reading_sources(self.session, keys)) if keys else ())

    def join_sources(self, rows: Sequence[Row], source_rows: Sequence[Row]) -> list[Entry]:
        """As `read`, with the rows of `reading_sources`."""
        sources: dict[int, tuple[str, ...]] = {}
        for key, source in source_rows:
            sources[key] = (*sources.get(key, ()), source)
        found = [_entry(row, sources.get(row[0], ())) for row in rows]
        if self.sealer is None:
            return found
        self.sealer.require({row[_SPACE_KEY] for row in rows})
        return [open_entry(self.sealer.of(row[_SPACE_KEY]), entry) for row, entry in zip(rows, found, strict=True)]

    def stored_hash(self, operation: Operation, content_hash: str) -> str:
        """A content hash as the operation's space has it."""
        if self.sealer is None:
            return content_hash
        return self.sealer.get(operation.tenant, operation.space).hide("entry.content_hash", content_hash)

    def _follow(self, operation: Operation, key: int, entry: Entry, terms: Sequence[str]) -> None:
        """Writes what belongs to a new entry."""
        if entry.sources:
            self.session.run_many(
                "INSERT INTO source (entry_key, ordinal, source) VALUES (?, ?, ?)",
                [(key, ordinal, source) for ordinal, source in enumerate(entry.sources)],
            )
        self.journal.step(operation, key, None, entry.status)
        if entry.status is Status.ACTIVE:
            space_key = self.spaces.key(operation.tenant, operation.space)
            self._index(key, space_key, terms)
            self.backlog.entered(key, space_key, entry)

    def _index(self, key: int, space_key: int, analysed: Sequence[str]) -> None:
        if self.sealer is not None:
            analysed = self.sealer.get_of(space_key).digest_terms(analysed)
        self.text.put(key, space_key, analysed)
        self.stats.entered(key, space_key, analysed)

    def _index_again(self, key: int, space_key: int) -> None:
        row = self.session.row("SELECT text, id, version FROM entry WHERE key = ?", (key,))
        assert row is not None
        text, entry_id, version = row
        if self.sealer is not None:
            text = open_entry_text(self.sealer.of(space_key), entry_id, version, text)
        self._index(key, space_key, terms(text))
        self.backlog.came_back(key)


def _first_status(admitted: Admitted) -> Status:
    if admitted.verdict is Verdict.QUARANTINE:
        return Status.QUARANTINED
    return Status.PROPOSED if admitted.draft.proposed and admitted.draft.kind is Kind.STATEMENT else Status.ACTIVE


# Entries as rows

_COLUMNS = (
    "id version kind text status origin trust target content_hash recorded_at occurred_at agent project conversation "
    "owner turn position speaker valid_from valid_to expires_at pinned metadata reason firm"
).split()

ENTRY_COLUMNS = ", ".join(["e.key", "s.name", "e.has_sources", *(f"e.{column}" for column in _COLUMNS), "e.space_key"])
"""The columns for `Entries.read`, from `entry AS e` and `space AS s`. More columns may follow."""
_SPACE_KEY = len(_COLUMNS) + 3
INDEXED_COLUMNS = "e.key, e.space_key, e.kind, e.origin, e.speaker, e.conversation, e.owner, e.position"
"""The columns for `read_indexed_entry`, from `entry AS e`. More columns may follow."""
SEALED_TEXT_COLUMNS = ", e.id, e.version, e.text"
"""Further columns, for the terms of a sealed text."""
FROM_ENTRY = "entry AS e JOIN space AS s ON s.key = e.space_key"
SPACE_LAST = "s.key = e.space_key + 0"
"""For entries that are found by something else than their space: the sum keeps the query planner from starting at the
space, and so at all of its messages."""

_INSERT = (
    f"INSERT INTO entry (tenant, space_key, has_sources, telling, {', '.join(_COLUMNS)}) "
    f"VALUES ({', '.join('?' * (len(_COLUMNS) + 4))}) ON CONFLICT DO NOTHING"
)
"""Inserts nothing if a constraint forbids it: one active version, no duplicate, one row for each version."""

_NO_METADATA = ReadMetadata()
_KINDS = {str(kind): kind for kind in Kind}
_STATUSES = {str(status): status for status in Status}
_ORIGINS = {str(origin): origin for origin in Origin}
_TARGETS = {str(target): target for target in Target}


def new_entry(admitted: Admitted, entry_id: str, *, version: int, space: str, status: Status) -> Entry:
    draft = admitted.draft
    shared = {name: getattr(draft, name) for name in EntryFields.__slots__}
    shared |= {"text": admitted.text, "owner": None if draft.owner == space else draft.owner}
    return Entry(
        **shared,
        id=entry_id,
        version=version,
        space=space,
        status=status,
        trust=admitted.trust,
        content_hash=admitted.content_hash,
        recorded_at=admitted.recorded_at,
        occurred_at=admitted.recorded_at if draft.occurred_at is None else draft.occurred_at,
        reason=admitted.reason,
    )


def values_of(entry: Entry, space_key: int, telling: int) -> tuple[Value, ...]:
    """The values for `_INSERT`, without the tenant."""
    values = {column: getattr(entry, column) for column in _COLUMNS}
    for column in ("kind", "status", "origin", "target"):
        values[column] = values[column].value
    values |= {"pinned": int(entry.pinned), "firm": int(entry.firm), "metadata": encode_metadata(entry.metadata)}
    return (space_key, int(bool(entry.sources)), telling, *values.values())


def reading_sources(session: Session, keys: Sequence[int]) -> Statement:
    condition, value = session.among("entry_key", keys)
    return f"SELECT entry_key, source FROM source WHERE {condition} ORDER BY entry_key, ordinal", (value,)


def read_indexed_entry(row: Row, spaces: Mapping[int, str], terms: tuple[str, ...]) -> IndexedEntry:
    place = (row[5], row[6], row[7])
    return IndexedEntry(row[0], spaces[row[1]], _KINDS[row[2]], _ORIGINS[row[3]], row[4], *place, terms)


def encode_metadata(metadata: Metadata) -> str:
    return json.dumps(dict(metadata), ensure_ascii=False) if metadata else "{}"


def decode_metadata(text: str) -> Metadata:
    return _NO_METADATA if text == "{}" else ReadMetadata(json.loads(text))


def _entry(row: Row, sources: tuple[str, ...]) -> Entry:
    return Entry(
        id=row[3],
        version=row[4],
        kind=_KINDS[row[5]],
        space=row[1],
        text=row[6],
        status=_STATUSES[row[7]],
        origin=_ORIGINS[row[8]],
        trust=row[9],
        target=_TARGETS[row[10]],
        content_hash=row[11],
        recorded_at=row[12],
        occurred_at=row[13],
        agent=row[14],
        project=row[15],
        conversation=row[16],
        owner=row[17],
        turn=row[18],
        position=row[19],
        speaker=row[20],
        valid_from=row[21],
        valid_to=row[22],
        expires_at=row[23],
        pinned=bool(row[24]),
        metadata=decode_metadata(row[25]),
        sources=sources,
        reason=row[26],
        firm=bool(row[27]),
    )


# Scopes, filters and lanes as SQL conditions on `entry AS e` and `space AS s`, so that they apply before any LIMIT

REFERENCE = "CASE WHEN e.version = 1 THEN e.id ELSE e.id || '.' || e.version END"
_VALID = (
    "(e.expires_at IS NULL OR e.expires_at > ?) AND (e.valid_from IS NULL OR e.valid_from <= ?) "
    "AND (e.valid_to IS NULL OR e.valid_to > ?)"
)

_SQL = load_queries(__file__)
_LEARNED = _SQL["learned"]

_OWNED = "coalesce({row}.owner, s.name) = ?"
OWNED = _OWNED.format(row="e")
"""The entry's conversation is owned by this space; binds the space's name."""


class Conditions:
    """Builds a WHERE clause with its values. It starts from a scope: no query reads a space that was not named."""

    def __init__(self, entries: Entries, scope: Scope) -> None:
        self._session = entries.session
        self._sealer = entries.sealer
        self._scope = scope
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
        if wanted.kind is not None:
            # Not a bound value: the query planner must see it to choose a partial index.
            self.add(f"e.kind = '{Kind(wanted.kind).value}'")
        for column in ("target", "agent", "conversation", "origin"):
            value = getattr(wanted, column)
            if value is not None:
                self.add(f"e.{column} = ?", str(value))
        if isinstance(wanted.project, tuple):
            self.among("coalesce(e.project, '')", [name or "" for name in wanted.project])
        elif wanted.project is not None:
            self.add("e.project = ?", wanted.project)
        for column in ("pinned", "firm"):
            if (flag := getattr(wanted, column)) is not None:
                self.add(f"e.{column} = ?", int(flag))
        for condition, bound in (
            ("e.occurred_at >= ?", wanted.since),
            ("e.occurred_at < ?", wanted.until),
            (f"(e.trust >= {TRUSTED_MIN}) = ?", wanted.trusted),
        ):
            if bound is not None:
                self.add(condition, bound if isinstance(bound, bool) else seconds(bound))
        for name, allowed in wanted.metadata.items():
            options = allowed if isinstance(allowed, tuple) else (allowed,)
            if self._sealer is not None:
                self._sealed_member(self._sealer, name, options)
                continue
            member, value = self._session.member("e.metadata", name)
            condition, encoded = self._session.among(member, [json.dumps(item, ensure_ascii=False) for item in options])
            self.add(condition, value, encoded)

    def _sealed_member(self, sealer: Sealer, name: str, options: Sequence[object]) -> None:
        """Each space has digests of its own."""
        clauses: list[str] = []
        values: list[Value] = []
        for cipher in sealer.ciphers(self._scope):
            member, value = self._session.member("e.metadata", member_name(cipher, name))
            wanted = [json.dumps(member_value(cipher, name, item)) for item in options]
            condition, encoded = self._session.among(member, wanted)
            clauses.append(condition)
            values += [value, encoded]
        self.add(f"({' OR '.join(clauses)})" if clauses else "1 = 0", *values)

    def lane(self, query: LaneQuery, *, at: float) -> None:
        """Adds lane, validity at `at`, exclusions and filter. The caller adds the condition on the status."""
        self.add(_VALID, at, at, at)
        if query.lane is not None:
            self._lane(query.lane, query)
        if not query.evidence:
            self.add("NOT (e.kind = 'record' AND e.origin = 'tool')")
        if query.trusted_only or query.projects is not None:
            member, value = self._session.member("e.metadata", PASTED)
            trusted = f"e.trust >= ? AND NOT (e.kind = 'record' AND coalesce({member}, 'false') = 'true')"
            if query.trusted_only:
                self.add(trusted, TRUSTED_MIN, value)
            else:
                here, projects = self._session.among("e.project", sorted(query.projects or ()))
                shared = f"e.target = 'user' AND {trusted}"
                self.add(f"(e.project IS NULL OR {here} OR ({shared}))", projects, TRUSTED_MIN, value)
        visible_hashes: Collection[str] = query.visible_hashes
        if self._sealer is not None and visible_hashes:
            visible_hashes = hidden(self._sealer.ciphers(self._scope), "entry.content_hash", visible_hashes)
        for expression, excluded in (
            (REFERENCE, query.excluded_refs),
            ("e.id", query.excluded_ids),
            ("e.content_hash", visible_hashes),
        ):
            if excluded:
                self.among(expression, sorted(excluded), negated=True)
        # A record is visible by its hash, or because it was recorded after `seen_since` in this conversation. A
        # statement that was learned from visible records alone is left out too.
        visible: list[str] = []
        values: list[Value] = []
        if visible_hashes:
            clause, value = self._session.among("r.content_hash", sorted(visible_hashes))
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
