"""The conformance suite on PostgreSQL."""

from collections.abc import AsyncIterator

import pytest

from afterturn.config import Config, StoreUrl
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
