"""The memories of a space as a table, with what can be done about several of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response
from starlette.routing import BaseRoute

from afterturn.errors import AfterturnError, InvalidInput
from afterturn.hosts.server.pages.moving import move_entry
from afterturn.hosts.server.pages.render import link
from afterturn.hosts.server.pages.request import PageRequest, own_path, page_route
from afterturn.memory import Space
from afterturn.recall.profile import group_by_subject
from afterturn.space.markdown import Bullet, Edit, Edits
from afterturn.types import (
    Entry,
    Filter,
    Kind,
    Origin,
    Showing,
    SpaceSummary,
    Status,
    Verb,
)

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

PAGE = 50
_SCANNED_MAX = 2000
_SHOWINGS_MAX = 10_000
_SCORE_MIN = 0.5
STATES = {
    "active": (Status.ACTIVE,),
    "replaced": (Status.SUPERSEDED,),
    "hidden": (Status.DELETED, Status.UNDONE),
    "waiting": (Status.PROPOSED, Status.WITHDRAWAL),
    "expired": (Status.EXPIRED,),
    "quarantined": (Status.QUARANTINED,),
    "any": tuple(Status),
}
_KINDS = {"memories": Kind.STATEMENT, "messages": Kind.RECORD, "both": None}
_TRUSTED = {"trusted": True, "reports": False}


class TableChoice(NamedTuple):
    """What the person chose above the table. An empty text chooses nothing."""

    space: str
    q: str = ""
    kind: str = "memories"
    state: str = "active"
    origin: str = ""
    trust: str = ""
    project: str = ""
    pinned: str = ""
    before: str = ""

    def link(self, **changes: str) -> str:
        """The table with another choice, from its beginning."""
        plain = TableChoice("")._asdict()
        chosen = {**self._asdict(), "before": "", **changes}
        return link("/memories", **{name: value for name, value in chosen.items() if value != plain[name]})

    @property
    def filter(self) -> Filter:
        return Filter(
            kind=_KINDS[self.kind],
            origin=self.origin or None,
            trusted=_TRUSTED.get(self.trust),
            project=self.project or None,
            pinned=True if self.pinned else None,
            statuses=STATES[self.state],
        )


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A memory in the table. `shown` counts the blocks with it that the caller may know of."""

    entry: Entry
    subject: str
    shown: int
    last_shown: float | None


def routes(service: Service) -> list[BaseRoute]:
    return [
        page_route(service, "/memories", memories),
        page_route(service, "/memories", change_many, method="POST"),
    ]


async def memories(page: PageRequest) -> Response:
    spaces = await page.spaces()
    choice = _choice(page, spaces)
    if choice is None:
        return page.render("memories.html", choice=None, spaces=(), rows=())
    space = await page.reading(choice.space)
    found, older = await _search(space, choice) if choice.q else await _list(space, choice)
    stats = await space.stats()
    return page.render(
        "memories.html",
        choice=choice,
        spaces=[one.name for one in spaces],
        rows=await _rows(page, found),
        older=older,
        counts=stats["entries"],
        origins=list(Origin),
        states=list(STATES),
        projects=sorted({one.project for one in found if one.project}),
        movable=[one.name for one in spaces if page.caller.grant.may_write(one.name)],
    )


def _choice(page: PageRequest, spaces: Sequence[SpaceSummary]) -> TableChoice | None:
    """The choice of the query, with the defaults; None if there is nothing to choose from."""
    named = page.query.get("space", "")
    if not named:
        own = [one.name for one in spaces if one.name == page.caller.grant.owner]
        newest = sorted(spaces, key=lambda one: -(one.newest_at or 0.0))
        named = next(iter([*own, *(one.name for one in newest)]), "")
    if not named:
        return None
    given = {name: page.query.get(name, "").strip() for name in TableChoice._fields}
    choice = TableChoice(**{name: given[name] or default for name, default in TableChoice(named)._asdict().items()})
    if choice.kind not in _KINDS or choice.state not in STATES or choice.trust not in ("", *_TRUSTED):
        raise InvalidInput("The address of this page is not complete. Open Memories again.")
    return choice


async def _list(space: Space, choice: TableChoice) -> tuple[Sequence[Entry], str]:
    """A page of the list, and the address of the next one."""
    found = await space.list(limit=PAGE + 1, before=choice.before or None, filter=choice.filter)
    older = choice.link(before=found[PAGE - 1].id) if len(found) > PAGE else ""
    return found[:PAGE], older


async def _search(space: Space, choice: TableChoice) -> tuple[Sequence[Entry], str]:
    """The best matches. What is not recalled has no index: its newest entries are compared by their words."""
    if choice.state == "active":
        hits = await space.search(choice.q, limit=PAGE, filter=choice.filter, score_min=0.0)
        return [hit.entry for hit in hits if hit.terms or hit.score >= _SCORE_MIN], ""
    wanted = choice.q.casefold()
    scanned = await space.list(limit=_SCANNED_MAX, filter=choice.filter)
    return [one for one in scanned if wanted in one.text.casefold()][:PAGE], ""


async def _rows(page: PageRequest, entries: Sequence[Entry]) -> list[MemoryRow]:
    showings = await find_showings(page, [one.ref for one in entries])
    subjects = {one.ref: subject.name for subject in group_by_subject(entries) for one in subject.entries}
    rows = []
    for entry in entries:
        shown = [one.at for one in showings if one.ref == entry.ref]
        rows.append(MemoryRow(entry, subjects[entry.ref], len(shown), max(shown, default=None)))
    return rows


async def find_showings(page: PageRequest, refs: Sequence[str]) -> list[Showing]:
    """The turns that showed a memory, in conversations that the caller may read."""
    own = page.caller.grant.conversation
    found = await (await page.memory("inspect")).showings(refs, limit=_SHOWINGS_MAX)
    return [one for one in found if page.may_read(one.space) and own in (None, one.conversation)]


async def change_many(page: PageRequest) -> Response:
    """What the person does about the chosen memories, as one group for `undo` where that is possible."""
    ids, what = page.form.all("memory"), page.form.need("do")
    if not ids:
        raise InvalidInput("No memory is chosen. Go back and check some.")
    if what == "forget":
        query = [("space", page.form.need("space")), ("next", own_path(page.form.get("next")))]
        return page.go(f"/forget?{urlencode([*query, *(('memory', one) for one in ids)])}")
    space = await page.writing(page.form.need("space"))
    entries = [await space.get(one) for one in ids]
    if what == "move":
        return await _move_many(page, space, entries)
    if what not in ("hide", "pin", "unpin"):
        raise InvalidInput("The form does not say what to do. Load the page again.")
    edits = [Edit(Verb.DELETE, one, None) if what == "hide" else _pin(one, pinned=what == "pin") for one in entries]
    edited = await space.apply_edits(Edits(tuple(edits)))
    said = {"hide": "will not be brought up again", "pin": "pinned", "unpin": "no longer pinned"}[what]
    text = f"{count_memories(len(edited.changed))} {said}."
    if edited.skipped:
        text += f" {count_memories(len(edited.skipped))} not changed: {edited.skipped[0].reason}"
    return page.done(text, [(space.name, edited.group or "")])


def _pin(entry: Entry, *, pinned: bool) -> Edit:
    if entry.kind is Kind.RECORD:
        raise InvalidInput("A recorded message cannot be pinned. Choose memories only.")
    bullet = Bullet(0, entry.text, entry.target, entry.project, pinned, entry.id, entry.version)
    return Edit(Verb.UPDATE, entry, bullet)


async def _move_many(page: PageRequest, space: Space, entries: Sequence[Entry]) -> Response:
    to, undo = await page.writing(page.form.need("to")), list[tuple[str, str]]()
    text = f"{count_memories(len(entries))} moved to {to.name}."
    for number, entry in enumerate(entries):
        try:
            undo += (await move_entry(space, entry, to))[1]
        except AfterturnError as error:
            text = f"{count_memories(number)} moved to {to.name}. The next was not: {error}"
            break
    return page.done(text, undo)


def count_memories(number: int) -> str:
    return "1 memory" if number == 1 else f"{number} memories"
