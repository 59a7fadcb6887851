"""mem0's verbs on an open memory of the server, and the values in which its hosted platform answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from afterturn.compat.mem0.core import Mem0Core, RecordedTurn
from afterturn.compat.mem0.filters import ENTITY_KEYS, OLDER_NAMES, Conditions, Entities
from afterturn.compat.mem0.payload import Item, iso
from afterturn.errors import InvalidInput
from afterturn.memory import Memory, share_memory
from afterturn.runtime.bridge import AsyncFacade, Bridged
from afterturn.runtime.loop_thread import LoopThread
from afterturn.services import Services
from afterturn.space.arguments import LIMIT_MAX
from afterturn.types import ReviewState

# The newest events that `GET /v1/events/` lists. Each can be read by its id for as long as its messages are stored.
EVENTS_MAX = 500
_IDS = (*ENTITY_KEYS, "app_id")
_NOT_IN_PLATFORM = ("hash", "score_details", "rerank_score")
# Names of conditions in the platform's filters, and of the fields that they are about here.
_CONDITIONS = {"keywords": "memory", "memory_ids": "id"}


class _OpenMemory(Memory):
    @property
    def services(self) -> Services:
        return self._services


class Mem0ServerCore(Mem0Core):
    """The verbs that only mem0's server has, on memory's loop."""

    async def delete_found(self, entities: Entities, conditions: Sequence[Conditions]) -> int:
        """Hides what a search with these ids and conditions reads, and nothing in the spaces of others. Returns the
        number of entries."""
        if not conditions:
            return await self._delete_entries(self._services.space(entities.space), entities.filter)
        wanted = {"AND": list(conditions)}
        found = await self.get_all(filters=wanted, top_k=LIMIT_MAX, records=True, **asdict(entities))
        for item in found["results"]:
            await self.delete(item["id"])
        return len(found["results"])

    async def event(self, event_id: str) -> Item | None:
        """What became of an `add`: its event has the id of its first message. None if there is no such message."""
        named = self._named(event_id)
        entry = None if named is None else await self._get(*named)
        if named is None or entry is None or entry.turn is None or entry.conversation is None:
            return None
        turn = RecordedTurn(entry.conversation, entry.turn, entry.occurred_at)
        rows = await self._reviews(named[0], turn)
        states = {row.state for row in rows}
        is_failed = ReviewState.FAILED in states or ReviewState.TIMED_OUT in states
        status = "PENDING" if ReviewState.WAITING in states else "FAILED" if is_failed else "SUCCEEDED"
        results = await self._changes(named[0], turn, rows) if status == "SUCCEEDED" else []
        return {
            "id": event_id,
            "event_type": "ADD",
            "status": status,
            "results": [stored_result(one) for one in results],
            "created_at": iso(entry.recorded_at),
            "updated_at": iso(max([entry.recorded_at, *(row.ended_at for row in rows if row.ended_at is not None)])),
        }


class Mem0Verbs(AsyncFacade):
    """One tenant's memory with mem0's verbs. `memory` is closed by its owner. `events` are the newest ids."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.events: deque[str] = deque(maxlen=EVENTS_MAX)
        services = share_memory(memory, _OpenMemory).services
        self._core = Mem0ServerCore(services, wait=False)
        self._loop: LoopThread = services.loop

    add = Bridged(Mem0Core.add)
    search = Bridged(Mem0Core.search)
    get = Bridged(Mem0Core.get)
    get_all = Bridged(Mem0Core.get_all)
    update = Bridged(Mem0Core.update)
    delete = Bridged(Mem0Core.delete)
    history = Bridged(Mem0Core.history)
    delete_found = Bridged(Mem0ServerCore.delete_found)
    event = Bridged(Mem0ServerCore.event)


def stored_result(result: Item) -> Item:
    """A result of the face's `add` in the form of the platform."""
    return {"id": result["id"], "data": {"memory": result["memory"]}, "event": result["event"]}


def platform_item(item: Item) -> Item:
    """A memory of the face as the platform returns it: all four ids, and the parts of its score."""
    metadata = dict(item["metadata"] or {})
    found = {key: value for key, value in item.items() if key not in _NOT_IN_PLATFORM}
    details = item.get("score_details")
    if details is not None:
        names = {"semantic": "semantic_score", "bm25": "bm25_score", "entity": "entity_boost"}
        found["score_breakdown"] = {name: details[key] for name, key in names.items()}
    if found.get("score", 0.0) is None:
        del found["score"]
    app = metadata.pop("app_id", None)
    blank: Item = {**dict.fromkeys((*_IDS, "expiration_date")), "categories": []}
    return {**blank, **found, "app_id": app, "metadata": metadata or None}


def platform_filters(filters: object) -> object:
    """The platform's filters with the names of the face. What is not a dict is left for the face to refuse."""
    try:
        return _translated(filters)
    except RecursionError as error:
        raise InvalidInput("The filters are nested too deeply. Write them flatter.") from error


def _translated(filters: object) -> object:
    if isinstance(filters, list):
        return [_translated(each) for each in filters]
    if not isinstance(filters, Mapping):
        return filters
    parts: list[dict[str, Any]] = []
    for key, value in filters.items():
        if key == "metadata" and isinstance(value, Mapping):
            parts += [{name: wanted} for name, wanted in value.items()]
        else:
            is_logical = key in ("AND", "OR", "NOT", *OLDER_NAMES)
            parts.append({str(_CONDITIONS.get(key, key)): _translated(value) if is_logical else value})
    return parts[0] if len(parts) == 1 else {"AND": parts}
