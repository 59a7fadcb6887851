"""Starts, watches and ends every task that outlives the call that started it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

from afterturn.log import logger

FAILURES_MAX = 50


class Supervisor:
    """Owns tasks on memory's loop. A task that fails is logged and listed in `failures`; the others continue."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self.failures: deque[tuple[str, BaseException]] = deque(maxlen=FAILURES_MAX)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._watch(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before its first step never awaits `work`, which would cause a warning.
        task.add_done_callback(lambda _: work.close())
        if self._closing:
            task.cancel()
        return task

    async def close(self, *, within: float) -> None:
        """Cancels every task and waits up to `within` seconds until all have ended."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=within)

    async def _watch(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            # The boundary: one failed task must not stop the others. Ctrl-C reaches the main thread only, so these two
            # were raised by an object of the host, and would end memory's thread.
            self.failures.append((name, error))
            logger.exception("%s failed", name)
