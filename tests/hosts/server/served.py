"""The service in this process, without a socket, and as a process of its own; and clients with a token."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2

from afterturn.config import Config
from afterturn.hosts.server.app import ServerOptions, Service
from afterturn.hosts.server.grant import Grant, make_grant
from afterturn.hosts.server.tokens import create_token

WITHIN = 100.0
HOST = "memory.test"
CAT = "My cat Miso is allergic to chicken."
QUESTION = [{"role": "user", "content": "What food is my cat allergic to?"}]


def make_token(name: str, space: str = "user:ada", tenant: str = "default", **options: Any) -> str:
    return create_token(make_grant(Config(tenant=tenant), space=space, agent=name, **options), name=name)[1]


def make_service(folder: Path, *, local: Grant | None = None, **settings: Any) -> Service:
    config = Config(**settings)
    options = ServerOptions(HOST, (HOST,), local=local, parts=frozenset({"api"}))
    return Service(lambda: (folder / "memory.db", config), options)


@dataclass
class Api:
    """A client of the API. `post`, `get` and `put` return the answer's JSON, or fail with its text."""

    client: httpx2.AsyncClient
    conversation: dict[str, Any] = field(default_factory=lambda: {"id": "c1"})

    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return await self.client.request(method, f"/api/v1{path}", **options)

    async def get(self, path: str, **query: Any) -> Any:
        return checked(await self.ask("GET", path, params=query))

    async def post(self, path: str, **body: Any) -> Any:
        return checked(await self.ask("POST", path, json=body))

    async def put(self, path: str, **body: Any) -> Any:
        return checked(await self.ask("PUT", path, json=body))

    async def status(self, method: str, path: str, **options: Any) -> int:
        """The status of a request that is refused, which must say so in the documented form."""
        answer = await self.ask(method, path, **options)
        assert answer.status_code >= 400, answer.text
        error = answer.json()["error"]
        assert error["type"]
        assert error["message"]
        return answer.status_code

    async def add(self, text: str, space: str = "user:ada", **fields: Any) -> str:
        return str((await self.post(f"/spaces/{space}/memories", text=text, **fields))["entry"]["id"])

    # A turn as a host takes it.

    async def start(self, messages: list[dict[str, Any]], turn: str = "t1", **options: Any) -> str:
        answer = await self.post("/turns", conversation=self.conversation, messages=messages, turn=turn, **options)
        return str(answer["turn"])

    async def inject(self, messages: list[dict[str, Any]], turn: str = "t1", **options: Any) -> list[dict[str, Any]]:
        """The list as it is after the answer was applied."""
        answer = await self.verb("inject", turn, messages=messages, within=20, **options)
        return applied(messages, answer["inserted"])

    async def verb(self, verb: str, turn: str = "t1", **body: Any) -> Any:
        return await self.post(f"/turns/{turn}/{verb}", conversation=self.conversation, **body)

    def speaking_in(self, **conversation: Any) -> "Api":
        return replace(self, conversation={**self.conversation, **conversation})


def checked(answer: httpx2.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def applied(messages: list[dict[str, Any]], inserted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What docs/http.md says a client does."""
    changed = list(messages)
    for one in inserted:
        if one["replaces"]:
            changed[one["index"]] = one["element"]
        else:
            changed.insert(one["index"], one["element"])
    return changed


class Server:
    """`afterturn serve` as a process."""

    def __init__(self, folder: Path, *options: str, **variables: str) -> None:
        known = {**os.environ, "AFTERTURN_STORE": str(folder / "memory.db"), **variables}
        command = [sys.executable, "-m", "afterturn", "serve", "--port", "0", *options]
        self.process = subprocess.Popen(command, env=known, cwd=folder, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert line.startswith("Serving http://"), line + self.process.stderr.read()
        self.url = line.split()[1].removesuffix(".")
        self.port = int(self.url.rpartition(":")[2])

    def client(self, token: str | None) -> httpx2.AsyncClient:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=WITHIN)

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(timeout=WITHIN)
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def serving(folder: Path, *options: str, **variables: str) -> Iterator[Server]:
    server = Server(folder, *options, **variables)
    try:
        yield server
    finally:
        server.end()
