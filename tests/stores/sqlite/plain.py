"""A unit of work with nothing but SQL, over one small table: the engine's tests need no repositories."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from afterturn.config import Config
from afterturn.runtime.clock import SystemClock
from afterturn.stores.sqlite.connection import Schema, StoreLocation
from afterturn.stores.sqlite.engine import Engine, open_place
from afterturn.stores.sqlite.session import ApswSession
from afterturn.stores.sqlite.store import SqliteStore

WAIT = 100.0
_FIRST = """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    INSERT INTO meta VALUES ('generation', 'first');
    CREATE TABLE tenant (name TEXT PRIMARY KEY, forgets INTEGER NOT NULL);
    CREATE TABLE item (value INTEGER PRIMARY KEY, text TEXT);
"""
SECOND = "ALTER TABLE item ADD COLUMN extra TEXT DEFAULT 'two'; UPDATE item SET text = 'migrated'"
THIRD = "CREATE TABLE more (a); INSERT INTO more SELECT value FROM item"
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


class Plain:
    def __init__(self, session: ApswSession) -> None:
        self.session = session
        self.flushed = False

    def flush(self) -> None:
        self.flushed = True


def place_at(
    path: Path, *, first: int = 1, migrations: Sequence[str] = (), vfs: str | None = None, **settings: Any
) -> StoreLocation:
    return StoreLocation(path, Config(**settings), SystemClock(), Schema(_FIRST, first, migrations), vfs)


def open_plain(path: Path, **settings: Any) -> Engine:
    return open_place(place_at(path, **settings), Plain)  # type: ignore[arg-type]


def plain_store(path: Path, **settings: Any) -> SqliteStore:
    return SqliteStore(open_plain(path, **settings))


def insert(value: int, text: str = "") -> Callable[[Any], int]:
    return lambda unit: unit.session.run("INSERT INTO item VALUES (?, ?)", (value, text))


def find(value: int, text: str) -> Callable[[Any], list[Any]]:
    return lambda unit: unit.session.rows("SELECT 1 FROM item WHERE (value, text) = (?, ?)", [value, text])


def values(unit: Any) -> list[int]:
    return [row[0] for row in unit.session.rows("SELECT value FROM item ORDER BY value")]


def integrity(unit: Any) -> str:
    return str(unit.session.row("PRAGMA integrity_check")[0])
