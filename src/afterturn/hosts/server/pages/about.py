"""A person or a project: the profile, the standing block, what is switched on, and the export."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response
from starlette.routing import BaseRoute

from afterturn.hosts.server import api_spaces
from afterturn.hosts.server.pages.render import HEADERS
from afterturn.hosts.server.pages.request import PageRequest, page_route
from afterturn.text import estimate_tokens

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service
    from afterturn.memory import Memory

_PROFILE_MAX = 80
_CONVERSATIONS_MAX = 50
_EVENTS_MAX = 10_000
# A conversation that nobody has, to render the block of a new one.
_PREVIEW = "preview-of-the-inspector"
_KINDS = {"user": "People", "project": "Projects", "team": "Teams"}


class ListedConversation(NamedTuple):
    """A conversation of the space. `is_incognito`: its next turns are neither recorded nor learned from; `was`: some of
    its turns were not."""

    id: str
    is_incognito: bool
    was: bool


def routes(service: Service) -> list[BaseRoute]:
    return [
        page_route(service, "/about", about),
        page_route(service, "/export", export),
        page_route(service, "/incognito", set_incognito, method="POST"),
        page_route(service, "/about/{space:path}", about_space),
    ]


async def about(page: PageRequest) -> Response:
    def kind(name: str) -> str:
        return _KINDS.get(name.partition(":")[0], "Others")

    spaces = sorted(await page.spaces(), key=lambda one: (kind(one.name), -(one.newest_at or 0.0)))
    return page.render(
        "about.html", kinds=[(name, list(found)) for name, found in groupby(spaces, lambda one: kind(one.name))]
    )


async def about_space(page: PageRequest) -> Response:
    name = page.path["space"]
    space, memory = await page.reading(name), await page.memory("inspect")
    profile = await space.profile(limit=_PROFILE_MAX)
    known = sorted((entry for one in profile.subjects for entry in one.entries), key=lambda entry: -entry.occurred_at)
    # As the agent that spoke last gets it: what one agent learned is for that one.
    agents = list(dict.fromkeys(entry.agent for entry in known if entry.agent))
    agent = page.query.get("agent", next(iter(agents), "")) or None
    project = page.query.get("project") or None
    # The conventions of a project are in its own space.
    reads = [one for one in (f"project:{project}",) if project is not None and page.may_read(one)]
    conversation = memory.conversation(_PREVIEW, owner=name, agent=agent, project=project, reads=reads)
    block = await conversation.standing().preview()
    lines = await space.standing_audit(agent=agent, project=project, left_out=True)
    return page.render(
        "about_space.html",
        space=name,
        profile=profile,
        agent=agent,
        agents=agents,
        project=project,
        projects=list(dict.fromkeys(entry.project for entry in known if entry.project)),
        left_out=[one for one in lines if one.left_out and (one.entry is None or page.may_read(one.entry.space))],
        block=block,
        size=len(block.encode()),
        tokens=estimate_tokens(block),
        settings=memory.config,
        talks=await find_talks(page, memory, name),
        may_write=page.caller.grant.may_write(name) and page.caller.grant.allows("write"),
        may_forget=page.caller.grant.may_write(name) and page.caller.grant.allows("forget"),
    )


async def find_talks(page: PageRequest, memory: Memory, space: str) -> list[ListedConversation]:
    """The newest conversations that the caller may know of."""
    own = page.caller.grant.conversation
    ids = [one for one in await memory.space(space).conversations(limit=_CONVERSATIONS_MAX) if own in (None, one)]
    found = await asyncio.gather(*(memory.conversation(one, owner=space).is_incognito() for one in ids))
    events = await memory.space(space).trace(limit=_EVENTS_MAX)
    was = {one.conversation for one in events if one.name == "not_recorded" and one.data.get("reason") == "incognito"}
    return [ListedConversation(id, is_on, id in was) for id, is_on in zip(ids, found, strict=True)]


async def set_incognito(page: PageRequest) -> Response:
    """Switches incognito for one conversation."""
    name, id, is_on = page.form.need("space"), page.form.need("conversation"), page.form.get("on") == "yes"
    page.check_write(name)
    conversation = await page.past_conversation(id, name, "turns")
    await conversation.set_incognito(is_on)
    said = "incognito: its next turns are neither recorded nor learned from" if is_on else "no longer incognito"
    return page.done(f"{id} is {said}.")


async def export(page: PageRequest) -> Response:
    name = page.query.get("space", "")
    answer = await api_spaces.export(page, name)
    file = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name)
    answer.headers.update({**HEADERS, "Content-Disposition": f'attachment; filename="{file}.jsonl"'})
    return answer
