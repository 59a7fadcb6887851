"""The audit log: who read and changed what over HTTP, one JSON line for each request, in the state folder."""

from __future__ import annotations

import json
import os
from collections import deque
from typing import Any

from starlette.types import Scope

from afterturn.hosts.server.access import Caller
from afterturn.hosts.state import open_state_folder
from afterturn.log import logger
from afterturn.runtime.clock import SystemClock

FILE = "audit.jsonl"
BYTES_MAX = 10_000_000
RECENT_MAX = 500


class AuditLog:
    """Appends to `audit.jsonl`, which only its owner can read; a full file becomes `audit.jsonl.1`. Paths have ids and
    names of spaces, never texts."""

    def __init__(self) -> None:
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT_MAX)

    def note(self, caller: Caller, scope: Scope, status: int) -> None:
        row = {
            "at": SystemClock().now(),
            "tenant": caller.grant.tenant,
            "caller": caller.id,
            "name": caller.name,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
        }
        self.recent.append(row)
        try:
            self._append(json.dumps(row) + "\n")
        except OSError as error:
            logger.warning("the audit log cannot be written: %s", error)

    def _append(self, line: str) -> None:
        path = open_state_folder() / FILE
        with open(path, "a", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as file:
            file.write(line)
            is_full = file.tell() > BYTES_MAX
        if is_full:
            path.replace(path.with_name(FILE + ".1"))
