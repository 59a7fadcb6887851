"""A recall under way: started with an epoch, settled on memory's loop, handed over on the host's path, once."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from enum import StrEnum

from afterturn.base.slot import Slot
from afterturn.context.block import Block
from afterturn.dialects.dialect import Dialect


class Outcome(StrEnum):
    """How a recall ended; each ends in exactly one, with a reason."""

    DELIVERED = "delivered"
    EMPTY = "empty"
    DEGRADED = "degraded"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    UNDELIVERED = "undelivered"


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a recall came to: a block ready to go in, or none."""

    dialect: Dialect
    block: Block | None


class Prefetch:
    """Read it when it has settled, or drop it; dropping it costs nothing."""

    __slots__ = ("_consumed", "_lock", "_slot", "correlation", "outcome", "settled_at", "task")

    def __init__(self, correlation: str) -> None:
        self.correlation = correlation
        self.settled_at: float | None = None
        self.outcome: Outcome | None = None
        self.task: asyncio.Task[None] | None = None
        self._slot: Slot[Prepared | None] = Slot()
        self._lock = threading.Lock()
        self._consumed = False

    @property
    def settled(self) -> bool:
        return self._slot.settled

    @property
    def consumed(self) -> bool:
        return self._consumed

    def settle(self, prepared: Prepared | None, *, at: float) -> None:
        """None: there is nothing to hand over, however it came to that."""
        if self._slot.settle(prepared):
            self.settled_at = at

    def peek(self) -> Prepared | None:
        """What could be handed over now, without taking it."""
        return None if self._consumed else self._slot.peek()

    def take(self) -> Prepared | None:
        """What is to be handed over, to the first who asks: it is marked consumed before it is read (H2)."""
        with self._lock:
            if self._consumed or not self._slot.settled:
                return None
            self._consumed = True
        return self._slot.peek()

    def discard(self) -> None:
        """Whatever it found is not handed over any more."""
        with self._lock:
            self._consumed = True

    async def ready(self, *, within: float) -> None:
        """Returns when it has settled, at the latest after `within` seconds."""
        await self._slot.wait(within=within)

    def ready_blocking(self, *, within: float) -> None:
        self._slot.wait_blocking(within=within)
