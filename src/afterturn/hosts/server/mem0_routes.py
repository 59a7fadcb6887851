"""The routes of mem0's hosted platform and of its self-hosted server, below /mem0, over the mem0 face.

Each handler first finds the space that its arguments name, and checks that the caller may read or write it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from afterturn.compat.mem0.filters import ENTITY_KEYS, Conditions, Entities, read_filters, top_level_ids
from afterturn.compat.mem0.payload import KINDS, Item, iso, read_id
from afterturn.errors import AfterturnError, InvalidInput, NotAllowed, NotFound
from afterturn.hosts.server.access import Caller, caller_of
from afterturn.hosts.server.app import describe_error
from afterturn.hosts.server.audit import note_reached
from afterturn.hosts.server.mem0_verbs import Mem0Verbs, platform_filters, platform_item, stored_result
from afterturn.space.arguments import LIMIT_MAX

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

PATH = "/mem0"
PAGE_ENTRIES, PAGE_ENTRIES_MAX = 100, 1000
BATCH_MAX = 1000
FEEDBACK = ("POSITIVE", "NEGATIVE", "VERY_NEGATIVE")
# Parameters of `DELETE /v1/memories/` that select nothing. Any other one is refused: ignored, it would delete too much.
_WITHOUT_EFFECT = {"org_id", "project_id"}
_DATES = {"gte": "start_date", "lte": "end_date"}
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Call:
    """A request to one of the routes. `body` is its JSON object, empty if it has none."""

    caller: Caller
    mem0: Mem0Verbs
    request: Request
    body: Mapping[str, Any]

    def entities(self, filters: object, given: Mapping[str, Any], *, write: bool) -> tuple[Entities, list[Conditions]]:
        """Whose memories are meant, and the other conditions. Raises NotAllowed for a space of others."""
        entities, conditions = read_filters(filters, top_level_ids(given))
        self.check(entities.space, write=write)
        return entities, conditions

    def check(self, space: str, *, write: bool) -> None:
        """Raises NotAllowed. The audit log has the space in any case."""
        if write:
            note_reached(self.request.scope, writes=space)
            self.caller.check_write(space)
        else:
            note_reached(self.request.scope, reads=space)
            self.caller.check_read(space)

    def check_run(self, run_id: str | None) -> None:
        """Raises NotAllowed for another conversation than the token's."""
        if self.caller.grant.conversation not in (None, run_id):
            raise NotAllowed("This token is for one conversation. Pass its name as run_id.")

    def memory_id(self, given: object, *, write: bool) -> str:
        """The id of a memory that the caller may use. One in a space of others does not exist for them."""
        named = read_id(given)
        if named is None:
            raise _not_found(given)
        if not self.caller.grant.may_read(named[0]):
            note_reached(self.request.scope, reads=named[0])
            raise _not_found(given)
        self.check(named[0], write=write)
        return str(given)

    async def memory(self, given: object, *, write: bool) -> Item:
        memory_id = self.memory_id(given, write=write)
        item = await self.mem0.get(memory_id)
        if item is None:
            raise _not_found(given)
        return item

    def page(self, found: Sequence[R]) -> dict[str, Any]:
        """One page of a list, in the envelope of the platform."""
        number, size = self._number("page", 1, LIMIT_MAX), self._number("page_size", PAGE_ENTRIES, PAGE_ENTRIES_MAX)
        until, url = number * size, self.request.url
        return {
            "count": len(found),
            "next": str(url.include_query_params(page=number + 1)) if until < len(found) else None,
            "previous": str(url.include_query_params(page=number - 1)) if number > 1 else None,
            "results": list(found[until - size : until]),
        }

    def _number(self, name: str, default: int, most: int) -> int:
        text = self.request.query_params.get(name, str(default))
        if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= most:
            raise InvalidInput(f"`{name}` is {text[:20]!r}. Use a whole number from 1 to {most}.")
        return int(text)


async def _ping(call: Call) -> object:
    return {"status": "ok", "org_id": "afterturn", "project_id": call.caller.grant.tenant, "user_email": None}


async def _add(call: Call) -> object:
    infer = call.body.get("infer")
    if infer is not None and not isinstance(infer, bool):
        raise InvalidInput("`infer` must be true or false.")
    results = (await _add_messages(call, infer=infer is not False))["results"]
    if infer is False:
        return {"status": "SUCCEEDED", "results": [stored_result(one) for one in results]}
    if not results:
        return {"status": "SUCCEEDED", "message": "Nothing was recorded.", "results": []}
    event_id = results[0]["id"]
    call.mem0.events.append(event_id)
    return {"status": "PENDING", "event_id": event_id, "message": "The messages are recorded. Learning has begun."}


async def _add_at_once(call: Call) -> object:
    return await _add_messages(call, infer=call.body.get("infer") is not False)


async def _add_messages(call: Call, *, infer: bool) -> dict[str, list[Item]]:
    body = call.body
    entities, conditions = call.entities(platform_filters(body.get("filters")), body, write=True)
    call.check_run(entities.run_id)
    app = {"app_id": body["app_id"]} if body.get("app_id") is not None else {}
    for condition in conditions:
        if set(condition) != {"app_id"}:
            raise InvalidInput("The filters of add() name whose memory it is. Other conditions are for a search.")
        app = dict(condition)
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InvalidInput('`metadata` must be an object, such as {"category": "food"}.')
    return await call.mem0.add(
        body.get("messages"),
        user_id=entities.user_id,
        agent_id=entities.agent_id,
        run_id=entities.run_id,
        metadata={**metadata, **app},
        timestamp=body.get("timestamp"),
        expiration_date=body.get("expiration_date"),
        infer=infer,
    )


async def _search(call: Call) -> object:
    body = call.body
    filters = _with_options(body)
    call.entities(filters, body, write=False)
    found = await call.mem0.search(
        body.get("query", ""),
        top_k=body.get("top_k", body.get("limit", 10)),
        filters=filters,
        threshold=body.get("threshold", 0.1),
        explain=True,
        reference_date=body.get("reference_date"),
        show_expired=body.get("show_expired") is True,
        **top_level_ids(body),
    )
    return {"results": _shown(found["results"], body.get("fields"))}


async def _get_all(call: Call) -> object:
    return call.page(await _list(call, call.body))


async def _get_all_at_once(call: Call) -> object:
    return {"results": await _list(call, dict(call.request.query_params))}


async def _list(call: Call, given: Mapping[str, Any]) -> list[Item]:
    filters = _with_options(given)
    call.entities(filters, given, write=False)
    is_expired = given.get("show_expired") is True
    found = await call.mem0.get_all(filters=filters, top_k=LIMIT_MAX, show_expired=is_expired, **top_level_ids(given))
    return _shown(found["results"], given.get("fields"))


def _with_options(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The filters, and the options of the platform that are conditions here."""
    filters = platform_filters(given.get("filters"))
    if filters is not None and not isinstance(filters, Mapping):
        raise InvalidInput('`filters` must be an object, such as {"user_id": "alice"}.')
    named = {
        "app_id": given.get("app_id"),
        "created_at": {name: given[key] for name, key in _DATES.items() if given.get(key) is not None} or None,
        "categories": {"in": given["categories"]} if given.get("categories") else None,
        "memory": {"icontains": given["keywords"]} if given.get("keywords") else None,
    }
    return {"AND": [filters or {}, *({key: value} for key, value in named.items() if value is not None)]}


def _shown(items: Sequence[Item], fields: object) -> list[Item]:
    shown = [platform_item(item) for item in items]
    if not isinstance(fields, list) or not fields:
        return shown
    return [{key: value for key, value in item.items() if key in fields} for item in shown]


async def _get(call: Call) -> object:
    return platform_item(await call.memory(call.request.path_params["id"], write=False))


async def _update(call: Call) -> object:
    item = await call.memory(call.request.path_params["id"], write=True)
    await _update_one(call, item["id"], call.body)
    changed = await call.memory(item["id"], write=False)
    return {**platform_item(changed), "message": "Memory updated successfully!"}


async def _update_one(call: Call, memory_id: str, given: Mapping[str, Any]) -> None:
    if given.get("timestamp") is not None:
        raise InvalidInput("The time of a memory cannot be changed. Leave `timestamp` out.")
    dated = {"expiration_date": given["expiration_date"]} if "expiration_date" in given else {}
    await call.mem0.update(memory_id, given.get("text"), given.get("metadata"), data=given.get("data"), **dated)


async def _delete(call: Call) -> object:
    item = await call.memory(call.request.path_params["id"], write=True)
    return await call.mem0.delete(item["id"])


async def _delete_all(call: Call) -> object:
    given = dict(call.request.query_params)
    if unknown := sorted(set(given) - {*ENTITY_KEYS, "app_id", *_WITHOUT_EFFECT}):
        raise InvalidInput(
            f"delete_all() has no parameter {unknown[0][:60]!r}. Use user_id, agent_id, app_id or run_id."
        )
    app = {"app_id": given["app_id"]} if "app_id" in given else None
    entities, conditions = call.entities(app, given, write=True)
    call.check_run(entities.run_id)
    count = await call.mem0.delete_found(entities, conditions)
    return {"message": "Memories deleted successfully!", "deleted": count}


async def _history(call: Call) -> object:
    memory_id = call.memory_id(call.request.path_params["id"], write=False)
    rows = await call.mem0.history(memory_id)
    if not rows:
        raise _not_found(memory_id)
    return [{**row, "input": []} for row in rows]


async def _event(call: Call) -> object:
    event_id = call.memory_id(call.request.path_params["id"], write=False)
    event = await call.mem0.event(event_id)
    if event is None:
        raise NotFound(f"Event {event_id[:80]!r} not found.")
    # A review may also have changed spaces that this caller may not read.
    return {**event, "results": [one for one in event["results"] if _is_readable(call, one["id"])]}


def _is_readable(call: Call, memory_id: str) -> bool:
    named = read_id(memory_id)
    return named is not None and call.caller.grant.may_read(named[0])


async def _events(call: Call) -> object:
    ids = [one for one in reversed(call.mem0.events) if _is_readable(call, one)]
    page = call.page(ids)
    found = [await call.mem0.event(one) for one in page["results"]]
    return {**page, "results": [{**one, "results": []} for one in found if one is not None]}


async def _entities(call: Call) -> object:
    summaries = await call.mem0.memory.spaces()
    found = []
    for one in summaries:
        kind, _, name = one.name.partition(":")
        if kind in KINDS and call.caller.grant.may_read(one.name) and one.statements + one.records:
            updated = None if one.newest_at is None else iso(one.newest_at)
            counted = {"total_memories": one.statements + one.records, "created_at": None, "updated_at": updated}
            found.append({"id": one.name, "name": name, "type": kind, **counted, "metadata": None})
    return call.page(found)


async def _delete_entity(call: Call) -> object:
    """Erases the space for good: nothing else of this interface does."""
    space = _space_of(call.request.path_params["type"], call.request.path_params["id"])
    call.check(space, write=True)
    if call.caller.grant.conversation is not None:
        raise NotAllowed("This token is for one conversation. Create one without --conversation.")
    await call.mem0.memory.space(space).forget(everything=True)
    return {"message": "Entity deleted successfully!"}


def _space_of(kind: str, name: object) -> str:
    if kind not in KINDS:
        raise InvalidInput(f"{kind[:20]!r} is not an entity here. Use one of {', '.join(KINDS)}.")
    entities, _ = read_filters(None, {KINDS[kind]: name})
    return entities.space


async def _batch_update(call: Call) -> object:
    given = _batch(call)
    items = [await call.memory(one.get("memory_id"), write=True) for one in given]
    for item, one in zip(items, given, strict=True):
        await _update_one(call, item["id"], one)
    return {"message": f"Successfully updated {len(items)} memories"}


async def _batch_delete(call: Call) -> object:
    items = {item["id"] for one in _batch(call) for item in [await call.memory(one.get("memory_id"), write=True)]}
    for memory_id in items:
        await call.mem0.delete(memory_id)
    return {"message": f"Successfully deleted {len(items)} memories"}


def _batch(call: Call) -> list[Mapping[str, Any]]:
    given = call.body.get("memories")
    if not isinstance(given, list) or not given or not all(isinstance(one, Mapping) for one in given):
        raise InvalidInput('`memories` must be a list of objects, such as [{"memory_id": "…", "text": "…"}].')
    if len(given) > BATCH_MAX:
        raise InvalidInput(f"There are {len(given)} memories. Send at most {BATCH_MAX} at a time.")
    return given


async def _feedback(call: Call) -> object:
    """Kept in the memory's metadata, for who reviews them. It does not change what is recalled."""
    body = call.body
    if body.get("feedback") not in (None, *FEEDBACK):
        raise InvalidInput(f"`feedback` must be one of {', '.join(FEEDBACK)}, or null to remove it.")
    item = await call.memory(body.get("memory_id"), write=True)
    kept = {"feedback": body.get("feedback"), "feedback_reason": body.get("feedback_reason")}
    await call.mem0.update(item["id"], metadata=kept)
    return {"id": item["id"], "memory_id": item["id"], **kept}


async def _profile(call: Call) -> object:
    name = call.request.path_params["id"]
    space = _space_of("user", name)
    call.check(space, write=False)
    profile = await call.mem0.memory.space(space).profile()
    times = [entry.occurred_at for subject in profile.subjects for entry in subject.entries]
    return {
        "profile": {subject.name: [entry.text for entry in subject.entries] for subject in profile.subjects},
        "status": "succeeded" if times else "insufficient_data",
        "entity_type": "user",
        "entity_id": name,
        "updated_at": iso(max(times)) if times else None,
        "generation_count": 1 if times else 0,
    }


async def _profile_job(call: Call) -> object:
    """Profiles are made when they are read, so a job that makes one has always ended."""
    body = call.body
    if body.get("operation") == "sample":
        return _error(501, "NotSupported", "Profiles are not sampled here. Read those of the users that you name.")
    if body.get("operation") != "trigger" or body.get("entity_type") != "user":
        raise InvalidInput("Only profiles of users are made: pass operation trigger, and entity_type user.")
    call.check(_space_of("user", body.get("entity_id")), write=False)
    done = {"job_id": body["entity_id"], "status": "succeeded", "operation": "trigger", "entity_type": "user"}
    more = {"entity_count_reserved": 1, "event_id": None, "replayed": False}
    return {**done, "status_url": f"/v2/profiles/jobs/{body['entity_id']}/", **more}


async def _read_profile_job(call: Call) -> object:
    name = call.request.path_params["id"]
    call.check(_space_of("user", name), write=False)
    counts = {"total": 1, "completed": 1, "succeeded": 1, "failed": 0, "skipped": 0}
    return {"job": {"job_id": name, "status": "succeeded", "enumeration_complete": True, **counts}}


async def _not_served(call: Call) -> object:
    message = "Projects, webhooks, exports, summaries and profile settings of mem0's platform are not supported here."
    return _error(501, "NotSupported", message)


async def _unknown(call: Call) -> object:
    raise NotFound(f"mem0's API has no {call.request.method} {call.request.url.path[:100]!r} here.")


def _not_found(memory_id: object) -> NotFound:
    return NotFound(f"Memory with id {str(memory_id)[:80]!r} not found.")


Handler: TypeAlias = Callable[[Call], Awaitable[object]]
_ANY = "GET POST PUT PATCH DELETE"
# Methods, path, the scope that a token needs, handler. The first that matches is used.
_ROUTES: tuple[tuple[str, str, str | None, Handler], ...] = (
    ("GET", "/v1/ping/", None, _ping),
    ("POST", "/v3/memories/add/", "write", _add),
    ("POST", "/v3/memories/search/", "read", _search),
    ("POST", "/v3/memories/", "read", _get_all),
    ("DELETE", "/v1/memories/", "write", _delete_all),
    ("GET", "/v1/memories/{id}/", "read", _get),
    ("PUT", "/v1/memories/{id}/", "write", _update),
    ("DELETE", "/v1/memories/{id}/", "write", _delete),
    ("GET", "/v1/memories/{id}/history/", "read", _history),
    ("GET", "/v1/event/{id}/", "read", _event),
    ("GET", "/v1/events/", "read", _events),
    ("GET", "/v1/entities/", "read", _entities),
    ("DELETE", "/v1/entities/{type}/{id:path}/", "forget", _delete_entity),
    ("DELETE", "/v2/entities/{type}/{id:path}/", "forget", _delete_entity),
    ("GET POST", "/v2/entities/user/{id:path}/profile/", "read", _profile),
    ("POST", "/v2/profiles/jobs/", "read", _profile_job),
    ("GET", "/v2/profiles/jobs/{id:path}/", "read", _read_profile_job),
    ("PUT", "/v1/batch/", "write", _batch_update),
    ("DELETE", "/v1/batch/", "write", _batch_delete),
    ("POST", "/v1/feedback/", "write", _feedback),
    (_ANY, "/api/v1/{rest:path}", None, _not_served),
    (_ANY, "/v1/exports/{rest:path}", None, _not_served),
    (_ANY, "/v1/summary/", None, _not_served),
    (_ANY, "/v2/profiles/settings/", None, _not_served),
    # The self-hosted server.
    ("POST", "/memories", "write", _add_at_once),
    ("GET", "/memories", "read", _get_all_at_once),
    ("DELETE", "/memories", "write", _delete_all),
    ("POST", "/search", "read", _search),
    ("GET", "/memories/{id}", "read", _get),
    ("PUT", "/memories/{id}", "write", _update),
    ("DELETE", "/memories/{id}", "write", _delete),
    ("GET", "/memories/{id}/history", "read", _history),
    (_ANY, "/{rest:path}", None, _unknown),
)


def routes(service: Service) -> list[BaseRoute]:
    opened: dict[str, Mem0Verbs] = {}

    async def find_verbs(tenant: str) -> Mem0Verbs:
        memory = await service.memories.get(tenant)
        if tenant not in opened or opened[tenant].memory is not memory:
            opened[tenant] = Mem0Verbs(memory)
        return opened[tenant]

    def endpoint(scope: str | None, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                caller = caller_of(request)
                if scope is not None:
                    caller.check(scope)
                body = _read_body(await request.body())
                found = await handler(Call(caller, await find_verbs(caller.grant.tenant), request, body))
                return found if isinstance(found, Response) else JSONResponse(found)
            except AfterturnError as error:
                return _error(*describe_error(error))

        # The metrics count requests by this name.
        answer.__name__ = f"mem0{handler.__name__}"
        return answer

    return [
        Mount(
            PATH,
            routes=[
                Route(path, endpoint(scope, handler), methods=methods.split())
                for methods, path, scope, handler in _ROUTES
            ],
        )
    ]


def _read_body(body: bytes) -> Mapping[str, Any]:
    """Raises InvalidInput for what is not a JSON object, or could not be written as JSON again, such as a NaN."""
    try:
        found = json.loads(body or b"{}")
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidInput("The body is not valid JSON in UTF-8. Send one JSON object.") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"The body is a {type(found).__name__}. Send one JSON object.")
    return found


def _error(status: int, type: str, message: str) -> Response:
    """An error as everywhere in this server, with its sentence where mem0's SDKs look for it, too."""
    return JSONResponse({"detail": message, "error": {"type": type, "message": message}}, status_code=status)
