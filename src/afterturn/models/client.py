"""HTTP client for chat and embedding servers: checks addresses and keys, retries, and turns bad replies into errors
that say what to do."""

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
    """The text of an assistant's message, whose content is a string or a list of parts. "" if there is none."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    return "".join(part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str))


# Addresses and keys, which are checked before any call.


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A kind of server: its name in messages, the end of its URL, and the names of its settings."""

    name: str
    path: str
    url: str
    key: str
    model: str
    answer_bytes_max: int


def bearer(service: ServerKind, key: str | None) -> dict[str, str]:
    """The header for `key`, or none for a blank key. Raises ConfigError, without the key, if no header can hold it."""
    secret = (key or "").strip()
    if not secret:
        return {}
    if not (secret.isascii() and secret.isprintable()):
        raise ConfigError(f"{service.key} has characters that are not allowed in an HTTP header. Copy the key again.")
    return {"Authorization": f"Bearer {secret}"}


def _split(service: ServerKind, url: str) -> SplitResult:
    # Checked first, because the messages about other mistakes quote the URL.
    if "@" in url.partition("?")[0]:
        raise ConfigError(f"{service.url} has a name or password in it. Set {service.key} instead.")
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        if is_address and " " not in url and url.isprintable():
            return parts
    except ValueError:
        pass
    shown = url.partition("?")[0]
    raise ConfigError(
        f"{service.url} is {shown!r}, which is not an http or https address. Use the form http://localhost:8080/v1."
    )


# Replies: a JSON document, or an error that says what to do.

ERROR_BYTES_MAX = 1 << 13
_QUOTED_CHARS_MAX = 200
_OK = 200
_TOO_MANY = 429


@dataclass(frozen=True, slots=True)
class Reply:
    """`headers` have names in lower case. `is_cut`: the body was longer than allowed, and its rest was not read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class ReplyReader:
    """Reads the replies of one server. `shown` is its address in errors; `secret` is removed from what they quote."""

    service: ServerKind
    shown: str
    secret: str

    def document(self, reply: Reply) -> Any:
        """The JSON of a good reply, or None if its body is not JSON. Raises ModelError for every other reply."""
        if reply.status != _OK:
            raise self._failure(reply)
        encoding = reply.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise self.invalid(f"sent {encoding!r}, but was asked not to compress", "compressed")
        if reply.is_cut:
            raise self.invalid(f"answered with more than {self.service.answer_bytes_max} bytes", "too_long")
        return _json(reply.body)

    def invalid(self, what: str, reason: str) -> ModelAnswerInvalid:
        return ModelAnswerInvalid(f"{self._server} {what}. {self._remedy}", reason=reason)

    def quoted(self, reply: Reply) -> str:
        """The server's message in one short line: that of an error document, else the beginning of the body."""
        document = _json(reply.body)
        error = document.get("error", document) if isinstance(document, dict) else document
        message = error.get("message", error) if isinstance(error, dict) else error
        text = message if isinstance(message, str) else reply.body.decode("utf-8", "replace")
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
            return ModelUnavailable(f"{what}{wish} Send fewer requests.", reason="overloaded", retry_after=pause)
        if reply.status >= 500:
            pause = retry_after(reply.headers)
            return ModelUnavailable(f"{what} Look at the server's log.", reason="server_error", retry_after=pause)
        if 300 <= reply.status < 400:
            remedy = f"Set {self.service.url} to the address it redirects to."
            return ModelRefused(f"{what} {remedy}", reason="redirected", status=reply.status)
        reason, service = "key_refused" if reply.status in (401, 403) else "refused", self.service
        remedies = {
            400: "Its message says what is wrong with the request. Perhaps the model takes fewer tokens.",
            401: f"Set {service.key} to a valid key.",
            403: f"Set {service.key} to a key that may use this model.",
            404: f"Check {service.model}, and the end of {service.url}, which for most servers is /v1.",
        }
        remedy = remedies.get(reply.status, self._remedy)
        return ModelRefused(f"{what} {remedy}", reason=reason, status=reply.status)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The pause in seconds that the server asks for. A date is compared with the server's own clock."""
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


# Calls and retries. httpx2 takes long to import, so it is loaded at the first call, on a thread of its own.

R = TypeVar("R")

# The first pause; each further one is twice as long. Shortened at random, so that many hosts do not retry at once.
_PAUSE = 0.5
# About the time between two messages of a person. If the server closes earlier, the next call connects again.
_KEPT_FOR = 60.0
# Only TLS connections are kept. Without TLS connecting takes 1 ms, and on a kept connection to a server that sends head
# and body in two packets each reply waits 40 ms for an acknowledgement.
_KEPT_SCHEME = "https:"


class HttpClient:
    """Calls one server. May be used on any event loop, for several calls at a time. Cancelling a call ends it.

    With `keeps`, connections are kept: use it on one loop only, and `aclose` it there. A server that cannot be reached,
    is overloaded or fails is called again up to `retries` times, after the pause that it asks for, or else after 0.5, 1
    and 2 seconds, unless the pause ends after the deadline. Raises ConfigError for an unusable `url` or `key`. The key
    never appears in an error, a log or a `repr`.
    """

    def __init__(
        self, service: ServerKind, url: str, *, key: str | None, timeout: float, retries: int, keeps: bool = False
    ) -> None:
        # Accepts a base URL such as http://localhost:8080/v1, or the full one. Raises ConfigError for any other text.
        parts = _split(service, url.strip())
        path = parts.path.rstrip("/")
        base = path.removesuffix(service.path)
        self._url = urlunsplit((parts.scheme, parts.netloc, base + service.path, parts.query, ""))
        # For messages: without the query, which may contain a secret.
        self.shown = urlunsplit((parts.scheme, parts.netloc, base, "", ""))
        self.reader = ReplyReader(service, self.shown, (key or "").strip())
        self._headers = bearer(service, key)
        self._timeout = timeout
        self._retries = retries
        self._keeps = keeps
        self._transport: Transport | None = None

    @asynccontextmanager
    async def bounded(self) -> AsyncIterator[asyncio.Timeout]:
        """The deadline of a whole call. Raises ModelUnavailable when the time is over."""
        try:
            async with asyncio.timeout(self._timeout) as deadline:
                yield deadline
        except TimeoutError as error:
            service = self.reader.service
            raise ModelUnavailable(
                f"The {service.name} {self.shown} did not answer within {self._timeout:g} seconds. "
                "Use a faster model or server.",
                reason="timeout",
            ) from error

    async def ask(self, body: bytes, read: Callable[[Reply], R], deadline: asyncio.Timeout) -> R:
        """Returns `read(reply)`. Raises ModelError, also one from `read`, if there is no usable reply."""
        if self._transport is None:
            self._transport = await self.load_transport()
        attempt = 0
        while True:
            try:
                return read(await self._transport.post(body))
            except ModelUnavailable as error:
                pause = _pause(attempt) if error.retry_after is None else error.retry_after
                end = deadline.when()
                is_late = end is not None and asyncio.get_running_loop().time() + pause >= end
                if attempt >= self._retries or is_late:
                    raise
            await asyncio.sleep(pause)
            attempt += 1

    async def load_transport(self) -> Transport:
        """Imports httpx2 on another thread. Raises ModelUnavailable if it is not installed."""
        worker, reader = ThreadWorker("afterturn-http"), self.reader
        try:
            return await run_on(worker, lambda: Transport(reader, self._url, self._headers, keeps=self._keeps))
        except ImportError as error:
            raise ModelUnavailable(
                f"A {reader.service.name} needs a package that is not installed ({error}). "
                "Run `pip install 'afterturn[models]'`.",
                reason="not_installed",
            ) from error
        finally:
            worker.close(within=0.0)

    async def aclose(self) -> None:
        """Closes the kept connections. End all calls first."""
        if self._transport is not None:
            await self._transport.aclose()


class Transport:
    """Posts to one URL. Each call has its own connection, so any event loop may call, also after a fork.

    With `keeps` connections are reused, because connecting can take longer than the answer.
    """

    def __init__(self, reader: ReplyReader, url: str, headers: Mapping[str, str], *, keeps: bool) -> None:
        import httpx2

        self._library = httpx2
        self._reader = reader
        self._url = url
        self._headers = dict(headers)
        # Loading the certificates takes 20 to 100 ms, so all connections share them.
        self._tls: ssl.SSLContext = httpx2.create_ssl_context()
        # The first client and its backend import more modules. Do that here and not on the loop.
        made = self._client()
        self._kept = made if keeps else None
        import anyio._backends._asyncio  # noqa: F401

    async def post(self, body: bytes) -> Reply:
        """Has no time limit of its own. Raises ModelUnavailable if there is no complete reply."""
        service, shown = self._reader.service, self._reader.shown
        try:
            async with self._connected() as client, client.stream("POST", self._url, content=body) as response:
                return await _read(response, service.answer_bytes_max)
        except self._library.InvalidURL as error:
            raise ConfigError(f"{service.url} is {shown!r}, which is not an address: {error}.") from error
        except self._library.HTTPError as error:
            what = str(error) or type(error).__name__
            raise ModelUnavailable(
                f"The {service.name} {shown} cannot be reached: {what}. "
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
        # No compression: a small compressed reply could expand to a large one.
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json", **self._headers}
        kept_max = None if self._url.startswith(_KEPT_SCHEME) else 0
        limits = self._library.Limits(max_keepalive_connections=kept_max, keepalive_expiry=_KEPT_FOR)
        return self._library.AsyncClient(headers=headers, verify=self._tls, timeout=None, limits=limits)


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
