"""One space of a real memory, with a clock and vectors that tests decide."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import afterturn
from afterturn.testing.clock import ManualClock
from afterturn.testing.hashing import HashingEmbedder


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def memory(tmp_path: Path, clock: ManualClock) -> AsyncIterator[afterturn.Memory]:
    parts = afterturn.Components(embedder=HashingEmbedder(), clock=clock)
    async with afterturn.open(tmp_path / "memory.db", components=parts) as opened:
        await opened.ready()
        yield opened


@pytest.fixture
def ada(memory: afterturn.Memory) -> afterturn.Space:
    return memory.space("user:ada")
