"""`afterturn mcp --http` as a real process on loopback, in both eras of the protocol; and who must not get in."""

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from mcp_clients import ERAS, WITHIN, ask, http_server, over_http

from afterturn import blocking
from afterturn.config import Config
from afterturn.hosts.server.grant import make_grant
from afterturn.hosts.server.tokens import create_token, revoke_token
from afterturn.runtime.clock import SystemClock


def make_token(name: str, space: str = "user:ada", tenant: str = "default", **options) -> str:
    days = options.pop("expires_at", None)
    grant = make_grant(Config(tenant=tenant), space=space, agent=name, **options)
    return create_token(grant, name=name, expires_at=days)[1]


class Server:
    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def post(self, body: object, token: str | None, **headers: str) -> httpx2.Response:
        known = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **headers}
        if token is not None:
            known["Authorization"] = f"Bearer {token}"
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx2.post(self.url, content=content, headers=known, timeout=WITHIN)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests here; each has spaces of its own."""
    folder = tmp_path_factory.mktemp("server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AFTERTURN_STATE", str(folder / "state"))
        make_token("first", space="user:nobody")
        with http_server(folder) as url:
            yield Server(url, folder)


@pytest.fixture(autouse=True)
def _state_of_the_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_STATE", str(server.folder / "state"))


LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_memories", "arguments": {}}}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_writes_and_finds_memories(server: Server, mode: str):
    token = make_token(f"both-{mode}", space=f"user:{mode}")
    async with over_http(server.url, token, mode) as client:
        assert client.protocol_version == ERAS[mode]
        assert len((await client.list_tools()).tools) == 5
        assert (await ask(client, "add_memory", text="The tests take two minutes")).startswith("Saved: [")
        waits = await ask(client, "add_memory", text="Prefers short answers", kind="preference")
        assert waits == "It waits for approval: `afterturn inbox`."
        assert "two minutes" in await ask(client, "search_memory", query="How long do the tests take?")


async def test_a_client_finds_out_the_era(server: Server):
    async with over_http(server.url, make_token("auto"), "auto") as client:
        assert client.protocol_version == "2026-07-28"
        assert "search_memory: before you ask the user" in (client.instructions or "")


async def test_each_token_has_its_own_spaces(server: Server):
    """B1: another space, another tenant, and a reader, at the same time on one server."""
    ada, eve = make_token("ada", space="user:a1"), make_token("eve", space="user:e1")
    other = make_token("other", space="user:a1", tenant="acme")
    reader = make_token("reader", space="user:a1", read_only=True)
    async with over_http(server.url, ada) as client:
        saved = await ask(client, "add_memory", text="Ada lives in Oslo", target="user")
        memory = saved.partition("[")[2].partition("]")[0]
    for token in (eve, other):
        async with over_http(server.url, token, "2026-07-28") as client:
            assert await ask(client, "list_memories") == "There are no memories yet."
            for name, more in (("delete_memory", {}), ("update_memory", {"text": "Ada lives in Rome"})):
                theirs = await ask(client, name, id=memory, **more)
                assert theirs == (await ask(client, name, id="06gyhh9w1wh6e297", **more)).replace(
                    "06gyhh9w1wh6e297", memory
                )
    async with over_http(server.url, reader) as client:
        assert "Oslo" in await ask(client, "list_memories")
        assert [tool.name for tool in (await client.list_tools()).tools] == ["search_memory", "list_memories"]
        assert (await client.call_tool("delete_memory", {"id": memory})).is_error


async def test_clients_at_once_do_not_share_their_grants(server: Server):
    async def write_and_list(number: int) -> str:
        async with over_http(server.url, make_token(f"many-{number}", space=f"user:many{number}")) as client:
            await ask(client, "add_memory", text=f"Locker {number} is free")
            return await ask(client, "list_memories")

    listed = await asyncio.gather(*(write_and_list(number) for number in range(8)))
    for number, text in enumerate(listed):
        assert text.count("Locker") == 1
        assert f"Locker {number} is free" in text


def test_a_conversation_comes_with_the_token(server: Server):
    token = make_token("talk", conversation="support-42")
    call = {"name": "search_memory", "arguments": {"query": "tea", "conversation": "support-43"}}
    answer = server.post({**LIST, "params": call}, token).json()
    assert "not the one of this connection" in answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("wrong", ["none", "wrong", "expired", "revoked", "hash"])
def test_nobody_gets_in_without_a_valid_token(server: Server, wrong: str):
    """B1: also right after it was revoked, and in both eras."""
    name = f"door-{wrong}"
    text: str | None = None
    if wrong == "expired":
        text = make_token(name, expires_at=SystemClock().now() - 1)
    elif wrong == "revoked":
        text = make_token(name)
        assert server.post(LIST, text).status_code == 200
        revoke_token(name)
    elif wrong == "hash":
        stored = json.loads((server.folder / "state" / "tokens.json").read_text(encoding="utf-8"))
        text = next(iter(stored["tokens"].values()))["sha256"]
    elif wrong == "wrong":
        text = "afterturn_" + "A" * 43
    for headers in ({}, {"MCP-Protocol-Version": "2026-07-28"}):
        answer = server.post(LIST, text, **headers)
        assert answer.status_code == 401
        assert "memories" not in answer.text


def test_other_schemes_are_no_token(server: Server):
    text = make_token("scheme")
    for value in (text, f"Basic {text}", f"Token {text}"):
        assert server.post(LIST, None, Authorization=value).status_code == 401
    assert httpx2.post(f"{server.url}?token={text}", json=LIST, timeout=WITHIN).status_code == 401


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:7433"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Content-Type": "text/plain"}, 400),
    ],
    ids=str,
)
def test_a_page_in_a_browser_gets_no_answer(server: Server, headers: dict[str, str], status: int):
    """B3: no DNS rebinding, even with a valid token, in both eras."""
    text = make_token(f"page-{abs(hash(str(headers)))}")
    assert server.post(LIST, text, **headers).status_code == status
    assert server.post(LIST, text, **headers, **{"MCP-Protocol-Version": "2026-07-28"}).status_code == status


@pytest.mark.parametrize("hosts", [[], [""], [" "], ["HERE", "HERE"], ["HERE", "evil.example"], ["HERE, evil.example"]])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("path", ["/mcp", "/other"])
def test_a_request_that_does_not_name_its_host_is_refused(server: Server, hosts: list[str], version: str, path: str):
    """B3: before the token is looked at, and at every path."""
    here = server.url.split("/")[2]
    port = int(here.rpartition(":")[2])
    lines = [f"GET {path} HTTP/{version}", *(f"Host: {host.replace('HERE', here)}" for host in hosts), "", ""]
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall("\r\n".join(lines).encode())
        assert connection.recv(4096).split()[1] in (b"400", b"421")


def test_the_servers_own_names_are_answered(server: Server):
    port = server.url.split(":")[2].split("/")[0]
    text = make_token("names")
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
        assert server.post(LIST, text, Host=host, Origin=f"http://{host}").status_code == 200


def test_a_large_body_is_refused(server: Server):
    text = make_token("large")
    large = {**LIST, "params": {"name": "add_memory", "arguments": {"text": "x" * 10_000_000}}}
    assert server.post(large, text).status_code == 413
    assert server.post(large, text, **{"MCP-Protocol-Version": "2026-07-28"}).status_code == 413
    assert server.post(LIST, text).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 50_000,
        b"7",
        b"null",
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":7}}',
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":[]}',
        b'{"jsonrpc":"2.0","id":2,"method":"no/such"}',
    ],
    ids=range(10),
)
def test_hostile_bodies_are_errors_of_one_line(server: Server, body: bytes):
    text = make_token(f"hostile-{abs(hash(body))}")
    for headers in ({}, {"MCP-Protocol-Version": "2026-07-28"}, {"MCP-Protocol-Version": "7"}):
        answer = server.post(body, text, **headers)
        assert '"result"' not in answer.text
        assert "Traceback" not in answer.text
        assert answer.status_code < 500
        assert "\n" not in answer.text.strip()
    assert server.post(LIST, text).status_code == 200


def test_other_paths_and_methods_show_nothing(server: Server):
    text = make_token("paths")
    root = server.url.removesuffix("/mcp")
    known = {"Authorization": f"Bearer {text}"}
    for path in ("/", "/docs", "/.well-known/oauth-protected-resource", "/mcp/../tokens.json"):
        assert httpx2.get(root + path, headers=known, timeout=WITHIN).status_code == 404
    assert httpx2.put(server.url, headers=known, timeout=WITHIN).status_code == 405


def test_a_server_without_a_token_does_not_start(cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AFTERTURN_STATE", str(cli.folder / "state"))
    for options in ((), ("--host", "0.0.0.0")):
        answer = cli("mcp", "--http", *options, space=None)
        assert answer.code == 2
        assert "Create one with `afterturn token create`" in answer.err
    make_token("late", expires_at=SystemClock().now() - 1)
    assert cli("mcp", "--http", space=None).code == 2


def test_without_the_sdk_the_command_names_the_extra(cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    for options in ((), ("--http",)):
        answer = cli("mcp", *options, space=None)
        assert answer.code == 2
        assert "Run `pip install 'afterturn[mcp]'`." in answer.err


def test_options_that_do_not_fit_are_refused(cli, server: Server):
    assert "for --http" in cli("mcp", "--port", "1", space=None).err
    assert "the client's token decides" in cli("mcp", "--http").err
    assert "--allow-host" in cli("mcp", "--http", "--host", "0.0.0.0", space=None).err
    assert "has no name" in cli("mcp", "--http", "--allow-host", "", space=None).err
    taken = server.url.split(":")[2].split("/")[0]
    assert "cannot listen" in cli("mcp", "--http", "--port", taken, space=None).err
    assert "cannot listen" in cli("mcp", "--http", "--host", "no.such.host.invalid", space=None).err


def test_another_host_name_is_allowed_by_its_starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))
    text = make_token("named")
    with http_server(tmp_path, "--host", "0.0.0.0", "--allow-host", "memory.example.org") as url:
        named = Server(url.replace("0.0.0.0", "127.0.0.1"), tmp_path)
        assert named.post(LIST, text, Host="memory.example.org").status_code == 200
        for other in ("other.example.org", "0.0.0.0", named.url.split("/")[2]):
            assert named.post(LIST, text, Host=other).status_code == 421


def test_a_broken_store_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))
    text = make_token("broken")
    (tmp_path / "memory.db").write_text("This is not a store.", encoding="utf-8")
    with http_server(tmp_path) as url:
        answer = Server(url, tmp_path).post(LIST, text).json()["result"]
        assert answer["isError"]
        assert "(ForeignFile)" in answer["content"][0]["text"]
        assert str(tmp_path) not in answer["content"][0]["text"]
        (tmp_path / "memory.db").unlink()
        with blocking.open(tmp_path / "memory.db") as memory:
            memory.space("user:ada").add("Ada lives in Oslo")
        assert "Oslo" in Server(url, tmp_path).post(LIST, text).text
