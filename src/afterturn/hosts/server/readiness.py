"""Whether the server is alive and ready, which anybody may ask, and its metrics, which need a token."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from afterturn.errors import AfterturnError
from afterturn.hosts.server.access import caller_of
from afterturn.hosts.server.metrics import CONTENT_TYPE
from afterturn.log import logger
from afterturn.runtime.clock import SystemClock

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

# Nobody needs a token for it, so it must not cost much: an answer is used for a while.
READY_SECONDS = 1.0
READ_WITHIN = 5.0


def routes(service: Service) -> list[BaseRoute]:
    readiness = Readiness(service)

    async def live(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        is_ready = await readiness.find()
        return PlainTextResponse("ok\n" if is_ready else "not ready\n", status_code=200 if is_ready else 503)

    async def metrics(request: Request) -> Response:
        caller = caller_of(request)
        caller.check("inspect")
        tenant = caller.grant.tenant
        memory = await service.memories.get(tenant)
        text = service.metrics.render(tenant, await memory.stats(), service.turns.count(tenant))
        return Response(text, media_type=CONTENT_TYPE)

    return [Route("/livez", live), Route("/readyz", ready), Route("/metrics", metrics)]


class Readiness:
    """Whether the store of the configured tenant can be read. One look at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = asyncio.Lock()
        self._is_ready = False
        self._until = 0.0

    async def find(self) -> bool:
        async with self._lock:
            if SystemClock().monotonic() >= self._until:
                self._is_ready = await self._look()
                self._until = SystemClock().monotonic() + READY_SECONDS
            return self._is_ready

    async def _look(self) -> bool:
        try:
            async with asyncio.timeout(READ_WITHIN):
                memory = await self._service.memories.get_default()
                await memory.usage(limit=1)
        except (AfterturnError, TimeoutError) as error:
            logger.warning("the server is not ready: %r", error)
            return False
        return True
