"""Erasing for good: what would go, what is out of reach, and a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import BaseRoute

from afterturn.errors import InvalidInput, NotFound
from afterturn.hosts.server.forget_preview import preview_forget
from afterturn.hosts.server.pages.about import find_talks
from afterturn.hosts.server.pages.memories import count_memories
from afterturn.hosts.server.pages.render import link
from afterturn.hosts.server.pages.request import PageRequest, own_path, page_route
from afterturn.runtime.clock import SystemClock
from afterturn.space.arguments import check_selector
from afterturn.types import Forgotten, Selector

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service


def routes(service: Service) -> list[BaseRoute]:
    return [
        page_route(service, "/forget", preview),
        page_route(service, "/forget", forget, method="POST"),
        page_route(service, "/forget/space", wizard),
        page_route(service, "/forget/space", forget_in_space, method="POST"),
    ]


async def preview(page: PageRequest) -> Response:
    """What forgetting these memories would erase."""
    space = await page.reading(page.query.get("space", ""))
    found = [await preview_forget(space, Selector(memory=one)) for one in page.query.getlist("memory")]
    return page.render(
        "forget.html",
        space=space.name,
        entries=[one for preview in found for one in preview.entries],
        sources=list({one.id: one for preview in found for one in preview.sources}.values()),
        next=own_path(page.query.get("next", "/memories")),
    )


async def forget(page: PageRequest) -> Response:
    """With the messages that they were learned from, if the person wants that."""
    _check_token(page, None)
    space, sources = await page.writing(page.form.need("space"), "forget"), page.form.get("sources") == "yes"
    forgotten: list[Forgotten] = []
    for one in page.form.all("memory"):
        try:
            forgotten.append(await space.forget(memory=one, sources=sources))
        except NotFound:
            # Erased with what an earlier one was learned from.
            if not forgotten:
                raise
    what = count_memories(len(page.form.all("memory")))
    return _receipt(page, space.name, what, _joined(forgotten), own_path(page.form.get("next")))


async def wizard(page: PageRequest) -> Response:
    """First what to forget; then what that erases, and what it cannot reach."""
    name, what, chosen = (page.query.get(field, "") for field in ("space", "what", "name"))
    space, memory = await page.reading(name), await page.memory("inspect")
    return page.render(
        "forget_space.html",
        space=name,
        what=what,
        name=chosen,
        preview=await preview_forget(space, _selector(page, what, chosen)) if what else None,
        talks=await find_talks(page, memory, name),
        is_sealed=memory.config.keys is not None,
        back=link(f"/about/{name}"),
    )


async def forget_in_space(page: PageRequest) -> Response:
    """The whole space needs its name typed."""
    name, what, chosen = page.form.need("space"), page.form.need("what"), page.form.get("name")
    if what == "everything" and page.form.get("typed").strip() != name:
        raise InvalidInput(f"Nothing is erased. Go back and type {name} to erase all of it.")
    selector = _selector(page, what, chosen)
    receipt = await (await page.writing(name, "forget")).forget(
        conversation=selector.conversation,
        source=selector.source,
        speaker=selector.speaker,
        everything=selector.everything,
    )
    return _receipt(page, name, "everything" if selector.everything else f"the {what} {chosen}", receipt, "/about")


def _selector(page: PageRequest, what: str, name: str) -> Selector:
    """Raises InvalidInput unless one thing is chosen, NotAllowed for another conversation than the token's."""
    if what not in ("everything", "conversation", "speaker", "source"):
        raise InvalidInput("Choose what to forget: everything, a conversation, a speaker or a source.")
    conversation, source, speaker = (name if what == one else None for one in ("conversation", "source", "speaker"))
    _check_token(page, conversation)
    return check_selector(Selector(None, conversation, source, speaker, what == "everything"))


def _check_token(page: PageRequest, conversation: str | None) -> None:
    """A token for one conversation may erase that one, and not what others have said."""
    page.check_conversation(conversation)
    if conversation is None and page.caller.grant.conversation is not None:
        raise InvalidInput("This token is for one conversation. Forget that one as a whole.")


def _receipt(page: PageRequest, space: str, what: str, receipt: Forgotten, to: str) -> Response:
    now = SystemClock().now()
    return page.render("receipt.html", space=space, what=what, receipt=receipt, now=now, next=to)


def _joined(forgotten: Sequence[Forgotten]) -> Forgotten:
    """Several results as one."""
    return Forgotten(
        state="pending" if any(one.state == "pending" for one in forgotten) else "erased",
        erased=sum(one.erased for one in forgotten),
        out_of_reach=tuple(dict.fromkeys(place for one in forgotten for place in one.out_of_reach)),
        remaining=tuple(dict.fromkeys(place for one in forgotten for place in one.remaining)),
        key_destroyed=any(one.key_destroyed for one in forgotten),
        sources=tuple(dict.fromkeys(id for one in forgotten for id in one.sources)),
    )
