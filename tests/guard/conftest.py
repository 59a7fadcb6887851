"""A real memory with a clock and vectors that tests decide, and secrets that no scanner can mistake."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

import afterturn
from afterturn.testing import EventLog
from afterturn.testing.clock import ManualClock
from afterturn.testing.hashing import HashingEmbedder

Opened = Callable[..., afterturn.Memory]


@pytest.fixture
def told() -> EventLog:
    return EventLog()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def opened(tmp_path: Path, told: EventLog, clock: ManualClock) -> Opened:
    """The same store each time, under other settings. Rules are off: what they learn is not what is tested here."""

    def open_memory(**config: object) -> afterturn.Memory:
        parts = afterturn.Components(embedder=HashingEmbedder(), clock=clock)
        settings = {"grace": 5.0, "rules": False, **config}
        return afterturn.open(tmp_path / "memory.db", settings, on_event=told, components=parts)

    return open_memory


@pytest.fixture
async def memory(opened: Opened) -> AsyncIterator[afterturn.Memory]:
    async with opened() as memory:
        await memory.ready()
        yield memory


@pytest.fixture
def ada(memory: afterturn.Memory) -> afterturn.Space:
    return memory.space("user:ada")
