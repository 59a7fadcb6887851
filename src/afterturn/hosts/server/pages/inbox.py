"""The inbox: what waits for a person's decision, grouped by review, and the reviews of late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response
from starlette.routing import BaseRoute

from afterturn.errors import AfterturnError, Conflict, InvalidInput, NotFound
from afterturn.hosts.server.pages.memory_detail import ConversationExcerpt, find_excerpts
from afterturn.hosts.server.pages.render import link
from afterturn.hosts.server.pages.request import PageRequest, page_route
from afterturn.memory import Space
from afterturn.space.inbox import Decided, Proposal
from afterturn.space.reviews import Review
from afterturn.types import Origin, ReviewState, Status

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

_SCOPE = "review"
_SPACES_MAX = 100
_PROPOSALS_MAX = 50
_REVIEWS_MAX = 5


@dataclass(frozen=True, slots=True)
class WaitingProposal:
    """A proposal with its evidence. `elsewhere` counts sources that the caller cannot see."""

    proposal: Proposal
    excerpts: Sequence[ConversationExcerpt]
    elsewhere: int
    why: str

    @property
    def verb(self) -> str:
        if self.proposal.entry.status is Status.WITHDRAWAL:
            return "Delete"
        return "New" if self.proposal.base is None else "Change"


class ProposalGroup(NamedTuple):
    """What one review proposed, or what came from elsewhere. `review` is None if it is gone."""

    space: str
    review_id: str
    review: Review | None
    waiting: Sequence[WaitingProposal]


def routes(service: Service) -> list[BaseRoute]:
    return [
        page_route(service, "/inbox", inbox),
        page_route(service, "/inbox", decide, method="POST"),
        page_route(service, "/inbox/undo", undo_review, method="POST"),
    ]


async def inbox(page: PageRequest) -> Response:
    named = page.query.get("space", "")
    spaces = sorted(await page.spaces(), key=lambda one: -(one.newest_at or 0.0))
    names = [named] if named else [one.name for one in spaces[:_SPACES_MAX]]
    groups, reviews = list[ProposalGroup](), list[Review]()
    for name in names:
        space = await page.reading(name)
        groups += await _groups(page, space)
        shown = {group.review_id for group in groups}
        reviews += await _done(page, space, shown)
    ids = [one.proposal.entry.id for group in groups for one in group.waiting]
    current = page.query.get("at", "") if page.query.get("at", "") in ids else next(iter(ids), "")
    at = ids.index(current) if current else 0
    return page.render(
        "inbox.html",
        groups=groups,
        reviews=sorted(reviews, key=lambda one: -one.row.created_at)[:_REVIEWS_MAX],
        current=current,
        total=len(ids),
        place=at + 1,
        previous=_at(named, ids[at - 1]) if at else "",
        following=_at(named, ids[at + 1]) if at + 1 < len(ids) else "",
        space=named,
        writable={name for name in names if page.caller.grant.may_write(name)},
        approval=(await page.memory("inspect")).config.approval,
    )


def _at(space: str, id: str) -> str:
    return link("/inbox", space=space, at=id) + f"#p-{id}"


async def _groups(page: PageRequest, space: Space) -> list[ProposalGroup]:
    by_review: dict[str, list[WaitingProposal]] = {}
    for entry in await space.proposals(limit=_PROPOSALS_MAX):
        try:
            proposal = await space.proposal(entry.id)
        except (Conflict, NotFound):
            # Decided meanwhile.
            continue
        excerpts, elsewhere = await find_excerpts(page, proposal.entry)
        review = str(proposal.entry.metadata.get("review", ""))
        waiting = WaitingProposal(proposal, excerpts, elsewhere, _why(proposal))
        by_review.setdefault(review, []).append(waiting)
    return [ProposalGroup(space.name, id, await _find_review(space, id), found) for id, found in by_review.items()]


def _why(proposal: Proposal) -> str:
    entry = proposal.entry
    if entry.metadata.get("kind") in ("preference", "convention") or entry.pinned:
        return "It would be in the system prompt of every later conversation, and the user did not type these words."
    return {
        Origin.SUBAGENT: "A sub-agent found it.",
        Origin.AGENT: "The agent states it, and may repeat what it has read.",
        Origin.BACKGROUND_REVIEW: "A review inferred it; nobody said it in these words, or your settings ask for it.",
    }.get(entry.origin, f"It comes from {entry.origin.replace('_', ' ')}, and others' words may be in it.")


async def _find_review(space: Space, id: str) -> Review | None:
    try:
        return await space.review(id) if id else None
    except (NotFound, InvalidInput):
        return None


async def _done(page: PageRequest, space: Space, shown: set[str]) -> list[Review]:
    """Reviews that changed something, and whose proposals are not in the inbox."""
    rows = await space.reviews(limit=4 * _REVIEWS_MAX)
    saved = [row for row in rows if row.state is ReviewState.SAVED and row.id not in shown]
    found = [await space.review(row.id) for row in saved[:_REVIEWS_MAX]]
    return [one for one in found if one.changes and all(page.may_read(change.space) for change in one.changes)]


async def decide(page: PageRequest) -> Response:
    """Approves or rejects what the form names. With a text, approves one proposal with that text instead."""
    space = await page.writing(page.form.need("space"), _SCOPE)
    ids, what = page.form.all("memory"), page.form.need("do")
    if not ids:
        raise InvalidInput("The form names no proposal. Load the page again.")
    if what == "edit":
        return page.done("Approved with your words.", await _edit(space, ids[0], page.form.need("text")))
    if what not in ("approve", "reject"):
        raise InvalidInput("The form does not say what to do. Load the page again.")
    said = "Approved" if what == "approve" else "Rejected"
    if len(ids) == 1:
        changed = await (space.approve if what == "approve" else space.reject)(ids[0])
        return page.done(f"{said}.", [(space.name, changed.operation)])
    decided: Decided = await (space.approve_all if what == "approve" else space.reject_all)(ids)
    text = f"{said}: {len(decided.changed)}."
    for reason in list(decided.skipped.values())[:1]:
        text += f" {len(decided.skipped)} still wait: {reason}"
    return page.done(text, [(space.name, decided.group or "")])


async def _edit(space: Space, id: str, text: str) -> list[tuple[str, str]]:
    approved = await space.approve(id)
    if approved.entry.text == text:
        return [(space.name, approved.operation)]
    try:
        changed = await space.update(id, text, expected_version=approved.entry.version)
    except AfterturnError:
        await space.undo(approved.operation)
        raise
    return [(space.name, approved.operation), (space.name, changed.operation)]


async def undo_review(page: PageRequest) -> Response:
    """Takes back everything that a review did, in each space, if the caller may write them all."""
    space = await page.writing(page.form.need("space"), _SCOPE)
    review = await space.review(page.form.need("review"))
    names = list(dict.fromkeys(change.space for change in review.changes))
    for name in names:
        page.check_write(name)
    undone = await space.undo_review(review.row.id)
    undo = [(one.steps[0].operation.space, one.operation) for one in undone if one.steps]
    return page.done("The whole review is undone.", undo)
