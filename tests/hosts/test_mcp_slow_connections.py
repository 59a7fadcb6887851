"""Connections to `mcp --http` that send their requests slowly or not at all, on real sockets."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPResponse
from pathlib import Path

import pytest
import uvicorn
from mcp_clients import http_server
from starlette.types import Receive, Scope, Send

from afterturn.config import Config
from afterturn.hosts.server.access import CALLER, Caller
from afterturn.hosts.server.connections import CONNECTIONS_MAX, Connection, make_config
from afterturn.hosts.server.grant import make_grant
from afterturn.hosts.server.tokens import create_token

pytestmark = pytest.mark.timeout(120)

LIST = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
SLOW = (
    b"",
    b"POST /mcp HT",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-One: a\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
)


def request(port: int, token: str, **headers: str) -> bytes:
    known = {
        "Host": f"127.0.0.1:{port}",
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Content-Length": str(len(LIST)),
        **headers,
    }
    return "\r\n".join(["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in known.items()), "", ""]).encode()


def status(connection: socket.socket) -> int:
    """Reads a whole answer: another one may follow on the same connection."""
    connection.settimeout(60)
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def test_slow_connections_without_a_token_leave_room_for_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """B3: more of them than the server has places. One client came before them and has a request under way."""
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))
    _, token = create_token(make_grant(Config(), space="user:ada", agent="slow"), name="slow")
    with http_server(tmp_path) as url:
        port = int(url.split(":")[2].split("/")[0])

        def connect(sent: bytes) -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", port), timeout=60)
            connection.sendall(sent)
            return connection

        early = connect(request(port, token) + LIST)
        assert status(early) == 200
        early.sendall(request(port, token) + LIST[:5])
        opened = [connect(SLOW[number % len(SLOW)]) for number in range(CONNECTIONS_MAX + 20)]
        try:
            with connect(request(port, token) + LIST) as late:
                assert status(late) == 200
            early.sendall(LIST[5:])
            assert status(early) == 200
        finally:
            for one in (early, *opened):
                one.close()


class Small(Connection):
    request_seconds = 0.2
    waiting_max = 3


class Patient(Small):
    request_seconds = 600.0


@asynccontextmanager
async def serve(
    release: asyncio.Event, connection: type[Connection] = Small, arrived: asyncio.Event | None = None
) -> AsyncIterator[int]:
    """A server that knows clients by a header, sets `arrived` after a request, and answers after `release`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if (b"x-user", b"ada") in scope["headers"]:
            scope[CALLER] = Caller("t", "ada", make_grant(Config(), space="user:ada"))
        while (await receive()).get("more_body"):
            pass
        if arrived is not None:
            arrived.set()
        await release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    config = make_config(app, connection)
    config.lifespan = "off"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            release.set()
            server.should_exit = True
            await serving


async def rest(reader: asyncio.StreamReader) -> bytes:
    """All that the server still sends, until it closes the connection."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
USER = HEAD + b"X-User: ada\r\n"


@pytest.mark.parametrize("sent", [*SLOW, USER + b"Content-Length: 9\r\n\r\n{"], ids=range(len(SLOW) + 1))
async def test_a_request_that_does_not_arrive_in_time_is_closed(sent: bytes):
    """B3: with a token too. A byte now and then does not extend the deadline."""
    async with serve(asyncio.Event()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        closing = asyncio.create_task(rest(reader))
        if sent.endswith(b"\r\n") and b"chunked" not in sent:
            while not (await asyncio.wait([closing], timeout=0.02))[0]:
                writer.write(b"X-More: a\r\n")
        assert await closing == b""
        writer.close()


async def test_answers_without_a_token_do_not_extend_the_deadline():
    """B3: a connection that is refused again and again is closed too."""
    release = asyncio.Event()
    release.set()
    async with serve(release) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        closing = asyncio.create_task(rest(reader))
        while not (await asyncio.wait([closing], timeout=0.02))[0]:
            writer.write(HEAD + b"Content-Length: 0\r\n\r\n")
        writer.close()


async def test_a_client_with_a_token_may_wait_long_for_its_answer():
    """B3: the deadline is for requests. It passes here when the request is complete and the answer is not."""
    opened: list[Connection] = []

    class Watched(Patient):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            opened.append(self)

    release, arrived = asyncio.Event(), asyncio.Event()
    async with serve(release, Watched, arrived) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(USER + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}")
        await arrived.wait()
        opened[0]._close_if_late()
        release.set()
        assert (await rest(reader)).endswith(b"ok")
        writer.close()


async def test_the_oldest_connection_without_a_token_makes_room():
    """B3: the newest may still send its request, and those with a token do not count."""
    release = asyncio.Event()
    release.set()
    async with serve(release, Patient) as port:
        known = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for reader, writer in known:
            writer.write(USER + b"Content-Length: 0\r\n\r\n")
            await reader.readuntil(b"ok")
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        assert await rest(waiting[0][0]) == b""
        for reader, writer in (*known, *waiting[1:]):
            writer.write(USER + b"Content-Length: 0\r\nConnection: close\r\n\r\n")
            assert (await rest(reader)).endswith(b"ok")
        for _, writer in (*known, *waiting):
            writer.close()
