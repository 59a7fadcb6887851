"""The limit: a script that does nothing but commit ready-made rows, over the same two hops as a host's call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from afterturn.base.clock import SystemClock, TimeOrderedIds
from afterturn.base.config import Config
from afterturn.base.types import Draft, Status
from afterturn.guard.gate import Gate
from afterturn.stores.sql.rows import INSERT, new_entry, values_of
from afterturn.stores.sql.session import Value
from afterturn.stores.sqlite.connection import scalar
from afterturn.stores.sqlite.engine import open_engine

_SPACE = "user:bench"
_SPACE_KEY = 1
_OPERATION = "INSERT INTO operation (id, space_key, verb, actor, at, grp) VALUES (?, ?, ?, ?, ?, ?)"
_STEP = "INSERT INTO step (operation_seq, ordinal, entry_key, before, after) VALUES (?, ?, ?, ?, ?)"
_TERMS = "INSERT INTO entry_terms (rowid, terms) VALUES (?, ?)"
_FREQUENCY = (
    "INSERT INTO frequency (space_key, term, documents) VALUES (?, ?, 1) "
    "ON CONFLICT (space_key, term) DO UPDATE SET documents = frequency.documents + 1"
)
_FIGURES = "UPDATE space SET seq = seq + 1, documents = documents + 1, terms_total = terms_total + ? WHERE key = ?"
_CHANGE = "INSERT INTO change (space_key, seq, entry_key) VALUES (?, ?, ?)"
_JOB = (
    "INSERT INTO job (id, space_key, kind, payload, run_at) SELECT ?, ?, 'embed', '{}', ? WHERE NOT EXISTS "
    "(SELECT 1 FROM job WHERE space_key = ? AND kind = 'embed' AND payload = '{}' AND state = 'ready')"
)


@dataclass(frozen=True, slots=True)
class Ready:
    """One statement with every value of every row worked out."""

    entry: tuple[Value, ...]
    terms: str
    distinct: tuple[str, ...]
    total: int
    operation: str
    job: str
    at: float


def prepare(texts: Sequence[str]) -> list[Ready]:
    clock, ids = SystemClock(), TimeOrderedIds()
    gate = Gate(Config(), clock, ids)
    found: list[Ready] = []
    for text in texts:
        admitted = gate.admit(Draft(text))
        entry = new_entry(admitted, admitted.id, version=1, space=_SPACE, status=Status.ACTIVE)
        found.append(
            Ready(
                entry=values_of(entry, _SPACE_KEY),
                terms=" ".join((f"_{_SPACE_KEY}", *admitted.terms)),
                distinct=tuple(sorted(set(admitted.terms))),
                total=len(admitted.terms),
                operation=ids.new(),
                job=ids.new(),
                at=admitted.recorded_at,
            )
        )
    return found


class Bare:
    """One connection on one thread, synchronous=FULL, and a private loop in front of it."""

    def __init__(self, path: Path) -> None:
        open_engine(path, Config(), SystemClock()).close()
        self._connection = apsw.Connection(str(path))
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", "cache_size=-16384"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        self._connection.execute("INSERT INTO space (key, tenant, name) VALUES (?, 'default', ?)", (_SPACE_KEY, _SPACE))
        self._changes = 0
        self._writer = ThreadPoolExecutor(1, "bare-write")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bare", daemon=True)
        self._thread.start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    async def commit(self, batch: Sequence[Ready]) -> int:
        """From the host's loop to the private one, from there to the writing thread, and back."""
        return await self._bridged(self._on_loop(batch))

    def commit_now(self, batch: Sequence[Ready]) -> int:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        key = 0
        for ready in batch:
            key = self._insert(ready)
        execute("COMMIT")
        return key

    def import_now(self, batch: Sequence[Ready]) -> None:
        """As a script that has many rows would: one operation, and each table filled at once."""
        connection = self._connection
        first = batch[0]
        connection.execute("BEGIN IMMEDIATE")
        start = scalar(connection, "SELECT coalesce(max(key), 0) + 1 FROM entry")
        connection.executemany(INSERT, (ready.entry for ready in batch)).fetchall()
        connection.execute(_OPERATION, (first.operation, _SPACE_KEY, "import", "import", first.at, "bench"))
        operation = connection.last_insert_rowid()
        keyed = list(enumerate(batch, start))
        connection.executemany(_STEP, ((operation, at, key, None, "active") for at, (key, _) in enumerate(keyed)))
        connection.executemany(_TERMS, ((key, ready.terms) for key, ready in keyed))
        connection.executemany(_FREQUENCY, ((_SPACE_KEY, term) for _, ready in keyed for term in ready.distinct))
        connection.executemany(_FIGURES, ((ready.total, _SPACE_KEY) for ready in batch))
        connection.executemany(_CHANGE, ((_SPACE_KEY, self._next_change(), key) for key, _ in keyed))
        connection.execute(_JOB, (first.job, _SPACE_KEY, first.at, _SPACE_KEY))
        connection.execute("COMMIT")

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._writer.shutdown()
        self._connection.close()

    async def _on_loop(self, batch: Sequence[Ready]) -> int:
        return await self._loop.run_in_executor(self._writer, self.commit_now, batch)

    async def _bridged(self, work: Coroutine[Any, Any, int]) -> int:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _insert(self, ready: Ready) -> int:
        connection = self._connection
        execute = connection.execute
        execute(INSERT, ready.entry).fetchall()
        key = connection.last_insert_rowid()
        execute(_OPERATION, (ready.operation, _SPACE_KEY, "add", "user", ready.at, None))
        execute(_STEP, (connection.last_insert_rowid(), 0, key, None, "active"))
        execute(_TERMS, (key, ready.terms))
        connection.executemany(_FREQUENCY, [(_SPACE_KEY, term) for term in ready.distinct])
        execute(_FIGURES, (ready.total, _SPACE_KEY))
        execute(_CHANGE, (_SPACE_KEY, self._next_change(), key))
        execute(_JOB, (ready.job, _SPACE_KEY, ready.at, _SPACE_KEY))
        return key

    def _next_change(self) -> int:
        self._changes += 1
        return self._changes


@contextmanager
def bare(path: Path) -> Iterator[Bare]:
    script = Bare(path)
    try:
        yield script
    finally:
        script.close()
