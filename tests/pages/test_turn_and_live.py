"""Turn and Live with an agent that runs beside the server, in another process."""

import re

import pytest
from agent import Agent, agent_on
from playwright.sync_api import expect

from afterturn import blocking
from conftest import Inspector

pytestmark = [pytest.mark.pages, pytest.mark.timeout(120)]

CAT = "My cat Miso is allergic to chicken."
QUESTION = "What food is my cat Miso allergic to?"


@pytest.fixture
def agent(own: Inspector):
    with agent_on(own.store) as agent:
        yield agent


def texts(space: blocking.Space) -> list[str]:
    """Of its statements that are in use."""
    return [one.text for one in space.list() if one.kind == "statement"]


def test_two_clicks_fix_a_wrong_line_for_the_next_turn(own: Inspector, agent: Agent):
    id = agent.ada.add(CAT).entry.id
    turn, block = agent.say(QUESTION)
    assert "chicken" in block
    page = own.page(f"/turns/{turn}")
    page.locator(f"#m-{id} .fix summary").click()
    expect(page.locator(f"#m-{id}").get_by_label("Edit")).to_be_focused()
    page.keyboard.type("My cat Miso is allergic to fish.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    assert agent.ada.get(id).text == "My cat Miso is allergic to fish."
    _, block = agent.say(QUESTION, conversation="c2")
    assert "allergic to fish" in block
    assert "chicken" not in block
    assert own.problems == []


def test_the_same_works_without_a_script(own: Inspector, agent: Agent):
    id = agent.ada.add(CAT).entry.id
    turn, _ = agent.say(QUESTION)
    page = own.page(f"/turns/{turn}", script=False)
    page.locator(f"#m-{id} .fix summary").click()
    page.locator(f"#m-{id}").get_by_label("Edit").fill("My cat Miso is allergic to fish.")
    page.get_by_role("button", name="Save").click()
    assert agent.ada.get(id).text == "My cat Miso is allergic to fish."


def test_each_fix_changes_the_store_and_undo_takes_it_back(own: Inspector, agent: Agent):
    id = agent.ada.add(CAT).entry.id
    agent.memory.space("user:grace").add("Grace is a vegetarian.")
    turn, _ = agent.say(QUESTION)

    def fix(button: str, fill: str = "") -> None:
        page = own.page(f"/turns/{turn}")
        line = page.locator(f"#m-{id}")
        line.locator(".fix summary").click()
        if fill:
            line.get_by_label("Outdated").fill(fill)
        line.get_by_role("button", name=button, exact=True).click()
        expect(page.get_by_role("status")).to_be_visible()
        done.append(page)

    def undo() -> None:
        done[-1].get_by_role("status").get_by_role("button", name="Undo").click()
        expect(done[-1].get_by_role("status")).to_contain_text("Undone")
        assert agent.ada.get(id).text == CAT
        assert agent.ada.get(id).status == "active"

    done: list = []
    fix("Replace", "Miso may eat everything now.")
    assert agent.ada.get(id).text == "Miso may eat everything now."
    undo()
    fix("Don’t bring this up again")
    assert CAT not in texts(agent.ada)
    assert "chicken" not in agent.say(QUESTION, conversation="c2")[1]
    undo()
    fix("Pin")
    assert agent.ada.get(id).pinned
    undo()
    fix("Move")
    assert CAT not in texts(agent.ada)
    assert CAT in texts(agent.memory.space("user:grace"))
    undo()
    assert CAT not in texts(agent.memory.space("user:grace"))


def test_forgetting_shows_what_goes_and_leaves_no_bytes(own: Inspector, agent: Agent):
    id = agent.ada.add(CAT).entry.id
    turn, _ = agent.say("What does Miso eat?")
    page = own.page(f"/turns/{turn}")
    page.locator(f"#m-{id} .fix summary").click()
    page.locator(f"#m-{id}").get_by_role("link", name="Forget…").click()
    expect(page.locator("blockquote")).to_contain_text(CAT)
    page.get_by_role("button", name="Forget it for good").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Forgotten")
    page.goto(f"/turns/{turn}")
    expect(page.locator("main")).to_contain_text("was forgotten")
    assert "chicken" not in page.content()


def test_what_if_shows_two_blocks_side_by_side(own: Inspector, agent: Agent):
    agent.ada.add(CAT)
    turn, _ = agent.say(QUESTION)
    page = own.page(f"/turns/{turn}")
    page.get_by_label("Lines at most").fill("0")
    page.get_by_role("button", name="Replay").click()
    expect(page.locator("#what-if figure")).to_have_count(2)
    expect(page.locator("#what-if figure").first).to_contain_text(CAT)
    expect(page.locator("#what-if figure").last).to_contain_text("No block.")


def test_keys_walk_through_the_turns(own: Inspector, agent: Agent):
    first, second = (agent.say(f"Question {number}?")[0] for number in (1, 2))
    page = own.page(f"/turns/{first}")
    while not page.locator("[data-key=j]").count():
        # The order of turns is that of their events, which are stored a second later.
        page.wait_for_timeout(200)
        page.reload()
    page.keyboard.press("j")
    page.wait_for_url(f"**/turns/{second}?**")
    page.keyboard.press("k")
    page.wait_for_url(f"**/turns/{first}?**")


def test_an_incognito_turn_shows_that_it_was_one(own: Inspector, agent: Agent):
    agent.ada.add(CAT)
    turn, block = agent.say(QUESTION, incognito=True)
    assert "chicken" in block
    page = own.page(f"/turns/{turn}?owner=user:ada&conversation=c1")
    expect(page.locator("h1")).to_contain_text("incognito")
    assert "chicken" not in page.content()


def test_a_turn_of_another_process_appears_by_itself(own: Inspector, agent: Agent):
    agent.say("An earlier question?")
    page = own.page("/")
    turn, _ = agent.say("I prefer pnpm over npm for everything.")
    row = page.locator(".event", has=page.locator(f'a[href*="{turn}"]'))
    expect(row).to_contain_text("I prefer pnpm over npm")
    expect(row).to_contain_text(re.compile("learned.*pnpm"), timeout=30_000)
    row.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("Undone")
    assert texts(agent.ada) == []
    assert own.problems == []


def test_a_change_of_another_process_appears_and_is_undone_in_its_row(own: Inspector, agent: Agent):
    agent.say("An earlier question?")
    page = own.page("/")
    added = agent.ada.add(CAT)
    row = page.locator(".event", has_text=CAT)
    expect(row).to_be_visible()
    row.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("Undone")
    assert agent.ada.get(added.entry.id).status == "undone"


def test_a_paused_page_shows_new_rows_when_it_goes_on(own: Inspector, agent: Agent):
    agent.say("An earlier question?")
    page = own.page("/")
    page.get_by_role("button", name="Pause").click()
    agent.ada.add(CAT)
    expect(page.locator("#pause")).to_contain_text("Resume (")
    expect(page.locator(".event", has_text=CAT)).to_have_count(0)
    page.locator("#pause").click()
    expect(page.locator(".event", has_text=CAT)).to_be_visible()


def test_an_empty_store_explains_itself_and_plays_the_example(own: Inspector):
    page = own.page("/")
    expect(page.locator("main")).to_contain_text("Nothing is remembered yet")
    page.get_by_role("button", name="Add the example").click()
    expect(page.locator("h1")).to_contain_text("Turn 2")
    expect(page.locator("figure.block")).to_contain_text("db-2.example.org")
    page.goto("/")
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_role("status")).to_contain_text("The example is gone")
    expect(page.locator("main")).to_contain_text("Nothing is remembered yet")
