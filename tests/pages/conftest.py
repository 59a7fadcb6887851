"""The pages in a real Chromium. The tests run only with `-m pages`, by make test-pages."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS = {"narrow": 360, "wide": 1440}
_HEIGHT = 900
_not_collected: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--texts", action="append", type=Path, default=[], help="with -m pages: JSON lines of hostile texts"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Playwright is only in the environment below .pages/."""
    if "pages" in (config.getoption("-m") or "").split() or not collection_path.name.startswith("test_"):
        return None
    _not_collected.append(collection_path.name)
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `--texts` there are no texts of files."""
    if config.getoption("--texts"):
        return
    chosen = [item for item in items if "texts_of_files" not in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


@pytest.fixture
def texts_of_files(request: pytest.FixtureRequest) -> list[str]:
    """Those of `--texts FILE`, JSON lines with a field "text"."""
    lines = [line for path in request.config.getoption("--texts") for line in path.read_text("utf-8").splitlines()]
    return [str(json.loads(line)["text"]) for line in lines]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _not_collected:
        terminalreporter.section("tests in a real browser were NOT run: make test-pages", sep="!", red=True)
        terminalreporter.write_line(" ".join(sorted(set(_not_collected))))


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    from lab.pages.browser import start_browser

    with sync_playwright() as playwright:
        browser = start_browser(playwright)
        yield browser
        browser.close()


class Inspector:
    """A server with its store, and a browser that is signed in. `problems` is what its console complains about."""

    def __init__(self, chromium: "Browser", store: Path, link: str) -> None:
        self.store = store
        self.url = link.partition("/login")[0]
        self.problems: list[str] = []
        self._chromium = chromium
        context = chromium.new_context()
        context.new_page().goto(link)
        self._state: Any = context.storage_state()
        context.close()

    def page(self, path: str = "/", width: str = "wide", scheme: Any = "light", script: bool = True) -> "Page":
        """A new page, without what another one has kept."""
        context = self._chromium.new_context(
            base_url=self.url,
            storage_state=self._state,
            viewport={"width": WIDTHS[width], "height": _HEIGHT},
            color_scheme=scheme,
            java_script_enabled=script,
            reduced_motion="reduce",
        )
        page = context.new_page()
        page.on("console", lambda message: self.problems.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: self.problems.append(f"{page.url}: {error}"))
        page.goto(path)
        return page


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, chromium: "Browser") -> Iterator[Inspector]:
    """A store with everything that a page can show."""
    from lab.pages.browser import serving_pages
    from lab.pages.world import build

    store = tmp_path_factory.mktemp("world") / "memory.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AFTERTURN_STATE", str(store.parent / "state"))
        # The browser's own loop runs in this thread.
        _in_thread(lambda: asyncio.run(build(store)))
        with serving_pages(store) as link:
            yield Inspector(chromium, store, link)


@pytest.fixture
def own(tmp_path: Path, chromium: "Browser", monkeypatch: pytest.MonkeyPatch) -> Iterator[Inspector]:
    """A store of the test's own, which is empty."""
    from lab.pages.browser import serving_pages

    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))
    with serving_pages(tmp_path / "memory.db") as link:
        yield Inspector(chromium, tmp_path / "memory.db", link)


def _in_thread(work: Callable[[], object]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
