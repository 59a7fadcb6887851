"""Who sends a request, and what they may do: bearer tokens, and the cookie of a browser that opened a one-time link."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from afterturn.errors import NotAllowed
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.server.tokens import PREFIX, TokenVerifier
from afterturn.runtime.clock import SystemClock

# The caller of a request, in the ASGI scope.
CALLER = "afterturn.caller"
COOKIE = "afterturn_session"
# Ours alone, for requests whose Authorization header belongs to somebody else, such as the model provider.
TOKEN_HEADER = "x-afterturn-token"
# Where mem0's SDKs send their requests: they have a scheme and a header of their own for keys.
_MEM0 = "/mem0/"
_PROXY = "/v1/"
_LINK_SECONDS = 300.0
_SESSION_SECONDS = 12 * 3600.0
_SESSIONS_MAX = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """`name` and `id` are those of the token or the browser session. `by_cookie`: sent by a browser with a session."""

    id: str
    name: str
    grant: Grant
    by_cookie: bool = False

    def check(self, scope: str) -> None:
        """Raises NotAllowed without the scope, one of SCOPES."""
        if not self.grant.allows(scope):
            raise NotAllowed(f"This token may not do that: it lacks the scope {scope!r}. Create one that has it.")

    def check_read(self, space: str) -> None:
        if not self.grant.may_read(space):
            raise NotAllowed(f"This token may not read {space!r}. Create one for that space.")

    def check_write(self, space: str) -> None:
        if not self.grant.may_write(space):
            raise NotAllowed(f"This token may not write {space!r}. Create one for that space.")


def caller_of(request: HTTPConnection) -> Caller:
    """The caller that `Authentication` found. Every route below it has one."""
    caller = request.scope[CALLER]
    assert isinstance(caller, Caller)
    return caller


class Sessions:
    """Browsers that opened a one-time link, or were given a token. Kept in memory: they end with the server."""

    def __init__(self) -> None:
        self._links: OrderedDict[str, tuple[float, Grant]] = OrderedDict()
        self._sessions: OrderedDict[str, tuple[float, Caller, str | None]] = OrderedDict()

    def create_link(self, grant: Grant) -> str:
        """A code that opens one session, within five minutes."""
        code = secrets.token_urlsafe(32)
        self._links[_digest(code)] = (SystemClock().now() + _LINK_SECONDS, grant)
        while len(self._links) > _SESSIONS_MAX:
            self._links.popitem(last=False)
        return code

    def open(self, code: str) -> str | None:
        """Returns the value of the cookie for a new session; None if the code is wrong, used or too old."""
        until, grant = self._links.pop(_digest(code), (0.0, None))
        now = SystemClock().now()
        if grant is None or now > until:
            return None
        return self.start(Caller(secrets.token_hex(4), "browser", grant, by_cookie=True))

    def start(self, caller: Caller, token: str | None = None) -> str:
        """Returns the value of the cookie for a new session. It ends with its token."""
        value = secrets.token_urlsafe(32)
        self._sessions[_digest(value)] = (SystemClock().now() + _SESSION_SECONDS, caller, token)
        while len(self._sessions) > _SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return value

    def find(self, value: str) -> Caller | None:
        until, caller, _ = self._sessions.get(_digest(value), (0.0, None, None))
        return caller if SystemClock().now() <= until else None

    def find_token(self, value: str) -> str | None:
        """The token that the session was started with, None if it was a link."""
        return self._sessions.get(_digest(value), (0.0, None, None))[2]

    def close(self, value: str) -> None:
        self._sessions.pop(_digest(value), None)


class Authentication:
    """Finds the caller of a request. `local` is the grant of requests without credentials, None to refuse them."""

    def __init__(self, sessions: Sessions, local: Grant | None = None) -> None:
        self.sessions = sessions
        self._tokens = TokenVerifier()
        self._local = local

    def find(self, request: HTTPConnection) -> Caller | None:
        """A token that is sent must be valid: no request falls back to weaker credentials. Raises InvalidFile."""
        text = token_of(request.headers, request.scope["path"])
        if text is not None:
            token = self._tokens.find(text)
            return None if token is None else Caller(token.id, token.name, token.grant)
        cookie = request.cookies.get(COOKIE)
        if cookie is not None and (caller := self.sessions.find(cookie)) is not None:
            token_text = self.sessions.find_token(cookie)
            return caller if token_text is None or self._tokens.find(token_text) is not None else None
        return None if self._local is None else Caller("local", "local", self._local)

    def start_session(self, text: str) -> str | None:
        """The value of the cookie for a browser whose person has a token; None if that is not valid."""
        token = self._tokens.find(text)
        if token is None:
            return None
        return self.sessions.start(Caller(token.id, token.name, token.grant, by_cookie=True), text)


def token_of(headers: Headers, path: str = "") -> str | None:
    """The token of ours that a request carries. The proxy's requests may have a key for a provider instead."""
    own = headers.get(TOKEN_HEADER)
    if own is not None:
        return own
    value = headers.get("authorization", "")
    schemes = ("bearer ", "token ") if path.startswith(_MEM0) else ("bearer ",)
    scheme = next((one for one in schemes if value.lower().startswith(one)), "")
    given = (value[len(scheme) :].strip() if scheme else "", headers.get("x-api-key", ""))
    beginning = PREFIX if path.startswith(_PROXY) else ""
    return next((one for one in given if one and one.startswith(beginning)), None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
