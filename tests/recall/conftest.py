"""A real store for each test, or for all examples of one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from library import Library


@pytest.fixture(scope="module")
def lasting_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """For examples that each have a space of their own."""
    searcher = Library(tmp_path_factory.mktemp("lasting") / "memory.db")
    yield searcher
    searcher.close()


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    searcher = Library(tmp_path / "memory.db")
    yield searcher
    searcher.close()
