"""Migrations of the schema: ordered steps under one lock, after which older programs are refused."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from afterturn.config import Config, StoreUrl
from afterturn.errors import StoreError, StoreLocked, StoreTooNew
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.stores.postgres import connection
from afterturn.stores.postgres.engine import PostgresEngine, open_engine
from afterturn.stores.postgres.schema import MIGRATIONS, Migration
from afterturn.testing.entries import admit, operation
from afterturn.types import Filter, Scope

pytestmark = pytest.mark.postgres

ADA = Scope("default", ("user:ada",))
RunSql = Callable[..., list[tuple[Any, ...]]]
OpenOne = Callable[..., PostgresEngine]
# A version that the program of today knows nothing of.
NEXT = Migration(
    """ALTER TABLE entry ADD COLUMN length BIGINT; UPDATE entry SET length = length(text);
    ALTER TABLE entry ALTER COLUMN length SET DEFAULT 0;
    CREATE TABLE novelty (tenant TEXT COLLATE "C" NOT NULL, key BIGINT PRIMARY KEY)""",
    isolated={"novelty": "tenant"},
)
NEWER = (*MIGRATIONS, NEXT)
BROKEN = (*NEWER, Migration("CREATE TABLE half (key BIGINT); INSERT INTO nowhere VALUES (1)"))


@pytest.fixture
def open_one(url: str) -> Iterator[OpenOne]:
    """Opens the store as another process would. All are closed after the test."""
    opened: list[PostgresEngine] = []

    def open_(migrations: tuple[Migration, ...] = MIGRATIONS) -> PostgresEngine:
        opened.append(open_engine(StoreUrl(url), Config(), SystemClock(), migrations=migrations))
        return opened[-1]

    yield open_
    for engine in opened:
        engine.close()


def add(text: str) -> Callable[[Unit], str]:
    made, admitted = operation(), admit(text)
    return lambda unit: unit.memories.add(made, admitted).entry.id


def texts(engine: PostgresEngine) -> list[str]:
    return sorted(entry.text for entry in engine.read_now(lambda unit: unit.memories.page(ADA, Filter(), limit=1000)))


def versions(url: str, run_sql: RunSql) -> list[int]:
    return [version for (version,) in run_sql(f"SELECT version FROM {StoreUrl(url).schema}.migration ORDER BY 1")]


def test_a_host_of_the_version_before_cannot_write_after_a_migration(
    url: str, run_sql: RunSql, open_one: OpenOne
) -> None:
    """C2: the server refuses the commit, whole; its turns wait in files. The rows are migrated."""
    older = open_one()
    older.write_now(add("Ada keeps bees"))
    newer = open_one(NEWER)
    with pytest.raises(StoreTooNew, match="Upgrade afterturn in this process"):
        older.write_now(add("Ada likes tea"))
    with pytest.raises(StoreTooNew, match="Upgrade afterturn"):
        open_one()
    newer.write_now(add("Ada plays chess"))
    assert texts(newer) == ["Ada keeps bees", "Ada plays chess"]
    schema = StoreUrl(url).schema
    assert run_sql(f"SELECT length FROM {schema}.entry ORDER BY length") == [(0,), (14,)]
    policies = f"SELECT policyname FROM pg_policies WHERE schemaname = '{schema}' AND tablename = 'novelty'"
    assert run_sql(policies) == [("tenant",)]


def test_processes_that_migrate_at_once_take_each_step_once(url: str, run_sql: RunSql, open_one: OpenOne) -> None:
    open_one().close()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(open_one, [NEWER] * 4))
    assert versions(url, run_sql) == [1, 2]


def test_a_failing_migration_leaves_the_store_at_its_version(url: str, run_sql: RunSql, open_one: OpenOne) -> None:
    older = open_one()
    with pytest.raises(StoreError):
        open_one(BROKEN)
    assert versions(url, run_sql) == [1]
    older.write_now(add("Ada keeps bees"))
    assert texts(open_one(NEWER)) == ["Ada keeps bees"]


def test_a_migration_that_cannot_lock_a_table_says_so_and_changes_nothing(
    url: str, server: Any, run_sql: RunSql, open_one: OpenOne, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_MIGRATION_LOCK_TIMEOUT", "50ms")
    older = open_one()
    with psycopg.connect(server.url().partition("?")[0]) as report:
        report.execute(f"SELECT count(*) FROM {StoreUrl(url).schema}.entry".encode())
        with pytest.raises(StoreLocked, match="End long transactions"):
            open_one(NEWER)
    older.write_now(add("Ada keeps bees"))
    open_one(NEWER)
    assert versions(url, run_sql) == [1, 2]
