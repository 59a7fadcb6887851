"""What a chat model has answered, as text."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, urlsplit, urlunsplit

from afterturn.errors import ConfigError, ModelAnswerInvalid, ModelError, ModelRefused, ModelUnavailable
from afterturn.runtime.loop_thread import run_on
from afterturn.runtime.worker import ThreadWorker

if TYPE_CHECKING:
    import ssl

    import httpx2


def answer_text(message: Mapping[str, Any]) -> str:
    """Of an assistant's message, whose content is a text or a list of parts; "" where there is none."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    return "".join(part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str))


# Where a server is asked: the URL that calls go to, and the header that its key goes into. Checked before any call.


@dataclass(frozen=True, slots=True)
class ServerKind:
    """What a server is to us: its name in messages, the end of its URL, and the settings that say where and as whom."""

    name: str
    path: str
    url: str
    key: str
    model: str
    timeout: str
    answer_bytes_max: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`url` is what is called; `shown` is what people are told of it, without a query, where a secret may stand."""

    url: str
    shown: str


def make_endpoint(service: ServerKind, url: str) -> Endpoint:
    """Of a base URL such as http://localhost:8080/v1, or of the whole one. ConfigError says what is wrong with it."""
    parts = _split(service, url.strip())
    path = parts.path.rstrip("/")
    base = path.removesuffix(service.path)
    return Endpoint(
        url=urlunsplit((parts.scheme, parts.netloc, base + service.path, parts.query, "")),
        shown=urlunsplit((parts.scheme, parts.netloc, base, "", "")),
    )


def bearer(service: ServerKind, key: str | None) -> dict[str, str]:
    """The header for `key`, none for a blank one. ConfigError, without the key in it, when no header can hold it."""
    secret = (key or "").strip()
    if not secret:
        return {}
    if not (secret.isascii() and secret.isprintable()):
        raise ConfigError(f"{service.key} has characters that no HTTP header can hold. Copy the key anew.")
    return {"Authorization": f"Bearer {secret}"}


def check_server(service: ServerKind, url: str, key: str | None) -> None:
    """ConfigError when it could not be asked."""
    make_endpoint(service, url)
    bearer(service, key)


def _split(service: ServerKind, url: str) -> SplitResult:
    # First: whatever is said about another fault would show it.
    if "@" in url.partition("?")[0]:
        raise ConfigError(f"{service.url} has a name or password in it. Set {service.key} instead.")
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise _no_address(service, url) from None
    if not is_address or " " in url or not url.isprintable():
        raise _no_address(service, url)
    return parts


def _no_address(service: ServerKind, url: str) -> ConfigError:
    shown = url.partition("?")[0]
    return ConfigError(
        f"{service.url} is {shown!r}, which is no http or https address. Write it like http://localhost:8080/v1."
    )


# What a server's reply means before its content is looked at: a document, or an error that says what to do. Pure.

ERROR_BYTES_MAX = 1 << 13
_QUOTED_CHARS_MAX = 200
_OK = 200
_TOO_MANY = 429


@dataclass(frozen=True, slots=True)
class Reply:
    """`headers` have names in lower case. `is_cut`: there was more than is wanted, and it was not read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class ReplyReader:
    """Reads the replies of one server, which is `shown` in errors; `secret` is struck from what they quote."""

    service: ServerKind
    shown: str
    secret: str

    def document(self, reply: Reply) -> Any:
        """The JSON of a good reply, None when it is none. ModelError for every other reply."""
        if reply.status != _OK:
            raise self._failure(reply)
        encoding = reply.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise self.invalid(f"sent {encoding!r} though it was asked not to compress", "compressed")
        if reply.is_cut:
            raise self.invalid(f"answered with more than {self.service.answer_bytes_max} bytes", "too_long")
        return _json(reply.body)

    def invalid(self, what: str, reason: str) -> ModelAnswerInvalid:
        return ModelAnswerInvalid(f"{self._server} {what}. {self._remedy}", reason=reason)

    def quoted(self, reply: Reply) -> str:
        """What the server says, in one short line: the message of an error document, else how the body begins."""
        document = _json(reply.body)
        said = document.get("error", document) if isinstance(document, dict) else document
        said = said.get("message", said) if isinstance(said, dict) else said
        text = said if isinstance(said, str) else reply.body.decode("utf-8", "replace")
        line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
        if self.secret:
            line = line.replace(self.secret, "***")
        shown = line if len(line) <= _QUOTED_CHARS_MAX else line[:_QUOTED_CHARS_MAX] + "…"
        return repr(shown) if shown else "nothing"

    @property
    def _server(self) -> str:
        return f"The {self.service.name} {self.shown}"

    @property
    def _remedy(self) -> str:
        return f"Check {self.service.url} and {self.service.model}."

    def _failure(self, reply: Reply) -> ModelError:
        what = f"{self._server} answered with status {reply.status}: {self.quoted(reply)}."
        if reply.status == _TOO_MANY:
            pause = retry_after(reply.headers)
            wish = "" if pause is None else f" It asks for a pause of {pause:g} seconds."
            return ModelUnavailable(f"{what}{wish} Ask less often.", reason="overloaded", retry_after=pause)
        if reply.status >= 500:
            pause = retry_after(reply.headers)
            return ModelUnavailable(f"{what} Look at the server's log.", reason="server_error", retry_after=pause)
        if 300 <= reply.status < 400:
            remedy = f"Set {self.service.url} to where it leads."
            return ModelRefused(f"{what} {remedy}", reason="redirected", status=reply.status)
        reason = "key_refused" if reply.status in (401, 403) else "refused"
        return ModelRefused(f"{what} {self._remedy_for(reply.status)}", reason=reason, status=reply.status)

    def _remedy_for(self, status: int) -> str:
        service = self.service
        remedies = {
            400: "Its words say what is wrong with the request; a smaller model may take fewer tokens.",
            401: f"Set {service.key} to a valid key.",
            403: f"Set {service.key} to a key that may use this model.",
            404: f"Check {service.model}, and that {service.url} ends as the server wants it, mostly in /v1.",
        }
        return remedies.get(status, self._remedy)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server wants to be left alone for. A date is held against the server's own clock."""
    asked = headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return float(asked[:9])
    try:
        until, now = (parsedate_to_datetime(value) for value in (asked, headers.get("date", "")))
        return max(0.0, (until - now).total_seconds())
    except (TypeError, ValueError):
        return None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


# Asks an HTTP server, again where that may help, within a deadline. By httpx2, which takes long to import.
#
# So it is loaded with the first call, on a thread of its own.

R = TypeVar("R")

# The first pause; each further one is twice as long. Halved at random, so that many hosts do not come back at once.
_PAUSE = 0.5
# From one thing that a person says to the next. A server that closes earlier is connected to anew.
_KEPT_FOR = 60.0
# Only where a connection is dear. In the open it costs a millisecond; and one that is kept, to a server that sends head
# and body apart, waits 40 for an acknowledgement each time.
_KEPT_SCHEME = "https:"


class HttpClient:
    """One server and how it is asked. From any event loop, several calls at a time; cancelling a call ends it.

    With `keeps`, from one loop alone, which has to `aclose` it: what a call prepares, the next one uses again.
    A server that can not be reached, is overloaded or fails is asked again up to `retries` times, after the pause that
    it asks for, else after half a second, one, two; not when that pause would outlast the call. ConfigError for a `url`
    or `key` that can not be used. The key is in no error, log or representation.
    """

    def __init__(
        self, service: ServerKind, url: str, *, key: str | None, timeout: float, retries: int, keeps: bool = False
    ) -> None:
        self.endpoint = make_endpoint(service, url)
        self.reader = ReplyReader(service, self.endpoint.shown, (key or "").strip())
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
        self, service: ServerKind, endpoint: Endpoint, headers: Mapping[str, str], *, keeps: bool = False
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
    service: ServerKind, endpoint: Endpoint, headers: Mapping[str, str], *, keeps: bool = False
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
