"""Real clients from npm. The tests run only with `-m clients`, and write the table of docs/clients.md with `--page`."""

import pytest
from clients_page import CapabilityTable

from lab.clients.machine import Machine
from lab.clients.setup import install

TABLE = CapabilityTable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--page", action="store_true", help="with -m clients: write the table into docs/clients.md")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "clients" in (config.getoption("-m") or "").split():
        return
    chosen = [item for item in items if item.get_closest_marker("clients") is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    shown = item.get_closest_marker("shows")
    if shown is not None:
        assert isinstance(item, pytest.Function)
        TABLE.note(shown.args[0], item.callspec.params["client_name"], report)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--page", default=False):
        TABLE.write()


@pytest.fixture(scope="session", autouse=True)
def clients_from_npm(request: pytest.FixtureRequest) -> None:
    """Programs behind the proxy are installed where they are run."""
    if any(item.path.name != "test_proxied_programs.py" for item in request.session.items):
        install()


@pytest.fixture
def machine():
    with Machine() as opened:
        yield opened
