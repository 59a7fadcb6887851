"""Pages for people, without a browser: who may see them, what forms do, and what is refused."""

import asyncio
import contextlib
import html
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from served import CAT, HOST, WITHIN, make_service, make_token

from afterturn.config import Config
from afterturn.hosts.server.access import COOKIE
from afterturn.hosts.server.app import Service, make_app
from afterturn.hosts.server.grant import make_grant
from afterturn.hosts.server.tokens import revoke_token

ORIGIN = f"http://{HOST}"
HTML = {"Accept": "text/html,application/xhtml+xml"}


@pytest.fixture
async def service(tmp_path: Path) -> Service:
    service = make_service(tmp_path)
    service.options = replace(service.options, parts=frozenset({"api", "pages"}))
    return service


@pytest.fixture
async def browser(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser that is not signed in."""
    app = make_app(service)
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url=ORIGIN, headers=HTML, timeout=WITHIN) as client,
    ):
        yield client


@pytest.fixture
async def ada(browser: httpx2.AsyncClient, service: Service) -> httpx2.AsyncClient:
    """A browser that opened the link of `afterturn ui`, and sends what browsers send."""
    code = service.sessions.create_link(make_grant(Config(), space="*"))
    assert (await browser.get(f"/login?code={code}")).status_code == 303
    browser.headers["Origin"] = ORIGIN
    return browser


def undo_of_notice(page: str) -> list[str]:
    return re.findall(r'name="of" value="([^"]+)"', page.partition('<div class="notice"')[2])


async def add(service: Service, text: str, space: str = "user:ada") -> str:
    memory = await service.memories.get("default")
    return (await memory.space(space).add(text)).entry.id


async def texts(service: Service, space: str = "user:ada") -> list[str]:
    memory = await service.memories.get("default")
    return [one.text for one in await memory.space(space).list()]


async def test_without_a_session_a_page_says_how_to_sign_in(browser: httpx2.AsyncClient):
    answer = await browser.get("/")
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "afterturn ui" in answer.text


async def test_a_link_opens_one_session_with_a_strict_cookie(browser: httpx2.AsyncClient, service: Service):
    code = service.sessions.create_link(make_grant(Config(), space="*"))
    first, second = await browser.get(f"/login?code={code}"), await browser.get(f"/login?code={code}")
    assert (first.status_code, second.status_code) == (303, 401)
    cookie = first.headers["set-cookie"]
    assert re.search(r"; HttpOnly; Path=/; SameSite=strict$", cookie)
    assert (await browser.get("/")).status_code == 200


async def test_a_cookie_that_somebody_else_chose_is_never_used(browser: httpx2.AsyncClient, service: Service):
    browser.cookies.set(COOKIE, "chosen-by-an-attacker", domain=HOST)
    code = service.sessions.create_link(make_grant(Config(), space="*"))
    opened = await browser.get(f"/login?code={code}")
    assert "chosen-by-an-attacker" not in opened.headers["set-cookie"]
    assert service.sessions.find("chosen-by-an-attacker") is None


async def test_a_token_opens_a_session_that_ends_with_it(browser: httpx2.AsyncClient):
    own = {"Origin": ORIGIN}
    token = make_token("grace", space="user:grace")
    assert (await browser.post("/login", data={"token": token})).status_code == 403
    assert (await browser.post("/login", data={"token": token}, headers={"Origin": "https://evil"})).status_code == 403
    assert (await browser.post("/login", data={"token": f"{token}x"}, headers=own)).status_code == 401
    assert (await browser.post("/login", data={"token": "x" * 5000}, headers=own)).status_code == 413
    assert (await browser.post("/login", data={"token": token}, headers=own)).status_code == 303
    assert "user:grace" in (await browser.get("/")).text
    revoke_token("grace")
    assert (await browser.get("/")).status_code == 401


async def test_signing_out_ends_the_session(ada: httpx2.AsyncClient):
    kept = ada.cookies[COOKIE]
    assert (await ada.post("/logout")).status_code == 200
    ada.cookies.set(COOKIE, kept, domain=HOST)
    assert (await ada.get("/")).status_code == 401


async def test_every_page_and_error_forbids_scripts_of_others_and_frames(ada: httpx2.AsyncClient):
    for path in ("/", "/nowhere", "/login?code=wrong"):
        headers = (await ada.get(path)).headers
        assert headers["content-security-policy"].startswith("default-src 'none';"), path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"], path
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store"), path


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {}])
async def test_a_form_of_another_site_changes_nothing(ada: httpx2.AsyncClient, service: Service, headers: dict):
    id = await add(service, CAT)
    del ada.headers["Origin"]
    form = {"space": "user:ada", "memory": id, "next": "/"}
    assert (await ada.post("/fix/hide", data=form, headers=headers)).status_code == 403
    assert await texts(service) == [CAT]


async def test_edit_and_undo_through_forms(ada: httpx2.AsyncClient, service: Service):
    id = await add(service, CAT)
    form = {"space": "user:ada", "memory": id, "version": "1", "text": "Miso eats anything.", "next": "/?x=1#m"}
    saved = await ada.post("/fix/edit", data=form)
    assert re.fullmatch(r"/\?x=1&notice=[\w-]+#m", saved.headers["location"])
    assert await texts(service) == ["Miso eats anything."]
    page = (await ada.get(saved.headers["location"])).text
    assert "Saved." in page
    [undo] = undo_of_notice(page)
    assert (await ada.post("/undo", data={"of": undo, "next": "/"})).status_code == 303
    assert await texts(service) == [CAT]


async def test_an_edit_of_an_older_version_is_refused(ada: httpx2.AsyncClient, service: Service):
    id = await add(service, CAT)
    form = {"space": "user:ada", "memory": id, "version": "1", "next": "/"}
    await ada.post("/fix/edit", data={**form, "text": "Miso eats fish."})
    late = await ada.post("/fix/edit", data={**form, "text": "Miso eats beef."})
    assert late.status_code == 409
    assert await texts(service) == ["Miso eats fish."]


async def test_moving_to_another_person_is_one_undo(ada: httpx2.AsyncClient, service: Service):
    id = await add(service, CAT)
    form = {"space": "user:ada", "memory": id, "to": "user:grace", "next": "/"}
    moved = await ada.post("/fix/move", data=form)
    assert (await texts(service), await texts(service, "user:grace")) == ([], [CAT])
    page = (await ada.get(moved.headers["location"])).text
    operations = undo_of_notice(page)
    await ada.post("/undo", data={"of": operations, "next": "/"})
    assert (await texts(service), await texts(service, "user:grace")) == ([CAT], [])


async def test_forget_shows_what_goes_before_it_goes(ada: httpx2.AsyncClient, service: Service):
    id = await add(service, CAT)
    preview = await ada.get("/forget", params={"space": "user:ada", "memory": id, "next": "/"})
    assert CAT in preview.text
    assert await texts(service) == [CAT]
    gone = await ada.post("/forget", data={"space": "user:ada", "memory": id, "next": "/"})
    assert "Forgotten" in gone.text
    assert await texts(service) == []


@pytest.mark.parametrize(
    "address", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"]
)
async def test_no_form_redirects_to_another_site(ada: httpx2.AsyncClient, service: Service, address: str):
    id = await add(service, CAT)
    answer = await ada.post("/fix/hide", data={"space": "user:ada", "memory": id, "next": address})
    assert answer.headers["location"].startswith("/?notice=")


@pytest.mark.parametrize("path", ["../render.py", "%2e%2e/render.py", "..%2frender.py", "pages.css/../../render.py"])
async def test_static_files_are_those_of_one_folder(ada: httpx2.AsyncClient, path: str):
    assert (await ada.get(f"/static/{path}")).status_code == 404
    assert (await ada.get("/static/pages.css")).headers["content-type"].startswith("text/css")


async def test_a_reader_sees_pages_and_changes_nothing(browser: httpx2.AsyncClient, service: Service):
    id = await add(service, CAT)
    code = service.sessions.create_link(make_grant(Config(), space="user:ada", read_only=True))
    await browser.get(f"/login?code={code}")
    form = {"space": "user:ada", "memory": id, "next": "/"}
    answer = await browser.post("/fix/hide", data=form, headers={"Origin": ORIGIN})
    assert answer.status_code == 403
    assert await texts(service) == [CAT]


async def test_programs_get_json_and_people_get_pages(ada: httpx2.AsyncClient):
    program = await ada.get("/nowhere", headers={"Accept": "application/json"})
    api = await ada.get("/api/v1/nowhere")
    person = await ada.get("/nowhere")
    assert program.json()["error"]["type"] == api.json()["error"]["type"] == "NotFound"
    assert person.status_code == 404
    assert "<h1>Not found</h1>" in person.text


# ---------------------------------------------------------------- Turn and Live


async def take_turn(service: Service, asked: str, answer: str = "Salmon.", **where: object) -> str:
    """The id of a turn that an agent took."""
    memory = await service.memories.get("default")
    conversation = memory.conversation("c1", owner="user:ada", standing="off", **where)
    messages = [{"role": "user", "content": asked}]
    async with conversation.turn(messages) as turn:
        await turn.inject(messages, within=WITHIN)
        messages.append({"role": "assistant", "content": answer})
    await turn.wait_recorded()
    return turn.id


QUESTION = "What food is my cat Miso allergic to?"


async def test_a_turn_shows_the_block_with_its_bytes_and_every_candidate(ada: httpx2.AsyncClient, service: Service):
    await add(service, CAT)
    await add(service, "The office has a coffee machine.")
    turn = await take_turn(service, QUESTION)
    memory = await service.memories.get("default")
    traced = (await memory.conversation("c1", owner="user:ada").trace(turn)).turns[0]
    page = await ada.get(f"/turns/{turn}")
    assert page.status_code == 200
    text = html.unescape(page.text)
    assert traced.blocks[0].text in text
    assert f"{traced.blocks[0].size_bytes} bytes" in text
    for word in (QUESTION, "Salmon.", "delivered", "recall started", "handed over", "recorded", "message 1"):
        assert word in text, word


async def test_fixing_a_line_changes_the_block_of_the_next_turn(ada: httpx2.AsyncClient, service: Service):
    id = await add(service, CAT)
    turn = await take_turn(service, QUESTION)
    page = (await ada.get(f"/turns/{turn}")).text
    form = page.partition('action="/fix/edit">')[2].partition("</form>")[0]
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    assert fields["memory"] == id
    await ada.post("/fix/edit", data={**fields, "text": "My cat Miso is allergic to fish."})
    memory = await service.memories.get("default")
    messages = [{"role": "user", "content": QUESTION}]
    async with memory.conversation("c2", owner="user:ada", standing="off").turn(messages) as later:
        block = await later.inject(messages, within=WITHIN)
    assert "allergic to fish" in str(block)
    assert "chicken" not in str(block)


async def test_an_incognito_turn_shows_that_it_was_one(ada: httpx2.AsyncClient, service: Service):
    await add(service, CAT)
    turn = await take_turn(service, QUESTION, incognito=True)
    text = (await ada.get(f"/turns/{turn}?owner=user:ada&conversation=c1")).text
    assert "incognito" in text
    assert "allergic" not in text


async def test_a_forgotten_line_leaves_no_bytes_on_the_page(ada: httpx2.AsyncClient, service: Service):
    id = await add(service, CAT)
    turn = await take_turn(service, "What does Miso eat?")
    assert "allergic to chicken" in (await ada.get(f"/turns/{turn}")).text
    await ada.post("/forget", data={"space": "user:ada", "memory": id, "sources": "yes", "next": "/"})
    text = (await ada.get(f"/turns/{turn}")).text
    assert "was forgotten" in text
    assert "allergic to chicken" not in text


async def test_what_if_shows_the_block_beside_another_one(ada: httpx2.AsyncClient, service: Service):
    await add(service, CAT)
    turn = await take_turn(service, QUESTION)
    replayed = (await ada.get(f"/turns/{turn}?what_if=yes&recall_entries_max=0")).text
    assert "identical" in replayed
    assert "As it would be</strong></figcaption><pre>No block.</pre>" in replayed
    earlier = (await ada.get(f"/turns/{turn}?what_if=yes&as_of=2020-01-01")).text
    assert '<p class="gone">Nothing.</p>' in earlier
    assert "Use a number" in (await ada.get(f"/turns/{turn}?what_if=yes&recall_entries_max=many")).text


async def test_a_turn_of_other_spaces_is_not_found(browser: httpx2.AsyncClient, service: Service):
    turn = await take_turn(service, QUESTION)
    code = service.sessions.create_link(make_grant(Config(), space="user:grace"))
    await browser.get(f"/login?code={code}")
    assert (await browser.get(f"/turns/{turn}")).status_code == 404
    assert (await browser.get(f"/turns/{turn}?owner=user:ada&conversation=c1")).status_code == 403


async def test_live_has_a_row_for_each_turn_and_each_change(ada: httpx2.AsyncClient, service: Service):
    await add(service, "The office has a coffee machine.")
    turn = await take_turn(service, "I prefer pnpm over npm for everything.")
    await wait_for_events(service, "review_ended")
    text = html.unescape((await ada.get("/")).text)
    assert f'href="/turns/{turn}?owner=user%3Aada&conversation=c1"' in text
    assert "The office has a coffee machine." in text
    assert re.search(r'class="learned"><span class="muted">learned</span> [^<]*pnpm', text)
    assert "The office" not in (await ada.get("/?show=turns")).text


async def test_a_row_of_a_review_undoes_all_that_it_learned(ada: httpx2.AsyncClient, service: Service):
    await take_turn(service, "I prefer pnpm over npm for everything.")
    memory = await service.memories.get("default")
    await wait_for_events(service, "review_ended")
    learned = [one for one in await memory.space("user:ada").list() if one.kind == "statement"]
    assert learned
    [undo] = set(re.findall(r'name="of" value="([^"]+)"', (await ada.get("/?show=turns")).text))
    assert (await ada.post("/undo", data={"of": undo, "next": "/"})).status_code == 303
    assert [one for one in await memory.space("user:ada").list() if one.kind == "statement"] == []


async def test_a_proposal_is_not_shown_as_a_change(ada: httpx2.AsyncClient, service: Service):
    memory = await service.memories.get("default")
    id = await add(service, CAT)
    await memory.space("user:ada").delete(id, origin="agent")
    text = (await ada.get("/")).text
    assert "agent proposed to delete" in text
    assert "waits in the inbox" in text
    assert "agent hid" not in text


async def test_only_the_last_change_of_a_memory_has_undo_in_its_row(ada: httpx2.AsyncClient, service: Service):
    id = await add(service, CAT)
    for text in ("Miso eats fish.", "Miso eats beef."):
        memory = await service.memories.get("default")
        await memory.space("user:ada").update(id, text)
    rows = (await ada.get("/")).text.split('<li class="event')[1:]
    assert len(rows) == 3
    assert ["Undo</button>" in row for row in rows] == [True, False, False]


async def test_an_empty_store_offers_an_example_that_goes_again(ada: httpx2.AsyncClient, service: Service):
    assert "Add the example" in (await ada.get("/")).text
    added = await ada.post("/example")
    turn = await ada.get(added.headers["location"])
    assert "db-2.example.org" in turn.text
    assert "Remove it" in (await ada.get("/")).text
    await ada.post("/example/remove")
    assert await texts(service, "user:example") == []


async def test_health_tells_a_reader_of_one_space_nothing_of_others(browser: httpx2.AsyncClient, service: Service):
    await add(service, CAT)
    make_token("dashboard")
    for space, sees in (("*", True), ("user:grace", False)):
        code = service.sessions.create_link(make_grant(Config(), space=space))
        await browser.get(f"/login?code={code}")
        text = (await browser.get("/health")).text
        assert ("dashboard" in text, "memory.db" in text) == (sees, sees)


async def wait_for_events(service: Service, name: str) -> None:
    """Events are stored a second after they happened."""
    memory = await service.memories.get("default")
    async with service.feed.subscribe("default") as queue, asyncio.timeout(WITHIN):
        while not any(event.name == name for event in (await memory.timeline()).events):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await queue.get()
