"""Runs `afterturn` commands, in this process or as a child; and a memory for the provider tests."""

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from provider_hosts import SAID, HeldEmbedder

import afterturn
from afterturn.hosts.cli.app import run


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class CommandLine:
    """Calls `afterturn` on a store of its own, in the space user:ada."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.store = folder / "memory.db"
        self._capture = capture
        self._patch = patch

    def __call__(self, *arguments: str, stdin: bytes = b"", space: str | None = "user:ada") -> Answer:
        named = [f"--space={space}"] if space else []
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capture.readouterr()
        code = run([f"--store={self.store}", *named, *arguments])
        captured = self._capture.readouterr()
        return Answer(code, captured.out, captured.err)

    def add(self, text: str, *options: str) -> str:
        """The new memory's id."""
        answer = self("add", text, "--json", *options)
        assert answer.code == 0, answer.err
        return str(answer.json["entry"]["id"])

    def child(self, *arguments: str, **settings: Any) -> subprocess.Popen[Any]:
        known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        known |= {"AFTERTURN_STORE": str(self.store), "AFTERTURN_SPACE": "user:ada", "TERM": "xterm-256color"}
        known |= settings.pop("environment", {})
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-m", "afterturn", *arguments], env=known, **(pipes | settings))

    def on_a_terminal(self, *arguments: str, keys: bytes = b"", **settings: Any) -> tuple[int, str]:
        """The exit code, and what a terminal showed while `keys` were typed."""
        ours, theirs = pty.openpty()
        streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs} | settings
        with self.child(*arguments, **streams) as child:
            os.close(theirs)
            os.write(ours, keys)
            shown = b"".join(iter(lambda: read_terminal(ours), b""))
            code = child.wait()
        os.close(ours)
        return code, shown.decode()


def read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # Linux's way to say that the other end is closed
        return b""


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(tmp_path, capsys, monkeypatch)


@pytest.fixture
def embedder() -> HeldEmbedder:
    """Blocks while a test holds it, and every recall with it."""
    return HeldEmbedder()


@pytest.fixture
async def memory(tmp_path: Path, embedder: HeldEmbedder) -> AsyncIterator[afterturn.Memory]:
    """A memory that knows SAID."""
    async with afterturn.open(tmp_path / "memory.db", components=afterturn.Components(embedder=embedder)) as opened:
        await opened.space("user:ada").add(SAID)
        await opened.ready()
        yield opened
