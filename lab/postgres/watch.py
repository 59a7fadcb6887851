"""Ends a server that the labs and tests started when the process that started it is gone, however that ended.

`python -m lab.postgres.watch FOLDER [PID]` reads its input to the end. Then it ends the PostgreSQL server in
FOLDER/data, or the process PID, and removes FOLDER.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_END_TRIES_MAX = 600
_PAUSE = 0.05
_ENDED = b"ended"


class Watch:
    """`end` says that the server has been stopped already, and waits until the folder is removed."""

    def __init__(self, folder: Path, process: int | None = None) -> None:
        command = [sys.executable, "-m", "lab.postgres.watch", str(folder), *([str(process)] if process else [])]
        # A session of its own: Ctrl-C ends the tests, and this process only after them.
        self._process = subprocess.Popen(
            command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )

    def end(self) -> None:
        self._process.communicate(_ENDED)


def main(folder: Path, process: int | None) -> None:
    has_ended = sys.stdin.buffer.read() == _ENDED
    if not has_ended and (pid := process or _find_server(folder)):
        _kill(pid)
    shutil.rmtree(folder, ignore_errors=True)


def _find_server(folder: Path) -> int | None:
    try:
        return int((folder / "data" / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
    except (OSError, IndexError, ValueError):
        return None


def _kill(pid: int) -> None:
    """Returns when it has ended. SIGQUIT: PostgreSQL and PgBouncer end at once."""
    pause = threading.Event()
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGQUIT)
        for _ in range(_END_TRIES_MAX):
            pause.wait(_PAUSE)
            os.kill(pid, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
