"""When a conversation is reviewed (V1, V11): decided in the transaction that records a turn, so nothing gets lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from afterturn.config import Config
from afterturn.learning.rules import may_teach
from afterturn.learning.snapshot import CONTEXT_MAX, joined, of_records
from afterturn.ports import Ids, Unit
from afterturn.types import ConversationKey, Job, JobKind, JobState, ReviewKind, ReviewMessage, ReviewRow


@dataclass(frozen=True, slots=True)
class ReviewSchedule:
    """What is to follow a recorded turn."""

    interval: int = 0
    rules: bool = False
    extracting: bool = False

    @classmethod
    def of(cls, config: Config) -> ReviewSchedule:
        return cls(config.review_interval, config.rules, config.recorder == "extracting")


NOTHING_FOLLOWS = ReviewSchedule()


@dataclass(frozen=True, slots=True)
class Scheduled:
    """For the event that tells of it."""

    review: str
    kind: ReviewKind
    messages: int


def after_turn(
    unit: Unit, plan: ReviewSchedule, draft: ReviewRow, turn: Sequence[ReviewMessage], ids: Ids
) -> list[Scheduled]:
    """`draft` says where and when; `turn` are the recorded messages of the turn. With nothing to do, nothing is
    written: not even a count (V1)."""
    scheduled = []
    if plan.rules and _may_teach(turn):
        review = replace(draft, id=ids.new(), kind=ReviewKind.RULES)
        scheduled.append(schedule(unit, review, [*_before(unit, review, turn), *turn]))
    if plan.extracting:
        scheduled.append(schedule(unit, replace(draft, id=ids.new(), kind=ReviewKind.EXTRACTION), turn))
    if plan.interval:
        scheduled.extend(_every_nth(unit, plan.interval, replace(draft, id=ids.new(), kind=ReviewKind.INTERVAL)))
    return scheduled


def _may_teach(turn: Sequence[ReviewMessage]) -> bool:
    # Loaded with the first turn that is recorded: who only recalls goes without.
    return any(message.role == "user" and may_teach(message.text) for message in turn)


def _before(unit: Unit, review: ReviewRow, turn: Sequence[ReviewMessage]) -> list[ReviewMessage]:
    """What a correction is about was mostly said just before the turn."""
    own = {message.source for message in turn}
    limit = len(turn) + CONTEXT_MAX
    said = of_records(unit, _key(review), review.writes, since=0, limit=limit)
    return [replace(message, fresh=False) for message in said if message.source not in own]


def _every_nth(unit: Unit, interval: int, review: ReviewRow) -> list[Scheduled]:
    key = _key(review)
    if unit.reviews.count_turn(key) < interval:
        return []
    return schedule_conversation(unit, review)


def schedule_conversation(unit: Unit, review: ReviewRow) -> list[Scheduled]:
    """Of all that no review has read yet. Nothing when there is nothing new."""
    key = _key(review)
    _, since = unit.reviews.unreviewed(key)
    messages = of_records(unit, key, review.writes, since=since)
    owner = key.space if key.space != review.writes else None
    position = unit.records.next_position(key.tenant, review.writes, key.id, owner=owner)
    unit.reviews.scheduled(key, position=position)
    if not any(message.fresh for message in messages):
        return []
    return [join_or_schedule(unit, review, messages)]


def join_or_schedule(unit: Unit, review: ReviewRow, messages: Sequence[ReviewMessage]) -> Scheduled:
    """One review waits or runs for a conversation; a later trigger joins it, and what it had read by then is followed
    by another (`Reviewing`)."""
    waiting = unit.reviews.find_waiting(_key(review))
    if waiting is None:
        return schedule(unit, review, messages)
    together = joined(unit.reviews.messages(waiting.tenant, waiting.id), messages)
    unit.reviews.replace_messages(waiting.tenant, waiting.id, together)
    job = unit.jobs.find(waiting.tenant, job_of(waiting).id)
    if job is None or job.state is JobState.DEAD:
        # Nobody would ever come to it.
        unit.jobs.add(replace(job_of(waiting), id=f"review-{review.id}"), coalesce=True)
    return Scheduled(waiting.id, waiting.kind, len(together))


def schedule(unit: Unit, review: ReviewRow, messages: Sequence[ReviewMessage]) -> Scheduled:
    """The review and its job, with the messages it is to read."""
    unit.reviews.add(review, messages)
    unit.jobs.add(job_of(review))
    return Scheduled(review.id, review.kind, len(messages))


def job_of(review: ReviewRow) -> Job:
    """Its payload names the conversation, so that forgetting that one takes the job along."""
    payload = json.dumps({"review": review.id, "conversation": review.conversation})
    kind = JobKind.RULES if review.kind is ReviewKind.RULES else JobKind.REVIEW
    return Job(f"review-{review.id}", kind, review.tenant, review.space, payload, review.created_at)


def _key(review: ReviewRow) -> ConversationKey:
    return ConversationKey(review.tenant, review.space, review.conversation)
