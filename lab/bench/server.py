"""`make bench-server`: requests to `afterturn serve` compared with a bare Starlette app with one SQLite query."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import perf_counter
from urllib.parse import quote

from lab.api.server import RunningServer, serving
from lab.bench import bare_app
from lab.bench.report import Figure, Goal, Progress, Report, judge, make_report, percentile
from lab.bench.texts import sentences

EXPLAINED = (
    "A server and a client on one machine, over loopback, with connections that stay open; the client is a few lines "
    "that write and read bytes. The store has {memories:,} memories. A bare Starlette app on the same uvicorn, which "
    "checks a token and runs one query of SQLite's full-text search over the same memories, is asked by the same "
    "client in the same run. A search of afterturn ranks by words and by meaning. Each turn is a conversation of its "
    "own: it is started, and its block is asked for; of these two requests the time of both counts. Then "
    "{connections} connections search at once, and again while {half} connections stay half open."
)
SPACE = "user:ada"
_QUESTIONS = ("kitchen coffee morning", "project release gateway", "guitar lessons teacher", "travels by train")


@dataclass(frozen=True, slots=True)
class Scale:
    memories: int
    seconds: float
    clients: int
    connections: int
    half: int


FULL = Scale(memories=1000, seconds=10.0, clients=16, connections=256, half=250)
QUICK = Scale(memories=50, seconds=0.3, clients=2, connections=8, half=8)


@dataclass(slots=True)
class Load:
    """What clients measured: the seconds of each answer, and how many requests failed."""

    seconds: list[float] = field(default_factory=list)
    errors: int = 0
    took: float = 0.0

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.took

    @property
    def p99(self) -> float:
        """In milliseconds."""
        return 1000 * percentile(self.seconds, 0.99)


def measure_server(*, quick: bool = False, progress: Progress = lambda step: None) -> Report:
    """`quick` sends too few requests for valid figures; it only checks that the benchmark works."""
    scale = QUICK if quick else FULL
    texts = sentences(scale.memories, seed=1)
    progress("starting the servers")
    with serving("--without", "pages", "--rate", "1000000") as server, _bare_server(server.folder, texts) as bare:
        progress(f"adding {scale.memories:,} memories")
        for text in texts:
            server.ask(f"/spaces/{SPACE}/memories", {"text": text})
        figures = asyncio.run(_measure(server, bare, scale, progress))
    explained = EXPLAINED.format(memories=scale.memories, connections=scale.connections, half=scale.half)
    return make_report("server", ["--quick"] if quick else [], explained, figures)


async def _measure(server: RunningServer, bare: str, scale: Scale, progress: Progress) -> list[Figure]:
    def search(_: int) -> bytes:
        return _get(server.url, f"/api/v1/spaces/{quote(SPACE)}/search", server.token)

    def search_bare(_: int) -> bytes:
        return _get(bare, "/search", bare_app.TOKEN)

    progress("searching until the embedder is loaded")
    await _run(server.url, search, scale, scale.clients)
    progress("searching, a bare app")
    plain = await _run(bare, search_bare, scale, scale.clients)
    progress("searching, afterturn")
    ours = await _run(server.url, search, scale, scale.clients)
    progress("turns")
    turns = await _run_turns(server, scale)
    progress(f"{scale.connections} connections")
    many = await _run(server.url, search, scale, scale.connections)
    progress(f"opening {scale.half} connections half")
    async with _half_open(server.url, scale.half):
        progress(f"searching with {scale.half} half-open connections")
        meanwhile = await _run(server.url, search, scale, scale.clients)
    note = f"{scale.clients} connections"
    none = Goal(0, "")
    return [
        judge("searches a second", "", ours.rate, None, note, baseline=plain.rate),
        judge("search, p99", "ms", ours.p99, None, note, baseline=plain.p99),
        judge("turns a second", "", turns.rate, None, f"{note}; start and inject", baseline=plain.rate),
        judge("turn, p99", "ms", turns.p99, None, "start and inject together", baseline=plain.p99),
        judge("errors of these", "", ours.errors + turns.errors, none),
        judge(
            f"errors at {scale.connections} connections", "", many.errors, none, f"{many.rate:.0f} searches a second"
        ),
        judge(f"search at {scale.connections} connections, p99", "ms", many.p99),
        judge("errors with half-open connections", "", meanwhile.errors, none, f"{scale.half} of them"),
        judge("search with half-open connections, p99", "ms", meanwhile.p99, Goal(2.0), note, baseline=ours.p99),
    ]


async def _run(url: str, make: Callable[[int], bytes], scale: Scale, clients: int) -> Load:
    load, began = Load(), perf_counter()

    async def ask_again(number: int) -> None:
        async with _connect(url) as (reader, writer):
            while perf_counter() - began < scale.seconds:
                await _ask(reader, writer, make(number), load)

    await _gather([ask_again(number) for number in range(clients)], load)
    load.took = perf_counter() - began
    return load


async def _run_turns(server: RunningServer, scale: Scale) -> Load:
    load, began, numbers = Load(), perf_counter(), count()
    messages = [{"role": "user", "content": "What did we say about the guitar lessons?"}]

    async def take_turns() -> None:
        async with _connect(server.url) as (reader, writer):
            while perf_counter() - began < scale.seconds:
                turn, both = f"t{next(numbers)}", Load()
                where = {"id": turn, "owner": SPACE}
                start = {"conversation": where, "messages": messages, "turn": turn}
                await _ask(reader, writer, _post(server, "/turns", start), both)
                inject = {"conversation": where, "messages": messages}
                await _ask(reader, writer, _post(server, f"/turns/{turn}/inject", inject), both)
                load.errors += both.errors
                load.seconds.append(sum(both.seconds))

    await _gather([take_turns() for _ in range(scale.clients)], load)
    load.took = perf_counter() - began
    return load


async def _gather(clients: list[object], load: Load) -> None:
    """A client whose connection breaks is an error."""
    for result in await asyncio.gather(*clients, return_exceptions=True):  # type: ignore[call-overload]
        if isinstance(result, OSError | EOFError):
            load.errors += 1
        elif isinstance(result, BaseException):
            raise result


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, load: Load) -> None:
    began = perf_counter()
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))
    load.seconds.append(perf_counter() - began)
    load.errors += not head.startswith(b"HTTP/1.1 200")


@asynccontextmanager
async def _connect(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


@asynccontextmanager
async def _half_open(url: str, connections: int) -> AsyncIterator[None]:
    """Connections that have sent nothing, or a part of a request. The server closes them in the end."""
    opened = []
    for number in range(connections):
        host, _, port = url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"" if number % 2 else b"POST /api/v1/turns HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        opened.append(writer)
    try:
        yield
    finally:
        for writer in opened:
            writer.close()


def _get(url: str, path: str, token: str) -> bytes:
    query = quote(_QUESTIONS[int(perf_counter() * 1e6) % len(_QUESTIONS)])
    return _head("GET", url, f"{path}?query={query}", token) + b"\r\n"


def _post(server: RunningServer, path: str, body: object) -> bytes:
    content = json.dumps(body).encode()
    head = _head("POST", server.url, f"/api/v1{path}", server.token)
    return head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content) + content


def _head(method: str, url: str, path: str, token: str) -> bytes:
    host = url.removeprefix("http://")
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n".encode()


@contextmanager
def _bare_server(folder: Path, texts: list[str]) -> Iterator[str]:
    path = folder / "bare.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE VIRTUAL TABLE memory USING fts5(text)")
        database.executemany("INSERT INTO memory VALUES (?)", [(text,) for text in texts])
    database.close()
    command = [sys.executable, "-m", "lab.bench.bare_app", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield child.stdout.readline().strip()
        finally:
            child.terminate()
