"""The conformance suite on SQLite."""

import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from afterturn.config import Config
from afterturn.runtime.clock import SystemClock
from afterturn.stores.sqlite.store import SqliteStore, open_store
from afterturn.testing.clock import ManualClock

pytest.register_assert_rewrite("afterturn.testing.conformance")
from afterturn.testing.conformance import *  # noqa: E402, F403
from afterturn.testing.conformance.actions import ADA, SPACE, TENANT, forget  # noqa: E402
from afterturn.types import Selector  # noqa: E402


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = open_store(tmp_path / "memory.db", Config(synchronous="normal"), ManualClock())
    yield opened
    await opened.close(within=5.0)


@pytest.fixture
def waiting() -> threading.Event:
    return threading.Event()


@pytest.fixture
async def stores(tmp_path: Path, waiting: threading.Event) -> AsyncIterator[list[SqliteStore]]:
    opened = [open_store(tmp_path / "memory.db", Config(synchronous="normal"), SystemClock()) for _ in range(2)]
    pause = threading.Event()

    def wait_and_tell(tries: int) -> bool:
        waiting.set()
        pause.wait(0.01)
        return tries < 3_000

    opened[1].engine.writer.connection.set_busy_handler(wait_and_tell)
    yield opened
    for store in opened:
        await store.close(within=5.0)


@pytest.fixture
def is_waiting(waiting: threading.Event) -> Callable[[], bool]:
    return waiting.is_set


async def test_a_restore_does_not_take_the_count_of_forgets_back(store: SqliteStore, tmp_path: Path) -> None:
    """M2: what is forgotten after it is forgotten for turns that began before it, too."""
    await store.backup(tmp_path / "copy", progress=lambda done, total: None)
    for _ in range(3):
        await forget(store, Selector(conversation="talk"))
    under_way = await store.read(lambda unit: unit.conversations.forgets(TENANT), at=ADA)
    await store.restore(tmp_path / "copy", progress=lambda done, total: None)
    await forget(store, Selector(conversation="talk"))
    assert await store.read(
        lambda unit: unit.conversations.is_forgotten(TENANT, SPACE, conversation="talk", speakers=(), since=under_way),
        at=ADA,
    )
