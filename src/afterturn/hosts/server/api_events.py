"""Events over HTTP, as server-sent events: what happens in the spaces of the token, also in other processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from afterturn.hosts.server.api_context import Context, RequestContext
from afterturn.types import Event

HEARTBEAT = 15.0
SSE = "text/event-stream"

router = APIRouter(tags=["events"])


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Each event has its name as `event`, and as `data` a JSON object with name, at, tenant, "
            "space, conversation, turn and data. A comment comes every 15 seconds.",
            "content": {SSE: {"schema": {"type": "string"}}},
        }
    },
)
async def events(
    context: Context,
    space: Annotated[list[str] | None, Query(max_length=50, description="Only events of these spaces.")] = None,
    last_event_id: Annotated[str | None, Header(description="Accepted and not used: a stream begins now.")] = None,
) -> StreamingResponse:
    """The events of the token's spaces from now on: turns, recalls, deliveries, changes of memories (docs/events.md).

    Events of other processes on the same store, such as a coding agent's hook, arrive about a second later.
    """
    for one in space or ():
        context.check_read(one)
    await context.memory("inspect")
    return StreamingResponse(stream_events(context, frozenset(space or ())), media_type=SSE, headers=_HEADERS)


_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def stream_events(context: RequestContext, spaces: frozenset[str]) -> AsyncGenerator[str]:
    """Until the client leaves, or its token is revoked."""
    async with context.service.feed.subscribe(context.caller.grant.tenant) as queue:
        yield ": connected\n\n"
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT):
                    event = await queue.get()
            except TimeoutError:
                event = None
            if not context.is_allowed_still():
                return
            if event is None:
                yield ": heartbeat\n\n"
            elif _is_wanted(context, event, spaces):
                shown = _as_object(event, is_wide=context.may_read("*"))
                yield f"event: {event.name}\ndata: {json.dumps(shown)}\n\n"


def _as_object(event: Event, *, is_wide: bool) -> dict[str, object]:
    data = event.data if is_wide else without_space(event.data)
    return {name: value for name, value in asdict(event).items() if name != "content"} | {"data": dict(data)}


def without_space(data: Mapping[str, object]) -> dict[str, object]:
    """The data of an event without the name of another space."""
    return {name: value for name, value in data.items() if name != "rule_space"}


def _is_wanted(context: RequestContext, event: Event, spaces: frozenset[str]) -> bool:
    """Events without a space are about the whole tenant, for tokens of all spaces."""
    own = context.caller.grant.conversation
    if own is not None and event.conversation != own:
        return False
    return context.may_read(event.space or "*") and (not spaces or event.space in spaces)
