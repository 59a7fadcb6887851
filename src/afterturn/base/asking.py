"""Asks an HTTP server, again where that may help, within a deadline. By httpx2, which takes long to import.

So it is loaded with the first call, on a thread of its own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from afterturn.base.endpoint import Endpoint, Service, bearer, make_endpoint
from afterturn.base.errors import ConfigError, ModelUnavailable
from afterturn.base.loop import run_on
from afterturn.base.replies import ERROR_BYTES_MAX, Reader, Reply
from afterturn.base.worker import ThreadWorker

if TYPE_CHECKING:
    import ssl

    import httpx2

R = TypeVar("R")

# The first pause; each further one is twice as long. Halved at random, so that many hosts do not come back at once.
_PAUSE = 0.5
# From one thing that a person says to the next. A server that closes earlier is connected to anew.
_KEPT_FOR = 60.0
# Only where a connection is dear. In the open it costs a millisecond; and one that is kept, to a server that sends head
# and body apart, waits 40 for an acknowledgement each time.
_KEPT_SCHEME = "https:"


class Asker:
    """One server and how it is asked. From any event loop, several calls at a time; cancelling a call ends it.

    With `keeps`, from one loop alone, which has to `aclose` it: what a call prepares, the next one uses again.
    A server that can not be reached, is overloaded or fails is asked again up to `retries` times, after the pause that
    it asks for, else after half a second, one, two; not when that pause would outlast the call. ConfigError for a `url`
    or `key` that can not be used. The key is in no error, log or representation.
    """

    def __init__(
        self, service: Service, url: str, *, key: str | None, timeout: float, retries: int, keeps: bool = False
    ) -> None:
        self.endpoint = make_endpoint(service, url)
        self.reader = Reader(service, self.endpoint.shown, (key or "").strip())
        self._headers = bearer(service, key)
        self._timeout = timeout
        self._retries = retries
        self._keeps = keeps
        self._transport: Transport | None = None

    @asynccontextmanager
    async def bounded(self) -> AsyncIterator[asyncio.Timeout]:
        """Around a whole call; ModelUnavailable when its time is over."""
        try:
            async with asyncio.timeout(self._timeout) as deadline:
                yield deadline
        except TimeoutError as error:
            service = self.reader.service
            raise ModelUnavailable(
                f"The {service.name} {self.endpoint.shown} gave no answer within {self._timeout:g} seconds. "
                f"Take a faster model, or raise {service.timeout}.",
                reason="timeout",
            ) from error

    async def ask(self, body: bytes, read: Callable[[Reply], R], deadline: asyncio.Timeout) -> R:
        """What `read` makes of the reply. ModelError, its own included, when there is none of use."""
        if self._transport is None:
            self._transport = await load_transport(self.reader.service, self.endpoint, self._headers, keeps=self._keeps)
        attempt = 0
        while True:
            try:
                return read(await self._transport.post(body))
            except ModelUnavailable as error:
                pause = _pause(attempt) if error.retry_after is None else error.retry_after
                if attempt >= self._retries or not _is_before(deadline, pause):
                    raise
            await asyncio.sleep(pause)
            attempt += 1

    async def aclose(self) -> None:
        """Closes the connections that are kept. Whatever is under way has to be ended first."""
        if self._transport is not None:
            await self._transport.aclose()


class Transport:
    """Posts to one endpoint. A connection lives as long as its call, so that any event loop may call, and fork.

    Unless it `keeps` them: preparing and connecting take longer than many a server takes to answer.
    """

    def __init__(
        self, service: Service, endpoint: Endpoint, headers: Mapping[str, str], *, keeps: bool = False
    ) -> None:
        import httpx2

        self._library = httpx2
        self._service = service
        self._endpoint = endpoint
        self._headers = dict(headers)
        # Reading the machine's certificates takes 20 to 100 ms; every connection shares them.
        self._tls: ssl.SSLContext = httpx2.create_ssl_context()
        # The first client and its backend import more, which is better done here than on the loop.
        made = self._client()
        self._kept = made if keeps else None
        import anyio._backends._asyncio  # noqa: F401

    async def post(self, body: bytes) -> Reply:
        """Waits without a limit: the caller sets it. ModelUnavailable when there is no whole reply."""
        service, shown = self._service, self._endpoint.shown
        try:
            async with self._connected() as client, client.stream("POST", self._endpoint.url, content=body) as response:
                return await _read(response, service.answer_bytes_max)
        except self._library.InvalidURL as error:
            raise ConfigError(f"{service.url} is {shown!r}, which is no address: {error}.") from error
        except self._library.HTTPError as error:
            what = str(error) or type(error).__name__
            raise ModelUnavailable(
                f"The {service.name} {shown} can not be reached: {what}. "
                f"Start it, or check {service.url} and the network.",
                reason="unreachable",
            ) from error

    async def aclose(self) -> None:
        if self._kept is not None:
            await self._kept.aclose()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[httpx2.AsyncClient]:
        if self._kept is not None:
            yield self._kept
        else:
            async with self._client() as client:
                yield client

    def _client(self) -> httpx2.AsyncClient:
        # Compressed, a small reply could become a large one.
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json", **self._headers}
        kept_max = None if self._endpoint.url.startswith(_KEPT_SCHEME) else 0
        limits = self._library.Limits(max_keepalive_connections=kept_max, keepalive_expiry=_KEPT_FOR)
        return self._library.AsyncClient(headers=headers, verify=self._tls, timeout=None, limits=limits)


async def load_transport(
    service: Service, endpoint: Endpoint, headers: Mapping[str, str], *, keeps: bool = False
) -> Transport:
    """Away from the loop, which goes on meanwhile. ModelUnavailable where httpx2 is not installed."""
    worker = ThreadWorker("afterturn-http")
    try:
        return await run_on(worker, lambda: Transport(service, endpoint, headers, keeps=keeps))
    except ImportError as error:
        raise ModelUnavailable(
            f"A {service.name} needs a package that is not installed ({error}). Run `pip install 'afterturn[models]'`.",
            reason="not_installed",
        ) from error
    finally:
        worker.close(within=0.0)


async def _read(response: httpx2.Response, answer_bytes_max: int) -> Reply:
    bytes_max = answer_bytes_max if response.status_code == 200 else ERROR_BYTES_MAX
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > bytes_max:
            break
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers, bytes(body[:bytes_max]), is_cut=len(body) > bytes_max)


def _pause(attempt: int) -> float:
    return _PAUSE * float(2**attempt) * random.uniform(0.5, 1.0)


def _is_before(deadline: asyncio.Timeout, pause: float) -> bool:
    end = deadline.when()
    return end is None or asyncio.get_running_loop().time() + pause < end
