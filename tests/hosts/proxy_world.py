"""The HTTP server with the proxy, on a thread of this process, in front of a scripted provider; and tokens for it."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from afterturn.config import Config, load_config
from afterturn.hosts.server.app import ServerOptions, Service, make_app
from afterturn.hosts.server.connections import allowed_hosts, bind, make_config
from afterturn.hosts.server.grant import SCOPES, Grant, make_grant
from afterturn.hosts.server.memories import OpenMemories
from afterturn.hosts.server.tokens import create_token
from afterturn.testing import EventLog
from afterturn.types import Filter, Kind

WITHIN = 100.0
SETTINGS = {"embedder": "none", "grace": 20.0}
SAID = "My cat Miso is allergic to chicken."
ASKED = "What food is my cat Miso allergic to?"
LINE = "Miso is allergic to chicken"


def make_token(space: str = "user:ada", tenant: str = "default", name: str = "proxy", **options) -> str:
    grant = make_grant(Config(tenant=tenant), space=space, scopes=options.pop("scopes", SCOPES), **options)
    return create_token(grant, name=name)[1]


class Proxy:
    """A running server. `token` is for the user ada alone; `events` are those of its memory."""

    def __init__(self, folder: Path, upstreams: Mapping[str, str], **options) -> None:
        self.token = make_token()
        self.events = EventLog()
        self._listener = bind("127.0.0.1", 0)
        port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._service = Service(
            lambda: (folder / "memory.db", load_config(SETTINGS)),
            ServerOptions("127.0.0.1", allowed_hosts("127.0.0.1", port, ()), upstreams, **options),
        )
        self._service.memories = OpenMemories(lambda: (folder / "memory.db", load_config(SETTINGS)), self.events)
        self._server = uvicorn.Server(make_config(make_app(self._service)))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Proxy":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._server.serve(sockets=[self._listener]))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())

    def headers(self, conversation: str | None = None, **more: str) -> dict[str, str]:
        named = {} if conversation is None else {"x-afterturn-conversation": conversation}
        return {"x-afterturn-token": self.token, **named, **{name.replace("_", "-"): more[name] for name in more}}

    def post(self, path: str, body: object, headers: Mapping[str, str]) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        known = {"content-type": "application/json", **headers}
        return httpx2.post(f"{self.url}{path}", content=content, headers=known, timeout=WITHIN)

    def chat(self, text: str, headers: Mapping[str, str], **more: object) -> httpx2.Response:
        body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
        return self.post("/v1/chat/completions", body, headers)

    def wait_recorded(self, count: int) -> None:
        self.events.wait("recorded", count, WITHIN)

    def records(self, space: str = "user:ada", tenant: str = "default") -> list[str]:
        """What was recorded, the oldest first."""
        found = self.call(self._list(space, tenant, Kind.RECORD))
        return [one.text for one in sorted(found, key=lambda one: (one.recorded_at, one.position or 0))]

    def add(self, text: str, space: str = "user:ada") -> None:
        async def add() -> None:
            await (await self._service.memories.get("default")).space(space).add(text)

        self.call(add())

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Runs it on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN)

    async def _list(self, space: str, tenant: str, kind: Kind) -> Any:
        memory = await self._service.memories.get(tenant)
        return await memory.space(space).list(filter=Filter(kind=kind), limit=1000)


Handler = Callable[[str, Mapping[str, str], bytes], tuple[int, Mapping[str, str], bytes]]


class Upstream:
    """An HTTP server that answers as `answer(path, headers, body)` says. `requests` has what it was sent."""

    def __init__(self, answer: Handler) -> None:
        self.answer = answer
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        outer = self

        class Requests(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.requests.append((self.path, headers, raw))
                status, more, body = outer.answer(self.path, headers, raw)
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, *words: object) -> None:
                """Says nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> "Upstream":
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class HeldUpstream:
    """Begins to stream an answer and never ends it. `closed` is set when the proxy has closed the connection."""

    def __init__(self, beginning: bytes) -> None:
        self._beginning = beginning
        self.asked, self.closed = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "HeldUpstream":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join(WITHIN)
        self._listener.close()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(WITHIN)
            received = b""
            while b"\r\n\r\n" not in received:
                received += connection.recv(65_536)
            self.asked.set()
            connection.sendall(self._beginning)
            while connection.recv(65_536):
                pass
        self.closed.set()


def many_users() -> Grant:
    return make_grant(Config(), space="user:*")
