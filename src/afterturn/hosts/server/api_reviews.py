"""The inbox and the reviews of a space over HTTP: a person's decisions on what was learned."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter

from afterturn.hosts.server import api_models as models
from afterturn.hosts.server.api_context import Before, Context, Limit, MemoryId, ReviewId, SpaceName
from afterturn.space.inbox import Decided
from afterturn.types.entries import Entry
from afterturn.types.rows import ReviewRow

SCOPE = "review"

router = APIRouter(prefix="/spaces/{space:name}", tags=["inbox and reviews"])


@router.get("/proposals")
async def list_proposals(
    context: Context, space: SpaceName, limit: Limit = 50, before: Before = None, conversation: str | None = None
) -> models.ProposalsJson:
    """The memories, changes and deletions that wait for approval, newest first."""
    context.check_conversation(conversation)
    found = await (await context.reading(space)).proposals(conversation=conversation, limit=limit, before=before)
    return models.ProposalsJson(
        proposals=[models.EntryJson.model_validate(one) for one in found], before=_next(found, limit)
    )


@router.get("/proposals/{memory:name}")
async def get_proposal(context: Context, space: SpaceName, memory: MemoryId) -> models.ProposalJson:
    """One proposal with what it would change."""
    return models.ProposalJson.model_validate(await (await context.reading(space)).proposal(memory))


@router.post("/proposals/{memory:name}/approve")
async def approve(context: Context, space: SpaceName, memory: MemoryId) -> models.ChangedJson:
    """Applies a proposal; `undo` makes it wait again."""
    return models.ChangedJson.model_validate(await (await context.writing(space, SCOPE)).approve(memory))


@router.post("/proposals/{memory:name}/reject")
async def reject(context: Context, space: SpaceName, memory: MemoryId) -> models.ChangedJson:
    """Removes a proposal from the inbox; `undo` brings it back."""
    return models.ChangedJson.model_validate(await (await context.writing(space, SCOPE)).reject(memory))


@router.post("/proposals/{memory:name}/edit")
async def edit_proposal(
    context: Context, space: SpaceName, memory: MemoryId, body: models.ProposalEdit
) -> models.DecidedJson:
    """Approves a proposal with another text, as the user's. `changed` has both operations: undo the last one first."""
    found = await context.writing(space, SCOPE)
    approved = await found.approve(memory)
    try:
        changed = await found.update(memory, body.text, expected_version=approved.entry.version)
    except BaseException:
        # Also after the deadline: what a person has corrected must not stand as it was.
        await found.undo(approved.operation)
        raise
    return models.DecidedJson.model_validate(Decided(None, (approved, changed), {}))


@router.post("/proposals/approve")
async def approve_many(context: Context, space: SpaceName, body: models.DecisionBody) -> models.DecidedJson:
    """Applies several proposals in one transaction, as one group for `undo`."""
    return models.DecidedJson.model_validate(await (await context.writing(space, SCOPE)).approve_all(body.ids))


@router.post("/proposals/reject")
async def reject_many(context: Context, space: SpaceName, body: models.DecisionBody) -> models.DecidedJson:
    """Removes several proposals from the inbox in one transaction, as one group for `undo`."""
    return models.DecidedJson.model_validate(await (await context.writing(space, SCOPE)).reject_all(body.ids))


@router.get("/reviews")
async def list_reviews(
    context: Context, space: SpaceName, limit: Limit = 50, before: Before = None, conversation: str | None = None
) -> models.ReviewsJson:
    """The reviews of this space's conversations, newest first, with their states and counts."""
    context.check_conversation(conversation)
    found = await (await context.reading(space)).reviews(conversation=conversation, limit=limit, before=before)
    return models.ReviewsJson(
        reviews=[models.ReviewRowJson.model_validate(one) for one in found], before=_next(found, limit)
    )


@router.post("/reviews")
async def run_review(context: Context, space: SpaceName, body: models.ReviewRun) -> models.ReviewRan:
    """Reviews a conversation now and waits for the result."""
    context.check_conversation(body.conversation)
    if body.writes is not None:
        context.check_write(body.writes)
    review = await (await context.writing(space, SCOPE)).run_review(
        body.conversation, writes=body.writes, rules=body.rules, everything=body.everything
    )
    return models.ReviewRan(review=None if review is None else models.ReviewJson.model_validate(review))


@router.get("/reviews/{review:name}")
async def get_review(context: Context, space: SpaceName, review: ReviewId) -> models.ReviewJson:
    """A review with its changes in the spaces that the token may read."""
    found = models.ReviewJson.model_validate(await (await context.reading(space)).review(review))
    return found.model_copy(update={"changes": [one for one in found.changes if context.may_read(one.space)]})


@router.post("/reviews/{review:name}/undo")
async def undo_review(context: Context, space: SpaceName, review: ReviewId) -> models.UndoneAll:
    """Takes back all changes of a review and the decisions on its proposals, in every space that it has changed."""
    found = await context.writing(space, SCOPE)
    for change in (await found.review(review)).changes:
        context.check_write(change.space)
    return models.UndoneAll(undone=[models.UndoneJson.model_validate(one) for one in await found.undo_review(review)])


def _next(found: Sequence[Entry] | Sequence[ReviewRow], limit: int) -> str | None:
    return found[-1].id if len(found) == limit else None
