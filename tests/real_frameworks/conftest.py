"""Real frameworks, each in an environment of its own. The tests run only with `-m frameworks`, by make test-frameworks.

With `--results FILE`, what the tests have shown is written there, for the table of docs/frameworks.md.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework_world import World

from lab.clients.model_server import ModelServer

_not_collected: list[str] = []
_shown: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, help="with -m frameworks: a file for what the tests have shown")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A framework that is not installed cannot even be imported."""
    if "frameworks" in (config.getoption("-m") or "").split() or not collection_path.name.startswith("test_"):
        return None
    _not_collected.append(collection_path.name)
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of the frameworks about their own code are not ours to mend."""
    for item in items:
        if item.get_closest_marker("frameworks") is not None:
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    for marker in item.iter_markers("shows"):
        if report.failed:
            _shown[marker.args[0]] = "failed"
        elif report.when == "call":
            _shown.setdefault(marker.args[0], "yes")
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if path := session.config.getoption("--results", default=None):
        path.write_text(json.dumps(_shown, indent=1) + "\n", encoding="utf-8")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _not_collected:
        terminalreporter.section("tests of real frameworks were NOT run: make test-frameworks", sep="!", red=True)
        terminalreporter.write_line(" ".join(sorted(set(_not_collected))))


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def open_world(tmp_path: Path, model_server: ModelServer) -> Iterator[Callable[..., World]]:
    """Opens a memory with a model. `grace=0.2` is for a recall that is held back."""
    opened: list[World] = []

    def open_one(**options: float) -> World:
        opened.append(World(tmp_path, model_server, **options).__enter__())
        return opened[-1]

    yield open_one
    for world in opened:
        world.__exit__()


@pytest.fixture
def world(open_world: Callable[..., World]) -> World:
    return open_world()
