"""Whose memory a proxied request uses: the user, conversation and project that it names, checked against its grant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers

from afterturn.conversation.conversation import Conversation
from afterturn.errors import InvalidInput, NotAllowed
from afterturn.hosts.server.access import Caller
from afterturn.hosts.server.memories import OpenMemories

USER_HEADERS = ("x-afterturn-user", "x-sm-user-id")
CONVERSATION_HEADERS = ("x-afterturn-conversation", "x-sm-conversation-id")
PROJECT_HEADERS = ("x-afterturn-project", "x-sm-project")
_USER, _PROJECT = "user:", "project:"


@dataclass(frozen=True, slots=True)
class ProxiedConversation:
    """The conversation of a request. `is_unnamed`: the client names none, so it only recalls. `continues` is the
    response or the conversation that the provider keeps; what is in there is not sent again."""

    tenant: str
    owner: str
    id: str
    project: str | None
    is_unnamed: bool
    continues: str


def find_named_user(caller: Caller, headers: Headers) -> str | None:
    """The space of the user that a header names. Raises NotAllowed for one that the caller may not use."""
    name = _first(headers, USER_HEADERS)
    return None if name is None else _check_owner(caller, _USER + name.removeprefix(_USER))


def find_owner(caller: Caller, headers: Headers, fields: Mapping[str, Any]) -> str:
    """The space of the user that a header or the body names, else the caller's own."""
    if (named := find_named_user(caller, headers)) is not None:
        return named
    metadata = fields.get("metadata")
    given = [fields.get("safety_identifier"), fields.get("user")]
    given += [metadata.get("user_id")] if isinstance(metadata, dict) else []
    name = next((one for one in given if isinstance(one, str) and one), None)
    if name is not None:
        return _check_owner(caller, _USER + name)
    if caller.grant.owner.endswith("*"):
        raise InvalidInput(
            "This token is for many users, and the request names none. Send the header x-afterturn-user."
        )
    return _check_owner(caller, caller.grant.owner)


def find_conversation(
    caller: Caller, headers: Headers, fields: Mapping[str, Any], owner: str, unnamed: str
) -> ProxiedConversation:
    """`unnamed` is the id of the conversation if the request names none."""
    granted, project = caller.grant.conversation, _first(headers, PROJECT_HEADERS)
    kept = fields.get("conversation") or fields.get("previous_response_id")
    kept = kept.get("id") if isinstance(kept, dict) else kept
    continues = kept if isinstance(kept, str) else ""
    key = fields.get("prompt_cache_key")
    named = _first(headers, CONVERSATION_HEADERS) or granted or (key if isinstance(key, str) else "") or continues
    if granted is not None and named != granted:
        raise NotAllowed(f"This token is for the conversation {granted!r} alone. Create one for {named!r}.")
    return ProxiedConversation(caller.grant.tenant, owner, named or unnamed, project, not named, continues)


async def open_conversation(
    memories: OpenMemories, caller: Caller, where: ProxiedConversation, dialect: str
) -> Conversation:
    """Raises AfterturnError for an invalid name, and if the store cannot be opened."""
    grant = caller.grant
    memory = await memories.get(where.tenant)
    space = None if where.project is None else _PROJECT + where.project
    reads = [one for one in grant.reads if not one.endswith("*")]
    reads += [space] if space is not None and grant.may_read(space) else []
    return memory.conversation(
        where.id,
        owner=where.owner,
        reads=reads,
        environment=space if space is not None and grant.may_write(space) else grant.environment,
        project=where.project,
        agent=grant.agent,
        dialect=dialect,
        history="hidden" if where.continues else "shown",
        incognito=where.is_unnamed,
    )


def _check_owner(caller: Caller, space: str) -> str:
    caller.check_read(space)
    caller.check_write(space)
    return space


def _first(headers: Headers, names: Sequence[str]) -> str | None:
    return next((headers[name] for name in names if headers.get(name)), None)
