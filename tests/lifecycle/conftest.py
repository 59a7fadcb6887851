"""A new store for each test, a log of memory's events, and child processes that end with the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from children import Child, StartChild

from afterturn.testing import EventLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def event_log() -> EventLog:
    return EventLog()


@pytest.fixture
def start(path: Path) -> Iterator[StartChild]:
    """Starts a child that runs the script on this test's store."""
    children: list[Child] = []

    def start_child(script: str, *arguments: object) -> Child:
        children.append(Child(script, path, *arguments))
        return children[-1]

    yield start_child
    for child in children:
        child.kill()
