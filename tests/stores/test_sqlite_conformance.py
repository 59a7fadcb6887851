"""The conformance suite on SQLite."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from afterturn.config import Config
from afterturn.stores.sqlite.store import SqliteStore, open_store
from afterturn.testing.clock import ManualClock

pytest.register_assert_rewrite("afterturn.testing.conformance")
from afterturn.testing.conformance import *  # noqa: E402, F403


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = open_store(tmp_path / "memory.db", Config(synchronous="normal"), ManualClock())
    yield opened
    await opened.close(within=5.0)
