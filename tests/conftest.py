"""Shared by all tests: reproducible examples, isolated settings, and a report of the tests that did not run."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from afterturn.conversation.blocking_conversation import Turn as BlockingTurn
from afterturn.conversation.turn import Turn
from afterturn.log import rate_limit
from afterturn.maintenance import Maintenance
from afterturn.testing import EventLog
from interrupts import restore_interrupts
from unit_scopes import checked_scopes, take_writes_outside

# The same examples on every run; `pytest --hypothesis-profile=explore` looks for new ones.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")

restore_interrupts()

# Only what hangs reaches it; less than the timeout of a test.
WAIT = 100.0

_MEMORY_FOLDER = "/dev/shm"
_MEMORY_BYTES = 2 << 30

_not_run: set[str] = set()


def _write_files_into_memory() -> None:
    """Most tests create a store, which takes 40 ms on a busy disk and 4 ms in memory. TMPDIR chooses another folder."""
    if "TMPDIR" in os.environ or not os.access(_MEMORY_FOLDER, os.W_OK):
        return
    place = os.statvfs(_MEMORY_FOLDER)
    if place.f_bavail * place.f_frsize >= _MEMORY_BYTES and not place.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY_FOLDER


_write_files_into_memory()


@pytest.fixture(autouse=True, scope="session")
def _settings_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No AFTERTURN_ variable, settings file or default store of the developer's reaches a test or its children."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AFTERTURN_")]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        patch.setenv("XDG_DATA_HOME", str(home / "data"))
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        yield


@pytest.fixture(autouse=True)
def _standing_where_it_is_tested(request: pytest.FixtureRequest) -> Iterator[None]:
    """A statement that stands is not recalled, so tests of recall switch off what brings the standing block by itself.

    Tests marked `standing` run with the default, and so do all that show what users see: docs, examples, evaluations.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("standing") is None:
            patch.setenv("AFTERTURN_STANDING", "false")
        yield


@pytest.fixture(autouse=True)
def _patience(request: pytest.FixtureRequest) -> Iterator[None]:
    """Calls without a limit of their own wait for what is to happen, however busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        # Which compares the real limits with the pages of docs/.
        if request.module.__name__ != "test_docs":
            patch.setattr(Turn.wait_recorded, "__defaults__", (WAIT,))
            patch.setattr(BlockingTurn.wait_recorded, "__defaults__", (WAIT,))
            for wait in (Maintenance.ready, Maintenance.drain):
                patch.setattr(wait, "__kwdefaults__", {**(wait.__kwdefaults__ or {}), "within": WAIT})
            patch.setattr(EventLog.wait, "__defaults__", (1, WAIT))
        yield


@pytest.fixture(autouse=True, scope="session")
def _scopes() -> Iterator[None]:
    with checked_scopes():
        yield


@pytest.fixture(autouse=True)
def _units_write_where_they_say() -> Iterator[None]:
    yield
    assert take_writes_outside() == []


@pytest.fixture(autouse=True)
def _log_of_its_own() -> None:
    """A warning that an earlier test has caused is logged again."""
    rate_limit.reset()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first: one that began last would leave the other process without work."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    _not_run.update(item.nodeid for item in items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Only the processes of xdist collect tests, so they hand their lists to the one that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["not_run"] = sorted(_not_run)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _not_run.update(getattr(node, "workeroutput", {}).get("not_run", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _not_run:
        return
    terminalreporter.section(f"{len(_not_run)} tests were NOT run", sep="!", red=True, bold=True)
    for path, count in sorted(Counter(test.partition("::")[0] for test in _not_run).items()):
        terminalreporter.write_line(f"{count:5}  {path}")
