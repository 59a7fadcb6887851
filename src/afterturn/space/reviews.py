"""The reviews of a space: what they changed, as a person reads it, the way back, and one on request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby

from afterturn.base.errors import ConfigError, NotFound
from afterturn.base.limits import check_limit
from afterturn.base.names import check_id, check_name, check_space
from afterturn.base.ports import Unit
from afterturn.base.reviews import Review, ReviewedChange, ReviewKind, ReviewRow, ReviewState
from afterturn.base.turns import ConversationKey
from afterturn.base.types import Entry, Operation, Origin, Scope, Status, Step, Undone, Verb
from afterturn.learn.scheduling import join_or_schedule, schedule, schedule_conversation
from afterturn.learn.snapshot import of_records
from afterturn.space.parts import SpaceParts
from afterturn.space.questions import LIMIT_MAX

# Beyond the time for a review itself: until another process that has it is seen to have ended it.
POLL = 0.1
PATIENCE = 5.0
_WAITING = (Status.PROPOSED, Status.WITHDRAWAL)


async def list_reviews(
    parts: SpaceParts, space: str, *, conversation: str | None, limit: int, before: str | None
) -> list[ReviewRow]:
    count, last = check_limit(limit, LIMIT_MAX), None if before is None else check_id(before)
    named = None if conversation is None else check_name(conversation, "conversation")
    return await parts.store.read(
        lambda unit: unit.reviews.page(parts.tenant, space, conversation=named, limit=count, before=last)
    )


async def get_review(parts: SpaceParts, space: str, review_id: str) -> Review:
    check_id(review_id)
    return await parts.store.read(lambda unit: _review(unit, _row(unit, parts.tenant, space, review_id)))


async def undo_review(parts: SpaceParts, space: str, review_id: str) -> list[Undone]:
    """Takes back all that it did, in every space, or nothing."""
    check_id(review_id)
    at = parts.clock.now()

    def work(unit: Unit) -> list[Undone]:
        row = _row(unit, parts.tenant, space, review_id)
        if not row.spaces:
            raise NotFound(f"Review {review_id} has changed nothing, so there is nothing to undo.")
        return [
            _undo(unit, Operation(parts.ids.new(), parts.tenant, one, Verb.UNDO, Origin.USER, at), row.id)
            for one in row.spaces
        ]

    undone = await parts.store.write(work)
    parts.on_write()
    return undone


async def run_review(
    parts: SpaceParts, space: str, conversation: str, *, writes: str | None, rules: bool, everything: bool
) -> Review | None:
    """Reviews a conversation now. None when there is nothing that no review has read yet."""
    if not rules and not parts.has_model:
        raise ConfigError(
            "A review needs a model. Pass `model=` to `open`, or set model_url and model; or let the rules do it."
        )
    check_name(conversation, "conversation")
    into = space if writes is None else check_space(writes)
    row = ReviewRow(
        id=parts.ids.new(),
        kind=ReviewKind.RULES if rules else ReviewKind.ASKED,
        tenant=parts.tenant,
        space=space,
        writes=into,
        created_at=parts.clock.now(),
        conversation=conversation,
        reads=(space,),
    )
    scheduled = await parts.store.write(lambda unit: _schedule(unit, row, everything=everything or rules))
    if scheduled is None:
        return None
    parts.on_write()
    return await _ended(parts, space, scheduled)


async def _ended(parts: SpaceParts, space: str, review_id: str) -> Review:
    async with asyncio.timeout(2 * parts.config.review_timeout + PATIENCE):
        await parts.run_reviews()
        review = await get_review(parts, space, review_id)
        while review.row.state is ReviewState.WAITING:
            # Another process has it, and tells nobody.
            await asyncio.sleep(POLL)
            review = await get_review(parts, space, review_id)
    return review


def _schedule(unit: Unit, row: ReviewRow, *, everything: bool) -> str | None:
    key = ConversationKey(row.tenant, row.space, row.conversation)
    if not unit.records.of_conversation(Scope(row.tenant, (row.writes,)), row.conversation, limit=1):
        raise NotFound(
            f"{row.writes} has no recorded messages of conversation {row.conversation!r}. "
            "`afterturn trace` lists conversations."
        )
    if everything:
        messages = of_records(unit, key, row.writes, since=0)
        return (join_or_schedule if row.kind.takes_turns else schedule)(unit, row, messages).review
    scheduled = schedule_conversation(unit, row)
    return scheduled[0].review if scheduled else None


def _row(unit: Unit, tenant: str, space: str, review_id: str) -> ReviewRow:
    row = unit.reviews.get(tenant, review_id)
    if space != row.space and space not in row.spaces:
        raise NotFound(f"{space} has no review {review_id}. `afterturn review log` lists them.")
    return row


def _undo(unit: Unit, operation: Operation, group: str) -> Undone:
    return Undone(operation.id, tuple(unit.operations.undo(unit.operations.start(operation), target=group)))


def _review(unit: Unit, row: ReviewRow) -> Review:
    if not row.spaces:
        return Review(row)
    scope = Scope(row.tenant, row.spaces)
    steps = unit.operations.steps(scope, group=row.id)
    changes = [_change(unit, list(taken)) for _, taken in groupby(steps, key=lambda step: step.operation.id)]
    return Review(row, tuple(changes))


def _change(unit: Unit, steps: Sequence[Step]) -> ReviewedChange:
    operation = steps[0].operation
    scope = Scope(operation.tenant, (operation.space,))
    found = [step for step in steps if step.before is not None]
    left = [step for step in steps if step.before is None]
    before = unit.memories.get(scope, found[0].entry_id, version=found[0].version) if found else None
    after = unit.memories.get(scope, left[0].entry_id, version=left[0].version) if left else None
    return ReviewedChange(
        operation.verb,
        operation.space,
        operation.id,
        before or _base(unit, scope, after),
        after,
        _state(steps, before, after),
    )


def _base(unit: Unit, scope: Scope, after: Entry | None) -> Entry | None:
    """What a change that waits would change."""
    if after is None or after.version == 1:
        return None
    earlier = [entry for entry in unit.memories.history(scope, after.id) if entry.version < after.version]
    return earlier[-1] if earlier else None


def _state(steps: Sequence[Step], before: Entry | None, after: Entry | None) -> str:
    now = {(entry.id, entry.version): entry.status for entry in (before, after) if entry is not None}
    last = {(step.entry_id, step.version): step for step in steps}
    if all(now[key] is step.after for key, step in last.items()):
        waits = after is not None and after.status in _WAITING
        return "waits" if waits else "stands"
    undone = all(now[key] is (step.before or Status.UNDONE) for key, step in last.items())
    return "undone" if undone else "changed"
