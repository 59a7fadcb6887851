"""The conformance suite on PostgreSQL."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from afterturn.config import Config, StoreUrl
from afterturn.runtime.clock import SystemClock
from afterturn.stores.postgres.store import PostgresStore, open_store
from afterturn.testing.clock import ManualClock

pytest.register_assert_rewrite("afterturn.testing.conformance")
from afterturn.testing.conformance import *  # noqa: E402, F403

pytestmark = pytest.mark.postgres


@pytest.fixture
def url(module_url: str, run_sql: Callable[..., list[tuple[Any, ...]]]) -> Iterator[str]:
    """Empty tables, whose keys begin at 1 again. Creating and dropping a schema takes longer than a test."""
    yield module_url
    schema = StoreUrl(module_url).schema
    tables = run_sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename <> 'migration'")
    kept = {"meta": " WHERE key <> 'generation'"}
    deletes = (f"DELETE FROM {schema}.{table}{kept.get(table, '')}" for (table,) in tables)
    sequences = run_sql(f"SELECT sequencename FROM pg_sequences WHERE schemaname = '{schema}'")
    restarts = (f"SELECT setval('{schema}.{name}', 1, false)" for (name,) in sequences)
    # Without the order that foreign keys need.
    run_sql("; ".join(("SET session_replication_role = replica", *deletes, *restarts)))


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    opened = open_store(StoreUrl(url), Config(), ManualClock())
    yield opened
    await opened.close(within=5.0)


@pytest.fixture
async def stores(url: str) -> AsyncIterator[list[PostgresStore]]:
    opened = [open_store(StoreUrl(url), Config(), SystemClock()) for _ in range(2)]
    yield opened
    for store in opened:
        await store.close(within=5.0)


@pytest.fixture
def is_waiting(run_sql: Callable[..., list[tuple[Any, ...]]]) -> Callable[[], bool]:
    return lambda: bool(run_sql("SELECT 1 FROM pg_locks WHERE NOT granted"))
