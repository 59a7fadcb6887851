"""The verbs of spaces over HTTP: memories, their history, search, profile, export and forget."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from afterturn.errors import InvalidInput, NotAllowed
from afterturn.hosts.server import api_models as models
from afterturn.hosts.server.api_context import Before, Context, Limit, MemoryId, RequestContext, SpaceName
from afterturn.hosts.server.api_events import without_space
from afterturn.hosts.server.forget_preview import preview_forget
from afterturn.space.arguments import DraftFields, check_selector
from afterturn.types.entries import Kind, Origin, Target
from afterturn.types.operations import Selector
from afterturn.types.searches import Filter, Lane

NDJSON = "application/x-ndjson"
_LINES_AT_A_TIME = 200

router = APIRouter(tags=["spaces"])
_Text = Annotated[str | None, Query(min_length=1, max_length=200)]
_When = Annotated[str | None, Query(max_length=64, description="Unix seconds, or an ISO 8601 text with a time zone.")]


class FilterQuery(BaseModel):
    """Narrows a list or a search. All that are given must match."""

    kind: Kind | None = None
    target: Target | None = None
    agent: _Text = None
    project: _Text = None
    said_in: Annotated[_Text, Query(description="Only from this conversation.")] = None
    pinned: bool | None = None
    firm: bool | None = None
    since: Annotated[_When, Query(description="When it was said: from this time on.")] = None
    until: Annotated[_When, Query(description="When it was said: before this time.")] = None
    metadata: Annotated[
        str | None, Query(max_length=5000, description="A JSON object of values that must be equal.")
    ] = None


class ListQuery(FilterQuery):
    limit: Annotated[int, Query(ge=1, le=1000)] = 50
    before: Before = None


class SearchQuery(FilterQuery):
    query: Annotated[str, Query(min_length=1, max_length=10_000, examples=["cat food"])]
    limit: Annotated[int, Query(ge=1, le=100)] = 10
    lane: Annotated[list[Lane] | None, Query(max_length=3, description="Only these lanes.")] = None
    conversation: Annotated[_Text, Query(description="Its records are the short-term lane.")] = None
    as_of: Annotated[_When, Query(description="Search the space as it was then, by words only.")] = None
    score_min: Annotated[float | None, Query(ge=0, le=1, description="Find nothing below it; 0 finds all.")] = None


def _filter(context: RequestContext, query: FilterQuery) -> Filter:
    context.check_conversation(query.said_in)
    return Filter(
        kind=query.kind,
        target=query.target,
        agent=query.agent,
        project=query.project,
        conversation=query.said_in,
        pinned=query.pinned,
        firm=query.firm,
        metadata=_object(query.metadata),
        since=_moment(query.since),
        until=_moment(query.until),
    )


def _moment(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _object(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or any(isinstance(value, list | dict) for value in found.values()):
        raise InvalidInput('`metadata` is not a JSON object of plain values. Pass one, such as {"team": "a"}.')
    return found


@router.get("/spaces")
async def list_spaces(context: Context) -> models.SpacesJson:
    """The spaces that the token may read, by name, with the number of their active statements and records."""
    memory = await context.memory("read")
    found = [one for one in await memory.spaces() if context.caller.grant.may_read(one.name)]
    return models.SpacesJson(spaces=[models.SpaceSummaryJson.model_validate(one) for one in found])


@router.get("/spaces/{space:name}/search")
async def search(context: Context, space: SpaceName, query: Annotated[SearchQuery, Query()]) -> models.SearchAnswer:
    """Searches one space by words and by meaning, best hits first."""
    context.check_conversation(query.conversation)
    found = await (await context.reading(space)).search(
        query.query,
        limit=query.limit,
        lanes=query.lane,
        conversation=query.conversation,
        as_of=_moment(query.as_of),
        filter=_filter(context, query),
        score_min=query.score_min,
    )
    return models.SearchAnswer.model_validate(found)


@router.get("/spaces/{space:name}/memories")
async def list_memories(
    context: Context, space: SpaceName, query: Annotated[ListQuery, Query()]
) -> models.MemoriesJson:
    """Active statements and records, newest first."""
    found = await (await context.reading(space)).list(
        limit=query.limit, before=query.before, filter=_filter(context, query)
    )
    return models.MemoriesJson(
        memories=[models.EntryJson.model_validate(one) for one in found],
        before=found[-1].id if len(found) == query.limit else None,
    )


@router.post("/spaces/{space:name}/memories")
async def add_memory(context: Context, space: SpaceName, body: models.NewMemory) -> models.AddedJson:
    """Adds one statement. If the space already says so, returns that memory with `created: false`."""
    context.check_conversation(body.conversation)
    if body.owner is not None:
        context.check_read(body.owner)
    fields = cast(DraftFields, body.model_dump(exclude={"text"}, exclude_none=True))
    return models.AddedJson.model_validate(await (await context.writing(space)).add(body.text, **fields))


@router.get("/spaces/{space:name}/memories/{memory:name}")
async def get_memory(
    context: Context,
    space: SpaceName,
    memory: MemoryId,
    version: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> models.EntryJson:
    """A memory: the active version, the newest one if none is active, or the given one."""
    return models.EntryJson.model_validate(await (await context.reading(space)).get(memory, version=version))


@router.put("/spaces/{space:name}/memories/{memory:name}")
async def update_memory(
    context: Context, space: SpaceName, memory: MemoryId, body: models.MemoryChangeJson
) -> models.ChangedJson:
    """Writes a new version with a new text. With `expected_version`, 409 if the memory has changed since."""
    changed = await (await context.writing(space)).update(
        memory, body.text, expected_version=body.expected_version, origin=body.origin, clean=body.clean
    )
    return models.ChangedJson.model_validate(changed)


@router.delete("/spaces/{space:name}/memories/{memory:name}")
async def delete_memory(
    context: Context, space: SpaceName, memory: MemoryId, origin: Origin = Origin.USER
) -> models.ChangedJson:
    """Hides a memory or a record from recall and lists. `undo` brings it back; `forget` erases."""
    return models.ChangedJson.model_validate(await (await context.writing(space)).delete(memory, origin=origin))


@router.get("/spaces/{space:name}/memories/{memory:name}/history")
async def memory_history(context: Context, space: SpaceName, memory: MemoryId) -> models.HistoryJson:
    """All versions of an entry and the steps of the operations that changed it, oldest first."""
    return models.HistoryJson.model_validate(await (await context.reading(space)).history(memory))


@router.put("/spaces/{space:name}/memories/{memory:name}/firm")
async def set_firm(context: Context, space: SpaceName, memory: MemoryId, body: models.FirmBody) -> models.ChangedJson:
    """Makes a memory a rule that refuses the tool calls that it concerns, or no longer. A person decides that."""
    return models.ChangedJson.model_validate(await (await context.writing(space)).set_firm(memory, body.firm))


@router.put("/spaces/{space:name}/memories/{memory:name}/standing")
async def hide_standing(
    context: Context, space: SpaceName, memory: MemoryId, body: models.HideBody
) -> models.ChangedJson:
    """Takes a memory out of the standing context, or puts it back. It can still be recalled."""
    return models.ChangedJson.model_validate(await (await context.writing(space)).hide_standing(memory, body.hidden))


@router.get("/spaces/{space:name}/operations")
async def list_operations(context: Context, space: SpaceName, limit: Limit = 50) -> models.OperationsJson:
    """The operations on this space, newest first."""
    found = await (await context.reading(space)).operations(limit=limit)
    return models.OperationsJson(operations=[models.LoggedOperationJson.model_validate(one) for one in found])


@router.post("/spaces/{space:name}/undo")
async def undo(context: Context, space: SpaceName, body: models.UndoBody) -> models.UndoneJson:
    """Takes back one operation, or all of a group such as an import or a review. It can be undone in turn."""
    return models.UndoneJson.model_validate(await (await context.writing(space)).undo(body.target))


@router.post("/spaces/{space:name}/forget/preview")
async def preview(context: Context, space: SpaceName, body: models.ForgetBody) -> models.ForgetPreviewJson:
    """What `forget` would erase. Changes nothing."""
    selector = _selector(context, body)
    return models.ForgetPreviewJson.model_validate(await preview_forget(await context.reading(space), selector))


@router.post("/spaces/{space:name}/forget")
async def forget(context: Context, space: SpaceName, body: models.ForgetBody) -> models.ForgottenJson:
    """Erases for good: every version, vector, index entry, job and recording that waits. This cannot be undone."""
    _selector(context, body)
    forgotten = await (await context.writing(space, "forget")).forget(**body.model_dump())
    return models.ForgottenJson.model_validate(forgotten)


def _selector(context: RequestContext, body: models.ForgetBody) -> Selector:
    """A token for one conversation may erase that one, and not what others have said."""
    context.check_conversation(body.conversation)
    if body.conversation is None and context.caller.grant.conversation is not None:
        raise InvalidInput("This token is for one conversation. Name it in `conversation`.")
    return check_selector(Selector(body.memory, body.conversation, body.source, body.speaker, body.everything))


@router.get(
    "/spaces/{space:name}/export",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "A header, then one JSON object for each row. Each has one key, the kind of the row.",
            "content": {NDJSON: {"schema": {"type": "string"}}},
        }
    },
)
async def export(context: Context, space: SpaceName) -> StreamingResponse:
    """Everything that is stored about this space, as lines of JSON: entries in all versions, operations, conversations
    with their turns and blocks, reviews, usage, events."""
    if context.caller.grant.conversation is not None:
        raise NotAllowed("This token is for one conversation. Create one without --conversation.")
    rows = await (await context.reading(space)).export()
    if not context.may_read_all(("*",)):
        rows = _without_others(rows, context.may_read)
    return StreamingResponse(_lines(rows), media_type=NDJSON)


def _without_others(rows: Sequence[dict[str, Any]], may_read: Callable[[str], bool]) -> list[dict[str, Any]]:
    """This space's conversations may have read lines and rules of spaces that the caller may not read."""
    own = {row["entry"]["id"] for row in rows if "entry" in row}

    def shown(kind: str, value: Any) -> Any:
        if kind in ("block", "standing") and not own.issuperset(ref.partition(".")[0] for ref in value["refs"]):
            return {**value, "text": ""}
        if kind in ("recall", "carried"):
            reads = {"reads": list(filter(may_read, value["reads"]))} if "reads" in value else {}
            return {**value, **reads, "candidates": [one for one in value["candidates"] if may_read(one["space"])]}
        if kind == "event":
            return {**value, "data": without_space(value["data"])}
        return value

    return [{kind: shown(kind, value) for kind, value in row.items()} for row in rows]


async def _lines(rows: Sequence[dict[str, Any]]) -> AsyncIterator[bytes]:
    for start in range(0, len(rows), _LINES_AT_A_TIME):
        chunk = rows[start : start + _LINES_AT_A_TIME]
        yield "".join(json.dumps(row) + "\n" for row in chunk).encode()


@router.get("/spaces/{space:name}/profile")
async def profile(context: Context, space: SpaceName, limit: Limit = 50, project: _Text = None) -> models.ProfileJson:
    """What this space knows now, by subject, newest first."""
    found = await (await context.reading(space)).profile(limit=limit, project=project)
    return models.ProfileJson.model_validate(found)


@router.get("/spaces/{space:name}/standing")
async def standing_audit(
    context: Context,
    space: SpaceName,
    conversation: _Text = None,
    agent: _Text = None,
    project: _Text = None,
    left_out: Annotated[bool, Query()] = False,  # noqa: FBT002
) -> models.StandingAudit:
    """Every line that this space gives to a standing block now: who wrote it, when, and how it came in."""
    context.check_conversation(conversation)
    found = await (await context.reading(space)).standing_audit(
        conversation=conversation, agent=agent, project=project, left_out=left_out
    )
    lines = [models.StandingLineJson.model_validate(one) for one in found]
    return models.StandingAudit(lines=[one for one in lines if one.entry is None or context.may_read(one.entry.space)])


@router.get("/spaces/{space:name}/conversations")
async def list_conversations(
    context: Context, space: SpaceName, limit: Limit = 50, turn: _Text = None
) -> models.ConversationsJson:
    """Ids of conversations, newest activity first; with `turn`, of those that have a turn with that id."""
    found = await (await context.reading(space)).conversations(limit=limit, turn=turn)
    own = context.caller.grant.conversation
    return models.ConversationsJson(conversations=[one for one in found if own in (None, one)])


@router.get("/spaces/{space:name}/usage")
async def space_usage(context: Context, space: SpaceName, limit: Limit = 1000) -> models.UsageJson:
    """Model calls and tokens for this space by day and purpose, newest day first."""
    found = await (await context.reading(space, "inspect")).usage(limit=limit)
    return models.UsageJson(usage=[models.UsageRowJson.model_validate(one) for one in found])


@router.get("/spaces/{space:name}/stats")
async def space_stats(context: Context, space: SpaceName) -> models.SpaceStatsJson:
    """Entries by kind and status, searchable entries, and changes so far."""
    return models.SpaceStatsJson.model_validate(await (await context.reading(space)).stats())


@router.get("/usage")
async def usage(context: Context, limit: Limit = 1000) -> models.UsageJson:
    """Model calls and tokens by day, space and purpose, of the spaces that the token may read."""
    found = [one for one in await (await context.memory("inspect")).usage(limit=limit) if context.may_read(one.space)]
    return models.UsageJson(usage=[models.UsageRowJson.model_validate(one) for one in found])


@router.get("/stats")
async def stats(context: Context) -> models.Stats:
    """What is stored for the tenant, and what waits to be done. For tokens of all spaces."""
    memory = await context.memory("inspect")
    context.check_read("*")
    return models.Stats.model_validate(await memory.stats())
