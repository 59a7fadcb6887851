"""A user whose hooks run, with a helper of their own or one for all tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hooked import Hooks


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[Hooks]:
    made = Hooks(tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooks]:
    """A helper that all tests of a module share, each with sessions of its own."""
    made = Hooks(tmp_path_factory.mktemp("warm"))
    made.warm()
    yield made
    made.stop()
