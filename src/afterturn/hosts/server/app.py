"""The HTTP server: one application for the API, MCP, mem0's routes, the proxy and the pages.

A request passes, in this order: the check of Host, the caller, the check of Origin, the limits, the audit log, the
route. Routes find the caller in the request (`access.caller_of`) and the rest in `Service`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from afterturn.config import Config, StoreUrl
from afterturn.errors import (
    AfterturnError,
    ConfigError,
    Conflict,
    InvalidInput,
    NotAllowed,
    NotFound,
    OverBudget,
    StoreError,
    TooLarge,
)
from afterturn.hosts.server import readiness
from afterturn.hosts.server.access import CALLER, Authentication, Caller, Sessions
from afterturn.hosts.server.audit import REACHED, AuditLog
from afterturn.hosts.server.feed import EventFeed
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.server.limits import REQUEST_SECONDS, REQUESTS_PER_SECOND, STREAMS, UNTIMED, Admission, Limits
from afterturn.hosts.server.memories import OpenMemories
from afterturn.hosts.server.metrics import Metrics
from afterturn.hosts.server.open_turns import OpenTurns
from afterturn.log import logger
from afterturn.runtime.clock import SystemClock

# The status of each error, the narrower class first.
_STATUSES: tuple[tuple[type[AfterturnError], int], ...] = (
    (TooLarge, 413),
    (OverBudget, 409),
    (InvalidInput, 400),
    (ConfigError, 400),
    (NotFound, 404),
    (NotAllowed, 403),
    (Conflict, 409),
    # The store, a model, an embedder or the time is not sufficient now.
    (AfterturnError, 503),
)
# Paths that need no caller: they say nothing about anybody.
PUBLIC = ("/livez", "/readyz", "/login", "/static/")
_UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What `afterturn serve` was started with. `upstreams` are base URLs of model providers, by name, for the proxy,
    and `upstream_keys` the keys for requests that have none.

    `local` is the grant of requests without credentials; None refuses them. `parts` are those that are served.
    """

    host: str
    allowed: Sequence[str]
    upstreams: Mapping[str, str] = field(default_factory=dict)
    upstream_keys: Mapping[str, bytes] = field(default_factory=dict)
    local: Grant | None = None
    parts: frozenset[str] = frozenset({"api", "mcp", "mem0", "proxy", "pages"})
    requests_per_second: float = REQUESTS_PER_SECOND


class Service:
    """What the routes share: the open memories, who asks, the feed of events, the audit log."""

    def __init__(self, find_store: Callable[[], tuple[Path | StoreUrl | None, Config]], options: ServerOptions) -> None:
        self.options = options
        self.memories = OpenMemories(find_store, lambda event: self.feed.publish(event))
        self.feed = EventFeed(self.memories.get)
        self.sessions = Sessions()
        self.authentication = Authentication(self.sessions, options.local)
        self.audit = AuditLog()
        self.limits = Limits(options.requests_per_second)
        self.turns = OpenTurns()
        self.started_at = SystemClock().now()
        self.metrics = Metrics(self.started_at)
        self.feed.when_published(self.metrics.note_event)
        # The pages show refusals to browsers as pages.
        self.show_refusal: Callable[[HTTPConnection, Response], Response] = lambda _, answer: answer

    def is_own_origin(self, request: HTTPConnection, *, needed: bool = True) -> bool:
        """Whether the request comes from one of our pages, or, unless that is `needed`, from no page at all."""
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        own = {f"{scheme}://{name}" for scheme in ("http", "https") for name in self.options.allowed}
        is_foreign = (origin is not None and origin not in own) or site not in (None, "same-origin", "none")
        return not is_foreign and not (needed and origin is None and site is None)


def describe_error(error: AfterturnError) -> tuple[int, str, str]:
    """The status, the class and the sentence that a client gets. Sentences about the store may have paths in them,
    which are for the server's log alone."""
    status = next(code for kind, code in _STATUSES if isinstance(error, kind))
    message = str(error)
    if isinstance(error, StoreError):
        logger.warning("a request failed: %s", error)
        message = f"The store cannot be used now ({type(error).__name__}). Try again later."
    # A text of the client's may have half of a surrogate pair in it.
    return status, type(error).__name__, message.encode("utf-8", "replace").decode()


def error_response(error: AfterturnError) -> JSONResponse:
    return refusal(*describe_error(error))


def fault_response() -> JSONResponse:
    return refusal(500, "InternalError", "The server failed. Its log has the reason.")


def refusal(status: int, type: str, message: str, **headers: str) -> JSONResponse:
    return JSONResponse({"error": {"type": type, "message": message}}, status_code=status, headers=headers)


class Gatekeeper:
    """The ASGI middleware in front of all routes: Host, caller, Origin, limits, audit."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        refused = self._refuse_form(request)
        if refused is None and not scope["path"].startswith(PUBLIC):
            refused = self._identify(request) or self._refuse_origin(request)
        if refused is not None:
            await self._service.show_refusal(request, refused)(scope, receive, send)
            return
        caller = scope.get(CALLER)
        if caller is None:
            await self._app(scope, receive, send)
            return
        await self._limited(caller, scope, receive, send)

    def _refuse_form(self, request: HTTPConnection) -> Response | None:
        if "content-length" in request.headers and "transfer-encoding" in request.headers:
            # A proxy in front of the server may read it as another number of requests.
            return refusal(400, "TwoLengths", "The request says its length twice.", Connection="close")
        if len(request.headers.getlist("host")) == 1 and request.headers["host"] in self._service.options.allowed:
            return None
        return refusal(421, "UnknownHost", "This is not a name of this server. Add it with --allow-host NAME.")

    def _identify(self, request: HTTPConnection) -> Response | None:
        try:
            caller = self._service.authentication.find(request)
        except AfterturnError as error:
            logger.warning("no token is accepted: %s", error)
            caller = None
        if caller is None:
            message = (
                "A valid token is missing. Create one with `afterturn token create`, and send it as a bearer token."
            )
            return refusal(401, "NotAuthenticated", message, **{"WWW-Authenticate": "Bearer"})
        request.scope[CALLER], request.scope[REACHED] = caller, {}
        return None

    def _refuse_origin(self, request: HTTPConnection) -> Response | None:
        """A request that changes something with a cookie must come from one of our pages (CSRF), and no page of
        another site may use the server, with or without a token."""
        caller: Caller = request.scope[CALLER]
        needs_origin = caller.by_cookie and request.scope["method"] in _UNSAFE
        if not self._service.is_own_origin(request, needed=needs_origin):
            return refusal(403, "ForeignOrigin", "This request comes from another site, so it is refused.")
        return None

    async def _limited(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        status, started = 500, SystemClock().monotonic()

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            async with self._service.limits.admit(caller, scope, receive) as admitted:
                if admitted.refused is not None:
                    shown = self._service.show_refusal(HTTPConnection(scope), admitted.refused)
                    await shown(scope, receive, note_status)
                else:
                    await self._timed(admitted, scope, note_status)
        finally:
            self._service.audit.note(caller, scope, status)
            route = getattr(scope.get("endpoint"), "__name__", "other")
            seconds = SystemClock().monotonic() - started
            self._service.metrics.note_request(caller.grant.tenant, scope["method"], route, status, seconds)

    async def _timed(self, admitted: Admission, scope: Scope, send: Send) -> None:
        """Ends a request that takes too long. A stream may take as long as it likes, and makes room for others."""
        is_started = False
        deadline = asyncio.timeout(None if scope["path"].startswith(UNTIMED) else REQUEST_SECONDS)

        async def watch(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                if Headers(raw=message["headers"]).get("content-type", "").startswith(STREAMS):
                    admitted.release()
                    deadline.reschedule(None)
            await send(message)

        try:
            async with deadline:
                await self._app(scope, admitted.receive, watch)
        except TimeoutError:
            if not deadline.expired() or is_started:
                raise
            message = f"The request took more than {REQUEST_SECONDS:g} seconds. Try again."
            await refusal(503, "DeadlineExceeded", message)(scope, admitted.receive, send)


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AfterturnError)
    return _shown(request, error_response(error))


async def _answer_refused(request: Request, error: Exception) -> Response:
    """What no route takes: an unknown path, another method."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    answer = refusal(error.status_code, phrase.replace(" ", ""), f"{phrase}.", **dict(error.headers or {}))
    return _shown(request, answer)


async def _answer_fault(request: Request, error: Exception) -> Response:
    """The boundary of a request: what was not foreseen is logged, and the client learns nothing of it."""
    logger.error("a request to %s failed", request.url.path, exc_info=error)
    return _shown(request, fault_response())


def _shown(request: Request, answer: Response) -> Response:
    service: Service = request.app.state.service
    return service.show_refusal(request, answer)


def make_app(service: Service) -> Starlette:
    """The application with the parts that are switched on. Each part is a module with `routes(service)`."""
    parts, routes = service.options.parts, list[BaseRoute]()
    contexts: list[Callable[[], contextlib.AbstractAsyncContextManager[object]]] = []
    if "api" in parts:
        from afterturn.hosts.server import api

        routes += api.routes(service)
    if "mem0" in parts:
        from afterturn.hosts.server import mem0_routes

        routes += mem0_routes.routes(service)
    if "proxy" in parts:
        from afterturn.hosts.server.proxy import Proxy

        proxy = Proxy(service)
        contexts.append(lambda: proxy)
        routes += proxy.routes
    if "pages" in parts:
        from afterturn.hosts.server import pages

        routes += pages.routes(service)
    if "mcp" in parts:
        from afterturn.hosts.server.mcp_http import make_mcp_app

        mcp = make_mcp_app(service.memories, service.options.host, service.options.allowed)
        contexts.append(lambda: mcp.router.lifespan_context(mcp))
        routes += mcp.routes

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.feed.start()
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(service.memories)
            stack.callback(service.audit.close)
            for context in contexts:
                await stack.enter_async_context(context())
            yield

    app = Starlette(
        routes=[*readiness.routes(service), *routes],
        middleware=[Middleware(Gatekeeper, service=service)],
        exception_handlers={AfterturnError: _answer_error, HTTPException: _answer_refused, Exception: _answer_fault},
        lifespan=lifespan,
    )
    app.state.service = service
    return app
