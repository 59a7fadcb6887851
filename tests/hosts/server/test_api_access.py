"""Who may do what over HTTP: tokens, tenants, spaces, scopes, browsers; and the audit log."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from served import CAT, HOST, QUESTION, Api, make_service

from afterturn.config import Config
from afterturn.hosts.server.access import COOKIE
from afterturn.hosts.server.app import Service, make_app
from afterturn.hosts.server.audit import AuditLog, read_audit
from afterturn.hosts.server.grant import SCOPES, make_grant
from afterturn.hosts.server.tokens import revoke_token

# Every verb with the least that it needs, and the scope that it asks for.
WHERE: dict[str, object] = {"conversation": {"id": "c1"}}
ROUTES: list[tuple[str, str, str, dict[str, object] | None]] = [
    ("turns", "POST", "/turns", {**WHERE, "messages": QUESTION}),
    ("turns", "POST", "/turns/t1/inject", {**WHERE, "messages": QUESTION}),
    ("turns", "POST", "/turns/t1/block", WHERE),
    ("turns", "POST", "/turns/t1/interject", {**WHERE, "text": "x"}),
    ("turns", "POST", "/turns/t1/cue", {**WHERE, "text": "x"}),
    ("turns", "POST", "/turns/t1/before_tool", {**WHERE, "name": "bash"}),
    ("turns", "POST", "/turns/t1/finish", {**WHERE, "messages": QUESTION}),
    ("turns", "POST", "/turns/t1/abort", WHERE),
    ("turns", "POST", "/turns/t1/wait", WHERE),
    ("turns", "POST", "/conversations/c1/standing", {}),
    ("turns", "POST", "/conversations/c1/compacted", {}),
    ("turns", "POST", "/conversations/c1/compacting", {"messages": QUESTION}),
    ("turns", "POST", "/conversations/c1/reset", {}),
    ("turns", "POST", "/conversations/c1/expect", {"text": "x"}),
    ("turns", "POST", "/conversations/c1/briefing", {}),
    ("turns", "POST", "/conversations/c1/before_tool", {"name": "bash"}),
    ("turns", "PUT", "/conversations/c1/incognito", {"on": True}),
    ("inspect", "GET", "/conversations/c1/incognito", None),
    ("inspect", "GET", "/conversations/c1/trace", None),
    ("inspect", "GET", "/conversations/c1/why?memory=06gyhh9w1wh6e297", None),
    ("inspect", "POST", "/conversations/c1/replay", {}),
    ("read", "GET", "/spaces", None),
    ("read", "GET", "/spaces/user:ada/search?query=x", None),
    ("read", "GET", "/spaces/user:ada/memories", None),
    ("write", "POST", "/spaces/user:ada/memories", {"text": "Ada lives in Oslo."}),
    ("read", "GET", "/spaces/user:ada/memories/06gyhh9w1wh6e297", None),
    ("write", "PUT", "/spaces/user:ada/memories/06gyhh9w1wh6e297", {"text": "x"}),
    ("write", "DELETE", "/spaces/user:ada/memories/06gyhh9w1wh6e297", None),
    ("read", "GET", "/spaces/user:ada/memories/06gyhh9w1wh6e297/history", None),
    ("write", "PUT", "/spaces/user:ada/memories/06gyhh9w1wh6e297/firm", {"firm": True}),
    ("write", "PUT", "/spaces/user:ada/memories/06gyhh9w1wh6e297/standing", {"hidden": True}),
    ("read", "GET", "/spaces/user:ada/operations", None),
    ("write", "POST", "/spaces/user:ada/undo", {"target": "06gyhh9w1wh6e297"}),
    ("read", "POST", "/spaces/user:ada/forget/preview", {"everything": True}),
    ("forget", "POST", "/spaces/user:ada/forget", {"conversation": "c1"}),
    ("read", "GET", "/spaces/user:ada/export", None),
    ("read", "GET", "/spaces/user:ada/profile", None),
    ("read", "GET", "/spaces/user:ada/standing", None),
    ("read", "GET", "/spaces/user:ada/conversations", None),
    ("inspect", "GET", "/spaces/user:ada/usage", None),
    ("read", "GET", "/spaces/user:ada/stats", None),
    ("inspect", "GET", "/usage", None),
    ("inspect", "GET", "/stats", None),
    ("read", "GET", "/spaces/user:ada/proposals", None),
    ("read", "GET", "/spaces/user:ada/proposals/06gyhh9w1wh6e297", None),
    ("review", "POST", "/spaces/user:ada/proposals/06gyhh9w1wh6e297/approve", None),
    ("review", "POST", "/spaces/user:ada/proposals/06gyhh9w1wh6e297/reject", None),
    ("review", "POST", "/spaces/user:ada/proposals/06gyhh9w1wh6e297/edit", {"text": "x"}),
    ("review", "POST", "/spaces/user:ada/proposals/approve", {"ids": ["06gyhh9w1wh6e297"]}),
    ("review", "POST", "/spaces/user:ada/proposals/reject", {"ids": ["06gyhh9w1wh6e297"]}),
    ("read", "GET", "/spaces/user:ada/reviews", None),
    ("review", "POST", "/spaces/user:ada/reviews", {"conversation": "c1", "rules": True}),
    ("read", "GET", "/spaces/user:ada/reviews/06gyhh9w1wh6e297", None),
    ("review", "POST", "/spaces/user:ada/reviews/06gyhh9w1wh6e297/undo", None),
    ("inspect", "GET", "/events", None),
]


async def ask(api: Api, method: str, path: str, body: object) -> int:
    return (await api.ask(method, path, **({} if body is None else {"json": body}))).status_code


async def test_every_route_is_checked_here(connect: Callable[..., Api]):
    document = await connect("ada").get("/openapi.json")
    known = {(method, path.partition("?")[0]) for _, method, path, _ in ROUTES}
    documented = {
        (method.upper(), filled(path)) for path, operations in document["paths"].items() for method in operations
    }
    assert known == documented


def filled(path: str) -> str:
    values = {"turn": "t1", "conversation": "c1", "space": "user:ada", "memory": "06gyhh9w1wh6e297"}
    return path.format(**values, review="06gyhh9w1wh6e297")


async def test_every_route_needs_a_token_and_its_scope(connect: Callable[..., Api]):
    """Refused without one, with all scopes but its own, and with its own for another space."""
    nobody, wrong = connect(None), connect(None)
    wrong.client.headers["Authorization"] = "Bearer afterturn_" + "A" * 43
    without = {scope: connect(f"no-{scope}", space="*", scopes=set(SCOPES) - {scope}) for scope in SCOPES}
    stranger = connect("eve", space="user:eve")
    for scope, method, path, body in ROUTES:
        for refused in (nobody, wrong):
            assert await ask(refused, method, path, body) == 401, path
        answer = await without[scope].ask(method, path, **({} if body is None else {"json": body}))
        assert answer.status_code == 403, path
        assert scope in answer.json()["error"]["message"]
        if "user:ada" in path:
            assert await ask(stranger, method, path, body) == 403, path
        elif "conversation" in path or "/turns" in path:
            named = {**(body or {}), "conversation": {"id": "c1", "owner": "user:ada"}}
            if method == "GET" or "replay" in path:
                query = f"{path}{'&' if '?' in path else '?'}owner=user:ada"
                replayed = {**(body or {}), "owner": "user:ada"} if method == "POST" else None
                assert await ask(stranger, method, query, replayed) == 403, path
            else:
                assert await ask(stranger, method, path, named) == 403, path


async def test_a_reader_changes_nothing(connect: Callable[..., Api]):
    """It has no scope that changes anything, whatever it was given."""
    writer, reader = connect("writer"), connect("reader", read_only=True)
    memory = await writer.add(CAT)
    for scope, method, path, body in ROUTES:
        if scope in ("turns", "write", "review", "forget"):
            assert await ask(reader, method, path, body) == 403, path
    assert (await reader.get("/spaces/user:ada/memories"))["memories"][0]["id"] == memory


async def test_every_space_of_a_conversation_is_checked(connect: Callable[..., Api]):
    """L2: owner, reads, writes and environment."""
    api = connect("ada", space="user:ada", reads=["team:x"])
    for where in (
        {"owner": "user:eve"},
        {"reads": ["user:eve"]},
        {"writes": "user:eve"},
        {"writes": "team:x"},
        {"environment": "project:y"},
        {"environment": "team:x"},
    ):
        body = {"conversation": {"id": "c1", **where}, "messages": QUESTION}
        assert await ask(api, "POST", "/turns", body) == 403, where
    assert (
        await ask(api, "POST", "/turns", {"conversation": {"id": "c1", "reads": ["team:x"]}, "messages": QUESTION})
        == 200
    )


async def test_spaces_in_a_query_or_a_body_are_checked(connect: Callable[..., Api]):
    """B1: as those of the path are."""
    api = connect("ada")
    for method, path, body in (
        ("GET", "/conversations/c1/why?memory=06gyhh9w1wh6e297&look_in=user:eve", None),
        ("GET", "/events?space=user:eve", None),
        ("POST", "/spaces/user:ada/memories", {"text": "Ada lives in Oslo.", "owner": "user:eve"}),
        ("POST", "/spaces/user:ada/reviews", {"conversation": "c1", "rules": True, "writes": "user:eve"}),
    ):
        assert await ask(api, method, path, body) == 403, path
    assert (await api.get("/spaces/user:ada/memories"))["memories"] == []


async def test_a_fault_says_nothing_about_the_machine(
    service: Service, connect: Callable[..., Api], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """B3: a store that cannot be read, a fault of ours, and a damaged file of tokens."""
    (tmp_path / "memory.db").write_bytes(b"This is not a store. " * 1000)
    api = connect("ada")
    broken = await api.ask("GET", "/spaces")
    assert (broken.status_code, broken.json()["error"]["type"]) == (503, "ForeignFile")

    async def fail(tenant: str) -> None:
        raise RuntimeError(f"no {tenant} in {tmp_path}")

    monkeypatch.setattr(service.memories, "get", fail)
    fault = await api.ask("GET", "/spaces")
    assert (fault.status_code, fault.json()["error"]["type"]) == (500, "InternalError")
    (tmp_path / "state" / "tokens.json").write_text("{", encoding="utf-8")
    refused = await api.ask("GET", "/spaces")
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "NotAuthenticated")
    for answer in (broken, fault, refused):
        assert tmp_path.name not in answer.text


async def test_a_pattern_is_for_many_spaces_and_needs_an_owner(connect: Callable[..., Api]):
    api = connect("users", space="user:*")
    assert await api.add(CAT, "user:ada")
    assert await ask(api, "POST", "/spaces/team:x/memories", {"text": "x"}) == 403
    assert await ask(api, "POST", "/turns", {**WHERE, "messages": QUESTION}) == 400
    named = {"conversation": {"id": "c1", "owner": "user:ada"}, "messages": QUESTION}
    assert await ask(api, "POST", "/turns", named) == 200
    assert await ask(api, "GET", "/stats", None) == 403


async def test_a_token_for_one_conversation_speaks_of_no_other(connect: Callable[..., Api]):
    api = connect("talk", conversation="c1")
    other = {"conversation": {"id": "c2"}}
    assert await ask(api, "POST", "/turns", {**other, "messages": QUESTION}) == 403
    assert await ask(api, "POST", "/turns", {"conversation": {}, "messages": QUESTION}) == 200
    for method, path, body in (
        ("GET", "/conversations/c2/trace", None),
        ("POST", "/conversations/c2/reset", {}),
        ("GET", "/spaces/user:ada/search?query=x&conversation=c2", None),
        ("GET", "/spaces/user:ada/memories?said_in=c2", None),
        ("GET", "/spaces/user:ada/export", None),
        ("GET", "/spaces/user:ada/proposals?conversation=c2", None),
        ("POST", "/spaces/user:ada/forget", {"conversation": "c2"}),
        ("POST", "/spaces/user:ada/reviews", {"conversation": "c2", "rules": True}),
    ):
        assert await ask(api, method, path, body) == 403, path
    assert await ask(api, "POST", "/spaces/user:ada/forget", {"everything": True}) == 400
    assert (await api.get("/spaces/user:ada/conversations"))["conversations"] == ["c1"]


async def test_a_tenant_does_not_learn_of_another(connect: Callable[..., Api]):
    """B1: the same answers, whether another tenant has it or nobody."""
    ours, theirs = connect("ours", space="*"), connect("theirs", space="*", tenant="acme")
    memory = await ours.add(CAT)
    talking = ours.speaking_in(owner="user:ada")
    await talking.start(QUESTION)
    await talking.verb("finish", messages=[*QUESTION, {"role": "assistant", "content": "Chicken."}])
    for path in (
        f"/spaces/user:ada/memories/{memory}",
        "/conversations/c1/trace?owner=user:ada",
        f"/conversations/c1/why?owner=user:ada&memory={memory}",
    ):
        answer = await theirs.ask("GET", path)
        unknown = await theirs.ask("GET", path.replace(memory, "06gyhh9w1wh6e297"))
        assert answer.status_code == 404, path
        assert answer.text.replace(memory, "06gyhh9w1wh6e297") == unknown.text
    assert (await theirs.get("/spaces")) == {"spaces": []}
    assert (await theirs.get("/spaces/user:ada/search", query="cat food"))["hits"] == []
    assert (await theirs.get("/spaces/user:ada/conversations"))["conversations"] == []
    finish = {"conversation": {"id": "c1", "owner": "user:ada"}, "messages": QUESTION}
    assert await ask(theirs, "POST", "/turns/t1/finish", finish) == 404
    assert (await theirs.get("/stats"))["spaces"] == 0
    metrics = await theirs.client.get("/metrics")
    assert "default" not in metrics.text
    assert 'afterturn_turns_total{state="recorded"}' not in metrics.text
    assert str(memory) not in metrics.text


async def test_a_full_server_says_nothing_of_other_tenants(
    connect: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("afterturn.hosts.server.memories.TENANTS_MAX", 1)
    assert await ask(connect("ada"), "GET", "/spaces", None) == 200
    answer = await connect("other", tenant="other").ask("GET", "/spaces")
    assert answer.status_code == 503
    assert "tenant" not in answer.text


async def test_a_revoked_token_ends_at_once(connect: Callable[..., Api]):
    api = connect("gone")
    assert await ask(api, "GET", "/spaces", None) == 200
    revoke_token("gone")
    assert await ask(api, "GET", "/spaces", None) == 401


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}, 200),
        ({}, 200),
    ],
    ids=str,
)
async def test_pages_of_other_sites_are_refused(connect: Callable[..., Api], headers: dict[str, str], status: int):
    """B3: with a token, too; and no answer lets another site read it."""
    api = connect("page")
    answer = await api.ask("GET", "/spaces", headers=headers)
    assert answer.status_code == status
    assert ("error" in answer.json()) == (status >= 400)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = await connect(None).ask("OPTIONS", "/spaces", headers={"Origin": "https://evil.example"})
    assert preflight.status_code in (401, 403)


async def test_a_browsers_change_must_come_from_our_pages(service: Service, connect: Callable[..., Api]):
    """B3: CSRF. The cookie alone changes nothing, and a link opens one session."""
    code = service.sessions.create_link(make_grant(Config(), space="*"))
    cookie = service.sessions.open(code)
    assert cookie is not None
    assert service.sessions.open(code) is None
    browser = connect(None)
    browser.client.headers["Cookie"] = f"{COOKIE}={cookie}"
    body = {"text": CAT}
    assert await ask(browser, "POST", "/spaces/user:ada/memories", body) == 403
    own = {"Origin": f"http://{HOST}"}
    assert (await browser.ask("POST", "/spaces/user:ada/memories", json=body, headers=own)).status_code == 200
    assert await ask(browser, "GET", "/spaces", None) == 200
    # A wrong token is refused, though the cookie is good.
    wrong = {"Authorization": "Bearer afterturn_x"}
    assert (await browser.ask("GET", "/spaces", headers=wrong)).status_code == 401
    service.sessions.close(cookie)
    assert await ask(browser, "GET", "/spaces", None) == 401


async def test_without_a_token_only_an_insecure_local_server_answers(tmp_path: Path):
    service = make_service(tmp_path, local=make_grant(Config(), space="*"))
    app = make_app(service)
    transport = httpx2.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client,
    ):
        assert (await client.get("/api/v1/spaces")).status_code == 200
        assert (await client.get("/api/v1/spaces", headers={"Origin": "https://evil.example"})).status_code == 403
        wrong = {"Authorization": "Bearer afterturn_x"}
        assert (await client.get("/api/v1/spaces", headers=wrong)).status_code == 401


async def test_the_audit_log_says_who_reached_what(connect: Callable[..., Api], cli):
    """Names and ids, and no text of anybody's; a refusal too."""
    api = connect("laptop", reads=["team:x"])
    await api.add("Ada lives in Oslo.")
    await api.get("/spaces/user:ada/search", query="where does Ada live")
    assert await ask(api, "GET", "/spaces/user:eve/memories", None) == 403
    talking = api.speaking_in(reads=["team:x"])
    await talking.start(QUESTION)
    rows = list(read_audit())
    assert [(row["method"], row["status"]) for row in rows] == [
        ("POST", 200),
        ("GET", 200),
        ("GET", 403),
        ("POST", 200),
    ]
    assert all((row["name"], row["tenant"]) == ("laptop", "default") for row in rows)
    assert rows[0]["writes"] == ["user:ada"]
    assert rows[2]["reads"] == ["user:eve"]
    assert (rows[3]["conversation"], rows[3]["reads"]) == (["c1"], ["user:ada", "team:x"])
    assert "Oslo" not in json.dumps(rows)
    assert "cat" not in json.dumps(rows)
    shown = cli("token", "audit", "--limit", "2", "--json", space=None)
    assert [row["status"] for row in shown.lines] == [403, 200]
    assert "laptop" in cli("token", "audit", space=None).out


async def test_the_audit_log_is_bounded(monkeypatch: pytest.MonkeyPatch, connect: Callable[..., Api], tmp_path: Path):
    """Two servers may share it, and either may begin a new file."""
    monkeypatch.setattr("afterturn.hosts.server.audit.BYTES_MAX", 2_000)
    api = connect("busy")
    other = AuditLog()
    for _ in range(40):
        assert await ask(api, "GET", "/spaces", None) == 200
        other._append(b'{"at": 1}\n')
    other.close()
    sizes = [path.stat().st_size for path in (tmp_path / "state").glob("audit.jsonl*")]
    assert len(sizes) == 2
    assert max(sizes) < 2_500
    assert (tmp_path / "state" / "audit.jsonl.1").stat().st_mode & 0o077 == 0
    assert len(list(read_audit())) > 10
    await ask(api, "GET", f"/conversations/{'x' * 5_000}/trace", None)
    await ask(api, "GET", f"/spaces/user:ada/proposals?conversation={'x' * 5_000}", None)
    assert max(len(json.dumps(row)) for row in read_audit()) < 1_000
