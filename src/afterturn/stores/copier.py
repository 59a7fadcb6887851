"""Copies a store into another one, of the same kind or not, while writes to both wait.

All rows are copied and compared in one transaction of each store, so the target is complete or empty. Afterwards the
source refuses writes and names the target, unless it is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from afterturn.errors import StoreError, StoreMoved
from afterturn.ports import Unit
from afterturn.stores.engine import Progress, StoreEngine
from afterturn.stores.sql.sealing import drop_key_rows, is_sealed_store, key_rows
from afterturn.stores.sql.session import MOVED, Row, Session, Value, find_meta, set_meta
from afterturn.stores.sql.tables import TABLES, Table
from afterturn.stores.sql.unit import SqlUnit, sql_session
from afterturn.types import Status

BATCH_ROWS = 500
_DIGEST_BYTES = 16


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
    """Rolls both stores back."""

    def __init__(self, tables: Sequence[ComparedTable]) -> None:
        super().__init__()
        self.tables = tables


# Copying


class StoreCopy:
    """One copy of `source` to `target`, of all tenants or one. Its methods block.

    `report(done, total)` is called after each batch with numbers of rows, first while rows are copied, then while they
    are compared.
    """

    def __init__(
        self,
        source: StoreEngine,
        target: StoreEngine,
        *,
        tenant: str | None,
        report: Progress,
        wants_keys: bool = False,
    ) -> None:
        self._wants_keys = wants_keys
        self._source = source
        self._target = target
        self._tenant = tenant
        self._report = report

    def run(self, *, keep: bool) -> Sequence[ComparedTable]:
        """Copies everything and compares it. Afterwards the source refuses writes, unless `keep`.

        Empty if the source was moved to this target before. If a table is not equal, nothing has changed. Raises
        StoreError if the target has other content.
        """
        generations = [
            side.read_now(lambda unit: find_meta(sql_session(unit), "generation"))
            for side in (self._source, self._target)
        ]
        if generations[0] == generations[1]:
            raise StoreError(f"{self._source.name} and {self._target.name} are the same store.")
        self._check_sealed(keep=keep)
        try:
            return self._source.write_now(lambda unit: self._copy(_sql(unit), keep=keep))
        except _Differs as differs:
            return differs.tables

    def _check_sealed(self, *, keep: bool) -> None:
        source, target = (
            side.read_now(lambda unit: is_sealed_store(sql_session(unit))) for side in (self._source, self._target)
        )
        if (target or self._wants_keys) and not source:
            raise StoreError(
                f"{self._source.name} is not sealed with keys, and rows are copied as they are. Migrate without "
                "the setting `keys`, or export the spaces and import them into a new store with keys."
            )
        if source and (keep or self._tenant is not None):
            raise StoreError(
                f"{self._source.name} is sealed, and a copy would share its keys: a forget in one would destroy "
                "the keys of both. Move the whole store, without --keep."
            )

    def _copy(self, source: SqlUnit, *, keep: bool) -> list[ComparedTable]:
        # Under the lock of the source: another process may have moved it while this one waited.
        if (moved := find_meta(source.session, MOVED)) == self._target.name:
            return []
        if moved is not None:
            raise StoreMoved(f"{self._source.name} was moved to {moved} before. Migrate that one.", target=moved)
        compared = self._target.write_now(lambda unit: self._fill(source, _sql(unit)))
        if not keep:
            # If this program is killed before this is committed, the source stays in use, and the target is a copy.
            set_meta(source.session, MOVED, self._target.name)
        return compared

    def _fill(self, source: SqlUnit, target: SqlUnit) -> list[ComparedTable]:
        if (found := target.session.row("SELECT tenant, name FROM space LIMIT 1")) is not None:
            raise StoreError(
                f"{self._target.name} is not empty: it has the space {found[1]} of tenant {found[0]!r}. Name a new "
                "file, or a new schema with ?schema= in the URL."
            )
        total, done = self._count(source.session), 0
        for table in TABLES:
            for batch in read_batches(source, table, self._tenant):
                _insert(target, batch)
                done += len(batch.rows)
                self._report(done, total)
        if (adopted := find_meta(source.session, "embedder")) is not None:
            set_meta(target.session, "embedder", adopted)
        if keys := key_rows(source.session):
            # Sealed rows are copied as they are, and the copy has the same keys.
            drop_key_rows(target.session)
            for key, value in keys:
                set_meta(target.session, key, value)
        compared = self._compare(source, target, total)
        if not all(table.is_equal for table in compared):
            raise _Differs(compared)
        self._target.advance_sequences(target.session)
        return compared

    def _count(self, session: Session) -> int:
        return sum(
            _scalar(session, *_selected(session, f"SELECT count(*) FROM {t.name}", t, self._tenant)) for t in TABLES
        )

    def _compare(self, source: SqlUnit, target: SqlUnit, total: int) -> list[ComparedTable]:
        """Reads both sides in turns, so that neither transaction is idle for long."""
        compared, done = [], 0
        for table in TABLES:
            here, there = _Digest(table), _Digest(table)
            for ours, theirs in zip_longest(
                read_batches(source, table, self._tenant), read_batches(target, table, None)
            ):
                here.add(ours)
                there.add(theirs)
                done += 0 if ours is None else len(ours.rows)
                self._report(done, total)
            compared.append(ComparedTable(here.result(), there.result()))
        return compared


class _Batch(NamedTuple):
    """Rows of one table as the target gets them, and the terms of those that are in the full-text index, by key."""

    table: Table
    rows: list[Row]
    terms: Mapping[int, Sequence[str]]


def read_batches(unit: SqlUnit, table: Table, tenant: str | None) -> Iterator[_Batch]:
    after: Sequence[Value] | None = None
    primary = ", ".join(table.primary)
    while True:
        sql, values = _selected(unit.session, f"SELECT {', '.join(table.columns)} FROM {table.name}", table, tenant)
        if after is not None:
            joint = "AND" if values else "WHERE"
            sql = f"{sql} {joint} ({primary}) > ({', '.join('?' * len(after))})"
            values = [*values, *after]
        rows = unit.session.rows(f"{sql} ORDER BY {primary} LIMIT {BATCH_ROWS}", values)
        if not rows:
            return
        terms: Mapping[int, Sequence[str]] = {}
        if table.name == "entry":
            status = table.columns.index("status")
            terms = unit.text.find([row[0] for row in rows if row[status] == Status.ACTIVE.value])
        yield _Batch(table, [_moved(table, row) for row in rows], terms)
        after = table.primary_of(rows[-1])


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
