"""Connections to the MCP server over HTTP: deadlines, and room for clients that have a token.

uvicorn limits an idle connection only after a response. A connection that sends nothing, or a byte now and then, would
otherwise stay open forever and take the place of a client.
"""

from __future__ import annotations

import asyncio
from itertools import count

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from uvicorn.protocols.http.h11_impl import H11Protocol

# A request has at most 256 kB. uvicorn closes an idle connection after 5 seconds.
REQUEST_SECONDS = 20.0
# Connections whose last request had no valid token.
WAITING_MAX = 100

_NUMBERS = count()


class Connection(H11Protocol):
    """A connection that is closed if a request takes longer than `request_seconds` to arrive.

    If more than `waiting_max` connections have not shown a valid token, the oldest of them is closed. A client that
    sends its request at once is served before that happens to it.
    """

    request_seconds = REQUEST_SECONDS
    waiting_max = WAITING_MAX

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._number = next(_NUMBERS)
        self._deadline = self.loop.call_later(self.request_seconds, self._close_if_late)
        waiting = [one for one in self.connections if isinstance(one, Connection) and one.is_waiting]
        if len(waiting) > self.waiting_max:
            min(waiting, key=lambda one: one._number).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Without a valid token the first deadline stays, however many requests are answered with an error.
        if not self.is_waiting:
            self._deadline.cancel()
            self._deadline = self.loop.call_later(self.request_seconds, self._close_if_late)

    @property
    def is_waiting(self) -> bool:
        """Whether no request has arrived yet, or the last one had no valid token. It is checked before the body."""
        is_authenticated = self.scope is not None and isinstance(self.scope.get("user"), AuthenticatedUser)
        return not is_authenticated and not self.transport.is_closing()

    def _close_if_late(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        if self.is_waiting or not is_answering:
            self.transport.abort()
