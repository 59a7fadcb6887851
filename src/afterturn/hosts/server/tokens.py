"""Bearer tokens for servers of memory: created, listed and revoked on the command line.

A token is 32 random bytes. The state folder has only its hash, in a file that only its owner can read. Servers look
into that file at every request, so a token that was revoked is refused at once.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afterturn.config import state_folder
from afterturn.errors import InvalidFile, NotFound
from afterturn.hosts.server.grant import SCOPES, Grant
from afterturn.hosts.state import change_document, read_document
from afterturn.runtime.clock import SystemClock

# The scanner for secrets knows it.
PREFIX = "afterturn_"
FILE = "tokens.json"
_RANDOM_BYTES = 32
_ID_BYTES = 4
_TOKEN_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Token:
    """A stored token. `digest` is the hash of what the client sends; `expires_at` is None if it does not expire."""

    id: str
    name: str
    digest: str
    grant: Grant
    created_at: float
    expires_at: float | None = None

    def is_valid(self, now: float) -> bool:
        return self.expires_at is None or now < self.expires_at


def create_token(grant: Grant, *, name: str, expires_at: float | None = None) -> tuple[Token, str]:
    """Stores a new token, and returns it with the text for the client, which cannot be shown again."""
    text = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    token = Token(secrets.token_hex(_ID_BYTES), name, _digest(text), grant, SystemClock().now(), expires_at)
    with change_document(FILE) as document:
        document.setdefault("tokens", {})[token.id] = as_row(token)
    return token, text


def list_tokens() -> list[Token]:
    """All stored tokens, the oldest first. Raises InvalidFile if the file is damaged."""
    rows = read_document(FILE).get("tokens", {})
    try:
        return sorted((_token(id, row) for id, row in rows.items()), key=lambda token: (token.created_at, token.id))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidFile(f"{state_folder() / FILE} is damaged. Remove it, and create the tokens again.") from error


def revoke_token(id: str) -> Token:
    """Removes a token, by its id or its name. Raises NotFound if there is none, or several of that name."""
    matching = [token for token in list_tokens() if id in (token.id, token.name)]
    exact = [token for token in matching if token.id == id] or matching
    if len(exact) != 1:
        what = f"There are {len(exact)} tokens" if exact else "There is no token"
        raise NotFound(f"{what} {id[:60]!r}. `afterturn token list` shows their ids.")
    with change_document(FILE) as document:
        document.get("tokens", {}).pop(exact[0].id, None)
    return exact[0]


class TokenVerifier:
    """Finds the token that a client sends. Reads the file again only if it has changed."""

    def __init__(self) -> None:
        self._version: tuple[int, int, int] | None = None
        self._tokens: Sequence[Token] = ()

    def find(self, text: str) -> Token | None:
        """The valid token, or None. Takes the same time whichever one it is. Raises InvalidFile as `list_tokens`."""
        digest, found = _digest(text[:_TOKEN_CHARS_MAX]), None
        for token in self._read():
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found if found is not None and found.is_valid(SystemClock().now()) else None

    def _read(self) -> Sequence[Token]:
        try:
            status = (state_folder() / FILE).stat()
        except OSError:
            self._version, self._tokens = None, ()
            return self._tokens
        # The file is replaced when it changes, so it is another file then.
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        if version != self._version:
            self._tokens = list_tokens()
            self._version = version
        return self._tokens


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def as_row(token: Token) -> dict[str, Any]:
    """The value that is stored under the token's id."""
    grant = token.grant
    return {
        "name": token.name,
        "sha256": token.digest,
        "tenant": grant.tenant,
        "reads": list(grant.reads),
        "writes": grant.writes,
        "conversation": grant.conversation,
        "scopes": sorted(grant.scopes),
        "created_at": token.created_at,
        "expires_at": token.expires_at,
    }


def _token(id: str, row: Mapping[str, Any]) -> Token:
    reads, name, conversation, expires_at = row["reads"], row["name"], row["conversation"], row["expires_at"]
    if not reads or not all(isinstance(space, str) for space in (*reads, name, row["tenant"], row["sha256"])):
        raise ValueError(id)
    if row["writes"] not in (None, reads[0]):
        raise ValueError(id)
    # Tokens of earlier builds have no scopes: they were for MCP, which reads and writes.
    scopes = frozenset(row.get("scopes", ("read", "write"))) & frozenset(SCOPES)
    grant = Grant(row["tenant"], tuple(reads), row["writes"], conversation=conversation, agent=name, scopes=scopes)
    return Token(
        id, name, row["sha256"], grant, float(row["created_at"]), None if expires_at is None else float(expires_at)
    )
