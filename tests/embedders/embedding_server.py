"""A real HTTP server on loopback that answers embedding requests as a test tells it to, and keeps what it was sent."""

import base64
import datetime
import ipaddress
import json
import ssl
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Answer:
    """`held`: nothing is sent before the client hangs up or the server closes."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    held: bool = False
    hangs_up: bool = False


@dataclass(frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: Any


Answering = Callable[[dict[str, Any]], Answer]


def vector(text: str, dimensions: int = 8) -> np.ndarray:
    """What the server says of a text: not of unit length, and the same everywhere."""
    return np.random.default_rng(zlib.crc32(text.encode())).normal(0, 3, dimensions).astype(np.float32)


def unit(text: str, dimensions: int = 8) -> np.ndarray:
    row = vector(text, dimensions)
    return row / np.linalg.norm(row)


def embeddings(request: dict[str, Any], dimensions: int = 8) -> Answer:
    """As OpenAI answers: in the form that was asked for, here in no order but that of `index`."""
    size = request.get("dimensions", dimensions)
    rows = [vector(text, size) for text in request["input"]]
    as_base64 = request.get("encoding_format") == "base64"
    data = [
        {"index": at, "embedding": base64.b64encode(row.tobytes()).decode() if as_base64 else row.tolist()}
        for at, row in enumerate(rows)
    ]
    return Answer({"object": "list", "data": data[::-1], "model": request["model"]})


def refusal(status: int, message: str = "", **headers: str) -> Answer:
    body = {"error": {"message": message, "type": "error"}}
    return Answer(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def in_turn(*answers: Answer | Answering) -> Answering:
    """One after the other; the last one for ever."""
    left = list(answers)

    def answering(request: dict[str, Any]) -> Answer:
        given = left.pop(0) if len(left) > 1 else left[0]
        return given if isinstance(given, Answer) else given(request)

    return answering


def make_certificate(path: Path) -> Path:
    """For 127.0.0.1, signed by itself, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1))
    builder = builder.add_extension(address, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    form = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


class EmbeddingServer:
    """`certificate` is a file with a certificate and its key; with it, the server speaks https."""

    def __init__(self, answering: Answering = embeddings, *, certificate: Path | None = None) -> None:
        self.answering = answering
        self._scheme = "http" if certificate is None else "https"
        self.received: list[Received] = []
        self.connections = 0
        self.reached = threading.Event()
        self.left = threading.Event()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def inputs(self) -> list[list[str]]:
        return [request.body["input"] for request in self.received]

    def __enter__(self) -> "EmbeddingServer":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                server.connections += 1

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.received.append(Received(self.path, headers, body))
                answer = server.answering(body)
                server.reached.set()
                if answer.held:
                    self.close_connection = True
                    server.hold(self)
                    return
                data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                for name, value in {"content-length": str(len(data)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
                # Without a word, as servers do that have waited long enough.
                self.close_connection = answer.hangs_up

            def log_message(self, *words: object) -> None:
                """Says nothing."""

        return Handler

    def hold(self, handler: BaseHTTPRequestHandler) -> None:
        handler.connection.settimeout(0.02)
        while not self._closing.is_set():
            try:
                if not handler.connection.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.left.set()
