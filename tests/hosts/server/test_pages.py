"""Pages for people, without a browser: who may see them, what forms do, and what is refused."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from served import CAT, HOST, WITHIN, make_service

from afterturn.config import Config
from afterturn.hosts.server.access import COOKIE
from afterturn.hosts.server.app import Service, make_app
from afterturn.hosts.server.grant import make_grant

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
    [undo] = re.findall(r'name="of" value="([^"]+)"', page)
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
    operations = re.findall(r'name="of" value="([^"]+)"', page)
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
