"""A proxy for model providers' APIs, for programs that can only change a base URL.

It adds the block to the messages of a request, forwards it, and records the answer. Everything else passes unchanged.
`proxy_turns.py` has what a request means to memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import anyio
import httpx2
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from afterturn.errors import AfterturnError, InvalidInput, NotAllowed, NotFound
from afterturn.hosts.server.access import Caller, caller_of
from afterturn.hosts.server.app import refusal
from afterturn.hosts.server.audit import note_reached
from afterturn.hosts.server.limits import BODY_BYTES_MAX, length_of
from afterturn.hosts.server.proxy_answers import FORMATS, AnswerReader, ApiFormat, Messages, ModelAnswer
from afterturn.hosts.server.proxy_body import read_body
from afterturn.hosts.server.proxy_conversations import find_named_user
from afterturn.hosts.server.proxy_turns import ProxiedTurn, ProxyTurns
from afterturn.hosts.server.tokens import PREFIX
from afterturn.log import logger

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

UPSTREAM_HEADER = "x-afterturn-upstream"
ERROR_HEADER = b"x-afterturn-error"
CONNECT_SECONDS = 10.0
READ_SECONDS = 600.0
# The most that memory may hold up a request. A turn has shorter limits of its own; opening the store has not.
MEMORY_SECONDS = 5.0
_ERROR_CHARS_MAX = 200
_OWN_PREFIXES = (b"x-afterturn-", b"x-sm-")
_KEY_HEADERS = frozenset([b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"])
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_NOT_FORWARDED = _HOP_BY_HOP | frozenset(b"host content-length expect cookie accept-encoding origin referer".split())
# They would set rules and cookies for the pages of this server.
_NOT_RETURNED = _HOP_BY_HOP | frozenset(b"set-cookie alt-svc strict-transport-security clear-site-data date".split())


class Proxy:
    """Use it with `async with`, on the server's loop."""

    def __init__(self, service: Service) -> None:
        self._upstreams = service.options.upstreams
        self._keys = service.options.upstream_keys
        self._turns = ProxyTurns(service.memories)
        self._client: httpx2.AsyncClient | None = None
        self.routes: list[BaseRoute] = [Route(one.path, self._endpoint(one), methods=["POST"]) for one in FORMATS]
        self.routes.append(Route("/v1/messages/count_tokens", self.proxy_unchanged, methods=["POST"]))
        self.routes.append(Route("/v1/models", self.proxy_unchanged, methods=["GET"]))

    async def __aenter__(self) -> Proxy:
        if self._upstreams:
            timeout = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS)
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
            self._client = await asyncio.to_thread(httpx2.AsyncClient, timeout=timeout, limits=limits)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _endpoint(self, format: ApiFormat) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await self._answer(format, request)

        # The metrics count requests by this name.
        answer.__name__ = f"proxy_{format.dialect}"
        return answer

    async def proxy_unchanged(self, request: Request) -> Response:
        """A request that memory has no part in."""
        _check_caller(request)
        return await self._forward(request, "anthropic" if _is_anthropic(request) else "openai")

    async def _answer(self, format: ApiFormat, request: Request) -> Response:
        caller = _check_caller(request)
        # A header that names another user is a mistake that the client can see and correct.
        find_named_user(caller, request.headers)
        forwarded = await self._forward(request, format.upstream)
        if not forwarded.problem:
            turn, problem = await self._begin_turn(caller, format, request.headers, await request.body())
            if turn is not None:
                where = turn.where
                note_reached(request.scope, reads=where.owner, writes=where.owner, conversation=where.id)
                forwarded.attach(turn, format)
            forwarded.problem = problem
        return forwarded

    async def _begin_turn(
        self, caller: Caller, format: ApiFormat, headers: Headers, raw: bytes
    ) -> tuple[ProxiedTurn | None, str]:
        """The boundary of memory: whatever fails in it, the request is forwarded. Returns what failed, for a header."""
        try:
            if headers.get("content-encoding", "identity") != "identity":
                raise InvalidInput("The request is compressed, so memory cannot read it.")
            async with asyncio.timeout(MEMORY_SECONDS):
                return await self._turns.begin(caller, format, headers, read_body(raw, format.messages)), ""
        except TimeoutError:
            problem = f"DeadlineExceeded: Memory did not answer within {MEMORY_SECONDS:g} seconds."
        except (InvalidInput, NotAllowed) as error:
            problem = f"{type(error).__name__}: {error}"
        except AfterturnError as error:
            # Its text may name files of this machine, so it is only in the log.
            logger.warning("a request to %s was forwarded without memory: %s", format.path, error)
            return None, type(error).__name__
        except Exception:  # the boundary: an error of memory must not fail the request
            logger.exception("a request to %s was forwarded without memory", format.path)
            return None, "InternalError"
        logger.warning("a request to %s was forwarded without memory: %s", format.path, problem)
        return None, problem

    async def _forward(self, request: Request, upstream: str) -> Forwarded:
        """Raises NotFound for an upstream that is not configured. No URL is ever taken from a request."""
        name = request.headers.get(UPSTREAM_HEADER, upstream)
        base = self._upstreams.get(name)
        if base is None or self._client is None:
            raise NotFound(f"There is no upstream {name[:60]!r}. Start the server with --upstream NAME=URL.")
        url = httpx2.URL(base.removesuffix("/v1") + request.url.path)
        if request.url.query:
            url = url.copy_with(query=request.url.query.encode())
        headers = _request_headers(request.headers.raw)
        if not any(header in _KEY_HEADERS for header, _ in headers):
            if (key := self._keys.get(name)) is not None:
                headers.append((b"x-api-key", key) if _is_anthropic(request) else (b"authorization", b"Bearer " + key))
            elif any(header in _KEY_HEADERS for header, _ in request.headers.raw):
                raise NotAllowed(
                    "The request has the token of afterturn in place of the provider's key. Send the token as "
                    "x-afterturn-token, or start the server with --upstream-key."
                )
        length, passed = length_of(request.scope), asyncio.Event()
        if length <= BODY_BYTES_MAX:
            passed.set()
            sent = httpx2.Request(request.method, url, headers=headers, content=await request.body())
            return Forwarded(self._client, sent, passed)
        headers.append((b"content-length", str(length).encode()))
        sent = httpx2.Request(request.method, url, headers=headers, content=_pass_body(request, passed))
        forwarded = Forwarded(self._client, sent, passed)
        forwarded.problem = f"TooLarge: The request has more than {BODY_BYTES_MAX:,} bytes, so memory does not read it."
        return forwarded


class Forwarded(Response):
    """The answer of the upstream, byte for byte. `problem` says why memory takes no part in the request, `passed` is
    set when its body was read."""

    def __init__(self, client: httpx2.AsyncClient, sent: httpx2.Request, passed: asyncio.Event) -> None:
        super().__init__()
        self.problem = ""
        self._client, self._sent, self._passed = client, sent, passed
        self._turn: ProxiedTurn | None = None
        self._reader: AnswerReader | None = None

    def attach(self, turn: ProxiedTurn, format: ApiFormat) -> None:
        """The turn that the request belongs to, with what it adds to the body."""
        self._turn, self._reader = turn, AnswerReader(format)
        sent = self._sent
        headers = [(name, value) for name, value in sent.headers.raw if name.lower() != b"content-length"]
        self._sent = httpx2.Request(sent.method, sent.url, headers=headers, content=turn.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_over = False
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_when_closed, receive, group.cancel_scope, self._passed)
                await self._exchange(scope, receive, send)
                is_over = True
                group.cancel_scope.cancel()
        finally:
            if self._turn is not None:
                self._turn.leave(is_aborted=not is_over)

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False
        try:
            response = await self._client.send(self._sent, stream=True)
            try:
                start = {"type": "http.response.start", "status": response.status_code}
                await send({**start, "headers": self._answer_headers(response)})
                is_started = True
                await self._pass_on(response, send)
            finally:
                await response.aclose()
        except ClientDisconnect:
            return  # before it had sent its whole request
        except httpx2.HTTPError as error:
            what = f"The upstream {self._sent.url.host} failed: {type(error).__name__}."
            logger.warning("%s", what)
            # After the first byte, only a connection that breaks off says that the answer is not complete.
            if not is_started:
                status = 504 if isinstance(error, httpx2.TimeoutException) else 502
                await refusal(status, "UpstreamFailed", what)(scope, receive, send)

    async def _pass_on(self, response: httpx2.Response, send: Send) -> None:
        reader = self._reader if response.status_code == 200 and "content-encoding" not in response.headers else None
        if reader is not None:
            reader.is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        async for chunk in response.aiter_raw():
            if reader is not None:
                # First, because clients close the connection when they have read the last event.
                self._note(reader.add(chunk))
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if reader is not None:
            self._note(reader.end())
        await send({"type": "http.response.body", "body": b""})

    def _note(self, answer: ModelAnswer | None) -> None:
        """The boundary of memory on the way back."""
        if answer is None or self._turn is None or self._reader is None:
            return
        try:
            self._turn.note_answer(answer, self._reader.id)
        except Exception:  # the boundary: an error of memory must not fail the request
            logger.exception("the answer to a request was not recorded")

    def _answer_headers(self, response: httpx2.Response) -> list[tuple[bytes, bytes]]:
        """Those of the upstream, and ours."""
        given = [(name.lower(), value) for name, value in response.headers.raw]
        dropped = _NOT_RETURNED | _named_by_connection(given)
        foreign = (b"x-afterturn-", b"access-control-")
        headers = [(name, value) for name, value in given if name not in dropped and not name.startswith(foreign)]
        if self._turn is not None:
            headers.append((b"x-afterturn-turn", self._turn.id.encode("latin-1", "replace")))
            headers.append((b"x-afterturn-lines", str(self._turn.lines).encode()))
        if self.problem:
            shown = " ".join(self.problem.split())[:_ERROR_CHARS_MAX]
            headers.append((ERROR_HEADER, shown.encode("ascii", "replace")))
        return headers


async def _pass_body(request: Request, passed: asyncio.Event) -> AsyncIterator[bytes]:
    async for chunk in request.stream():
        yield chunk
    passed.set()


async def _cancel_when_closed(receive: Receive, scope: anyio.CancelScope, passed: asyncio.Event) -> None:
    """A client that closes the connection wants no answer any more, so the upstream need not write it."""
    await passed.wait()
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _check_caller(request: Request) -> Caller:
    caller = caller_of(request)
    caller.check("turns")
    if caller.by_cookie:
        raise NotAllowed("The proxy is for programs. Send a token: `afterturn token create`.")
    return caller


def _is_anthropic(request: Request) -> bool:
    return request.url.path.startswith(Messages.path) or "anthropic-version" in request.headers


def _request_headers(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Those that are the upstream's: neither our own, nor a token of ours, nor those of one connection."""
    dropped = _NOT_FORWARDED | _named_by_connection(headers)
    kept = [
        (name, value)
        for name, value in headers
        if name not in dropped
        and not name.startswith(_OWN_PREFIXES)
        and not (name in _KEY_HEADERS and PREFIX.encode() in value)
    ]
    # A compressed answer could not be read.
    return [*kept, (b"accept-encoding", b"identity")]


def _named_by_connection(headers: Sequence[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Further headers that are for one connection only."""
    named = b",".join(value for name, value in headers if name == b"connection").lower()
    return frozenset(name.strip() for name in named.split(b","))
