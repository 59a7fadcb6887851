"""Limits how many recalls of turns run at a time, and drops the oldest when too many wait. Used on memory's loop.

Without it, every turn of a burst is half done before one is finished, and under overload waiting recalls fill memory.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

R = TypeVar("R")

# Enough to keep the readers of a store busy.
RUNNING_MAX = 8
# The work of about a second. Turns that began earlier have usually ended by then.
WAITING_MAX = 256
# How many turns may have begun that memory's loop has not seen yet.
POSTED_MAX = 256
OVERLOAD = "overload"


class RecallShed(Exception):
    """Too many turns began: this recall is left out. The turn is recorded all the same."""


def reason_of(error: Exception) -> str:
    """Why a recall is degraded, for its outcome."""
    return OVERLOAD if isinstance(error, RecallShed) else type(error).__name__


class RecallQueue:
    """What has begun is finished first, so that early turns of a burst get their block within the grace. Then the
    newest turn is next: its host still waits. Older ones get their turn when fewer turns begin, or are dropped."""

    def __init__(self) -> None:
        self._posted = 0
        self._lock = threading.Lock()
        self._running = 0
        self._begun: deque[asyncio.Future[bool]] = deque()
        self._new: deque[asyncio.Future[bool]] = deque()

    def admit(self) -> bool:
        """Whether one more turn may begin on memory's loop, which then calls `arrive`. May be called on any thread."""
        with self._lock:
            if self._posted >= POSTED_MAX:
                return False
            self._posted += 1
            return True

    def arrive(self) -> None:
        with self._lock:
            self._posted -= 1

    async def run(self, work: Callable[[], Awaitable[R]], *, begun: bool = False) -> R:
        """Runs `work` when there is room. `begun`: an earlier step of the same recall has run. Raises RecallShed."""
        if self._running < RUNNING_MAX:
            self._running += 1
        else:
            await self._wait(self._begun if begun else self._new)
        try:
            return await work()
        finally:
            self._running -= 1
            self._admit_next()

    async def _wait(self, waiting: deque[asyncio.Future[bool]]) -> None:
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.append(place)
        if len(self._new) > WAITING_MAX:
            _settle(self._new.popleft(), admitted=False)
        try:
            admitted = await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.result():
                self._running -= 1
                self._admit_next()
            raise
        if not admitted:
            raise RecallShed(f"more than {WAITING_MAX} turns wait for a recall")

    def _admit_next(self) -> None:
        while self._begun or self._new:
            if _settle(self._begun.popleft() if self._begun else self._new.pop(), admitted=True):
                self._running += 1
                return


def _settle(place: asyncio.Future[bool], *, admitted: bool) -> bool:
    """False if whoever waited has given up."""
    if place.done():
        return False
    place.set_result(admitted)
    return True
