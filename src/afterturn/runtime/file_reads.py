"""Reads files on a worker thread with a time limit, because a file system may never answer."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import TypeVar

from afterturn.log import logger
from afterturn.ports import Clock, Worker
from afterturn.runtime.loop_thread import run_on

R = TypeVar("R")

READ_WITHIN = 5.0


class FileReads:
    """Shared by all conversations of a memory. Its worker does nothing else, so a read that hangs blocks only reads."""

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock
        self._numbers = itertools.count()
        self._under_way: dict[int, float] = {}

    async def run(self, work: Callable[[], R]) -> R | None:
        """Returns None after READ_WITHIN seconds, and at once while an earlier read still hangs."""
        latest = self._clock.monotonic() - READ_WITHIN
        if any(started <= latest for started in list(self._under_way.values())):
            return None
        number = next(self._numbers)
        self._under_way[number] = self._clock.monotonic()

        def call() -> R:
            try:
                return work()
            finally:
                self._under_way.pop(number, None)

        try:
            async with asyncio.timeout(READ_WITHIN):
                return await run_on(self._worker, call)
        except TimeoutError:
            logger.warning("context files could not be read within %g seconds and are left out", READ_WITHIN)
            return None
