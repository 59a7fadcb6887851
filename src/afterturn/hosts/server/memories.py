"""The open memories of a server: one for each tenant, opened when it is first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from afterturn.config import Config, StoreUrl
from afterturn.errors import StoreUnavailable
from afterturn.hosts.server.typed_statements import remove_old_statements

if TYPE_CHECKING:
    from afterturn.memory import Memory
    from afterturn.types import Event

TENANTS_MAX = 64


class OpenMemories:
    """Use it with `async with`, on one event loop.

    `find_store` returns the path of the store, None if memory is off, and the settings. It is called again after a
    failure, so that a user can correct what was wrong while the server runs. `on_event` is called with every event of
    every tenant, on memory's threads.
    """

    def __init__(
        self,
        find_store: Callable[[], tuple[Path | StoreUrl | None, Config]],
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._find_store = find_store
        self._on_event = on_event
        self._memories: dict[str, Memory] = {}
        self._lock = asyncio.Lock()

    async def get(self, tenant: str) -> Memory:
        """Raises AfterturnError if the store cannot be opened."""
        async with self._lock:
            if tenant not in self._memories:
                if len(self._memories) >= TENANTS_MAX:
                    # Its text is only in the log: a tenant does not learn of others.
                    raise StoreUnavailable(f"This server has {TENANTS_MAX} tenants open. Start another one.")
                memory = await asyncio.to_thread(self._open, tenant)
                self._memories[tenant] = await memory.start()
            return self._memories[tenant]

    async def get_default(self) -> Memory:
        """That of the tenant in the settings. Raises AfterturnError as `get`."""
        _, config = await asyncio.to_thread(self._find_store)
        return await self.get(config.tenant)

    def _open(self, tenant: str) -> Memory:
        """Loads the library, on a thread: a client waits for the first answers of a server that it has just started."""
        from afterturn.memory import open

        path, config = self._find_store()
        return open(path, replace(config, tenant=tenant), on_event=self._on_event)

    async def __aenter__(self) -> OpenMemories:
        await asyncio.to_thread(remove_old_statements)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """May be called twice."""
        async with self._lock:
            memories, self._memories = list(self._memories.values()), {}
            for memory in memories:
                await memory.close()
