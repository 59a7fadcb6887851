"""HTTP connections: deadlines for slow clients, limits for those without credentials, and what may be listened on."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Sequence
from itertools import count

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from afterturn.errors import InvalidInput
from afterturn.hosts.server.access import CALLER
from afterturn.hosts.server.library_logs import QUIET, silence_libraries
from afterturn.hosts.server.tokens import list_tokens
from afterturn.runtime.clock import SystemClock

# Of clients that have a token. Connections without one have a limit of their own.
CONNECTIONS_MAX = 500
# A request has at most a few megabytes. uvicorn closes an idle connection after 5 seconds.
REQUEST_SECONDS = 20.0
# Connections whose last request had no valid token.
WAITING_MAX = 300
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EVERY_ADDRESS = ("0.0.0.0", "::", "")
_CLOSE_SECONDS = 3
_CONNECTION_NUMBERS = count()


class Connection(H11Protocol):
    """A connection that is closed if a request takes longer than `request_seconds` to arrive.

    uvicorn limits an idle connection only after a response: one that sends nothing would take the place of a client.
    If more than `waiting_max` connections have not shown a valid token, the oldest of them is closed. A client that
    sends its request at once is served before that happens to it.
    """

    request_seconds = REQUEST_SECONDS
    waiting_max = WAITING_MAX

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._number = next(_CONNECTION_NUMBERS)
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
        is_authenticated = self.scope is not None and CALLER in self.scope
        return not is_authenticated and not self.transport.is_closing()

    def _close_if_late(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        if self.is_waiting or not is_answering:
            self.transport.abort()


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_start(host: str, names: Sequence[str], *, needs_token: bool = True) -> None:
    """Raises InvalidInput if nobody could use the server, or if it would be open to everybody."""
    now = SystemClock().now()
    if needs_token and not any(token.is_valid(now) for token in list_tokens()):
        raise InvalidInput(
            "There is no valid token, so no client could connect. Create one with `afterturn token create`, then start "
            "the server again."
        )
    if host in EVERY_ADDRESS and not names:
        raise InvalidInput(
            f"{host or 'This'} is every address of this machine. Name the host that clients use: --allow-host NAME."
        )
    if not all(map(str.strip, names)):
        raise InvalidInput("--allow-host has no name. Name the host that clients use, as in their URL.")


def bind(host: str, port: int) -> socket.socket:
    """Raises InvalidInput if the address cannot be used."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=CONNECTIONS_MAX)
        # Connections inherit it. Without it the body of an answer waits 40 ms for the client to confirm the headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise InvalidInput(
            f"The server cannot listen on {host}, port {port}: {error.strerror}. Choose another with --port."
        ) from error


def make_config(app: ASGIApp, connection: type[Connection] = Connection) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=QUIET,
        access_log=False,
        server_header=False,
        http=connection,
        ws="none",
        # As many connections are accepted at once. None of them may take the place of another.
        backlog=WAITING_MAX // 2,
        limit_concurrency=CONNECTIONS_MAX + WAITING_MAX,
        timeout_graceful_shutdown=_CLOSE_SECONDS,
    )


def allowed_hosts(host: str, port: int, names: Sequence[str]) -> tuple[str, ...]:
    """The values of Host that a request may have. `names` are further hosts that clients may use in their URL."""
    own = LOOPBACK if is_loopback(host) else (f"[{host}]" if ":" in host else host,)
    hosts = tuple(names) if host in EVERY_ADDRESS else (*own, *names)
    return (*(f"{name}:{port}" for name in hosts), *names)


async def serve(app: ASGIApp, listener: socket.socket, started: Callable[[int], None]) -> None:
    """Serves until SIGINT or SIGTERM. `started` is called with the port before the first request is accepted."""
    silence_libraries()
    started(listener.getsockname()[1])
    await uvicorn.Server(make_config(app)).serve(sockets=[listener])
