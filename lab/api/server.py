"""A real `afterturn serve` with a store of its own, a token and some memories."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPACE = "user:ada"
CONVERSATION = "support-42"
_WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class RunningServer:
    """`token` is for all spaces and everything."""

    url: str
    token: str
    folder: Path

    def demo_token(self, space: str) -> str:
        """A token for one space."""
        create = [sys.executable, "-m", "afterturn", "token", "create", "--name", "demo", "--space", space]
        known = {**os.environ, "AFTERTURN_STATE": str(self.folder / "state")}
        return subprocess.run(create, env=known, check=True, capture_output=True, text=True).stdout.strip()

    def ask(self, path: str, body: Mapping[str, object]) -> Any:
        """The JSON of the answer. Raises HTTPError for an error."""
        request = urllib.request.Request(
            f"{self.url}/api/v1{path}",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_WITHIN) as answer:
            return json.load(answer)


@contextmanager
def serving(*options: str) -> Iterator[RunningServer]:
    """The server in a process of its own, with files that are removed in the end."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        known = {
            **{key: value for key, value in os.environ.items() if not key.startswith("AFTERTURN_")},
            "AFTERTURN_STORE": str(folder / "memory.db"),
            "AFTERTURN_STATE": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        command = [sys.executable, "-m", "afterturn"]
        create = [*command, "token", "create", "--name", "lab", "--space", "*"]
        token = subprocess.run(create, env=known, check=True, capture_output=True, text=True).stdout.strip()
        serve = [*command, "serve", "--port", "0", *options]
        with (
            open(folder / "server.log", "w+", encoding="utf-8") as log,
            subprocess.Popen(serve, env=known, cwd=folder, stderr=log) as child,
        ):
            try:
                yield RunningServer(_find_url(folder / "server.log", child), token, folder)
            finally:
                child.terminate()
                child.wait(timeout=_WITHIN)


def _find_url(log: Path, child: subprocess.Popen[bytes]) -> str:
    while child.poll() is None:
        for line in log.read_text(encoding="utf-8").splitlines():
            if line.startswith("Serving http"):
                return line.split()[1].removesuffix(".")
        try:
            child.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
    raise RuntimeError(f"the server did not start: {log.read_text(encoding='utf-8')}")
