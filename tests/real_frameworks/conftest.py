"""Real frameworks, each in an environment of its own. The tests run only with `-m frameworks`, by make test-frameworks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.clients.model_server import ModelServer

_not_collected: list[str] = []


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A framework that is not installed cannot even be imported."""
    if "frameworks" in (config.getoption("-m") or "").split() or not collection_path.name.startswith("test_"):
        return None
    _not_collected.append(collection_path.name)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _not_collected:
        terminalreporter.section("tests of real frameworks were NOT run: make test-frameworks", sep="!", red=True)
        terminalreporter.write_line(" ".join(sorted(_not_collected)))


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server
