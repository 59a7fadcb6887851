"""A fresh store of the engine's own small schema, closed again whatever the test did."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from plain import WAIT, plain_store

from afterturn.stores.sqlite.store import SqliteStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = plain_store(tmp_path / "memory.db")
    yield opened
    await opened.close(within=WAIT)
