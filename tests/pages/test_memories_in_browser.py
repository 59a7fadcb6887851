"""Memories, the inbox and people in a real browser: what a person clicks is in the store and in the next block."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from afterturn import blocking
from afterturn.types import Filter
from conftest import Inspector
from lab.pages.browser import serving_pages

pytestmark = [pytest.mark.pages, pytest.mark.timeout(600)]

_numbers = count(1)
# Each would call window.executed, if it were anything but text.
HOSTILE = (
    "<script>window.executed=1</script>",
    '"><img src=x onerror=window.executed=1>',
    "'><svg onload=window.executed=1>",
    "</textarea><script>window.executed=1</script>",
    "</title><script>window.executed=1</script>",
    "<details open ontoggle=window.executed=1>",
    "javascript:window.executed=1",
    "{{ ''.__class__ }}{% for a in b %}",
    "<iframe srcdoc='<script>parent.executed=1</script>'>",
    "<a href=javascript:window.executed=1 autofocus onfocus=window.executed=1>",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store") / "memory.db"


@pytest.fixture(scope="module")
def memory(store: Path) -> Iterator[blocking.Memory]:
    """The store of the server, as another process sees it."""
    with blocking.open(store, {"rules": False, "embedder": "none", "background": False}) as memory:
        yield memory


@pytest.fixture(scope="module")
def inspector(memory: blocking.Memory, store: Path, chromium: Browser) -> Iterator[Inspector]:
    settings = {"AFTERTURN_RULES": "false", "AFTERTURN_EMBEDDER": "none"}
    with serving_pages(store, AFTERTURN_STATE=str(store.parent / "state"), **settings) as link:
        yield Inspector(chromium, store, link)


@pytest.fixture
def page(inspector: Inspector) -> Iterator[Page]:
    page = inspector.page("/about")
    page.set_default_timeout(20_000)
    yield page
    page.context.close()
    assert inspector.problems == []


@pytest.fixture
def ada(memory: blocking.Memory) -> blocking.Space:
    """A space that no other test has."""
    return memory.space(f"user:ada-{next(_numbers)}")


def texts(space: blocking.Space) -> list[str]:
    return [one.text for one in space.list(filter=Filter(kind="statement"))]


def next_block(memory: blocking.Memory, space: blocking.Space, question: str) -> str:
    """What a model is given in the first turn of a new conversation."""
    messages = [{"role": "user", "content": question}]
    with memory.conversation("next", owner=space.name, standing="off").turn(messages) as turn:
        turn.inject(messages, within=20)
        turn.abort("only looking")
    return str(messages[1:])


def open_memory(page: Page, space: blocking.Space, text: str) -> None:
    page.goto(f"/memories?space={space.name}")
    page.get_by_role("link", name=text).click()
    page.get_by_text("Fix", exact=False).first.click()


class TestFixing:
    def test_edit_is_in_the_next_block_until_it_is_undone(
        self, page: Page, memory: blocking.Memory, ada: blocking.Space
    ):
        ada.add("Ada's cat Miso eats beef")
        open_memory(page, ada, "Ada's cat Miso eats beef")
        page.get_by_label("Edit").fill("Ada's cat Miso eats salmon")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_contain_text("Saved.")
        expect(page.locator(".history del")).to_have_text("beef")
        assert texts(ada) == ["Ada's cat Miso eats salmon"]
        assert "salmon" in next_block(memory, ada, "What does my cat Miso eat?")
        page.get_by_role("status").get_by_role("button", name="Undo").click()
        expect(page.get_by_role("status")).to_contain_text("Undone.")
        assert "beef" in next_block(memory, ada, "What does my cat Miso eat?")

    def test_outdated_with_a_new_value(self, page: Page, memory: blocking.Memory, ada: blocking.Space):
        ada.add("The office is in Turin")
        open_memory(page, ada, "The office is in Turin")
        page.get_by_label("Outdated").fill("The office is in Bergen")
        page.get_by_role("button", name="Replace").click()
        expect(page.get_by_role("status")).to_contain_text("Replaced.")
        block = next_block(memory, ada, "Where is the office?")
        assert "Bergen" in block
        assert "Turin" not in block

    def test_what_is_not_to_be_brought_up_again_is_in_no_block(
        self, page: Page, memory: blocking.Memory, ada: blocking.Space
    ):
        ada.add("The office is in Turin")
        open_memory(page, ada, "The office is in Turin")
        page.get_by_role("button", name="bring this up again").click()
        expect(page.get_by_role("status")).to_be_visible()
        assert "Turin" not in next_block(memory, ada, "Where is the office?")
        page.get_by_role("status").get_by_role("button", name="Undo").click()
        expect(page.get_by_role("status")).to_contain_text("Undone.")
        assert "Turin" in next_block(memory, ada, "Where is the office?")

    def test_pin_is_in_the_standing_block(self, page: Page, memory: blocking.Memory, ada: blocking.Space):
        ada.add("The office is in Turin")
        open_memory(page, ada, "The office is in Turin")
        page.get_by_role("button", name="Pin").click()
        expect(page.locator(".labels")).to_contain_text("pinned")
        page.goto(f"/about/{ada.name}")
        expect(page.get_by_label("The standing block")).to_contain_text("The office is in Turin")
        assert "Turin" in memory.conversation("new", owner=ada.name).standing().block()

    def test_forget_shows_what_goes_first(self, page: Page, memory: blocking.Memory, ada: blocking.Space):
        ada.add("The office is in Turin")
        open_memory(page, ada, "The office is in Turin")
        page.get_by_role("link", name="Forget").click()
        expect(page.get_by_role("main")).to_contain_text("The office is in Turin")
        page.get_by_role("button", name="Forget").click()
        expect(page.get_by_role("main")).to_contain_text("1 entry")
        assert "Turin" not in next_block(memory, ada, "Where is the office?")
        assert ada.stats()["entries"] == {}


class TestTable:
    def test_the_actions_appear_with_the_choice(self, page: Page, ada: blocking.Space):
        for text in ("Ada likes tea", "Ada likes jazz", "Ada likes bees"):
            ada.add(text)
        page.goto(f"/memories?space={ada.name}")
        expect(page.get_by_role("button", name="Outdated")).to_be_hidden()
        page.get_by_label("Choose “Ada likes tea”").check()
        page.get_by_label("Choose “Ada likes jazz”").check()
        page.get_by_role("button", name="Outdated").click()
        expect(page.get_by_role("status")).to_contain_text("2 memories")
        assert texts(ada) == ["Ada likes bees"]
        page.keyboard.press("u")
        expect(page.get_by_role("status")).to_contain_text("Undone.")
        assert len(texts(ada)) == 3

    def test_filters_apply_when_they_are_chosen(self, page: Page, ada: blocking.Space):
        ada.add("Ada likes tea")
        ada.add("A page says that Ada likes coffee", origin="web")
        page.goto(f"/memories?space={ada.name}")
        page.get_by_label("Origin").select_option("web")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.locator("tbody")).to_contain_text("coffee")
        page.keyboard.press("/")
        page.keyboard.type("coffee")
        page.keyboard.press("Enter")
        expect(page.locator("tbody tr")).to_have_count(1)
        assert "q=coffee" in page.url


class TestInboxKeys:
    def test_each_key_is_announced_and_decides(self, page: Page, memory: blocking.Memory, ada: blocking.Space):
        for text in ("Ada wants short answers", "Ada wants tables", "Ada wants rhymes"):
            ada.add(text, origin="agent", metadata={"kind": "preference"})
        page.goto(f"/inbox?space={ada.name}")
        expect(page.locator("#keys")).to_contain_text("approve")
        current = page.locator(".proposal.current")
        expect(current).to_contain_text("rhymes")
        page.keyboard.press("r")
        expect(page.get_by_role("status")).to_contain_text("Rejected.")
        page.keyboard.press("u")
        expect(current).to_contain_text("rhymes")
        page.keyboard.press("r")
        expect(current).to_contain_text("tables")
        page.keyboard.press("e")
        page.keyboard.type("Ada wants small tables")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(current).to_contain_text("short answers")
        page.keyboard.press("a")
        expect(page.get_by_role("main")).to_contain_text("Nothing waits for you")
        assert sorted(texts(ada)) == ["Ada wants short answers", "Ada wants small tables"]
        block = memory.conversation("new", owner=ada.name).standing().block()
        assert "small tables" in block
        assert "rhymes" not in block

    def test_next_and_previous(self, page: Page, ada: blocking.Space):
        for text in ("Ada wants short answers", "Ada wants tables"):
            ada.add(text, origin="agent", metadata={"kind": "preference"})
        page.goto(f"/inbox?space={ada.name}")
        current = page.locator(".proposal.current")
        page.keyboard.press("j")
        expect(current).to_contain_text("short answers")
        page.keyboard.press("k")
        expect(current).to_contain_text("tables")


class TestForgettingSomebody:
    def test_the_wizard_ends_in_a_receipt(self, page: Page, memory: blocking.Memory, ada: blocking.Space):
        ada.add("The office is in Turin")
        page.goto(f"/about/{ada.name}")
        page.get_by_role("link", name="Forget").click()
        page.get_by_role("button", name="Preview").last.click()
        expect(page.get_by_role("main")).to_contain_text("What is out of reach")
        page.get_by_label("to confirm").fill(ada.name)
        page.get_by_role("button", name="Forget for good").click()
        expect(page.get_by_role("heading", name="Forgotten")).to_be_visible()
        expect(page.get_by_role("main")).to_contain_text("No key was destroyed.")
        assert "Turin" not in next_block(memory, ada, "Where is the office?")


def every_page(memory: blocking.Memory, space: blocking.Space) -> list[str]:
    """Addresses of all pages of these modules, with something on each."""
    added = space.add("Ada lives in Turin")
    space.update(added.entry.id, "Ada lives in Bergen")
    space.add("Ada wants short answers", origin="agent", metadata={"kind": "preference"})
    space.add("A page says that Ada likes coffee", origin="web")
    messages = [{"role": "user", "content": "My cat Miso is allergic to chicken."}]
    with memory.conversation("talk", owner=space.name).turn(messages) as turn:
        messages.append({"role": "assistant", "content": "Poor Miso!"})
    assert turn.wait_recorded()
    said = next(one for one in space.list() if "Miso" in one.text)
    learned = space.add("Miso must not eat chicken", sources=[said.id], conversation="talk")
    return [
        f"/memories?space={space.name}",
        f"/memories?space={space.name}&kind=both&state=any",
        "/memories?space=user:nobody-at-all",
        f"/memories/{added.entry.id}?space={space.name}",
        f"/memories/{learned.entry.id}?space={space.name}",
        f"/memories/{said.id}?space={space.name}",
        f"/forget?space={space.name}&memory={learned.entry.id}",
        f"/inbox?space={space.name}",
        "/inbox?space=user:nobody-at-all",
        "/about",
        f"/about/{space.name}",
        f"/forget/space?space={space.name}",
        f"/forget/space?space={space.name}&what=everything",
    ]


class TestEverybodyCanReadThem:
    @pytest.mark.parametrize("width", ["narrow", "wide"])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_axe_has_no_serious_finding_and_nothing_overflows(
        self, inspector: Inspector, memory: blocking.Memory, ada: blocking.Space, width: str, scheme: str
    ):
        page = inspector.page("/about", width, scheme)
        for address in every_page(memory, ada):
            page.goto(address)
            page.evaluate("for (const menu of document.querySelectorAll('details')) menu.open = true")
            found = Axe().run(page)
            serious = [one for one in found.response["violations"] if one["impact"] in ("serious", "critical")]
            assert serious == [], (address, found.generate_report())
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address


class TestHostileTexts:
    def test_nothing_is_executed_in_any_field(self, page: Page, memory: blocking.Memory, ada: blocking.Space):
        addresses = every_page(memory, ada)
        for number, text in enumerate(HOSTILE):
            name = text[:80]
            fields: Any = {"project": name, "agent": name, "speaker": name, "conversation": name}
            added = ada.add(f"{number} {text}", **fields, metadata={"kind": text})
            ada.update(added.entry.id, f"{number} now {text}")
            ada.add(f"{number} wants {text}", origin="agent", metadata={"kind": "preference"}, **fields)
            messages = [{"role": "user", "content": f"{number} {text}"}]
            with memory.conversation(name, owner=ada.name, project=name, agent=name).turn(messages) as turn:
                turn.inject(messages, within=20)
                messages.append({"role": "assistant", "content": text})
            assert turn.wait_recorded()
            memory.space(f"project:{name}").add(f"{number} {text}")
            addresses += [
                f"/memories/{added.entry.id}?space={ada.name}",
                f"/memories?space={ada.name}&q={quote(text)}",
                f"/memories?space={ada.name}&project={quote(name)}",
                f"/about/{quote(f'project:{name}')}",
                f"/about/{ada.name}?agent={quote(name)}&project={quote(name)}",
                f"/inbox?at={quote(text)}",
                f"/forget/space?space={ada.name}&what=speaker&name={quote(name)}",
            ]
        visit(page, addresses)

    def test_texts_of_files_are_only_text(self, page: Page, memory: blocking.Memory, texts_of_files: list[str]):
        for start in range(0, len(texts_of_files), 50):
            space, addresses = memory.space(f"user:texts-{start}"), []
            for number, text in enumerate(texts_of_files[start : start + 50]):
                added = space.add(f"{number} {text}", metadata={"kind": text[:200]})
                space.update(added.entry.id, f"{number}, changed: {text}")
                space.add(f"{number} wants {text}", origin="agent", metadata={"kind": "preference"})
                addresses.append(f"/memories/{added.entry.id}?space={space.name}")
            addresses += [
                f"/memories?space={space.name}&kind=both&state=any",
                f"/inbox?space={space.name}",
                f"/about/{space.name}",
                f"/forget/space?space={space.name}&what=everything",
            ]
            visit(page, addresses)


def visit(page: Page, addresses: list[str]) -> None:
    """Opens each with all its menus. The fixture `page` checks that the console did not complain, either."""
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for address in addresses:
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == 200, address
        page.evaluate("for (const menu of document.querySelectorAll('details')) menu.open = true")
        assert page.evaluate("window.executed") is None, address
    assert dialogs == []
