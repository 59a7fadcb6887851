"""A real HTTP server on loopback that answers as a provider does, from a script, and keeps the prompts it gets."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from provider_wires import Reply, Wire, refusal

Json = dict[str, Any]


class ProviderServer:
    """`prompts` are what the model was shown. `before_reply` runs on the server's thread, per request.

    As OpenAI does for `previous_response_id`, it keeps every prompt with its reply, and goes on from there.
    """

    def __init__(self, wire: Wire, script: Sequence[Reply]) -> None:
        self.wire = wire
        self.script = list(script)
        self.prompts: list[list[Json]] = []
        self.before_reply: Callable[[], None] = lambda: None
        self._kept: dict[str, list[Json]] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @contextmanager
    def serving(self) -> Iterator["ProviderServer"]:
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            thread.join()
            self._http.server_close()

    def answer(self, path: str, request: Json) -> tuple[int, str, bytes]:
        """Status, type and body: a reply of the script, unless a provider would refuse the prompt."""
        if not path.startswith(self.wire.path):
            return 404, "application/json", _error(f"nothing is served at {path}")
        prompt = [*self._kept.get(request.get("previous_response_id", ""), ()), *request[self.wire.prompt]]
        self.prompts.append(prompt)
        if (reason := refusal(self.wire, prompt)) is not None:
            return 400, "application/json", _error(reason)
        self.before_reply()
        reply = self.script.pop(0)
        if not request.get("stream"):
            return 200, "application/json", json.dumps(self._kept_with(prompt, self.wire.document(reply))).encode()
        lines = [*map(json.dumps, self.wire.chunks(reply)), "[DONE]"]  # type: ignore[attr-defined]
        return 200, "text/event-stream", "".join(f"data: {line}\n\n" for line in lines).encode()

    def _kept_with(self, prompt: list[Json], document: Json) -> Json:
        name = f"response-{len(self.prompts)}"
        self._kept[name] = [*prompt, *document.get("output", ())]
        return {**document, "id": name}


def _handler(server: ProviderServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, kind, body = server.answer(self.path, request)
            self.send_response(status)
            for name, value in {"content-type": kind, "content-length": str(len(body)), "connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Says nothing."""

    return Handler


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": None}}).encode()
