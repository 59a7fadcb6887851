"""Child processes for tests. They communicate in lines, every wait is bounded, and warnings are errors."""

import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from exchanges import WAIT

PRELUDE = """
import asyncio, gc, os, signal, sys, threading
import afterturn
from afterturn import blocking
path, arguments = sys.argv[1], sys.argv[2:]
NO_EMBEDDER = {"embedder": "none"}

def say(*words):
    print(*words, flush=True)

def hear():
    return sys.stdin.readline().strip()

def exchange(said):
    return [{"role": "user", "content": said}, {"role": "assistant", "content": "Noted."}]
"""

HOLD_THE_LOCK = """
import apsw
connection = apsw.Connection(path)
connection.set_busy_timeout(10_000)
connection.execute(f"BEGIN {arguments[0]}")
say("locked")
hear()
connection.execute("ROLLBACK")
connection.close()
"""


@dataclass(frozen=True)
class Ended:
    code: int
    out: list[str]
    err: str


class Child:
    """Runs a script whose first argument is the store's path. `say`, `hear` and `exchange` are defined in it."""

    def __init__(self, script: str, path: Path, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PRELUDE + textwrap.dedent(script), path, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # so that `select` sees every line
        )

    def hear(self) -> str:
        """Its next line. It must not end before it says one."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], WAIT)
        assert ready, "the child says nothing"
        line = self.process.stdout.readline().decode()
        assert line, f"the child has ended: {self.end().err}"
        return line.strip()

    def say(self, line: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, within: float = WAIT) -> Ended:
        """Waits until it has ended by itself."""
        out, err = self.process.communicate(timeout=within)
        return Ended(self.process.returncode, out.decode().splitlines(), err.decode())

    def result(self) -> list[str]:
        """What it said, once it has ended well and without a word on stderr."""
        ended = self.end()
        assert ended.err == ""
        assert ended.code == 0
        return ended.out

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


StartChild = Callable[..., Child]
