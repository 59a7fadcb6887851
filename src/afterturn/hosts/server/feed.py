"""The feed of events for open pages and clients: what happens in this process, handed over from memory's threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from afterturn.types import Event

QUEUE_MAX = 1000


class EventFeed:
    """Publishes events to subscribers of the event's tenant. A subscriber that is too slow loses the oldest events."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscribers: dict[asyncio.Queue[Event], str] = {}

    def start(self) -> None:
        """Call it on the server's loop, before the first event."""
        self._loop = asyncio.get_running_loop()

    def publish(self, event: Event) -> None:
        """May be called on any thread."""
        if self._loop is not None and self._subscribers and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, event)

    @contextmanager
    def subscribe(self, tenant: str) -> Iterator[asyncio.Queue[Event]]:
        queue: asyncio.Queue[Event] = asyncio.Queue(QUEUE_MAX)
        self._subscribers[queue] = tenant
        try:
            yield queue
        finally:
            del self._subscribers[queue]

    def _deliver(self, event: Event) -> None:
        for queue, tenant in self._subscribers.items():
            if tenant == event.tenant:
                if queue.full():
                    queue.get_nowait()
                queue.put_nowait(event)
