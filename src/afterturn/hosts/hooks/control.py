"""Controls the helpers from outside: status, stop, log, the pause of all hooks, and failures of hooks."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from afterturn.config import state_folder
from afterturn.errors import DeadlineExceeded
from afterturn.hosts.hooks.client import touch
from afterturn.hosts.state import open_state_folder
from afterturn.runtime.clock import SystemClock

_ANSWER_WITHIN = 2.0
_STOP_WITHIN = 15.0
_LOOK_EVERY = 0.02
_LOG_LINES_MAX = 10_000
_PAUSED = "paused"
_FAILURES = "hook-failures.log"
_FAILURES_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class HelperStatus:
    """A helper that runs. `served` counts events, `failed` those that it refused or could not handle."""

    name: str
    pid: int
    version: str
    served: int
    failed: int


@dataclass(frozen=True, slots=True)
class HookFailure:
    """One line that a hook left. `at` is in Unix seconds."""

    at: float
    text: str


def running_helpers() -> list[HelperStatus]:
    """The helpers that answer now, one for each environment in which hooks run."""
    found = []
    for name in _names(".sock"):
        answer = _ask(name, b"afterturn-helper status")
        if answer is not None:
            # A helper of another version may send more.
            status = json.loads(answer)
            found.append(HelperStatus(name, status["pid"], status["version"], status["served"], status["failed"]))
    return found


def stop_helpers() -> int:
    """Stops all helpers and waits for their end. Returns how many there were. Raises DeadlineExceeded."""
    stopped = 0
    for name in _names(".lock"):
        if _ask(name, b"afterturn-helper stop") is None and not _is_locked(name):
            continue
        stopped += 1
        if not _wait_unlocked(name):
            raise DeadlineExceeded(f"A helper has not ended within {_STOP_WITHIN:g} seconds. Run the command again.")
    return stopped


def read_log(lines: int) -> list[str]:
    """The newest lines of all helpers' logs, oldest first."""
    found: list[str] = []
    for name in _names(".log"):
        for suffix in (".log.1", ".log"):
            path = state_folder() / f"{name}{suffix}"
            if path.is_file():
                found += path.read_text(encoding="utf-8", errors="replace").splitlines()
    return sorted(found, key=lambda line: line[:23])[-min(lines, _LOG_LINES_MAX) :]


def pause_hooks() -> None:
    """From now on hooks of all clients answer nothing, and nothing is recorded."""
    touch(str(open_state_folder() / _PAUSED))


def resume_hooks() -> bool:
    """False if hooks were not paused."""
    try:
        (state_folder() / _PAUSED).unlink()
    except FileNotFoundError:
        return False
    return True


def are_hooks_paused() -> bool:
    return (state_folder() / _PAUSED).exists()


def failures_path() -> Path:
    return state_folder() / _FAILURES


def hook_failures() -> list[HookFailure]:
    """What hooks could not do in the last seven days, oldest first."""
    try:
        text = failures_path().read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    found = [line.partition(" ") for line in text.splitlines()]
    since = SystemClock().now() - _FAILURES_SECONDS
    return [HookFailure(float(at), what) for at, _, what in found if at.isdigit() and float(at) >= since and what]


def _names(suffix: str) -> list[str]:
    return sorted(path.name.removesuffix(suffix) for path in state_folder().glob(f"hooks-*{suffix}"))


def _ask(name: str, request: bytes) -> bytes | None:
    """None if nobody answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, _short_path(f"{name}.sock") as path:
        connection.settimeout(_ANSWER_WITHIN)
        try:
            connection.connect(path)
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while part := connection.recv(4096):
                answer += part
        except OSError:
            return None
    return answer


@contextmanager
def _short_path(name: str) -> Iterator[str]:
    """A path of at most 107 bytes, which is what the name of a socket may have."""
    folder = os.open(state_folder(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{folder}/{name}"
        yield short if os.path.exists(f"/proc/self/fd/{folder}") else str(state_folder() / name)
    finally:
        os.close(folder)


def _is_locked(name: str) -> bool:
    try:
        with open(state_folder() / f"{name}.lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _wait_unlocked(name: str) -> bool:
    """One that is being started cannot be reached yet, so it is asked again."""
    never = threading.Event()
    for _ in range(int(_STOP_WITHIN / _LOOK_EVERY)):
        if not _is_locked(name):
            return True
        _ask(name, b"afterturn-helper stop")
        never.wait(_LOOK_EVERY)
    return False
