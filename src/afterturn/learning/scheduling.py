"""Schedules reviews of a conversation, in the transaction that records a turn, so that none is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from afterturn.config import Config
from afterturn.learning.rules import may_teach
from afterturn.learning.snapshot import CONTEXT_MAX, merge_snapshots, snapshot_records
from afterturn.ports import Ids, Unit
from afterturn.types import ConversationKey, Job, JobKind, JobState, ReviewKind, ReviewMessage, ReviewRow


class ReviewSchedule(NamedTuple):
    """The reviews that follow a recorded turn. `interval`: a model reviews every that many turns; 0 for never."""

    interval: int = 0
    rules: bool = False
    extracting: bool = False

    @classmethod
    def of(cls, config: Config) -> ReviewSchedule:
        return cls(config.review_interval, config.rules, config.recorder == "extracting")


NO_REVIEWS = ReviewSchedule()


class ScheduledReview(NamedTuple):
    """A review that was scheduled, for its event."""

    review: str
    kind: ReviewKind
    messages: int


def schedule_after_turn(
    unit: Unit, plan: ReviewSchedule, draft: ReviewRow, turn: Sequence[ReviewMessage], ids: Ids
) -> list[ScheduledReview]:
    """`draft` is the row of each review without id and kind; `turn` are the recorded messages of the turn.

    Writes nothing, not even a count, if no review is configured.
    """
    scheduled = []
    if plan.rules and any(message.role == "user" and may_teach(message.text) for message in turn):
        review = replace(draft, id=ids.new(), kind=ReviewKind.RULES)
        scheduled.append(schedule(unit, review, [*_context(unit, review, turn), *turn]))
    if plan.extracting:
        scheduled.append(schedule(unit, replace(draft, id=ids.new(), kind=ReviewKind.EXTRACTION), turn))
    if plan.interval:
        review = replace(draft, id=ids.new(), kind=ReviewKind.INTERVAL)
        if unit.reviews.count_turn(_key(review)) >= plan.interval:
            scheduled.extend(schedule_conversation(unit, review))
    return scheduled


def _context(unit: Unit, review: ReviewRow, turn: Sequence[ReviewMessage]) -> list[ReviewMessage]:
    """The messages just before the turn: corrections usually refer to them."""
    own = {message.source for message in turn}
    limit = len(turn) + CONTEXT_MAX
    before = snapshot_records(unit, _key(review), review.writes, since=0, limit=limit)
    return [replace(message, fresh=False) for message in before if message.source not in own]


def schedule_conversation(unit: Unit, review: ReviewRow) -> list[ScheduledReview]:
    """Schedules a review of the messages that no review has read yet. Empty if there are none."""
    key = _key(review)
    _, since = unit.reviews.unreviewed(key)
    messages = snapshot_records(unit, key, review.writes, since=since)
    owner = key.space if key.space != review.writes else None
    position = unit.records.next_position(key.tenant, review.writes, key.id, owner=owner)
    unit.reviews.scheduled(key, position=position)
    if not any(message.fresh for message in messages):
        return []
    return [join_or_schedule(unit, review, messages)]


def join_or_schedule(unit: Unit, review: ReviewRow, messages: Sequence[ReviewMessage]) -> ScheduledReview:
    """Adds the messages to the review that waits or runs for the conversation, or schedules a new one.

    If that review has read its messages already, the later ones are reviewed by a follow-up.
    """
    waiting = unit.reviews.find_waiting(_key(review))
    if waiting is None:
        return schedule(unit, review, messages)
    merged = merge_snapshots(unit.reviews.messages(waiting.tenant, waiting.id), messages)
    unit.reviews.replace_messages(waiting.tenant, waiting.id, merged)
    job = unit.jobs.find(waiting.tenant, review_job(waiting).id)
    if job is None or job.state is JobState.DEAD:
        # Its job is gone or was given up, so the review needs a new one.
        unit.jobs.add(review_job(waiting)._replace(id=f"review-{review.id}"), coalesce=True)
    return ScheduledReview(waiting.id, waiting.kind, len(merged))


def schedule(unit: Unit, review: ReviewRow, messages: Sequence[ReviewMessage]) -> ScheduledReview:
    """Adds the review, the messages that it reads, and its job."""
    unit.reviews.add(review, messages)
    unit.jobs.add(review_job(review))
    return ScheduledReview(review.id, review.kind, len(messages))


def review_job(review: ReviewRow) -> Job:
    """The job of a review. Its payload names the conversation, so that forgetting the conversation deletes the job."""
    payload = json.dumps({"review": review.id, "conversation": review.conversation})
    kind = JobKind.RULES if review.kind is ReviewKind.RULES else JobKind.REVIEW
    return Job(f"review-{review.id}", kind, review.tenant, review.space, payload, review.created_at)


def _key(review: ReviewRow) -> ConversationKey:
    return ConversationKey(review.tenant, review.space, review.conversation)
