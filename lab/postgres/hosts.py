"""Runs hosts on a server while it fails, and checks what it holds afterwards: every turn, once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.postgres.host import CONVERSATION, OWNER
from lab.tables import read_rows

_WITHIN = 120.0
_RECORDS = (
    "SELECT e.turn, e.text, e.position FROM entry AS e JOIN space AS s ON s.key = e.space_key "
    "WHERE s.name = ? AND e.kind = 'record' AND e.conversation = ?"
)


class Host:
    """A process that runs turns. `lines` is what it has printed so far."""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        command = [sys.executable, "-m", "lab.postgres.host", url, name, str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.lines: list[dict[str, Any]] = []

    def turns(self, what: str) -> list[str]:
        """The turns of which it has printed this, in order."""
        with self._changed:
            return [line["turn"] for line in self.lines if line["what"] == what]

    def wait(self, what: str, count: int) -> None:
        """Returns when it has printed this `count` times more. Raises AssertionError if it does not."""
        wanted = len(self.turns(what)) + count
        self.wait_until(lambda: sum(line["what"] == what for line in self.lines) >= wanted, f"{count} times {what}")

    def wait_until(self, is_met: Callable[[], bool], what: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: is_met() or self._process.poll() is not None, _WITHIN)
            ended = self._process.poll()
            assert is_met(), f"A host did not print {what}. It ended with {ended}: {self.lines[-9:]}"

    def kill(self) -> None:
        self._process.kill()
        self._ended()

    def end(self) -> int:
        """Lets it store everything that waits. Returns its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._ended()

    def _ended(self) -> int:
        try:
            self._process.wait(_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reader.join(_WITHIN)
        return self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                with self._changed:
                    self.lines.append(json.loads(line))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


class Hosts:
    """Several hosts in one conversation of one user. Use it with `with`: no process is left."""

    def __init__(self, url: str, folder: Path, names: Sequence[str] = ("a", "b")) -> None:
        self._url = url
        self.hosts = [Host(url, name, folder / name) for name in names]

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in self.hosts:
            host.kill()

    def wait(self, what: str, count: int) -> None:
        for host in self.hosts:
            host.wait(what, count)

    def end(self, at: str | None = None) -> list[str]:
        """Ends the hosts and returns all broken promises. `at` is the URL to read from, if it is another one."""
        broken = [f"a host ended with {code}" for host in self.hosts if (code := host.end())]
        done = {turn for host in self.hosts for turn in host.turns("turn")}
        lost = [turn for host in self.hosts for turn in host.turns("not_recorded")]
        return [*broken, *(f"{turn} was given up" for turn in lost), *check_stored(at or self._url, done)]


def check_stored(url: str, turns: Set[str], *, perhaps: Set[str] = frozenset()) -> list[str]:
    """All broken promises: each of `turns` is there, `perhaps` may be, nothing else is, and all of it once."""
    rows = read_rows(url, _RECORDS, (OWNER, CONVERSATION))
    held = Counter(turn for turn, _, _ in rows)
    positions = Counter(position for _, _, position in rows)
    texts = Counter(text for _, text, _ in rows)
    return [
        *(f"{turn} is not stored" for turn in sorted(turns - set(held))),
        *(f"{turn} is stored and was never run" for turn in sorted(set(held) - turns - perhaps)),
        *(f"{turn} has {count} messages" for turn, count in sorted(held.items()) if count != 2),
        *(f"position {position} is there {count} times" for position, count in positions.items() if count != 1),
        *(f"{text!r} is there {count} times" for text, count in texts.items() if count != 1),
        *([f"the positions are not 0 to {len(rows) - 1}"] if set(positions) != set(range(len(rows))) else []),
    ]
