"""The conformance suite on a sealed SQLite store: with keys, every promise of a store holds as without."""

import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from afterturn.config import Config
from afterturn.ports import Clock, Unit
from afterturn.runtime.clock import SystemClock
from afterturn.stores.keys import FolderKeys
from afterturn.stores.sql.unit import SqlUnit
from afterturn.stores.sqlite.store import SqliteStore, open_store
from afterturn.testing.clock import ManualClock

pytest.register_assert_rewrite("afterturn.testing.conformance")
from afterturn.testing import conformance  # noqa: E402
from afterturn.testing.conformance import *  # noqa: E402, F403
from afterturn.testing.conformance.actions import ADA, SPACE, TENANT  # noqa: E402


class TestStats(conformance.TestStats):  # type: ignore[no-redef]
    # Hypothesis refuses a property that two modules have.
    test_figures_equal_a_fresh_count = None  # type: ignore[assignment]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = _open(tmp_path, ManualClock())
    yield opened
    await opened.close(within=5.0)


@pytest.fixture
def waiting() -> threading.Event:
    return threading.Event()


@pytest.fixture
async def stores(tmp_path: Path, waiting: threading.Event) -> AsyncIterator[list[SqliteStore]]:
    opened = [_open(tmp_path, SystemClock()) for _ in range(2)]
    pause = threading.Event()

    def wait_and_tell(tries: int) -> bool:
        waiting.set()
        pause.wait(0.01)
        return tries < 3_000

    for store in opened:
        # The tests put units into an order. One that has to wait for a key would lose its place.
        await store.write(find_space_key, at=ADA)
    opened[1].engine.writer.connection.set_busy_handler(wait_and_tell)
    yield opened
    for store in opened:
        await store.close(within=5.0)


@pytest.fixture
def is_waiting(waiting: threading.Event) -> Callable[[], bool]:
    return waiting.is_set


def find_space_key(unit: Unit) -> str:
    assert isinstance(unit, SqlUnit)
    assert unit.sealer is not None
    return unit.sealer.get(TENANT, SPACE).key_id


def _open(folder: Path, clock: Clock) -> SqliteStore:
    keys = FolderKeys(folder / "keys")
    return open_store(folder / "memory.db", Config(synchronous="normal"), clock, keys=keys)
