"""The MCP server over streamable HTTP: bearer tokens, checks of Host and Origin, limits of connections.

Every request is independent, in both eras of the protocol: a server may be restarted between two requests.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Sequence
from itertools import count

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from afterturn.errors import AfterturnError, InvalidInput, NotAllowed
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.server.mcp_server import QUIET, Context, OpenMemories, make_server
from afterturn.hosts.server.tokens import TokenVerifier, list_tokens
from afterturn.log import logger
from afterturn.runtime.clock import SystemClock

PATH = "/mcp"
# A statement has a few kilobytes.
BODY_BYTES_MAX = 256 * 1024
# Of clients that have a token. Connections without one have a limit of their own.
CONNECTIONS_MAX = 200
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_EVERY_ADDRESS = ("0.0.0.0", "::", "")
_CLOSE_SECONDS = 3
# A request has at most 256 kB. uvicorn closes an idle connection after 5 seconds.
REQUEST_SECONDS = 20.0
# Connections whose last request had no valid token.
WAITING_MAX = 100
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
        is_authenticated = self.scope is not None and isinstance(self.scope.get("user"), AuthenticatedUser)
        return not is_authenticated and not self.transport.is_closing()

    def _close_if_late(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        if self.is_waiting or not is_answering:
            self.transport.abort()


class BearerTokens(TokenVerifier):
    """The tokens of the state folder, as the SDK asks for them: at every request."""

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            found = self.find(token)
        except AfterturnError as error:
            logger.warning("no token is accepted: %s", error)
            return None
        if found is None:
            return None
        # The text of the token is not kept, only its id.
        return AccessToken(token=found.id, client_id=found.id, scopes=[], claims={"grant": found.grant})


def find_grant(context: Context) -> Grant:
    """The grant of the token that came with this request."""
    user = context.request.scope.get("user") if context.request is not None else None
    grant = (user.access_token.claims or {}).get("grant") if isinstance(user, AuthenticatedUser) else None
    if not isinstance(grant, Grant):
        raise NotAllowed("The request has no valid token.")
    return grant


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_start(host: str, names: Sequence[str]) -> None:
    """Raises InvalidInput if nobody could use the server, or if it would be open to everybody."""
    now = SystemClock().now()
    if not any(token.is_valid(now) for token in list_tokens()):
        raise InvalidInput(
            "There is no valid token, so no client could connect. Create one with `afterturn token create`, then start "
            "the server again."
        )
    if host in _EVERY_ADDRESS and not names:
        raise InvalidInput(
            f"{host or 'This'} is every address of this machine. Name the host that clients use: --allow-host NAME."
        )
    if not all(map(str.strip, names)):
        raise InvalidInput("--allow-host has no name. Name the host that clients use, as in their URL.")


def bind(host: str, port: int) -> socket.socket:
    """Raises InvalidInput if the address cannot be used."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=CONNECTIONS_MAX)
    except OSError as error:
        raise InvalidInput(
            f"The server cannot listen on {host}, port {port}: {error.strerror}. Choose another."
        ) from error


def make_app(memories: OpenMemories, host: str, port: int, names: Sequence[str]) -> ASGIApp:
    """The ASGI application. `names` are further hosts that clients may use in their URL."""
    own = _LOOPBACK if is_loopback(host) else (f"[{host}]" if ":" in host else host,)
    hosts = names if host in _EVERY_ADDRESS else (*own, *names)
    allowed = [f"{name}:{port}" for name in hosts] + list(names)
    app = make_server(memories, find_grant).streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=BODY_BYTES_MAX,
        transport_security=TransportSecuritySettings(
            allowed_hosts=allowed,
            allowed_origins=[f"{scheme}://{name}" for scheme in ("http", "https") for name in allowed],
        ),
        host=host,
        # The SDK wants to name an issuer of tokens. Nothing is served for it.
        auth=AuthSettings(issuer_url=AnyHttpUrl(f"http://localhost:{port}"), resource_server_url=None),
        token_verifier=BearerTokens(),
    )

    async def check_host(scope: Scope, receive: Receive, send: Send) -> None:
        """The SDK checks Host too, but after the token and only at its own path."""
        sent = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"]
        if scope["type"] == "http" and (len(sent) != 1 or sent[0] not in allowed):
            await Response("Invalid Host header", status_code=421)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return check_host


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


async def serve_http(
    memories: OpenMemories, listener: socket.socket, names: Sequence[str], started: Callable[[int], None]
) -> None:
    """Serves until SIGINT or SIGTERM. `started` is called with the port before the first request is accepted."""
    host, port = listener.getsockname()[:2]
    config = make_config(make_app(memories, host, port, names))
    started(port)
    await uvicorn.Server(config).serve(sockets=[listener])
