"""Closes memories that the host left open when the interpreter exits."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Protocol

from afterturn.log import logger


class OpenMemory(Protocol):
    def start_closing(self) -> None: ...
    def wait_closed(self) -> None: ...


class ExitCloser:
    """Closes open memories at exit, so that turns that were accepted are still recorded."""

    def __init__(self) -> None:
        self._open: set[OpenMemory] = set()
        self._process = 0

    def watch(self, memory: OpenMemory) -> None:
        """Keeps a reference until `forget`: a memory that its host dropped still has threads and turns to record."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._open.clear()
            atexit.register(self.close_all)
            process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
            if process is not None and util is not None and process.parent_process() is not None:
                # Children of `multiprocessing` exit without running `atexit` handlers (until Python 3.14).
                util.Finalize(None, self.close_all, exitpriority=0)
        self._open.add(memory)

    def forget(self, memory: OpenMemory) -> None:
        self._open.discard(memory)

    def close_all(self) -> None:
        # A forked child inherits the list, but those memories belong to its parent.
        left = list(self._open) if self._process == os.getpid() else []
        for step in ("start_closing", "wait_closed"):
            for memory in left:
                try:
                    getattr(memory, step)()
                except Exception:  # the boundary: the next memory must be closed too
                    logger.exception("closing at exit failed")


exit_closer = ExitCloser()
