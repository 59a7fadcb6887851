"""One user's machine for a test with real clients: a fresh home, a model server, and clients that share a project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.clients.drivers import CLIENTS, Client, Reply
from lab.clients.model_server import ModelRequest, ModelServer, Rule, follow

_BLOCK = re.compile(r"(?:<|&lt;)afterturn-(memory|standing)(?:>|&gt;)(.*?)(?:<|&lt;)/afterturn-\1(?:>|&gt;)", re.DOTALL)
# An id; lines of a standing block have none.
_BULLET = re.compile(r"^- (\[[^\]\s]+|.*)", re.MULTILINE)
_RECORDED_WITHIN = 20.0


@dataclass(frozen=True, slots=True)
class ClientTurn:
    """One run of a client, and the requests of its conversation that the model got meanwhile."""

    reply: Reply
    requests: Sequence[ModelRequest]

    @property
    def last(self) -> ModelRequest:
        return self.requests[-1]


def blocks_in(request: ModelRequest) -> list[str]:
    """The blocks of recalled memories and of standing ones, in order."""
    return [text for _, text in _BLOCK.findall(request.text)]


def memories_in(request: ModelRequest) -> list[str]:
    """The ids of the recalled memories and the lines of the standing ones, in order, with repetitions."""
    return [shown for block in blocks_in(request) for shown in _BULLET.findall(block)]


class Machine:
    """Use it as a context manager: it stops the helper and removes the home."""

    def __enter__(self) -> Machine:
        # A socket's name has at most 107 bytes, so the home has a short one. A client's sandbox may hide /dev/shm.
        self.home = Path(tempfile.mkdtemp(prefix="at-", dir="/tmp"))
        self.rules: list[Rule] = []
        self.server = ModelServer(lambda request: follow(self.rules)(request)).__enter__()
        self._clients: dict[str, Client] = {}
        return self

    def __exit__(self, *_: object) -> None:
        self.run("helper", "stop")
        self.server.__exit__()
        shutil.rmtree(self.home, ignore_errors=True)

    def client(self, name: str) -> Client:
        if name not in self._clients:
            self._clients[name] = CLIENTS[name](self.home, self.server.url)
            self.rules += self._clients[name].summary()
        return self._clients[name]

    def turn(self, client: Client, act: Callable[[], Reply]) -> ClientTurn:
        before = len(self.server.requests)
        reply = act()
        found = [request for request in self.server.requests[before:] if client.is_own_request(request)]
        return ClientTurn(reply, found)

    def ask(self, client: Client, prompt: str, *, resume: bool = False) -> ClientTurn:
        return self.turn(client, lambda: client.ask(prompt, resume=resume))

    def tell(self, client: Client, text: str) -> ClientTurn:
        """Says something in a new conversation, and waits until it is recorded."""
        told = self.ask(client, text)
        self.wait_recorded(text)
        return told

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs an `afterturn` command as this machine's user, in the project."""
        environment = (
            {**next(iter(self._clients.values())).environment()} if self._clients else {"HOME": str(self.home)}
        )
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        return subprocess.run(
            [sys.executable, "-m", "afterturn", *arguments],
            cwd=self.home / "work" / "project" if self._clients else self.home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def command(self, *arguments: str) -> str:
        """The output of a command that must succeed."""
        done = self.run(*arguments)
        if done.returncode != 0:
            raise RuntimeError(f"afterturn {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done.stdout

    def records(self) -> list[dict[str, Any]]:
        """The messages that were recorded in the user's space, newest first. Empty without a store."""
        done = self.run("export")
        lines = [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []
        return [line["entry"] for line in lines if line.get("entry", {}).get("kind") == "record"]

    def helpers(self) -> list[int]:
        """The process ids of the helpers that run."""
        return [helper["pid"] for helper in json.loads(self.command("helper", "status", "--json"))["helpers"]]

    def wait_recorded(self, text: str) -> None:
        deadline = time.monotonic() + _RECORDED_WITHIN
        while time.monotonic() < deadline:
            if any(text in entry["text"] for entry in self.records()):
                return
            time.sleep(0.2)
        raise TimeoutError(f"{text!r} was not recorded. {self.run('helper', 'log').stdout[-2000:]}")
