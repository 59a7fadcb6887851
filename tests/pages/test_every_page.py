"""What holds for Live, Turn, Health and errors: axe, widths, light and dark, weight, hostile texts in every field."""

import re
from typing import Any

import pytest
from agent import agent_on
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from afterturn import blocking
from conftest import Inspector

pytestmark = [pytest.mark.pages, pytest.mark.timeout(1200)]

CONVERSATIONS = ("first-day", "heron-migrations", "spring-dinner", "private-question", "heron-release")
WEIGHT_MAX = 150_000
# Texts that become more than text wherever one place forgets to escape them.
HOSTILE = (
    "<script>window.executed=1</script>",
    '"><img src=x onerror=window.executed=1>',
    "'><svg/onload=window.executed=1>",
    "</textarea></title></style></script><script>window.executed=1</script>",
    "<iframe srcdoc='<script>parent.executed=1</script>'></iframe>",
    "<a href=javascript:window.executed=1 id=x tabindex=1 autofocus onfocus=window.executed=1>x</a>",
    "javascript:window.executed=1//",
    "<details open ontoggle=window.executed=1><summary>x</summary></details>",
    "<base href=//evil.example/><link rel=stylesheet href=//evil.example/x>",
    "<meta http-equiv=refresh content='0;url=javascript:window.executed=1'>",
    "<form action=//evil.example><button autofocus>x</button></form>",
    "{{ ''.__class__.__mro__ }}{% for x in y %}${window.executed=1}",
    "\u202e<scr\u200bipt>window.executed=1</scr\u200bipt>\u2066",
    "&lt;script&gt;window.executed=1&lt;/script&gt;&#x3c;img onerror=1&#x3e;",
    "]]><!--<script>window.executed=1</script>-->\nevent: row\ndata: {}\n\n",
)


@pytest.fixture(scope="module")
def paths(world: Inspector) -> list[str]:
    with blocking.open(world.store, {"embedder": "none", "background": False}) as memory:
        turns = [
            f"/turns/{one.turn.id}?owner=user:ada&conversation={id}"
            for id in CONVERSATIONS
            for one in memory.conversation(id, owner="user:ada").trace().turns
        ]
    what_if = f"{turns[-6]}&what_if=yes"
    replays = [f"{what_if}&recall_score_min=0.5", f"{what_if}&as_of=2026-01-01&lane=long_term", f"{turns[-6]}&all=yes"]
    return ["/", "/?show=failed", "/?space=team:support", "/health", "/nowhere", *turns, *replays]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["narrow", "wide"])
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_window(
    world: Inspector, paths: list[str], width: str, scheme: str
):
    page = world.page("/", width, scheme)
    axe = Axe()
    for path in paths:
        page.goto(path)
        page.evaluate("for (const menu of document.querySelectorAll('details')) menu.open = true")
        found = [one for one in axe.run(page).response["violations"] if one["impact"] in ("serious", "critical")]
        assert found == [], path
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_no_page_with_its_files_weighs_more_than_150_kilobytes(world: Inspector, paths: list[str]):
    heaviest = {}
    for path in paths:
        page = world.page("about:blank")
        sizes: list[int] = []
        page.on("requestfinished", lambda request, sizes=sizes: sizes.append(request.sizes()["responseBodySize"]))
        page.goto(path)
        page.wait_for_load_state("load")
        heaviest[path] = sum(sizes)
        page.context.close()
    assert max(heaviest.values()) <= WEIGHT_MAX, heaviest
    print("the heaviest page:", max(heaviest.values()))


def test_every_page_can_be_walked_with_the_keyboard(world: Inspector, paths: list[str]):
    page = world.page("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_the_console_of_the_browser_stays_empty(world: Inspector, paths: list[str]):
    """A policy that forbids something of ours would say so there."""
    world.problems.clear()
    page = world.page("/")
    for path in paths:
        page.goto(path)
    assert [one for one in world.problems if "/nowhere" not in one] == []


def test_another_site_can_neither_frame_a_page_nor_send_a_form_to_it(own: Inspector):
    with agent_on(own.store) as agent:
        id = agent.ada.add("My cat Miso is allergic to chicken.").entry.id
        page = own.page("about:blank")
        page.set_content(f'<iframe src="{own.url}/health"></iframe>')
        frame = page.frames[1]
        frame.wait_for_load_state()
        assert "Health" not in frame.content()
        fields = {"space": "user:ada", "memory": id, "next": "/"}
        inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
        page.set_content(
            f'<form method="post" action="{own.url}/fix/hide">{inputs}<button>Free cat food</button></form>'
        )
        with page.expect_response("**/fix/hide") as refused:
            page.get_by_role("button").click()
        assert refused.value.status in (401, 403)
        assert agent.ada.get(id).status == "active"


def test_nothing_in_any_field_is_executed(own: Inspector):
    check_texts(own, HOSTILE)


def test_nothing_of_a_corpus_is_executed(own: Inspector, texts_of_files: list[str]):
    check_texts(own, texts_of_files)


def check_texts(inspector: Inspector, texts: Any) -> None:
    """Each text as a memory, a message, an answer and every name that takes it; each turn's page and the live page."""
    paths: list[str] = []
    with agent_on(inspector.store, rules=False, scanners="none") as agent:
        page = inspector.page("/")
        page.on("dialog", lambda dialog: paths.append(f"a dialog: {dialog.message}") or dialog.dismiss())
        for number, text in enumerate(texts):
            agent.ada.add(f"Locker {number} belongs to {text}")
            name = re.sub(r"\s+", " ", text)[:150].strip() or "x"
            where: Any = {"conversation": name, "agent": name, "project": name}
            try:
                turn, _ = agent.say(f"Who has locker {number}? {text}", answer=text, **where)
            except ValueError:
                # The name is not one; its text is still tried.
                turn, _ = agent.say(f"Who has locker {number}? {text}", answer=text)
            paths.append(f"/turns/{turn}")
            if number % 25 == 0:
                check_page(page, "/")
        for path in ["/", *paths, "/health"]:
            check_page(page, path)
    complaints = [one for one in inspector.problems if "Content Security Policy" in one]
    assert complaints == []
    print(f"{len(texts)} texts, {len(paths) + 2} pages: nothing was executed")


def check_page(page: Page, path: str) -> None:
    assert not path.startswith("a dialog"), path
    # A page that is opened again while its stream ends may have no answer of its own.
    answer = page.goto(path) or page.reload()
    assert answer is not None
    assert answer.status == 200, path
    page.evaluate("for (const menu of document.querySelectorAll('details')) menu.open = true")
    assert page.evaluate("window.executed") is None, path
    assert page.evaluate(_STRANGE) == [], path


# What only a text can have brought into the page.
_STRANGE = """() => [...document.querySelectorAll("*")].filter(one =>
    [...one.attributes].some(({name, value}) => name.startsWith("on") || name === "srcdoc" || name === "style"
        || /^\\s*(javascript|data|vbscript):/i.test(value) && ["href", "src", "action", "formaction"].includes(name))
    || ["IFRAME", "OBJECT", "EMBED", "BASE", "FRAME", "IMG", "MATH"].includes(one.tagName)
    || (one.tagName === "SCRIPT" && !one.getAttribute("src").startsWith("/static/"))
    || (one.tagName === "LINK" && !one.getAttribute("href").startsWith("/static/"))
).map(one => one.outerHTML.slice(0, 200))"""
