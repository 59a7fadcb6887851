"""What the routes of the API share: the caller of a request, and what it may reach. Every route goes through here, so
that none reads or writes a space that the token does not name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote

from fastapi import Depends, Path, Query, Request
from starlette.convertors import Convertor, register_url_convertor

from afterturn.conversation.conversation import Conversation
from afterturn.conversation.scope import ConversationOptions
from afterturn.errors import InvalidInput, NotAllowed
from afterturn.hosts.server.access import caller_of
from afterturn.hosts.server.api_models import SPACE_PATTERN, ConversationWhere, ErrorAnswer
from afterturn.hosts.server.audit import note_reached

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service
    from afterturn.memory import Memory, Space

ERRORS: dict[int | str, dict[str, object]] = {
    400: {"description": "The request is not valid."},
    401: {"description": "A valid token is missing."},
    403: {"description": "The token does not allow that."},
    404: {"description": "There is no such thing in the named space."},
    405: {"description": "The path has no such method."},
    409: {"description": "The state has changed: another version, a later operation, an ended turn."},
    413: {"description": "The request is too large."},
    429: {"description": "Too many requests. `Retry-After` says when to try again."},
    503: {"description": "The store, a model or the time is not sufficient now. The request may be repeated."},
}
for _answer in ERRORS.values():
    _answer["model"] = ErrorAnswer

_Named = {"min_length": 1, "max_length": 200}
SpaceName = Annotated[
    str, Path(description="A space.", examples=["user:ada"], min_length=3, max_length=200, pattern=SPACE_PATTERN)
]
MemoryId = Annotated[str, Path(description="The id of a memory.", pattern="^[0-9a-z]{4,40}$")]
ReviewId = Annotated[str, Path(description="The id of a review.", pattern="^[0-9a-z]{4,40}$")]
ConversationId = Annotated[str, Path(description="The id of a conversation.", examples=["support-42"], **_Named)]
TurnId = Annotated[str, Path(description="The id of a turn.", examples=["turn-1"], **_Named)]
Owner = Annotated[
    str | None,
    Query(
        description="The space that owns the conversation, by default the token's first.",
        max_length=200,
        pattern=SPACE_PATTERN,
    ),
]
Limit = Annotated[int, Query(ge=1, le=1000)]
Before = Annotated[
    str | None, Query(pattern="^[0-9a-z]{4,40}$", description="The `before` of the previous page, for the next one.")
]


class _NameConvertor(Convertor[str]):
    """One segment of a path, decoded after it was split: names of spaces and conversations may contain slashes."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("name", _NameConvertor())


class RequestContext:
    """The caller of one request, checked before anything is reached. What was reached is noted for the audit log."""

    def __init__(self, request: Request) -> None:
        self.service: Service = request.app.state.service
        self.caller = caller_of(request)
        self._request = request

    async def memory(self, scope: str) -> Memory:
        """Raises NotAllowed without the scope, StoreError if the store cannot be opened."""
        self.caller.check(scope)
        return await self.service.memories.get(self.caller.grant.tenant)

    async def reading(self, space: str, scope: str = "read") -> Space:
        self.caller.check(scope)
        self.check_read(space)
        return (await self.memory(scope)).space(space)

    async def writing(self, space: str, scope: str = "write") -> Space:
        self.caller.check(scope)
        self.check_write(space)
        return (await self.memory(scope)).space(space)

    def check_read(self, space: str) -> None:
        note_reached(self._request.scope, reads=space)
        self.caller.check_read(space)

    def check_write(self, space: str) -> None:
        note_reached(self._request.scope, writes=space)
        self.caller.check_write(space)

    def check_conversation(self, id: str | None) -> None:
        """Raises NotAllowed for another conversation than the token's."""
        if id is not None:
            note_reached(self._request.scope, conversation=id)
        own = self.caller.grant.conversation
        if own is not None and id is not None and id != own:
            raise NotAllowed("This token is for another conversation. Create one without --conversation.")

    def find_conversation(self, id: str | None) -> str:
        """The conversation that is named, or the token's. Raises InvalidInput without either."""
        self.check_conversation(id)
        found = id or self.caller.grant.conversation
        if found is None:
            raise InvalidInput("The conversation has no id. Pass one in `conversation.id`.")
        return found

    def find_owner(self, owner: str | None) -> str:
        """The space that is named as the owner, or the token's first. Raises InvalidInput if that is a pattern."""
        found = self.caller.grant.owner if owner is None else owner
        if found.endswith("*") and owner is None:
            raise InvalidInput('This token is for many spaces. Name the owner of the conversation, as "user:ada".')
        return found

    def check_where(self, where: ConversationWhere) -> tuple[str, str]:
        """Checks every space that the conversation may reach. Returns its id and its owner."""
        id, owner = self.find_conversation(where.id), self.find_owner(where.owner)
        for space in (owner, *where.reads, *(() if where.environment is None else (where.environment,))):
            self.check_read(space)
        for space in (where.writes or owner, *(() if where.environment is None else (where.environment,))):
            self.check_write(space)
        return id, owner

    async def conversation(self, where: ConversationWhere, scope: str = "turns") -> Conversation:
        """A conversation that the caller may take part in."""
        memory = await self.memory(scope)
        id, owner = self.check_where(where)
        options = ConversationOptions(
            owner=owner,
            reads=where.reads,
            writes=where.writes,
            environment=where.environment,
            agent=where.agent,
            project=where.project,
            history=where.history,
            placement=where.placement,
            dialect=where.dialect,
            subagent=where.subagent,
            trusted_only=where.trusted_only,
            incognito=where.incognito,
        )
        if where.standing is not None:
            options["standing"] = where.standing
        return memory.conversation(id, **options)

    async def past_conversation(self, id: str, owner: str | None, scope: str = "inspect") -> Conversation:
        """A conversation to look back at."""
        memory = await self.memory(scope)
        self.check_conversation(id)
        found = self.find_owner(owner)
        self.check_read(found)
        return memory.conversation(id, owner=found)

    def is_allowed_still(self) -> bool:
        """Whether the token or the session is still valid, for answers that take long."""
        return self.service.authentication.find(self._request) is not None

    def may_read(self, space: str) -> bool:
        return self.caller.grant.may_read(space)

    @property
    def size_bytes(self) -> int:
        """About the size of the request."""
        length = self._request.headers.get("content-length", "0")
        return int(length) if length.isdecimal() else 0

    def may_read_all(self, spaces: Iterable[str]) -> bool:
        return all(map(self.caller.grant.may_read, spaces))


async def _find_context(request: Request) -> RequestContext:
    return RequestContext(request)


Context = Annotated[RequestContext, Depends(_find_context)]
