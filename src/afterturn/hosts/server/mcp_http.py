"""MCP over streamable HTTP, as a part of the server. Requests arrive here with their caller.

Every request is independent, in both eras of the protocol: a server may be restarted between two requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from afterturn.errors import NotAllowed
from afterturn.hosts.server.access import CALLER, Caller
from afterturn.hosts.server.audit import note_reached
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.server.mcp_server import Context, make_server
from afterturn.hosts.server.memories import OpenMemories

PATH = "/mcp"
# A statement has a few kilobytes.
BODY_BYTES_MAX = 256 * 1024


def find_grant(context: Context) -> Grant:
    """The grant of the caller who sent this request."""
    caller = context.request.scope.get(CALLER) if context.request is not None else None
    if context.request is None or not isinstance(caller, Caller):
        raise NotAllowed("The request has no valid token.")
    if caller.grant.owner.endswith("*"):
        raise NotAllowed("This token is for many spaces, and MCP works in one. Create a token for one space.")
    for space in caller.grant.reads:
        note_reached(context.request.scope, reads=space)
    caller.check("read")
    return caller.grant if caller.grant.allows("write") else replace(caller.grant, writes=None)


def make_mcp_app(memories: OpenMemories, host: str, allowed: Sequence[str]) -> Starlette:
    """The ASGI application for the path /mcp. Its lifespan must be entered. `allowed` are the values of Host."""
    return make_server(memories, find_grant).streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=BODY_BYTES_MAX,
        transport_security=TransportSecuritySettings(
            allowed_hosts=list(allowed),
            allowed_origins=[f"{scheme}://{name}" for scheme in ("http", "https") for name in allowed],
        ),
        host=host,
    )
