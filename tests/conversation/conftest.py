"""A real memory with a clock and vectors that tests decide."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from controlled_store import Stage
from spoken import OpenMemory, Told

import afterturn
from afterturn.testing.clock import ManualClock
from afterturn.testing.hashing import HashingEmbedder


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stage(tmp_path: Path, told: Told, clock: ManualClock) -> Stage:
    return Stage(tmp_path / "memory.db", told, clock)


@pytest.fixture
def open_memory(tmp_path: Path, told: Told, clock: ManualClock) -> OpenMemory:
    def opened(**config: object) -> afterturn.Memory:
        parts = afterturn.Components(embedder=HashingEmbedder(), clock=clock)
        settings = {"grace": 5.0, **config}
        return afterturn.open(tmp_path / "memory.db", settings, on_event=told, components=parts)

    return opened


@pytest.fixture
async def memory(open_memory: OpenMemory) -> AsyncIterator[afterturn.Memory]:
    async with open_memory() as opened:
        await opened.ready()
        yield opened
