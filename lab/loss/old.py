"""Writes stores with the schemas of earlier versions, for migrations that are killed."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from afterturn.config import Config
from afterturn.runtime.clock import SystemClock
from afterturn.stores.sql.session import Value
from afterturn.stores.sqlite.connection import StoreLocation
from afterturn.stores.sqlite.engine import open_place
from afterturn.stores.sqlite.schema import AFTER, MIGRATIONS
from afterturn.stores.sqlite.session import ApswSession

ROWS = 50
_CONVERSATIONS = 2
_ENTRY: dict[str, Value] = {
    "version": 1,
    "space_key": 1,
    "kind": "statement",
    "status": "active",
    "target": "user",
    "origin": "user",
    "trust": 100,
    "occurred_at": 1.0,
    "recorded_at": 1.0,
    "pinned": 0,
    "metadata": "{}",
    "reason": "",
    "has_sources": 0,
}


def write_old_store(path: Path, version: int) -> None:
    """Writes `ROWS` statements to the space "user:old", each made by an operation, with the schema of `version`.

    From the second version on, a conversation shows all of them.
    """
    place = StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:version])
    engine = open_place(place, partial(_Fill, version=version))  # type: ignore[arg-type]
    engine.write_now(lambda unit: None)
    engine.close()


@dataclass(slots=True)
class _Fill:
    """Replaces the repositories, which know only the newest schema."""

    session: ApswSession
    version: int

    def flush(self) -> None:
        self._write_entries()
        if self.version >= _CONVERSATIONS:
            self._write_conversation()
        for step, derive in AFTER.items():
            if step <= self.version:
                derive(self.session)

    def _write_conversation(self) -> None:
        self.session.run("INSERT INTO conversation (key, space_key, id, opened_at, active_at) VALUES (1, 1, 'c', 1, 1)")
        self.session.run(
            "INSERT INTO turn (conversation_key, id, status, started_at, touched_at, user_hash) "
            "VALUES (1, 'old-turn', 'open', 1, 1, 'hash')"
        )
        self.session.run(
            "INSERT INTO block (conversation_key, hash, turn, size_bytes, injected_at) "
            "VALUES (1, 'hash', 'old-turn', 9, 1)"
        )
        self.session.run_many(
            "INSERT INTO block_ref (conversation_key, hash, ordinal, ref) VALUES (1, 'hash', ?, ?)",
            [(key, f"old{key}") for key in range(1, ROWS + 1)],
        )

    def _write_entries(self) -> None:
        self.session.run("INSERT INTO space (key, tenant, name) VALUES (1, 'default', 'user:old')")
        columns = [*_ENTRY, "key", "id", "text", "content_hash"]
        marks = ", ".join("?" for _ in columns)
        self.session.run_many(
            f"INSERT INTO entry ({', '.join(columns)}) VALUES ({marks})",
            [(*_ENTRY.values(), key, f"old{key}", f"label{key} green tea", f"hash{key}") for key in range(1, ROWS + 1)],
        )
        self.session.run_many(
            "INSERT INTO operation (seq, id, space_key, verb, actor, at) VALUES (?, ?, 1, 'add', 'user', 1.0)",
            [(key, f"operation{key}") for key in range(1, ROWS + 1)],
        )
        self.session.run_many(
            "INSERT INTO step (operation_seq, ordinal, entry_key, after) VALUES (?, 0, ?, 'active')",
            [(key, key) for key in range(1, ROWS + 1)],
        )
