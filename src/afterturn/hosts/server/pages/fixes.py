"""What a person does about one memory, on any page: edit, replace, move, hide, pin and forget, and undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import BaseRoute

from afterturn.errors import AfterturnError, InvalidInput
from afterturn.hosts.server.pages.moving import move_entry
from afterturn.hosts.server.pages.request import PageRequest, page_route
from afterturn.memory import Space
from afterturn.types import Entry, Kind, Status

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service


def routes(service: Service) -> list[BaseRoute]:
    posts = {
        "/fix/edit": edit,
        "/fix/outdated": replace_outdated,
        "/fix/move": move,
        "/fix/hide": hide,
        "/fix/pin": pin,
        "/undo": undo,
    }
    return [page_route(service, path, function, method="POST") for path, function in posts.items()]


async def edit(page: PageRequest) -> Response:
    """Another text for the same memory, as the user's. A recorded message stays as it was said and is hidden."""
    return await _write(page, page.form.need("text"), "Saved. The next turn uses the new text.")


async def replace_outdated(page: PageRequest) -> Response:
    """What is true now, instead of what was. Without a new value the memory is hidden."""
    text = page.form.get("text").strip()
    if not text:
        return await hide(page)
    return await _write(page, text, "Replaced. The next turn uses the new value.")


async def _write(page: PageRequest, text: str, said: str) -> Response:
    space, entry = await _find(page)
    if entry.kind is Kind.STATEMENT:
        version = page.form.get("version")
        if not version.isdecimal():
            raise InvalidInput("The form lacks the version of the memory. Load the page again.")
        changed = await space.update(entry.id, text, expected_version=int(version))
        return page.done(said, [(space.name, changed.operation)])
    added = await space.add(text, target=entry.target, project=entry.project)
    hidden = await _hide_after(space, entry, added.operation)
    return page.done(said, [(space.name, added.operation or ""), (space.name, hidden)])


async def move(page: PageRequest) -> Response:
    """To another person or project. It is trusted there as far as it was here."""
    space, entry = await _find(page)
    to = await page.writing(page.form.need("to"))
    added, undo = await move_entry(space, entry, to)
    waits = added.entry.status is not Status.ACTIVE
    return page.done(f"Moved to {to.name}{', where it waits for approval' if waits else ''}.", undo)


async def hide(page: PageRequest) -> Response:
    """No recall and no list has it any more. It stays in the store."""
    space, entry = await _find(page)
    changed = await space.delete(entry.id)
    return page.done("It will not be brought up again.", [(space.name, changed.operation)])


async def pin(page: PageRequest) -> Response:
    space, entry = await _find(page)
    pinned = page.form.get("pinned") == "yes"
    changed = await space.set_pinned(entry.id, pinned)
    said = "Pinned: it is in the standing block of new conversations." if pinned else "No longer pinned."
    return page.done(said, [(space.name, changed.operation)])


async def undo(page: PageRequest) -> Response:
    """Takes operations back, the last one first. Each field `of` is an operation, a blank, and its space."""
    named = [one.partition(" ") for one in page.form.all("of")]
    if not named:
        raise InvalidInput("The form does not say what to undo. Load the page again.")
    spaces = {name: await page.writing(name) for _, _, name in named}
    undone = [(name, (await spaces[name].undo(operation)).operation) for operation, _, name in reversed(named)]
    return page.done("Undone.", undone)


async def _find(page: PageRequest) -> tuple[Space, Entry]:
    space = await page.writing(page.form.need("space"))
    return space, await space.get(page.form.need("memory"))


async def _hide_after(space: Space, entry: Entry, operation: str | None) -> str:
    """Hides an entry whose replacement was just added; takes that back if it cannot be hidden."""
    try:
        return (await space.delete(entry.id)).operation
    except AfterturnError:
        if operation:
            await space.undo(operation)
        raise
