"""Programs that only know a model's base URL, and the server whose proxy gives them a memory: aider, Vercel's AI SDK.

Each program is installed below .clients/, which git ignores, from its lock file.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".clients"
AIDER_LOCK = HERE / "aider.txt"
AI_SDK = HERE / "ai_sdk"
WITHIN = 120.0


def run_aider(url: str, token: str, home: Path, text: str) -> str:
    """One message to aider, which can only set the base URL and the key. Returns what it prints."""
    folder = _installed("aider", [AIDER_LOCK], _install_aider)
    options = "--no-git --yes-always --chat-mode ask --no-stream --no-pretty --no-check-update --analytics-disable "
    options += "--no-show-model-warnings --no-show-release-notes --no-gitignore --map-tokens 0 --no-detect-urls"
    command = [str(folder / "bin" / "aider"), *options.split(), "--model", "openai/gpt-5", "--message", text]
    known = {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": token, "HOME": str(home), "PATH": os.environ["PATH"]}
    return _run(command, home, {**known, "LITELLM_LOCAL_MODEL_COST_MAP": "True"})


def run_ai_sdk(base_url: str, headers: dict[str, str], api: str, texts: Sequence[str], home: Path) -> list[Any]:
    """A conversation by the AI SDK, every second text streamed. Returns what the model said and called."""
    files = [AI_SDK / name for name in ("package.json", "package-lock.json", "talk.mjs")]
    folder = _installed("ai_sdk", files, lambda folder: _install_ai_sdk(folder, files))
    node = str(folder / "node_modules" / ".bin" / "node")
    command = [node, str(folder / "talk.mjs"), base_url, json.dumps(headers), api, *texts]
    printed = _run(command, home, {"HOME": str(home), "PATH": os.environ["PATH"], "AI_SDK_LOG_WARNINGS": "false"})
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


@contextmanager
def served(folder: Path, *options: str, grace: float = 20.0) -> Iterator[str]:
    """The URL of `afterturn serve` in a process of its own, with a store in `folder`."""
    known = {**os.environ, "AFTERTURN_STORE": str(folder / "memory.db"), "AFTERTURN_GRACE": str(grace)}
    command = [sys.executable, "-m", "afterturn", "serve", "--port", "0", *options]
    with subprocess.Popen(command, env=known, cwd=folder, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None
            line = child.stderr.readline()
            if not line.startswith("Serving http://"):
                raise RuntimeError(line + child.stderr.read())
            yield line.split()[1].removesuffix(".")
        finally:
            child.terminate()
            child.wait(timeout=WITHIN)


def _run(command: Sequence[str], folder: Path, known: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=known, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WITHIN
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _installed(name: str, files: Sequence[Path], install: Callable[[Path], None]) -> Path:
    """If two processes call it at once, the second waits and then has nothing to do."""
    folder = FOLDER / name
    FOLDER.mkdir(exist_ok=True)
    wanted = hashlib.sha256(b"".join([str(folder).encode(), *(file.read_bytes() for file in files)])).hexdigest()
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "installed"
        if not stamp.is_file() or stamp.read_text() != wanted:
            print(f"Installing {name} into .clients/{name}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            install(folder)
            stamp.write_text(wanted)
    return folder


def _install_aider(folder: Path) -> None:
    uv = Path(sys.executable).parent / "uv"
    python = str(folder / "bin" / "python")
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, "--requirement", AIDER_LOCK], check=True)


def _install_ai_sdk(folder: Path, files: Sequence[Path]) -> None:
    for file in files:
        shutil.copy(file, folder)
    command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, check=True)
