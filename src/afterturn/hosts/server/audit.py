"""The audit log: who read and changed what over HTTP, one JSON line for each request, in the state folder."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator
from typing import Any

from starlette.types import Scope

from afterturn.config import state_folder
from afterturn.errors import InvalidFile
from afterturn.hosts.server.access import Caller
from afterturn.hosts.state import open_state_folder
from afterturn.log import logger
from afterturn.runtime.clock import SystemClock

FILE = "audit.jsonl"
BYTES_MAX = 10_000_000
RECENT_MAX = 500
# What a request has reached, in the ASGI scope.
REACHED = "afterturn.reached"
_NAMES_MAX = 50
# Of a path or a name: nobody fills the log with a few long ones, so that older lines are dropped.
_CHARS_MAX = 300
# What each line has, with the type of its value.
_COLUMNS = {"at": float, "tenant": str, "caller": str, "name": str, "method": str, "path": str, "status": int}


def note_reached(scope: Scope, **names: str) -> None:
    """Notes the spaces and the conversation that a request asks for: `reads`, `writes`, `conversation`."""
    reached: dict[str, list[str]] = scope[REACHED]
    for kind, name in names.items():
        known = reached.setdefault(kind, [])
        if name[:_CHARS_MAX] not in known and len(known) < _NAMES_MAX:
            known.append(name[:_CHARS_MAX])


class AuditLog:
    """Appends to `audit.jsonl`, which only its owner can read; a full file becomes `audit.jsonl.1`.

    A line has names of spaces and ids, never texts. Several servers may share the file. Used on one thread.
    """

    def __init__(self) -> None:
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT_MAX)
        self._file: int | None = None

    def note(self, caller: Caller, scope: Scope, status: int) -> None:
        row = {
            "at": SystemClock().now(),
            "tenant": caller.grant.tenant,
            "caller": caller.id,
            "name": caller.name,
            "method": scope["method"],
            "path": scope["path"][:_CHARS_MAX],
            **scope.get(REACHED, {}),
            "status": status,
        }
        self.recent.append(row)
        try:
            self._append(json.dumps(row).encode() + b"\n")
        except (OSError, InvalidFile) as error:
            logger.warning("the audit log cannot be written: %s", error)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, line: bytes) -> None:
        if self._file is None:
            path = open_state_folder() / FILE
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.write(self._file, line)
        status = os.fstat(self._file)
        # Another server may have rotated the file.
        if status.st_size > BYTES_MAX or not status.st_nlink or not self._is_current(status):
            self._rotate(status)

    def _is_current(self, status: os.stat_result) -> bool:
        try:
            return os.stat(state_folder() / FILE).st_ino == status.st_ino
        except FileNotFoundError:
            return False

    def _rotate(self, status: os.stat_result) -> None:
        self.close()
        path = open_state_folder() / FILE
        if path.exists() and path.stat().st_ino == status.st_ino:
            path.replace(path.with_name(f"{FILE}.1"))


def read_audit() -> Iterator[dict[str, Any]]:
    """The rows of the log and of the one before it, oldest first. Lines that are damaged are left out."""
    for path in (state_folder() / f"{FILE}.1", state_folder() / FILE):
        if not path.exists():
            continue
        with open(path, encoding="utf-8", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict) and all(isinstance(row.get(name), kind) for name, kind in _COLUMNS.items()):
                    yield row
