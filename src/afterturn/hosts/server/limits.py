"""Limits of what one caller may ask of the server: size, rate, number of requests at a time, and time."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope

from afterturn.errors import TooLarge
from afterturn.hosts.server.access import Caller
from afterturn.runtime.clock import SystemClock

BODY_BYTES_MAX = 8 * 1024 * 1024
# The proxy passes on what is larger as it arrives, such as images, and keeps none of it.
PASSED_BYTES_MAX = 64 * 1024 * 1024
REQUESTS_PER_SECOND = 1000.0
BURST_SECONDS = 3.0
# How many requests of one caller run at a time, and how many more wait for their turn.
CONCURRENT_MAX = 64
WAITING_MAX = 512
# Read as JSON, a large body takes many times its size, so only a few of one caller are read at a time.
LARGE_BYTES = 1024 * 1024
LARGE_MAX = 3
# A request that takes longer is ended, except answers that are streams.
REQUEST_SECONDS = 30.0
# Of a stream no end is known. The proxy's and MCP's own answers may be streams, too, and have limits of their own.
STREAMS = ("text/event-stream", "application/x-ndjson")
UNTIMED = ("/v1/", "/mcp")
_CALLERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Admission:
    """Either an answer that refuses the request, or a `receive` that stops a body which is too large.

    `release` gives the request's place to another one, for answers that are streams.
    """

    receive: Receive
    refused: Response | None = None
    release: Callable[[], None] = lambda: None


@dataclass(slots=True, eq=False)
class _Usage:
    """What one caller has used: `left` requests of its rate since `since`, and its requests under way."""

    left: float
    since: float
    running: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_MAX))
    large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LARGE_MAX))
    requests: int = 0


class _Place:
    """One of a caller's places for requests that run."""

    def __init__(self, running: asyncio.Semaphore) -> None:
        self._running = running
        self._is_held = False

    async def __aenter__(self) -> _Place:
        await self._running.acquire()
        self._is_held = True
        return self

    async def __aexit__(self, *error: object) -> None:
        self.release()

    def release(self) -> None:
        """Gives it back, once."""
        if self._is_held:
            self._is_held = False
            self._running.release()


class Limits:
    """A token bucket for each caller, and a limit of their requests under way. `rate` is in requests a second."""

    def __init__(self, rate: float = REQUESTS_PER_SECOND) -> None:
        self._rate = rate
        self._usages: OrderedDict[str, _Usage] = OrderedDict()

    @contextlib.asynccontextmanager
    async def admit(self, caller: Caller, scope: Scope, receive: Receive) -> AsyncIterator[Admission]:
        usage = self._find(caller.id)
        wait = self._take(usage)
        if wait > 0 or usage.requests >= CONCURRENT_MAX + WAITING_MAX:
            yield Admission(receive, _too_many(max(wait, 1.0)))
            return
        length = length_of(scope)
        is_proxied = scope["path"].startswith("/v1/")
        bytes_max = PASSED_BYTES_MAX if is_proxied else BODY_BYTES_MAX
        if length > bytes_max:
            yield Admission(receive, _too_large(bytes_max))
            return
        is_chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        is_large = not is_proxied and (length > LARGE_BYTES or is_chunked)
        usage.requests += 1
        try:
            async with usage.large if is_large else contextlib.nullcontext(), _Place(usage.running) as place:
                yield Admission(_limit_body(receive, max(length, BODY_BYTES_MAX)), release=place.release)
        finally:
            usage.requests -= 1

    def _find(self, id: str) -> _Usage:
        usage = self._usages.setdefault(id, _Usage(self._rate * BURST_SECONDS, SystemClock().monotonic()))
        self._usages.move_to_end(id)
        if len(self._usages) > _CALLERS_MAX:
            oldest = next(iter(self._usages))
            if not self._usages[oldest].requests:
                del self._usages[oldest]
        return usage

    def _take(self, usage: _Usage) -> float:
        """Takes one request of the caller's rate. Returns the seconds to wait for it, 0 if there was one left."""
        now = SystemClock().monotonic()
        usage.left = min(self._rate * BURST_SECONDS, usage.left + (now - usage.since) * self._rate)
        usage.since = now
        if usage.left < 1:
            return (1 - usage.left) / self._rate
        usage.left -= 1
        return 0.0


def length_of(scope: Scope) -> int:
    """The bytes that a request says it has, 0 if it does not."""
    value = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(value) if value.isdigit() else 0


def _limit_body(receive: Receive, bytes_max: int) -> Receive:
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            if received > bytes_max:
                raise TooLarge(_large(bytes_max), size_bytes=received, limit_bytes=bytes_max)
        return message

    return limited


def _large(bytes_max: int) -> str:
    return f"The request has more than {bytes_max:,} bytes. Send less at a time."


def _too_large(bytes_max: int) -> Response:
    return JSONResponse({"error": {"type": "TooLarge", "message": _large(bytes_max)}}, status_code=413)


def _too_many(wait: float) -> Response:
    error = {"type": "TooManyRequests", "message": f"Too many requests. Try again in {math.ceil(wait)} seconds."}
    return JSONResponse({"error": error}, status_code=429, headers={"Retry-After": str(math.ceil(wait))})
