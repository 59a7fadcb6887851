"""What the host left open is closed when the interpreter exits."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import Protocol

logger = logging.getLogger("afterturn")


class Closing(Protocol):
    def start_closing(self) -> None: ...
    def wait_closed(self) -> None: ...


class ExitCloser:
    """Closes what the host left open when the interpreter exits, so that what was promised is still written."""

    def __init__(self) -> None:
        self._open: set[Closing] = set()
        self._process = 0

    def watch(self, memory: Closing) -> None:
        """Holds on to it until `forget`: a memory that its host lost sight of has threads and promises still."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._open.clear()
            self._register()
        self._open.add(memory)

    def forget(self, memory: Closing) -> None:
        self._open.discard(memory)

    def close_all(self) -> None:
        # A forked child inherits the list too, but these are its parent's.
        left = list(self._open) if self._process == os.getpid() else []
        for step in ("start_closing", "wait_closed"):
            for memory in left:
                try:
                    getattr(memory, step)()
                except Exception:  # the boundary: the interpreter is leaving, and the next memory still wants closing
                    logger.exception("closing at exit failed")

    def _register(self) -> None:
        atexit.register(self.close_all)
        process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
        if process is not None and util is not None and process.parent_process() is not None:
            # Children of `multiprocessing` leave without running what `atexit` knows (until Python 3.14).
            util.Finalize(None, self.close_all, exitpriority=0)


last_chance = ExitCloser()
