"""A real HTTP server on loopback that answers chat completions from a script, and keeps the requests."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Scripted:
    """One reply. `held`: nothing is sent before the server closes, after the headers when `begins` says so."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    held: bool = False
    begins: bool = False
    drops: bool = False


@dataclass(frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: Any


def answer(text: str | None = "Hello", **message: Any) -> Scripted:
    """A whole chat completion."""
    document = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text, **message}}
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    return Scripted(body=json.dumps(document).encode())


def failing(status: int, message: str = "", **headers: str) -> Scripted:
    """An error as OpenAI writes it. `retry_after` and the like become headers."""
    body = json.dumps({"error": {"message": message, "type": "error", "code": None}}).encode()
    return Scripted(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


class ChatServer:
    """The last reply of the script is given for ever. `reached` is set by each request, `left` by a dropped one."""

    def __init__(self, *script: Scripted) -> None:
        self.script = list(script)
        self.received: list[Received] = []
        self.reached = threading.Event()
        self.left = threading.Event()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    def __enter__(self) -> "ChatServer":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def next_reply(self) -> Scripted:
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def hold(self, handler: BaseHTTPRequestHandler) -> None:
        """Until the client hangs up or the server closes."""
        handler.connection.settimeout(0.02)
        while not self._closing.is_set():
            try:
                if not handler.connection.recv(1):
                    self.left.set()
                    return
            except TimeoutError:
                continue
            except OSError:
                self.left.set()
                return

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                server.received.append(
                    Received(self.path, {k.lower(): v for k, v in self.headers.items()}, _read(body))
                )
                reply = server.next_reply()
                server.reached.set()
                self.close_connection = True
                if reply.drops:
                    return
                if reply.held and not reply.begins:
                    server.hold(self)
                    return
                self._send(reply)

            def _send(self, reply: Scripted) -> None:
                length = len(reply.body) + reply.held
                try:
                    self.send_response(reply.status)
                    for name, value in {"content-length": str(length), **reply.headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(reply.body)
                except OSError:
                    server.left.set()
                    return
                if reply.held:
                    server.hold(self)

            def log_message(self, *words: object) -> None:
                """Says nothing."""

        return Handler


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body
