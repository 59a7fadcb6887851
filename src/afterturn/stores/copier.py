"""Copies a store into another one, of the same kind or not, while the first is in use.

Rows are copied table by table in the order of their keys. Triggers in the source note which rows
change meanwhile (`moving_row`); these rows are copied again, the last of them while nobody else may write. Both stores
are then compared, and the source refuses further writes. A copy that was stopped continues where it was: the target
holds how far it came, and which process may write to it. One that was paused meanwhile finds another there and ends.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import NamedTuple, Protocol, TypeVar

from afterturn.errors import StoreError, StoreMoved
from afterturn.ports import Unit
from afterturn.stores.engine import Progress
from afterturn.stores.sql.moved import FILLED, HOUSEKEPT, MOVED, WATCHED
from afterturn.stores.sql.sealing import drop_key_rows, is_sealed_store, key_rows
from afterturn.stores.sql.session import Row, Session, Value, find_meta, set_meta
from afterturn.stores.sql.tables import TABLES, Table
from afterturn.stores.sql.unit import SqlUnit, sql_session
from afterturn.types import JobQueue, Status, Tenant, UnitScope

R = TypeVar("R")
BATCH_ROWS = 500
# When the last pass begins, without other writers: at most this number of changed rows is left, or this number of
# passes has been made.
_LEFT_MAX = 200
_PASSES_MAX = 50
_DIGEST_BYTES = 16
_PROGRESS = "copied"
# For whole stores, and for a tenant that moves between two.
_REMEDIES = ("Start again with a new target.", "Run `afterturn shards move --cancel` for it, then move it again.")


class CopyEngine(Protocol):
    """What the copier needs of an engine. A write without a place excludes all other writers of the store."""

    name: str

    def write_now(self, work: Callable[[Unit], R], *, at: UnitScope = None) -> R: ...

    def read_now(self, work: Callable[[Unit], R]) -> R: ...


class ChangeNotes(Protocol):
    """The SQL that differs between the stores: a module of functions."""

    def note_changes(self, session: Session, tables: Sequence[Table]) -> None: ...

    def forget_changes(self, session: Session, table: Table) -> None: ...

    def settle_keys(self, session: Session, tables: Sequence[Table]) -> None: ...


class CopySide(NamedTuple):
    engine: CopyEngine
    notes: ChangeNotes


@dataclass(frozen=True, slots=True)
class TableDigest:
    """The number of rows and a hash of their content, which does not depend on their order."""

    name: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class ComparedTable:
    source: TableDigest
    target: TableDigest

    @property
    def is_equal(self) -> bool:
        return self.source == self.target


@dataclass(frozen=True, slots=True)
class MigrationResult:
    """A finished migration. `tables` is empty if there was nothing left to copy; `waiting` turns were in files."""

    source: str
    target: str
    tables: tuple[ComparedTable, ...]
    waiting: int

    @property
    def is_equal(self) -> bool:
        """If not, nothing has moved, and the source is in use as before."""
        return all(table.is_equal for table in self.tables)


class _Differs(Exception):
    """Ends the last pass without moving anything."""

    def __init__(self, tables: Sequence[ComparedTable]) -> None:
        super().__init__()
        self.tables = tables


# Copying


class StoreCopy:
    """One copy of `source` to `target`, of all tenants or one. Its methods block.

    `report(done, total)` is called after each batch with numbers of rows. With a `mark`, the target may have other
    tenants; no two rows of both may have the same key. The mark is what the source then says of the tenant.
    """

    def __init__(
        self,
        source: CopySide,
        target: CopySide,
        *,
        tenant: str | None,
        report: Progress,
        mark: str | None = None,
        batch_rows: int = BATCH_ROWS,
        wants_keys: bool = False,
    ) -> None:
        self._wants_keys = wants_keys
        self._source = source
        self._target = target
        self._tenant = tenant
        self._report = report
        self._batch_rows = batch_rows
        self._total = 0
        # Several tenants share the target then, and its marks are for this one.
        self._mark = mark
        # Others may write to both stores while one tenant moves.
        self._at = None if mark is None or tenant is None else Tenant(tenant)
        suffix = "" if mark is None else f"/{tenant}"
        self._moved, self._filled, self._progress = (f"{key}{suffix}" for key in (MOVED, FILLED, _PROGRESS))
        self._tables = [table for table in TABLES if mark is None or table.name != "embedder"]
        self._embedders: dict[int, int] = {}
        self._watched = ""
        self._claimed = ""

    def run(self, *, keep: bool) -> Sequence[ComparedTable]:
        """Copies everything and compares it. Afterwards the source refuses writes, unless `keep`.

        If a table is not equal in the end, the source stays in use. Raises StoreError if the target has other content.
        """
        if not self._begin(keep=keep):
            return []
        self._total = self._source.engine.read_now(lambda unit: self._count(sql_session(unit)))
        self._copy_tables()
        passes = 0
        while self._catch_up() > _LEFT_MAX and passes < _PASSES_MAX:
            passes += 1
        try:
            compared = self._source.engine.write_now(lambda unit: self._finish(unit, keep=keep), at=self._at)
        except _Differs as differs:
            return differs.tables
        self._release(self._claimed)
        return compared

    def _check_sealed(self, *, keep: bool) -> None:
        source, target = (
            side.engine.read_now(lambda unit: is_sealed_store(sql_session(unit)))
            for side in (self._source, self._target)
        )
        if (target or self._wants_keys) and not source:
            raise StoreError(
                f"{self._source.engine.name} is not sealed with keys, and rows are copied as they are. Migrate without "
                "the setting `keys`, or export the spaces and import them into a new store with keys."
            )
        if source and (keep or self._tenant is not None):
            raise StoreError(
                f"{self._source.engine.name} is sealed, and a copy would share its keys: a forget in one would destroy "
                "the keys of both. Move the whole store, without --keep."
            )

    def _begin(self, *, keep: bool) -> bool:
        """False if the source was moved or copied to this target already."""
        source_id, target_id = (_meta(side.engine, "generation") for side in (self._source, self._target))
        if source_id == target_id:
            raise StoreError(f"{self._source.engine.name} and {self._target.engine.name} are the same store.")
        self._check_sealed(keep=keep)
        filled, moved = _meta(self._target.engine, self._filled), _meta(self._source.engine, self._moved)
        is_moved = moved is not None and moved in (self._target.engine.name, self._mark)
        # Of a tenant, the same is left by `cancel_move` if it was interrupted. A finished move has its mark.
        is_copied = self._mark is None and filled is None
        if is_moved or (is_copied and _is_watched(self._source, self._target, self._tenant)):
            # The target is complete; an earlier run may have been killed before it had removed everything else.
            self._release(filled)
            return False
        if moved is not None and filled is None:
            raise StoreMoved(f"{self._source.engine.name} was moved to {moved} before. Migrate that one.", target=moved)
        mine = {"source": source_id, "name": self._source.engine.name, "tenant": self._tenant}
        # In both stores: a copy whose changes were not noted all the time cannot be continued.
        watch = self._target.engine.write_now(lambda unit: self._claim(sql_session(unit), mine), at=self._at)
        self._watched = json.dumps([target_id, self._tenant, watch, self._target.engine.name])
        if _meta(self._source.engine, WATCHED) != self._watched and _meta(self._target.engine, self._progress):
            raise StoreError(
                f"The copy to {self._target.engine.name} was cancelled, and what changed in {self._source.engine.name} "
                f"since then was not noted. {_REMEDIES[self._mark is not None]}"
            )
        self._source.engine.write_now(lambda unit: self._watch(sql_session(unit)))
        return True

    def _watch(self, session: Session) -> None:
        """One copy at a time: the notes are removed when they have been read."""
        if find_meta(session, WATCHED) not in (None, self._watched):
            raise StoreError(
                f"{self._source.engine.name} is being copied to another place, or that was given up and not ended. "
                "Finish that, or run `afterturn migrate --cancel` or `afterturn shards move --cancel` for it."
            )
        set_meta(session, WATCHED, self._watched)
        self._source.notes.note_changes(session, TABLES)

    def _claim(self, session: Session, mine: dict[str, str | None]) -> str:
        """Begins the copy or takes it over: from now on no other process writes to the target for it. Returns the
        number under which changes are noted."""
        found = find_meta(session, self._filled)
        known = None if found is None else json.loads(found)
        if known is None:
            self._check_empty(session)
        elif any(known[key] != value for key, value in mine.items()):
            raise StoreError(
                f"{self._target.engine.name} is being filled from {known['name']}. Finish that migration, or name a "
                "new target."
            )
        watch: str = uuid.uuid4().hex if known is None else known["watch"]
        self._claimed = json.dumps({**mine, "watch": watch, "run": uuid.uuid4().hex})
        set_meta(session, self._filled, self._claimed)
        return watch

    def _check_empty(self, session: Session) -> None:
        one_tenant = ("", ()) if self._mark is None else (" WHERE tenant = ?", (self._tenant,))
        if (found := session.row(f"SELECT tenant, name FROM space{one_tenant[0]} LIMIT 1", one_tenant[1])) is not None:
            raise StoreError(
                f"{self._target.engine.name} is not empty: it has the space {found[1]} of tenant {found[0]!r}. Name a "
                "new file, or a new schema with ?schema= in the URL."
            )
        if self._mark is not None:
            # An earlier move may have left its rows.
            session.run("DELETE FROM tenant WHERE name = ?", (self._tenant,))
            session.run("DELETE FROM meta WHERE key = ?", (self._progress,))

    def _check_claim(self, session: Session) -> None:
        """In every transaction that writes to the target. This process may have been paused for hours, and hosts may
        work with the target meanwhile."""
        if not _has_meta(session, self._filled, self._claimed):
            raise StoreError(
                f"Another process has finished, continued or cancelled the copy to {self._target.engine.name}. This "
                "one wrote nothing after that."
            )

    def _copy_tables(self) -> None:
        state = _meta(self._target.engine, self._progress)
        reached, cursor, done = json.loads(state) if state else (0, None, 0)
        for number in range(reached, len(self._tables)):
            table = self._tables[number]
            after = cursor if number == reached else None
            while batch := self._source.engine.read_now(lambda unit, t=table, a=after: self._batch(unit, t, a)):  # type: ignore[misc]
                done += len(batch.rows)
                after = table.primary_of(batch.rows[-1])
                place = json.dumps([number, after, done])
                self._store(self._translated(batch), place)
                self._report(done, max(done, self._total))

    def _store(self, batch: _Batch, place: str) -> None:
        def store(unit: Unit) -> None:
            self._check_claim(sql_session(unit))
            _insert(_sql(unit), batch)
            set_meta(sql_session(unit), self._progress, place)

        self._target.engine.write_now(store, at=self._at)

    def _batch(self, unit: Unit, table: Table, after: Sequence[Value] | None) -> _Batch | None:
        return next(read_batches(_sql(unit), table, self._tenant, after, limit=self._batch_rows), None)

    def _catch_up(self) -> int:
        """Copies the rows of one batch of notes, or of several if none is left out. Returns how many notes are left."""
        while notes := self._source.engine.read_now(lambda unit: self._noted(_sql(unit))):
            applied = self._apply(notes)
            self._source.engine.write_now(partial(self._drop_notes, seqs=applied), at=self._at)
            if len(notes.seqs) < self._batch_rows or not applied:
                break
        return self._source.engine.read_now(lambda unit: _scalar(sql_session(unit), "SELECT count(*) FROM moving_row"))

    def _finish(self, unit: Unit, *, keep: bool) -> list[ComparedTable]:
        """The last pass, which may run again. Nobody else may write what is copied: the store, or one tenant of it.

        Others may add notes meanwhile, which concern nothing that is copied."""
        source = _sql(unit)
        self._check_watch(source.session)
        waiting, last = 0, _scalar(source.session, "SELECT coalesce(max(seq), 0) FROM moving_row")
        while notes := self._noted(source, skip=waiting, last=last):
            applied = self._apply(notes)
            self._drop_notes(source, applied)
            waiting += len(notes.seqs) - len(applied)
            if waiting and applied:
                # A row that had to wait for another one is tried again from the first.
                waiting = 0
        if waiting:
            raise StoreError(
                f"{waiting} changed rows of {self._source.engine.name} cannot be stored in {self._target.engine.name}: "
                "a unique index there keeps them out. Nothing was moved; use a new target."
            )
        adopted = find_meta(source.session, "embedder")
        if adopted is not None and self._mark is None:
            self._target.engine.write_now(lambda unit: self._adopt(sql_session(unit), adopted))
        if rows := key_rows(source.session):
            # Sealed rows are copied as they are, and the copy has the same keys.
            self._target.engine.write_now(lambda unit: _copy_keys(sql_session(unit), rows))
        self._target.engine.read_now(lambda unit: self._check_claim(sql_session(unit)))
        compared = self._compare(source)
        if not all(table.is_equal for table in compared):
            raise _Differs(compared)
        if not keep:
            set_meta(source.session, self._moved, self._mark or self._target.engine.name)
        return compared

    def _adopt(self, session: Session, embedder: str) -> None:
        self._check_claim(session)
        set_meta(session, "embedder", embedder)

    def _check_watch(self, session: Session) -> None:
        if not _has_meta(session, WATCHED, self._watched):
            raise StoreError(
                f"The copy of {self._source.engine.name} was cancelled meanwhile, or finished by "
                "another process. This one moved nothing."
            )

    def _drop_notes(self, unit: Unit, seqs: Sequence[int]) -> None:
        session = sql_session(unit)
        self._check_watch(session)
        condition, value = session.among("seq", seqs)
        session.run(f"DELETE FROM moving_row WHERE {condition}", (value,))

    def _release(self, claimed: str | None) -> None:
        """Opens the target to hosts, unless it is open. A copy that ends before this is finished by running it again.

        `claimed`: the target's mark. Another process that continues the same copy may have replaced it."""

        def open_target(unit: Unit) -> None:
            session = sql_session(unit)
            found = find_meta(session, self._filled)
            if found is None or claimed is None or json.loads(found)["watch"] != json.loads(claimed)["watch"]:
                return
            if self._mark is None:
                self._target.notes.settle_keys(session, TABLES)
            # A tenant that comes back leaves no mark here.
            session.run("DELETE FROM meta WHERE key IN (?, ?, ?)", (self._filled, self._progress, self._moved))

        self._target.engine.write_now(open_target, at=self._at)
        # Another copy may have begun after the mark of this one.
        if _is_watched(self._source, self._target, self._tenant):
            _stop_watching(self._source)

    def _count(self, session: Session) -> int:
        return sum(
            _scalar(session, *_selected(session, f"SELECT count(*) FROM {t.name}", t, self._tenant))
            for t in self._tables
        )

    def _noted(self, unit: SqlUnit, *, skip: int = 0, last: int | None = None) -> _Noted | None:
        """The oldest notes, up to `last`, with the rows as they are now. Notes of other tenants have no row."""
        self._check_watch(unit.session)
        until, values = ("", ()) if last is None else ("WHERE seq <= ? ", (last,))
        found = unit.session.rows(
            f"SELECT seq, name, key FROM moving_row {until}ORDER BY seq LIMIT {self._batch_rows} OFFSET {skip}", values
        )
        keys: dict[str, dict[tuple[Value, ...], list[int]]] = {}
        for seq, name, key in found:
            # The only rows that are not named by keys of their own bucket.
            if name != "tenant" or self._tenant in (None, json.loads(key)[0]):
                keys.setdefault(name, {}).setdefault(tuple(json.loads(key)), []).append(seq)
        batches = [
            read_rows(unit, table, self._tenant, list(keys[table.name])) for table in TABLES if table.name in keys
        ]
        return _Noted([seq for seq, *_ in found], keys, batches) if found else None

    def _apply(self, notes: _Noted) -> list[int]:
        """Replaces the noted rows in the target. Returns the notes that are done with."""
        batches = [self._translated(batch) for batch in notes.batches]
        noted = [(table, list(notes.keys[table.name])) for table in self._tables if table.name in notes.keys]
        gone = [(table, [self._in_target(table, table.noted, key) for key in keys]) for table, keys in noted]

        def replace(unit: Unit) -> dict[str, set[tuple[Value, ...]]]:
            self._check_claim(sql_session(unit))
            return _replace(_sql(unit), gone, batches, self._tenant)

        kept_out = self._target.engine.write_now(replace, at=self._at)
        waiting = {seq for name, keys in kept_out.items() for key in keys for seq in notes.keys[name][key]}
        return [seq for seq in notes.seqs if seq not in waiting]

    def _translated(self, batch: _Batch) -> _Batch:
        """With the target's keys of embedders. All other keys are the same in both places."""
        if self._mark is None or "embedder_key" not in batch.table.columns:
            return batch
        return batch._replace(rows=[self._in_target(batch.table, batch.table.columns, row) for row in batch.rows])

    def _in_target(self, table: Table, columns: Sequence[str], row: Row) -> Row:
        if self._mark is None or "embedder_key" not in columns:
            return row
        at = columns.index("embedder_key")
        if row[at] is None:
            return row
        if row[at] not in self._embedders:
            self._embedders[row[at]] = self._embedder(row[at])
        return (*row[:at], self._embedders[row[at]], *row[at + 1 :])

    def _embedder(self, key: int) -> int:
        """The target's key of an embedder of the source. -1 if the source has none with this key."""
        named = "name, version, dimensions, normalised"
        identity = self._source.engine.read_now(
            lambda unit: sql_session(unit).row(f"SELECT {named} FROM embedder WHERE key = ?", (key,))
        )
        if identity is None:
            return -1

        def find(unit: Unit) -> int:
            session = sql_session(unit)
            session.run(f"INSERT INTO embedder ({named}) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", identity)
            same = "name = ? AND version = ? AND dimensions = ? AND normalised = ?"
            return _scalar(session, f"SELECT key FROM embedder WHERE {same}", identity)

        return self._target.engine.write_now(find, at=self._at)

    def _compare(self, source: SqlUnit) -> list[ComparedTable]:
        """Reads both sides in turns, so that neither transaction is idle for long."""
        compared, done = [], 0
        for table in self._tables:
            here, there = _Digest(table), _Digest(table)
            for ours, theirs in zip_longest(
                read_batches(source, table, self._tenant), _read_apart(self._target.engine, table, self._tenant)
            ):
                here.add(None if ours is None else self._translated(ours))
                there.add(theirs)
                done += 0 if ours is None else len(ours.rows)
                self._report(done, max(done, self._total))
            compared.append(ComparedTable(here.result(), there.result()))
        return compared


def cancel_copy(source: CopySide) -> None:
    """Stops noting changes in the source. The target stays as it is, and cannot be opened.

    Raises StoreMoved if the source was moved: hosts may have written to the target."""
    if (moved := _meta(source.engine, MOVED)) is not None:
        raise StoreMoved(
            f"{source.engine.name} was moved to {moved}, and hosts may have written there since. To go back, migrate "
            "that one to a new place.",
            target=moved,
        )
    _stop_watching(source)


def cancel_move(source: CopySide, target: CopySide, tenant: str) -> bool:
    """Gives up a tenant's move and deletes what was copied. False if there is none. Run it again if it was interrupted.

    Raises StoreMoved if the tenant was moved: its hosts may have written to the target."""
    filled = _meta(target.engine, f"{FILLED}/{tenant}")
    is_watched = _is_watched(source, target, tenant)
    stopped = json.dumps([_meta(target.engine, "generation"), tenant, "", target.engine.name])

    def stop(unit: Unit) -> None:
        session = sql_session(unit)
        if find_meta(session, f"{MOVED}/{tenant}") is not None:
            raise StoreMoved(
                f"The tenant {tenant!r} was moved to {target.engine.name} already. Run the move again to finish it.",
                target=target.engine.name,
            )
        if is_watched:
            # The last step of a move that still runs finds this, and moves nothing.
            set_meta(session, WATCHED, stopped)

    source.engine.write_now(stop, at=Tenant(tenant))
    is_filled = filled is not None and json.loads(filled)["source"] == _meta(source.engine, "generation")
    if filled is not None and is_filled:
        key, claimed = f"{FILLED}/{tenant}", json.dumps({**json.loads(filled), "run": uuid.uuid4().hex})

        def end(unit: Unit) -> None:
            session = sql_session(unit)
            if _has_meta(session, key, claimed):
                session.run("DELETE FROM meta WHERE key IN (?, ?)", (key, f"{_PROGRESS}/{tenant}"))

        def begin(unit: Unit) -> None:
            found = find_meta(sql_session(unit), key)
            if found is not None and json.loads(found)["watch"] == json.loads(filled)["watch"]:
                set_meta(sql_session(unit), key, claimed)

        # A move that still runs writes nothing more after this.
        target.engine.write_now(begin, at=Tenant(tenant))
        delete_tenant(target, tenant, while_marked=lambda session: _has_meta(session, key, claimed))
        target.engine.write_now(end, at=Tenant(tenant))
    if is_watched:
        _stop_watching(source)
    return is_filled or is_watched


def _is_watched(source: CopySide, target: CopySide, tenant: str | None) -> bool:
    """Whether changes in the source are noted for this target and tenant."""
    watched = _meta(source.engine, WATCHED)
    return watched is not None and json.loads(watched)[:2] == [_meta(target.engine, "generation"), tenant]


def _stop_watching(source: CopySide) -> None:
    """Each table in a transaction of its own: one that locked several could wait for a reader that waits for it. Ends
    if another copy has begun meanwhile, which needs the notes."""
    watched = _meta(source.engine, WATCHED)

    def stop(unit: Unit, work: Callable[[Session], object]) -> None:
        if watched is None or _has_meta(sql_session(unit), WATCHED, watched):
            work(sql_session(unit))

    steps: list[Callable[[Session], object]] = [
        *(partial(source.notes.forget_changes, table=table) for table in TABLES),
        lambda session: session.run("DROP TABLE IF EXISTS moving_row"),
        lambda session: session.run("DELETE FROM meta WHERE key = ?", (WATCHED,)),
    ]
    for step in steps:
        source.engine.write_now(partial(stop, work=step), at=JobQueue())


class _Batch(NamedTuple):
    """Rows of one table as the target gets them, and the terms of those that are in the full-text index, by key."""

    table: Table
    rows: list[Row]
    terms: Mapping[int, Sequence[str]]


@dataclass(slots=True)
class _Noted:
    seqs: list[int]
    keys: dict[str, dict[tuple[Value, ...], list[int]]]
    batches: list[_Batch] = field(default_factory=list)


def read_batches(
    unit: SqlUnit,
    table: Table,
    tenant: str | None,
    after: Sequence[Value] | None = None,
    *,
    limit: int = BATCH_ROWS,
) -> Iterator[_Batch]:
    primary = ", ".join(table.primary)
    while True:
        sql, values = _selected(unit.session, f"SELECT {', '.join(table.columns)} FROM {table.name}", table, tenant)
        if after is not None:
            joint = "AND" if values else "WHERE"
            sql = f"{sql} {joint} ({primary}) > ({', '.join('?' * len(after))})"
            values = [*values, *after]
        rows = unit.session.rows(f"{sql} ORDER BY {primary} LIMIT {limit}", values)
        if not rows:
            return
        yield _with_terms(unit, table, rows)
        after = table.primary_of(rows[-1])


def read_rows(unit: SqlUnit, table: Table, tenant: str | None, keys: Sequence[tuple[Value, ...]]) -> _Batch:
    """The rows that are noted by these keys and are there."""
    one = f"({', '.join('?' * len(table.noted))})"
    sql, values = _selected(unit.session, f"SELECT {', '.join(table.columns)} FROM {table.name}", table, tenant)
    joint = "AND" if values else "WHERE"
    sql = f"{sql} {joint} ({', '.join(table.noted)}) IN (VALUES {', '.join([one] * len(keys))})"
    return _with_terms(unit, table, unit.session.rows(sql, [*values, *(value for key in keys for value in key)]))


def _with_terms(unit: SqlUnit, table: Table, rows: list[Row]) -> _Batch:
    moved = [_moved(table, row) for row in rows]
    if table.name != "entry":
        return _Batch(table, moved, {})
    status = table.columns.index("status")
    return _Batch(table, moved, unit.text.find([row[0] for row in rows if row[status] == Status.ACTIVE.value]))


def _moved(table: Table, row: Row) -> Row:
    """The row as the target gets it. A job that a worker holds is free again. The number of a space's last change is
    one higher: the target has no log of changes, so an index that was built elsewhere is built again."""
    if table.name == "space":
        at = table.columns.index("seq")
        return (*row[:at], row[at] + 1, *row[at + 1 :])
    if table.name == "job":
        state, attempts = table.columns.index("state"), table.columns.index("attempts")
        if row[state] == "leased":
            changed = list(row)
            changed[state], changed[attempts] = "ready", row[attempts] - 1
            changed[table.columns.index("owner")] = changed[table.columns.index("leased_until")] = None
            return tuple(changed)
    return row


def _insert(unit: SqlUnit, batch: _Batch) -> None:
    table = batch.table
    unit.session.run_many(
        f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({', '.join('?' * len(table.columns))}) "
        "ON CONFLICT DO NOTHING",
        batch.rows,
    )
    if table.name == "entry":
        space = table.columns.index("space_key")
        for row in batch.rows:
            if row[0] in batch.terms:
                unit.text.put(row[0], row[space], batch.terms[row[0]])


def _replace(
    target: SqlUnit,
    gone: Sequence[tuple[Table, Sequence[tuple[Value, ...]]]],
    batches: Sequence[_Batch],
    tenant: str | None,
) -> dict[str, set[tuple[Value, ...]]]:
    """Deletes noted rows and inserts them as they are now. Returns the keys of rows that could not be inserted.

    Rows of other tenants are noted too. A tenant that moved from the source to this target has the same keys here, so
    they must not be deleted."""
    for table, keys in gone:
        if table.name == "entry" and keys:
            target.text.take(_entries_of(target.session, [int(str(key[0])) for key in keys], tenant))
        same = " AND ".join(f"{column} = ?" for column in table.noted)
        if tenant is None:
            target.session.run_many(f"DELETE FROM {table.name} WHERE {same}", keys)
        else:
            sql = f"DELETE FROM {table.name} WHERE {same} AND {table.not_of_others}"
            target.session.run_many(sql, [(*key, tenant) for key in keys])
    kept_out = {}
    for batch in batches:
        _insert(target, batch)
        if batch.table.contested and batch.rows:
            wanted = {batch.table.primary_of(row) for row in batch.rows}
            found = read_rows(target, batch.table, None, list(wanted))
            kept_out[batch.table.name] = wanted - {batch.table.primary_of(row) for row in found.rows}
    return kept_out


def _entries_of(session: Session, keys: Sequence[int], tenant: str | None) -> Sequence[int]:
    if tenant is None:
        return keys
    condition, value = session.among("key", keys)
    return [key for (key,) in session.rows(f"SELECT key FROM entry WHERE {condition} AND tenant = ?", (value, tenant))]


def delete_moved(side: CopySide, tenant: str, mark: str) -> None:
    """Deletes what a tenant has left behind. Nothing after it has begun to come back: this process may have been paused
    for hours."""

    def is_left(session: Session) -> bool:
        comes_back = find_meta(session, f"{FILLED}/{tenant}") is not None
        return not comes_back and _has_meta(session, f"{MOVED}/{tenant}", mark)

    delete_tenant(side, tenant, while_marked=is_left)


def delete_tenant(side: CopySide, tenant: str, *, while_marked: Callable[[Session], bool]) -> None:
    """Deletes what a tenant has, in small transactions, each of them only if `while_marked` says so."""
    changes = Table("change", ("space_key",), ("space_key",))
    for table in (changes, *reversed(TABLES)):
        if table.name == "embedder":
            continue

        def delete_some(unit: Unit, table: Table = table) -> int:
            return _delete_some(_sql(unit), table, tenant) if while_marked(sql_session(unit)) else 0

        while side.engine.write_now(delete_some, at=Tenant(tenant)):
            continue

    def delete_due(unit: Unit) -> None:
        if while_marked(sql_session(unit)):
            sql_session(unit).run("DELETE FROM meta WHERE key = ?", (f"{HOUSEKEPT}/{tenant}",))

    side.engine.write_now(delete_due, at=Tenant(tenant))


def _delete_some(unit: SqlUnit, table: Table, tenant: str) -> int:
    primary = ", ".join(table.primary)
    sql, values = _selected(unit.session, f"SELECT DISTINCT {primary} FROM {table.name}", table, tenant)
    keys = unit.session.rows(f"{sql} LIMIT {BATCH_ROWS}", values)
    if table.name == "entry" and keys:
        unit.text.take([key for (key,) in keys])
    same = " AND ".join(f"{column} = ?" for column in table.primary)
    unit.session.run_many(f"DELETE FROM {table.name} WHERE {same}", keys)
    return len(keys)


# Comparing


class _Digest:
    """Adds up a hash of each row: the sum is the same in any order."""

    def __init__(self, table: Table) -> None:
        # It is higher in the target.
        self._kept = [at for at, column in enumerate(table.columns) if (table.name, column) != ("space", "seq")]
        self._name = table.name
        self._rows = 0
        self._sum = 0

    def add(self, batch: _Batch | None) -> None:
        if batch is None:
            return
        for row in batch.rows:
            content = repr([row[at] for at in self._kept] + [batch.terms.get(row[0], ())]).encode(
                "utf-8", "surrogatepass"
            )
            found = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
            self._sum = (self._sum + int.from_bytes(found, "big")) % (1 << 8 * _DIGEST_BYTES)
        self._rows += len(batch.rows)

    def result(self) -> TableDigest:
        return TableDigest(self._name, self._rows, f"{self._sum:0{2 * _DIGEST_BYTES}x}")


def _read_apart(engine: CopyEngine, table: Table, tenant: str | None) -> Iterator[_Batch]:
    """Each batch in a transaction of its own."""
    after: tuple[Value, ...] | None = None
    while batch := engine.read_now(lambda unit, a=after: next(read_batches(_sql(unit), table, tenant, a), None)):  # type: ignore[misc]
        yield batch
        after = table.primary_of(batch.rows[-1])


# Small parts


def _selected(session: Session, sql: str, table: Table, tenant: str | None) -> tuple[str, list[Value]]:
    if tenant is None:
        return sql, []
    if table.name != "embedding":
        return f"{sql} WHERE {table.of_tenant}", [tenant]
    # Its only index begins with the embedder. Their keys are bound, so that the planner knows how few they are.
    embedders, keys = session.among("embedder_key", [key for (key,) in session.rows("SELECT key FROM embedder")])
    return f"{sql} WHERE {embedders} AND {table.of_tenant}", [keys, tenant]


def _sql(unit: Unit) -> SqlUnit:
    assert isinstance(unit, SqlUnit)
    return unit


def _scalar(session: Session, sql: str, values: Sequence[Value] = ()) -> int:
    row = session.row(sql, values)
    assert row is not None
    return int(row[0])


def _meta(engine: CopyEngine, key: str) -> str | None:
    return engine.read_now(lambda unit: find_meta(sql_session(unit), key))


def _has_meta(session: Session, key: str, value: str) -> bool:
    return find_meta(session, key) == value


def _copy_keys(session: Session, rows: Sequence[tuple[str, str]]) -> None:
    drop_key_rows(session)
    for key, value in rows:
        set_meta(session, key, value)
