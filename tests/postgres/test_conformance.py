"""The conformance suite on PostgreSQL."""

from collections.abc import AsyncIterator, Callable
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
