"""More turns than memory can take. Every turn whose `finish` returned is in the store or in a file afterwards: when a
host closes its memory, and when a worker that stores such files or a helper of hooks is ended by SIGTERM.

This module is also the process of the host, of the worker, and the one that sends events to a helper. The first and the
last print the labels of the turns that were left: the first word of what the user said.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import afterturn
from afterturn.config import Config, spill_folder
from afterturn.conversation import recorder
from afterturn.conversation.spill import Spill
from afterturn.hosts.cli.app import run as run_command
from afterturn.hosts.hooks import client as hook
from lab.patched_helper import start_patched_helper
from lab.slices import Outcome
from lab.tables import read_rows

_WITHIN = 120.0
_RECORDS = "SELECT text FROM entry WHERE kind = 'record' AND origin = 'user'"


def close_overloaded(store: Path, seconds: float, conversations: int, queue: int, outcome: Outcome) -> None:
    """A host closes its memory; then a worker that stores what waits is ended."""
    left = _run(_settings(store), "host", f"{queue}", f"{conversations}", f"{seconds}")
    stored, filed = find_turns(store)
    outcome.counts.update(
        {"turns left under overload": len(left), "of them in files after closing": len(filed - stored)}
    )
    outcome.broken.extend(_missing("closing", left, stored | filed))
    _end_worker(store, queue, enough=len(stored) + len(filed) // 20)
    outcome.counts["processes ended by SIGTERM"] += 1
    outcome.broken.extend(_missing("SIGTERM of a worker", left, set.union(*find_turns(store))))


def end_helper(store: Path, conversations: int, queue: int, outcome: Outcome) -> None:
    left = _run(_settings(store), "helper", f"{queue}", f"{conversations}")
    stored, filed = find_turns(store)
    outcome.counts.update({"turns left under overload": len(left), "processes ended by SIGTERM": 1})
    outcome.broken.extend(_missing("SIGTERM of a helper", left, stored | filed))


def find_turns(store: Path) -> tuple[set[str], set[str]]:
    """The labels of the turns in the store, each of which must be there once, and in files."""
    spill = Spill(spill_folder(Config(), store))
    spill.unpack()
    filed = {recording.messages[0].text.split()[0] for recording in spill.waiting()}
    stored = [str(text).split()[0] for (text,) in read_rows(store, _RECORDS)]
    assert len(stored) == len(set(stored)), "a turn is stored twice"
    return set(stored), filed


def _missing(when: str, left: set[str], found: set[str]) -> list[str]:
    return [f"{when}: turn {label} is neither stored nor in a file" for label in sorted(left - found)]


def _settings(store: Path) -> dict[str, str]:
    """The environment of a user whose home is the folder of the store."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AFTERTURN_", "XDG_"))},
        "HOME": str(store.parent),
        "AFTERTURN_STATE": str(store.parent / "state"),
        "AFTERTURN_STORE": str(store),
        "AFTERTURN_SPACE": "user:ada",
    }


def _run(environment: dict[str, str], *arguments: str) -> set[str]:
    command = [sys.executable, "-m", "lab.loss.overload", *arguments]
    ended = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, timeout=10 * _WITHIN, check=True
    )
    return set(ended.stdout.split())


def _end_worker(store: Path, queue: int, *, enough: int) -> None:
    """Starts a worker, and ends it when the store has `enough` turns."""
    command = [sys.executable, "-m", "lab.loss.overload", "worker", f"{queue}"]
    with subprocess.Popen(command, env=_settings(store), stdout=-3, stderr=-3) as worker:
        _wait_for(lambda: worker.poll() is not None or len(read_rows(store, _RECORDS)) >= enough)
        worker.send_signal(signal.SIGTERM)
        if worker.wait(timeout=_WITHIN) != 0:
            raise AssertionError(f"the worker ended with {worker.returncode}")


def _wait_for(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WITHIN
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen in time")
        time.sleep(0.05)


# The host's process.


async def _host(seconds: float, conversations: int) -> None:
    left: list[str] = []
    until = time.monotonic() + seconds

    async def converse(memory: afterturn.Memory, number: int) -> None:
        conversation = memory.conversation(f"c{number}", user=f"u{number % 10}")
        for count in itertools.count():
            label = f"n{number}t{count}"
            messages = [{"role": "user", "content": f"{label} Where is the key of room {number}?"}]
            turn = conversation.turn(messages)
            await turn.inject(messages, within=0.0)
            turn.finish([*messages, {"role": "assistant", "content": "It is in the drawer."}])
            left.append(label)
            await asyncio.sleep(0)
            if time.monotonic() > until:
                return

    async with afterturn.open() as memory:
        await asyncio.gather(*(converse(memory, number) for number in range(conversations)))
    print(*left)


# The process that sends events to a helper.


async def _helper(queue: int, sessions: int) -> None:
    folder, left, pid = hook.open_folder(), list[str](), 0
    os.chdir(folder)
    start_patched_helper(os.environ, "afterturn.conversation.recorder.RECORDING_QUEUE_MAX", queue)
    lock = os.path.join(folder, f"{hook.helper_name()}.lock")
    deadline = time.monotonic() + _WITHIN
    while not pid and time.monotonic() < deadline:
        try:
            pid = json.loads(await _send(b"afterturn-helper status"))["pid"]
        except OSError:
            await asyncio.sleep(0.05)

    async def report(number: int) -> None:
        label, named = f"n{number}t0", {"session_id": f"s{number}", "cwd": "/"}
        try:
            started = await _send(_event("UserPromptSubmit", {**named, "prompt": f"{label} Where is the key?"}))
            if not started.startswith(b"="):
                return  # a helper that was too busy for the prompt has no turn to finish
            if (await _send(_event("Stop", {**named, "last_assistant_message": "In the drawer."}))).startswith(b"="):
                left.append(label)
        except OSError:
            return  # the helper has ended
        if len(left) == sessions // 2:
            os.kill(pid, signal.SIGTERM)

    await asyncio.gather(*map(report, range(sessions)))
    await asyncio.to_thread(_wait_for, lambda: not os.path.exists(f"/proc/{pid}") or not _is_locked(lock))
    print(*left)


def _event(name: str, payload: dict[str, str]) -> bytes:
    fields = (hook.stamp(), "claude-code", name, "/", "")
    return b"\0".join([hook.PROTOCOL, *map(os.fsencode, fields), json.dumps(payload).encode()])


async def _send(request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(f"{hook.helper_name()}.sock")
    writer.write(request)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def _is_locked(lock: str) -> bool:
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


if __name__ == "__main__":
    recorder.RECORDING_QUEUE_MAX = int(sys.argv[2])
    if sys.argv[1] == "host":
        asyncio.run(_host(float(sys.argv[4]), int(sys.argv[3])))
    elif sys.argv[1] == "worker":
        sys.exit(run_command(["worker"]))
    else:
        asyncio.run(_helper(recorder.RECORDING_QUEUE_MAX, int(sys.argv[3])))
