"""Limits of the server: size, rate, number at a time, time, and connections that are slow or half open."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest
from served import CAT, HOST, Api, make_service, make_token, serving
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Scope

from afterturn.config import Config
from afterturn.hosts.server import app as server_app
from afterturn.hosts.server.access import Caller
from afterturn.hosts.server.app import Service, make_app
from afterturn.hosts.server.connections import bind
from afterturn.hosts.server.grant import make_grant
from afterturn.hosts.server.limits import BODY_BYTES_MAX, CONCURRENT_MAX, LARGE_MAX, Limits


async def test_a_large_body_is_refused(api: Api):
    """With its length in front, and without."""
    path = "/spaces/user:ada/memories"

    async def chunks():
        for _ in range(BODY_BYTES_MAX // 1_000_000 + 2):
            yield b" " * 1_000_000

    assert await api.status("POST", path, content=b" " * (BODY_BYTES_MAX + 1)) == 413
    assert await api.status("POST", path, content=chunks()) == 413
    assert await api.status("POST", path, json={"text": "x" * 200_000}) == 400
    assert await api.add(CAT)


async def test_a_request_with_two_lengths_is_refused(api: Api):
    """A proxy in front of the server may take what follows the shorter one for another request."""
    headers = {"Content-Length": "4", "Transfer-Encoding": "chunked"}
    answer = await api.ask("POST", "/spaces/user:ada/memories", content=b"{}", headers=headers)
    assert answer.status_code == 400
    assert answer.headers["connection"] == "close"


async def test_a_caller_that_asks_too_often_is_refused_and_others_are_not(
    service: Service, connect: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
):
    """B3: so slow a rate that nothing is added while the test runs."""
    monkeypatch.setattr("afterturn.hosts.server.limits.BURST_SECONDS", 6_000)
    service.limits = Limits(rate=0.001)
    busy, other = connect("busy"), connect("other")
    answers = [await busy.ask("GET", "/spaces") for _ in range(8)]
    assert [one.status_code for one in answers] == [200] * 6 + [429] * 2
    assert 900 < int(answers[-1].headers["retry-after"]) <= 1000
    assert (await other.ask("GET", "/spaces")).status_code == 200


@pytest.fixture
async def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A server with a route that answers when it is released, and one that streams until then."""
    release, full, running = asyncio.Event(), asyncio.Event(), list[int]()

    async def slow(request: Request) -> Response:
        running.append(1)
        if len(running) == CONCURRENT_MAX:
            full.set()
        await release.wait()
        return PlainTextResponse("ok")

    async def stream(request: Request) -> Response:
        async def lines():
            yield "data: 1\n\n"
            await release.wait()

        return StreamingResponse(lines(), media_type="text/event-stream")

    app = make_app(make_service(tmp_path))
    app.router.routes += [Route("/slow", slow), Route("/stream", stream)]
    headers = {"Authorization": f"Bearer {make_token('ada')}"}
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url=f"http://{HOST}", headers=headers, timeout=60
        ) as client,
    ):
        yield client, release, full
        release.set()


async def test_requests_of_one_caller_wait_for_their_turn(held, monkeypatch: pytest.MonkeyPatch):
    """Some run, some wait, and beyond that they are refused."""
    client, release, full = held
    monkeypatch.setattr("afterturn.hosts.server.limits.WAITING_MAX", 10)
    asked = [asyncio.create_task(client.get("/slow")) for _ in range(CONCURRENT_MAX + 10)]
    # Those that wait have sent their requests by then.
    await full.wait()
    assert (await client.get("/slow")).status_code == 429
    release.set()
    assert {(await one).status_code for one in asked} == {200}


async def test_few_large_requests_of_one_caller_are_read_at_a_time():
    """As objects, one of 8 MiB may take half a gigabyte."""
    limits, caller = Limits(), Caller("1", "ada", make_grant(Config(), space="user:ada"))
    large = {"path": "/api/v1/turns", "headers": [(b"content-length", b"2000000")]}
    chunked = {"path": "/api/v1/turns", "headers": [(b"transfer-encoding", b"chunked")]}

    async def ask(scope: Scope) -> None:
        async with limits.admit(caller, scope, receive=None):
            pass

    async with AsyncExitStack() as stack:
        for _ in range(LARGE_MAX):
            await stack.enter_async_context(limits.admit(caller, large, receive=None))
        waiting = [asyncio.create_task(ask(large)), asyncio.create_task(ask(chunked))]
        for path in ("/api/v1/turns", "/v1/messages"):
            await ask({**large, "path": path, "headers": [] if path.startswith("/api") else large["headers"]})
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
    await asyncio.gather(*waiting)


async def test_a_stream_leaves_its_place_to_others(held):
    client, release, _ = held
    streams = [asyncio.create_task(client.get("/stream")) for _ in range(CONCURRENT_MAX)]
    assert (await client.get("/api/v1/spaces")).status_code == 200
    release.set()
    assert {(await one).status_code for one in streams} == {200}


async def test_a_request_that_takes_too_long_is_ended(held, monkeypatch: pytest.MonkeyPatch):
    """A stream is not."""
    client, release, _ = held
    monkeypatch.setattr(server_app, "REQUEST_SECONDS", 0.5)
    streamed = asyncio.create_task(client.get("/stream"))
    answer = await client.get("/slow")
    assert answer.status_code == 503
    assert answer.json()["error"]["type"] == "DeadlineExceeded"
    assert not streamed.done()
    release.set()
    assert (await streamed).text == "data: 1\n\n"


async def test_half_open_and_slow_connections_starve_nobody(tmp_path: Path):
    """B3: as many as the server takes, some of them with a token."""
    token = make_token("ada")
    half = (
        b"",
        b"GET /api/v1/spaces HT",
        b"POST /api/v1/spaces/user:ada/memories HTTP/1.1\r\nHost: HERE\r\nContent-Length: 1000\r\n\r\n{",
        b"POST /api/v1/turns HTTP/1.1\r\nHost: HERE\r\nAuthorization: Bearer %b\r\nContent-Length: 9\r\n\r\n{"
        % token.encode(),
    )
    with serving(tmp_path) as server:
        opened = []
        try:
            for number in range(400):
                connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
                # Of one token, fewer than it has places.
                sent = half[3] if number % 8 == 0 else half[number % 3]
                connection.sendall(sent.replace(b"HERE", f"127.0.0.1:{server.port}".encode()))
                opened.append(connection)
            async with server.client(token) as client:
                api = Api(client)
                assert await api.add(CAT)
                answers = await asyncio.gather(
                    *(api.get("/spaces/user:ada/search", query="cat food") for _ in range(50))
                )
            assert all(one["hits"] for one in answers)
        finally:
            for connection in opened:
                connection.close()


def test_the_body_of_an_answer_does_not_wait_for_its_headers():
    """Without TCP_NODELAY, a client that keeps its connection gets each answer 40 ms late."""
    with bind("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
