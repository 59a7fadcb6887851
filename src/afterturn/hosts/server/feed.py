"""The feed of events for open pages and clients: what happens in this process as it happens, and what other processes
have done on the same store. The store is asked for these only while somebody subscribes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from afterturn.errors import AfterturnError
from afterturn.log import logger
from afterturn.runtime.supervisor import Supervisor
from afterturn.types import Event

if TYPE_CHECKING:
    from afterturn.memory import Memory

QUEUE_MAX = 1000
# A process stores its events within a second.
POLL_EVERY = 0.3
POLLED_MAX = 500
# Events of this process that are remembered, to recognise them in the store.
_OWN_MAX = 5000


class EventFeed:
    """Publishes events to subscribers of the event's tenant. A subscriber that is too slow loses the oldest events."""

    def __init__(self, get_memory: Callable[[str], Awaitable[Memory]]) -> None:
        self._get_memory = get_memory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscribers: dict[asyncio.Queue[Event], str] = {}
        self._supervisor = Supervisor()
        self._own: OrderedDict[Hashable, None] = OrderedDict()
        self._pollers: dict[str, asyncio.Task[None]] = {}
        self._handlers: list[Callable[[Event], None]] = []

    def start(self) -> None:
        """Call it on the server's loop, before the first event."""
        self._loop = asyncio.get_running_loop()

    def when_published(self, handler: Callable[[Event], None]) -> None:
        """`handler` is called on the server's loop with every event of this process."""
        self._handlers.append(handler)

    def publish(self, event: Event) -> None:
        """May be called on any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._publish, event)

    @asynccontextmanager
    async def subscribe(self, tenant: str) -> AsyncIterator[asyncio.Queue[Event]]:
        """Raises AfterturnError if the store cannot be opened. Events from now on are in the queue."""
        memory, queue = await self._get_memory(tenant), asyncio.Queue[Event](QUEUE_MAX)
        if tenant not in self._subscribers.values():
            heads = (await memory.timeline(limit=1)).heads
            if tenant not in self._pollers:
                self._pollers[tenant] = self._supervisor.start(self._poll(tenant, memory, heads), f"events of {tenant}")
        self._subscribers[queue] = tenant
        try:
            yield queue
        finally:
            del self._subscribers[queue]
            if tenant not in self._subscribers.values() and (poller := self._pollers.pop(tenant, None)) is not None:
                poller.cancel()

    async def _poll(self, tenant: str, memory: Memory, heads: Mapping[str, tuple[int, float]]) -> None:
        while True:
            await asyncio.sleep(POLL_EVERY)
            try:
                page = await memory.timeline(heads, limit=POLLED_MAX)
            except AfterturnError as error:
                logger.warning("events of other processes are not shown now: %s", error)
                await asyncio.sleep(10 * POLL_EVERY)
                continue
            heads = page.heads
            for event in page.events:
                if _identity(event) not in self._own:
                    self._deliver(event)

    def _publish(self, event: Event) -> None:
        for handler in self._handlers:
            handler(event)
        if self._subscribers:
            self._own[_identity(event)] = None
            if len(self._own) > _OWN_MAX:
                self._own.popitem(last=False)
            self._deliver(event)

    def _deliver(self, event: Event) -> None:
        for queue, tenant in self._subscribers.items():
            if tenant == event.tenant:
                if queue.full():
                    queue.get_nowait()
                queue.put_nowait(event)


def _identity(event: Event) -> Hashable:
    """An event has no id. Nothing happens twice in one turn at the same time, to the microsecond."""
    return (event.tenant, event.space, event.name, event.at, event.conversation, event.turn)
