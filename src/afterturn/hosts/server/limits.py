"""Limits of what one caller may ask of the server: size, rate and number of requests at a time."""

from __future__ import annotations

import contextlib
import math
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope

from afterturn.errors import TooLarge
from afterturn.hosts.server.access import Caller
from afterturn.runtime.clock import SystemClock

BODY_BYTES_MAX = 8 * 1024 * 1024
REQUESTS_PER_SECOND = 200.0
BURST = 1000.0
CONCURRENT_MAX = 64
_CALLERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Admission:
    """Either an answer that refuses the request, or a `receive` that stops a body which is too large."""

    receive: Receive
    refused: Response | None = None


class Limits:
    """A token bucket for each caller, and a count of their requests under way."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._under_way: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def admit(self, caller: Caller, scope: Scope, receive: Receive) -> AsyncIterator[Admission]:
        wait = self._take(caller.id)
        if wait > 0 or self._under_way[caller.id] >= CONCURRENT_MAX:
            yield Admission(receive, _too_many(max(wait, 1.0)))
            return
        self._under_way[caller.id] += 1
        try:
            yield Admission(_limit_body(receive))
        finally:
            self._under_way[caller.id] -= 1
            if not self._under_way[caller.id]:
                del self._under_way[caller.id]

    def _take(self, id: str) -> float:
        """Takes one request from the caller's bucket. Returns the seconds to wait for it, 0 if it was there."""
        now = SystemClock().now()
        left, since = self._buckets.pop(id, (BURST, now))
        left = min(BURST, left + (now - since) * REQUESTS_PER_SECOND)
        wait = 0.0 if left >= 1 else (1 - left) / REQUESTS_PER_SECOND
        self._buckets[id] = (left - 1 if wait == 0 else left, now)
        if len(self._buckets) > _CALLERS_MAX:
            self._buckets.popitem(last=False)
        return wait


def _limit_body(receive: Receive) -> Receive:
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            if received > BODY_BYTES_MAX:
                raise TooLarge(
                    f"The request has more than {BODY_BYTES_MAX:,} bytes. Send less at a time.",
                    size_bytes=received,
                    limit_bytes=BODY_BYTES_MAX,
                )
        return message

    return limited


def _too_many(wait: float) -> Response:
    error = {"type": "TooManyRequests", "message": f"Too many requests. Try again in {math.ceil(wait)} seconds."}
    return JSONResponse({"error": error}, status_code=429, headers={"Retry-After": str(math.ceil(wait))})
