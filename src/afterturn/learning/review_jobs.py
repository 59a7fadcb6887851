"""Runs reviews as jobs: reads the snapshot, asks a model or the rules, and writes the result in one transaction."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, NamedTuple

from afterturn.errors import (
    AfterturnError,
    DeadlineExceeded,
    MemoryClosed,
    ModelAnswerInvalid,
    ModelError,
    ModelPaused,
    ModelRefused,
    NotFound,
    StoreError,
)
from afterturn.events import changes_in
from afterturn.guard.output_filter import OutputFilter
from afterturn.guard.trust import TRUST_MIN
from afterturn.learning.scheduling import schedule
from afterturn.learning.snapshot import ReviewView, unread
from afterturn.log import logger
from afterturn.models.meter import MeteredModel
from afterturn.ports import ChatModel, Unit
from afterturn.runtime.jobs import ATTEMPTS_MAX, LEASE, Commit, Handler, JobRunner
from afterturn.scanners.detection import Scanning
from afterturn.text import terms
from afterturn.types import (
    ConversationKey,
    Entry,
    Filter,
    Job,
    JobKind,
    Kind,
    Lane,
    LaneQuery,
    Purpose,
    ReviewKind,
    ReviewMessage,
    ReviewRow,
    ReviewState,
    Scope,
    Step,
    Tenant,
)

if TYPE_CHECKING:
    from afterturn.learning.changes import Change
    from afterturn.learning.staging import Staging
    from afterturn.services import Services


# A review waits until no turn is open, but not for long: on a busy server there is always one.
IDLE_WITHIN = 2.0
IDLE_POLL = 0.05
RELATED_MAX = 40
RELATED_BYTES_MAX = 12_288
_NEWEST = 60
_MATCHES = 120
_TERMS = 64
_STATEMENTS = Filter(kind=Kind.STATEMENT)


class _ReviewInput(NamedTuple):
    review: ReviewRow
    messages: Sequence[ReviewMessage]
    related: Sequence[Entry]


class ReviewJobs:
    """The handlers of review jobs. A review writes once, at its end. One that timed out is not tried again."""

    def __init__(self, services: Services, model: ChatModel | None) -> None:
        self._services = services
        self._model = model

    async def review(self, job: Job) -> Commit:
        """Reviews by a model. Raises ModelError or StoreError if the job should be tried again."""
        review_input = await self._read_input(job)
        if review_input is None:
            return Commit()
        if not any(message.fresh for message in review_input.messages):
            # All messages were forgotten or have expired.
            return self._make_commit(
                review_input, self._staging(review_input), None, ReviewState.FORGOTTEN, reason="forgotten"
            )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + IDLE_WITHIN
        while self._services.has_open_turn and loop.time() < deadline:  # noqa: ASYNC110 turns end on other threads too
            await asyncio.sleep(IDLE_POLL)
        assert self._model is not None
        purpose = Purpose.EXTRACTION if review_input.review.kind is ReviewKind.EXTRACTION else Purpose.REVIEW
        model = self._services.meter.of(self._model, purpose, review_input.review.tenant, review_input.review.space)
        from afterturn.learning.reviewer import ModelReviewer

        staging = self._staging(review_input)
        try:
            async with asyncio.timeout(self._services.config.review_timeout):
                why = await ModelReviewer(model, staging, self._services.config.review_entries_max).run()
        except ModelPaused:
            raise
        except Exception as error:  # the boundary of one review: whatever a host's model raises, the next one is run
            is_lasting = isinstance(error, ModelRefused | ModelAnswerInvalid)
            is_passing = isinstance(error, StoreError | DeadlineExceeded | MemoryClosed | ModelError)
            if is_passing and not is_lasting and job.attempts < ATTEMPTS_MAX:
                raise
            state = ReviewState.TIMED_OUT if isinstance(error, TimeoutError) else ReviewState.FAILED
            expected = isinstance(error, AfterturnError | TimeoutError)
            reason = "it took longer than review_timeout" if isinstance(error, TimeoutError) else str(error)
            logger.warning("review %s failed: %s", review_input.review.id, reason, exc_info=None if expected else error)
            return self._make_commit(review_input, self._staging(review_input), model, state, reason=_reason(error))
        return self._make_commit(review_input, staging, model, ReviewState.SAVED, reason=why)

    async def apply_rules(self, job: Job) -> Commit:
        """Reviews by rules, without a model."""
        review_input = await self._read_input(job)
        if review_input is None:
            return Commit()
        from afterturn.learning.reviewer import find_rule_changes

        staging = self._staging(review_input)

        def find_changes(unit: Unit) -> list[tuple[ReviewView, list[Change]]]:
            review, related = review_input.review, review_input.related
            reports = ([entry for entry in related if entry not in view.related] for view in staging.views)
            return [
                (view, list(find_rule_changes(review, view.messages, view.related, others)))
                for view, others in zip(staging.views, reports, strict=True)
            ]

        found: set[str] = set()
        # On a reader's thread: the first review compiles the patterns, which takes 0.1 s.
        for view, changes in await self._services.store.read(find_changes, at=Tenant(job.tenant)):
            staging.view = view
            for change in changes:
                # Corrections of an answer in a tainted turn are found only in the second view.
                if (change.text or change.entry_id) not in found:
                    found.add(change.text or change.entry_id)
                    await staging.stage(change)
        return self._make_commit(review_input, staging, None, ReviewState.SAVED, reason="")

    async def _read_input(self, job: Job) -> _ReviewInput | None:
        """None if the review was forgotten or has ended."""
        review_id = json.loads(job.payload)["review"]

        def work(unit: Unit) -> _ReviewInput | None:
            # Loads the rules on this thread: memory's loop does not wait for that.
            from afterturn.learning import reviewer  # noqa: F401

            review = _find_waiting(unit, job.tenant, review_id)
            if review is None:
                return None
            messages = unit.reviews.messages(job.tenant, review_id)
            now, scanning = self._services.clock.now(), self._services.config.scan_policy
            return _ReviewInput(review, messages, find_related(unit, review, messages, now=now, scanning=scanning))

        return await self._services.store.read(work, at=Tenant(job.tenant))

    def _staging(self, review_input: _ReviewInput) -> Staging:
        from afterturn.learning.staging import Staging

        return Staging(self._services, review_input.review, review_input.messages, review_input.related)

    def _make_commit(
        self,
        review_input: _ReviewInput,
        staging: Staging,
        model: MeteredModel | None,
        state: ReviewState,
        *,
        reason: str,
    ) -> Commit:
        ended = replace(
            review_input.review,
            state=state,
            ended_at=self._services.clock.now(),
            calls=model.calls if model else 0,
            tokens=model.tokens if model else 0,
            reason=reason,
        )
        follow_up = self._services.ids.new()
        return Commit(lambda unit: self._end(unit, ended, review_input, staging, follow_up), staging.spaces)

    def _end(
        self, unit: Unit, ended: ReviewRow, review_input: _ReviewInput, staging: Staging, follow_up: str
    ) -> Callable[[], None] | None:
        if _find_waiting(unit, ended.tenant, ended.id) is None:
            return None
        from afterturn.learning.staging import StagingOutcome

        messages = unit.reviews.messages(ended.tenant, ended.id)
        unread_messages = unread(messages, review_input.messages)
        if _is_forgotten(unit, ended, review_input.messages):
            ended = replace(ended, state=ReviewState.FORGOTTEN, reason="forgotten")
        elif any(message not in messages for message in review_input.messages):
            # The model read messages that are gone now and may have paraphrased them, so the others are reviewed again.
            ended, unread_messages = replace(ended, state=ReviewState.FORGOTTEN, reason="forgotten"), messages
        outcome = staging.commit(unit) if ended.state is ReviewState.SAVED else StagingOutcome()
        if ended.state is ReviewState.SAVED and not outcome.written + outcome.proposed:
            ended = replace(ended, state=ReviewState.REFUSED if outcome.refusals else ReviewState.NOTHING)
        ended = replace(ended, **asdict(outcome))
        unit.reviews.end(ended)
        if ended.state in (ReviewState.FAILED, ReviewState.TIMED_OUT) and ended.kind.takes_turns:
            # Its messages are left to the next review.
            sources = [one.source for one in review_input.messages if one.fresh and one.source is not None]
            scope = Scope(ended.tenant, (ended.writes,))
            position = unit.memories.get(scope, sources[0]).position if sources else None
            if position is not None:
                key = ConversationKey(ended.tenant, ended.space, ended.conversation)
                unit.reviews.reopen(key, position=position)
        if unread_messages:
            forgets = unit.conversations.forgets(ended.tenant)
            at = ended.ended_at or ended.created_at
            schedule(unit, replace(review_input.review, id=follow_up, created_at=at, forgets=forgets), unread_messages)
        steps = steps_of_review(unit, ended)
        return lambda: self._report(ended, steps)

    def _report(self, review: ReviewRow, steps: Sequence[Step]) -> None:
        report_review_ended(self._services, review, steps)
        counts = Counter(change.event for change in changes_in(steps))
        saved, changed, removed = counts["memory_added"], counts["memory_updated"], counts["memory_deleted"]
        if saved + changed + removed and self._services.config.review_verbose:
            self._services.events.of(review.tenant).emit(
                "memories_saved",
                space=review.space,
                conversation=review.conversation,
                turn=review.turn,
                review=review.id,
                text=describe_changes(saved, changed, removed),
                saved=saved,
                changed=changed,
                removed=removed,
            )


def describe_changes(saved: int, changed: int, removed: int) -> str:
    """One sentence for the user, such as "Saved 2 memories from your last conversation and changed 1."."""
    counts = {"saved": saved, "changed": changed, "removed": removed}
    (first, count), *others = [(verb, count) for verb, count in counts.items() if count]
    noun = "memory" if count == 1 else "memories"
    parts = [f"{first.capitalize()} {count} {noun} {'from' if saved else 'after'} your last conversation"]
    parts += [f"{verb} {count}" for verb, count in others]
    return f"{' and '.join(part for part in (', '.join(parts[:-1]), parts[-1]) if part)}."


def steps_of_review(unit: Unit, review: ReviewRow) -> list[Step]:
    """The steps of everything that it wrote, in all spaces."""
    return unit.operations.steps(Scope(review.tenant, review.spaces), group=review.id) if review.spaces else []


def report_review_ended(services: Services, review: ReviewRow, steps: Sequence[Step]) -> None:
    """Wakes the jobs that follow its writes and emits its events."""
    services.wake_jobs()
    services.events.of(review.tenant).report_changes(steps)
    services.events.of(review.tenant).emit(
        "review_ended",
        space=review.space,
        conversation=review.conversation,
        turn=review.turn,
        review=review.id,
        kind=review.kind.value,
        state=review.state.value,
        written=review.written,
        proposed=review.proposed,
        refused=len(review.refusals),
        reason=review.reason,
    )


def _find_waiting(unit: Unit, tenant: str, review_id: str) -> ReviewRow | None:
    """None if it was forgotten or has ended."""
    try:
        review = unit.reviews.get(tenant, review_id)
    except NotFound:
        return None
    return review if review.state is ReviewState.WAITING else None


def _is_forgotten(unit: Unit, review: ReviewRow, messages: Sequence[ReviewMessage]) -> bool:
    speakers = {message.speaker for message in messages}
    return any(
        unit.conversations.is_forgotten(
            review.tenant, space, conversation=review.conversation, speakers=speakers, since=review.forgets
        )
        for space in review.changeable
    )


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    return error.reason if isinstance(error, ModelError) else type(error).__name__


class ReviewRunner:
    """Runs the jobs that ask a model, on memory's loop. They have their own runner, so that a model that hangs delays
    only reviews. Rules are quick and run with the other jobs."""

    def __init__(self, services: Services, model: ChatModel | None, also: Mapping[str, Handler]) -> None:
        """`also` are handlers of other slow jobs. Without a `model`, other processes run the reviews."""
        self.has_model = model is not None
        self._handlers = ReviewJobs(services, model)
        lease = max(LEASE, 2 * services.config.review_timeout)
        handlers: dict[str, Handler] = {**also, **({JobKind.REVIEW: self._handlers.review} if self.has_model else {})}
        self.runner = JobRunner(
            services.store,
            services.clock,
            services.events,
            services.new_owner(),
            handlers,
            lease=lease,
            concurrent=True,
        )

    @property
    def quick(self) -> dict[str, Handler]:
        """The handlers for the runner of the other jobs."""
        return {JobKind.RULES: self._handlers.apply_rules}


# Memories that a review is shown, so that it updates them instead of repeating them.


def find_related(
    unit: Unit, review: ReviewRow, messages: Sequence[ReviewMessage], *, now: float, scanning: Scanning
) -> list[Entry]:
    """Memories in the spaces that the conversation may change; those that share most words with new messages first.

    With `scanning`, secrets are removed again: the patterns may have improved since the memory was written.
    """
    scope = Scope(review.tenant, review.changeable)
    spoken = _terms(messages)
    found = {entry.ref: entry for entry in unit.memories.page(scope, _STATEMENTS, limit=_NEWEST)}
    if spoken:
        query = LaneQuery(scope, now, lane=Lane.LONG_TERM)
        keys = [candidate.key for candidate in unit.index.matches(query, spoken[:_TERMS], limit=_MATCHES)]
        found.update((entry.ref, entry) for entry in unit.index.resolve(query, keys).values())
    spoken_terms = frozenset(spoken)
    valid = [entry for entry in found.values() if entry.holds(now)]
    # Trusted memories first: reports must not take their place.
    valid.sort(
        key=lambda entry: (
            entry.trust >= TRUST_MIN,
            len(spoken_terms.intersection(terms(entry.text))),
            entry.recorded_at,
        ),
        reverse=True,
    )
    screen, related, room = OutputFilter(scanning=scanning), list[Entry](), RELATED_BYTES_MAX
    # No more entries are scanned than fit.
    for entry in valid:
        text = screen.shown(entry)
        if text is not None:
            room -= len(text.encode())
            if len(related) >= RELATED_MAX or room < 0:
                break
            related.append(entry if text == entry.text else replace(entry, text=text))
    return related


def _terms(messages: Sequence[ReviewMessage]) -> list[str]:
    """The terms of new messages, longer (usually rarer) ones first, and users' before tools'."""
    fresh = [message for message in messages if message.fresh]
    ordered = sorted(fresh, key=lambda message: message.role != "user")
    found = dict.fromkeys(term for message in ordered for term in terms(message.text)[:_TERMS])
    return sorted(found, key=len, reverse=True)
