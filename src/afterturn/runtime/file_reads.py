"""Reads files away from memory's loop, for a bounded time: a file system may never answer."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import TypeVar

from afterturn.ports import Clock, Worker
from afterturn.runtime.loop_thread import run_on

logger = logging.getLogger("afterturn")
R = TypeVar("R")

READ_WITHIN = 5.0


class FileReads:
    """One for all conversations of a memory, on a worker of its own: what hangs here must hold up nothing else."""

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock
        self._numbers = itertools.count()
        self._under_way: dict[int, float] = {}

    async def run(self, work: Callable[[], R]) -> R | None:
        """None when it took longer than READ_WITHIN, and at once while an earlier one still hangs."""
        if self._hangs():
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
            logger.warning("context files could not be read within %g seconds; it goes on without them", READ_WITHIN)
            return None

    def _hangs(self) -> bool:
        latest = self._clock.monotonic() - READ_WITHIN
        return any(started <= latest for started in list(self._under_way.values()))
