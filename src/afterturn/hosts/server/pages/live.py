"""Live: what memory does now, turn by turn and change by change, also in other processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from afterturn.errors import AfterturnError, NotFound
from afterturn.hosts.server.api_events import HEARTBEAT, SSE
from afterturn.hosts.server.pages import example
from afterturn.hosts.server.pages.feed_rows import FeedRow, FeedRows, is_change
from afterturn.hosts.server.pages.render import HEADERS, link, render_text
from afterturn.hosts.server.pages.request import PageRequest, page_route
from afterturn.log import logger
from afterturn.memory import Space
from afterturn.runtime.clock import SystemClock
from afterturn.types import Entry, Event, Filter, Kind, Origin

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

_ROWS_SHOWN = 60
# A stream begins with the rows that may have come between the page and it.
_ROWS_AGAIN = 15
_EVENTS_READ = 3000
_OPERATIONS_READ = 40
_SPACES_READ = 30
# Each costs a read of the store as often, for as long as the server runs.
_SPACES_WATCHED = 16
_MESSAGES_READ = 200
# As often as events of other processes are read.
_WATCH_EVERY = 0.5
# Events of another process are in the store by then.
_STORED_WITHIN = 5.0
SHOWN = {"all": "Turns and changes", "turns": "Turns", "changes": "Changes", "failed": "Failed recalls"}


def routes(service: Service) -> list[BaseRoute]:
    return [
        page_route(service, "/", show_live),
        page_route(service, "/live/events", stream_rows),
        page_route(service, "/example", add_example, method="POST"),
        page_route(service, "/example/remove", remove_example, method="POST"),
    ]


async def show_live(page: PageRequest) -> Response:
    spaces = await page.spaces()
    feed = await _read(page)
    rows = [row for row in feed.newest() if row.is_wanted(page.query.get("show", ""))]
    return page.render(
        "live.html",
        nav="Live",
        title="Live",
        spaces=[one.name for one in spaces],
        rows=rows[:_ROWS_SHOWN],
        counts=feed.counts(),
        usage=await _usage_today(page),
        shown=SHOWN,
        chosen=page.query.get("show", "all"),
        space=page.query.get("space", ""),
        stream=link("/live/events", space=page.query.get("space"), show=page.query.get("show")),
        example=example.SPACE,
        may_add_example=page.may_read(example.SPACE) and page.caller.grant.may_write(example.SPACE),
    )


async def stream_rows(page: PageRequest) -> Response:
    headers = {**HEADERS, "X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(page), media_type=SSE, headers=headers)


async def _stream(page: PageRequest) -> AsyncIterator[str]:
    """Rows as JSON with an id and HTML, until the browser leaves or its session ends."""
    show = page.query.get("show", "")
    async with page.service.feed.subscribe(page.caller.grant.tenant) as queue:
        await _watch(page)
        feed = await _read(page)
        for row in reversed(feed.newest()[:_ROWS_AGAIN]):
            if row.is_wanted(show):
                yield _message(page, feed, row)
        while True:
            event: Event | None = None
            try:
                async with asyncio.timeout(HEARTBEAT):
                    event = await queue.get()
            except TimeoutError:
                yield ": heartbeat\n\n"
            if not page.is_allowed_still():
                return
            if event is not None and _is_wanted(page, event):
                for row in await _rows_of(page, feed, event):
                    if row.is_wanted(show):
                        yield _message(page, feed, row)
                feed.trim()


async def _rows_of(page: PageRequest, feed: FeedRows, event: Event) -> list[FeedRow]:
    changed = [feed.add_event(event)]
    if event.name in ("recorded", "changed_elsewhere"):
        # Another process stores its events a second after its records.
        changed += await _read_messages(page, feed, event.space, since=event.at - _STORED_WITHIN)
    if is_change(event):
        changed += await _read_operations(page, feed, event.space)
    # Each once, as it is in the end.
    return list({row.id: row for row in changed if row is not None}.values())


async def _read(page: PageRequest) -> FeedRows:
    """The newest rows of the spaces that the caller may read, from the store."""
    memory = await page.memory("inspect")
    now = SystemClock().now()
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    feed = FeedRows(today.timestamp())
    for event in (await memory.timeline(limit=_EVENTS_READ)).events:
        if _is_wanted(page, event):
            feed.add_event(event)
    for name in await _newest_spaces(page):
        await _read_operations(page, feed, name)
        await _read_messages(page, feed, name, since=now - _STORED_WITHIN, limit=_MESSAGES_READ)
    return feed


async def _newest_spaces(page: PageRequest) -> list[str]:
    wanted = page.query.get("space", "")
    found = sorted(await page.spaces(), key=lambda one: -(one.newest_at or 0.0))
    return [one.name for one in found if wanted in ("", one.name)][:_SPACES_READ]


async def _read_operations(page: PageRequest, feed: FeedRows, name: str) -> list[FeedRow | None]:
    space, changed = await page.reading(name, "inspect"), list[FeedRow | None]()
    new = [one for one in await space.operations(limit=_OPERATIONS_READ) if feed.is_new(one)]
    waiting = {one.id for one in await space.proposals(limit=_OPERATIONS_READ)} if new else set[str]()
    for one in reversed(new):
        waits = one.entry_id in waiting and one.actor is not Origin.USER
        is_learned = one.actor is Origin.BACKGROUND_REVIEW and one.entry_id is not None and not waits
        learned = await _find(space, str(one.entry_id)) if is_learned else None
        changed += feed.add_operation(one, learned, waits=waits)
    return changed


async def _find(space: Space, id: str) -> Entry | None:
    try:
        return await space.get(id)
    except NotFound:
        return None


async def _read_messages(
    page: PageRequest, feed: FeedRows, space: str, *, since: float, limit: int = 10
) -> list[FeedRow | None]:
    """What the users said in the newest turns."""
    found = await (await page.reading(space, "inspect")).list(limit=limit, filter=Filter(kind=Kind.RECORD))
    return [feed.add_message(one, since=since) for one in reversed(found)]


async def _watch(page: PageRequest) -> None:
    """Changes of other processes are reported for the newest spaces. Turns of all spaces are."""
    try:
        await (await page.memory("inspect")).watch((await _newest_spaces(page))[:_SPACES_WATCHED], every=_WATCH_EVERY)
    except AfterturnError as error:
        logger.warning("changes of other processes are not shown at once: %s", error)


def _is_wanted(page: PageRequest, event: Event) -> bool:
    own, space = page.caller.grant.conversation, page.query.get("space", "")
    if not event.space or not page.may_read(event.space) or space not in ("", event.space):
        return False
    return own is None or event.conversation == own


def _message(page: PageRequest, feed: FeedRows, row: FeedRow) -> str:
    here = link("/", space=page.query.get("space"), show=page.query.get("show"))
    html = render_text("live_row.html", row=row, here=here, page=page)
    strip = render_text("live_strip.html", counts=feed.counts())
    return f"event: row\ndata: {json.dumps({'id': row.id, 'html': html, 'strip': strip})}\n\n"


async def _usage_today(page: PageRequest) -> tuple[int, int]:
    """Calls of models and their tokens of today, in UTC."""
    today = datetime.fromtimestamp(SystemClock().now(), UTC).date().isoformat()
    found = await (await page.memory("inspect")).usage(limit=1000)
    rows = [one for one in found if one.day == today and page.may_read(one.space)]
    return sum(one.calls for one in rows), sum(one.tokens for one in rows)


async def add_example(page: PageRequest) -> Response:
    await page.writing(example.SPACE, "turns")
    await page.writing(example.SPACE)
    last = await example.play(await page.memory("inspect"))
    return page.done(f"The example is in {example.SPACE}. This is its last turn.", to=last)


async def remove_example(page: PageRequest) -> Response:
    space = await page.writing(example.SPACE, "forget")
    forgotten = await space.forget(everything=True)
    return page.done(f"The example is gone: {forgotten.erased} entries were erased.", to="/")
