"""One memory: its history, the messages it was learned from in their context, and the turns that showed it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response
from starlette.routing import BaseRoute

from afterturn.errors import InvalidInput, NotFound
from afterturn.hosts.server.pages.memories import find_showings
from afterturn.hosts.server.pages.request import PageRequest, page_route
from afterturn.memory import Space
from afterturn.space.inbox import base_version
from afterturn.types import Entry, Filter, History, Kind, Operation, Status

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

# How many messages before and after a source are shown with it, and how far away in time they may be.
_AROUND, _AROUND_SECONDS = 2, 86_400.0
_READ_MAX, _STATEMENTS_MAX = 400, 2000
_SOURCES_MAX = 20
_SPACES_TRIED = 200


class HistoryChange(NamedTuple):
    """One operation on the memory: the version that it wrote, and the one that this was made from."""

    operation: Operation
    after: Entry | None
    before: Entry | None
    status: Status


class QuotedMessage(NamedTuple):
    """A recorded message. `is_source`: the memory was learned from it; the others are around it."""

    entry: Entry
    is_source: bool


class ConversationExcerpt(NamedTuple):
    """Messages of one conversation, in order."""

    space: str
    conversation: str
    messages: Sequence[QuotedMessage]


def routes(service: Service) -> list[BaseRoute]:
    return [page_route(service, "/memories/{memory}", memory)]


async def memory(page: PageRequest) -> Response:
    space, history = await _find(page, page.path["memory"], page.query.get("space", ""))
    entry = await space.get(history.versions[0].id)
    excerpts, elsewhere = await find_excerpts(page, entry)
    standing = await space.standing_audit(agent=entry.agent, project=entry.project, left_out=True)
    # A line may be in the words of the message that the memory was learned from.
    by_entry = {one.entry.id: one for one in standing if one.entry is not None}
    showings = await find_showings(page, [one.ref for one in history.versions])
    return page.render(
        "memory.html",
        entry=entry,
        changes=_changes(history),
        excerpts=excerpts,
        elsewhere=elsewhere,
        learned=await _learned_from(space, entry),
        showings=showings,
        readers=sorted({one.space for one in showings} - {entry.space}),
        line=next((by_entry[one] for one in (entry.id, *entry.sources) if one in by_entry), None),
        movable=[one.name for one in await page.spaces() if page.caller.grant.may_write(one.name)],
    )


async def _find(page: PageRequest, id: str, named: str) -> tuple[Space, History]:
    """The memory in the space that the address names, or in the first that has it."""
    names = [named] if named else [one.name for one in (await page.spaces())[:_SPACES_TRIED]]
    for name in names:
        space = await page.reading(name)
        try:
            return space, await space.history(id)
        except (NotFound, InvalidInput):
            if named:
                raise
    raise NotFound(f"There is no memory {id[:40]!r} that you may read.")


def _changes(history: History) -> list[HistoryChange]:
    """Newest first."""
    versions = {one.version: one for one in history.versions}
    found = []
    for _, steps in groupby(history.steps, key=lambda step: step.operation.id):
        taken = list(steps)
        written = next((step for step in taken if step.before is None), None)
        after = None if written is None else versions[written.version]
        base = None if after is None else base_version(history.steps, after.version)
        before = versions.get(base or (after.version - 1 if after is not None else 0))
        found.append(HistoryChange(taken[0].operation, after, before, (written or taken[-1]).after))
    return found[::-1]


async def find_excerpts(page: PageRequest, entry: Entry) -> tuple[list[ConversationExcerpt], int]:
    """The messages that a memory was learned from, with those around them, by conversation; for a message, those around
    it. Returns also how many sources the caller cannot see: they were forgotten, or are in other spaces."""
    found = [entry] if entry.kind is Kind.RECORD else []
    for source in entry.sources[:_SOURCES_MAX] if not found else ():
        found += [one for one in [await _find_source(page, entry, source)] if one is not None]
    records = [one for one in found if one.kind is Kind.RECORD]
    by_conversation: defaultdict[tuple[str, str], dict[str, Entry]] = defaultdict(dict)
    for record in records:
        around = await _around(await page.reading(record.space), record)
        by_conversation[record.space, record.conversation or ""].update({one.id: one for one in around})
    sources = {one.id for one in records}
    excerpts = [
        ConversationExcerpt(
            space, conversation, [QuotedMessage(one, one.id in sources) for one in _in_order(messages.values())]
        )
        for (space, conversation), messages in by_conversation.items()
    ]
    return excerpts, len(entry.sources) - len(found) if entry.kind is Kind.STATEMENT else 0


async def _find_source(page: PageRequest, entry: Entry, source: str) -> Entry | None:
    for name in dict.fromkeys((entry.space, entry.owner or entry.space)):
        if page.may_read(name):
            try:
                return await (await page.reading(name)).get(source)
            except (NotFound, InvalidInput):
                continue
    return None


async def _around(space: Space, record: Entry) -> list[Entry]:
    """The messages next to it in its conversation, and itself."""
    if record.conversation is None or record.position is None:
        return [record]
    at = record.occurred_at
    near = Filter(
        kind=Kind.RECORD,
        conversation=record.conversation,
        since=at - _AROUND_SECONDS,
        until=at + _AROUND_SECONDS,
    )
    found = [one for one in await space.list(limit=_READ_MAX, filter=near) if one.owner == record.owner]
    placed = (one for one in found if one.position is not None and one.id != record.id)
    return [record, *(one for one in placed if abs((one.position or 0) - record.position) <= _AROUND)]


def _in_order(messages: Iterable[Entry]) -> list[Entry]:
    return sorted(messages, key=lambda one: (one.position or 0, one.occurred_at, one.id))


async def _learned_from(space: Space, entry: Entry) -> list[Entry]:
    """The memories that were learned from a message, of the newest ones."""
    if entry.kind is not Kind.RECORD:
        return []
    newest = await space.list(limit=_STATEMENTS_MAX, filter=Filter(kind=Kind.STATEMENT))
    return [one for one in newest if entry.id in one.sources]
