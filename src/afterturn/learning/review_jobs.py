"""What a review is shown of what is known already, so that it updates instead of repeating."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
from afterturn.guard.output_filter import OutputFilter
from afterturn.learning.reviewer import Reviewer
from afterturn.learning.rule_reviewer import changes_of
from afterturn.learning.scheduling import schedule
from afterturn.learning.snapshot import unread
from afterturn.learning.staging import Staging, StagingOutcome
from afterturn.models.meter import MeteredModel
from afterturn.ports import ChatModel, Unit
from afterturn.runtime.jobs import ATTEMPTS_MAX, LEASE, Commit, Handler, JobRunner
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
)

if TYPE_CHECKING:
    from afterturn.services import Services

KNOWN_MAX = 40
KNOWN_BYTES_MAX = 12_288
_NEWEST = 60
_MATCHES = 120
_TERMS = 64
_STATEMENTS = Filter(kind=Kind.STATEMENT)


def find_known(
    unit: Unit, review: ReviewRow, messages: Sequence[ReviewMessage], *, now: float, scanning: bool
) -> list[Entry]:
    """Memories of the spaces that the conversation may change: those that share most words with what is new first.

    With `scanning`, as any model may see them (G3): without secrets that were not known as such when they were written.
    """
    scope = Scope(review.tenant, tuple(dict.fromkeys((review.writes, review.space))))
    said = _terms(messages)
    found = {entry.ref: entry for entry in unit.memories.page(scope, _STATEMENTS, limit=_NEWEST)}
    if said:
        query = LaneQuery(scope, now, lane=Lane.LONG_TERM)
        keys = [candidate.key for candidate in unit.index.matches(query, said[:_TERMS], limit=_MATCHES)]
        found.update((match.entry.ref, match.entry) for match in unit.index.resolve(query, keys))
    spoken = frozenset(said)
    held = [entry for entry in found.values() if entry.holds(now)]
    held.sort(key=lambda entry: (len(spoken.intersection(terms(entry.text))), entry.recorded_at), reverse=True)
    return list(_within(_screened(held, OutputFilter(scanning=scanning))))


def _terms(messages: Sequence[ReviewMessage]) -> list[str]:
    """The rarer, that is longer, words first; what users said before what tools answered."""
    told = [message for message in messages if message.fresh]
    ordered = sorted(told, key=lambda message: message.role != "user")
    found = dict.fromkeys(term for message in ordered for term in terms(message.text)[:_TERMS])
    return sorted(found, key=len, reverse=True)


def _screened(entries: Iterable[Entry], screen: OutputFilter) -> Iterator[Entry]:
    """One by one: no more are looked at than there is room for."""
    for entry in entries:
        text = screen.shown(entry)
        if text is not None:
            yield entry if text == entry.text else replace(entry, text=text)


def _within(entries: Iterable[Entry]) -> Iterator[Entry]:
    room = KNOWN_BYTES_MAX
    for at, entry in enumerate(entries):
        room -= len(entry.text.encode())
        if at >= KNOWN_MAX or room < 0:
            return
        yield entry


# Runs reviews as jobs: reads the snapshot, asks a model or the rules, and ends with one transaction, or with none.

logger = logging.getLogger("afterturn")

# A live turn comes first (V2), but there is always one on a busy server.
CALM_WITHIN = 2.0
CALM_POLL = 0.05


@dataclass(frozen=True, slots=True)
class _ReviewInput:
    review: ReviewRow
    messages: Sequence[ReviewMessage]
    known: Sequence[Entry]


class ReviewJobs:
    """Handlers of review jobs. A review is at most one transaction; one that timed out is not tried again (V4)."""

    def __init__(self, services: Services, model: ChatModel | None) -> None:
        self._services = services
        self._reviewer = model

    async def review(self, job: Job) -> Commit:
        """By a model. Raises what makes it worth another try: ModelError, StoreError."""
        material = await self._material(job)
        if material is None:
            return _nothing
        if not any(message.fresh for message in material.messages):
            # All of it was forgotten, or has had its time: no model is asked about nothing.
            return self._ending(material, self._staging(material), None, ReviewState.FORGOTTEN, reason="forgotten")
        await self._calm()
        model = self._model(material.review)
        staging = self._staging(material)
        try:
            async with asyncio.timeout(self._services.config.review_timeout):
                why = await Reviewer(model, staging, material.known, self._services.config.review_entries_max).run()
        except ModelPaused:
            raise
        except Exception as error:  # the boundary of one review: whatever a host's model raises, the next one is run
            if _is_worth_a_retry(error) and job.attempts < ATTEMPTS_MAX:
                raise
            state = ReviewState.TIMED_OUT if isinstance(error, TimeoutError) else ReviewState.FAILED
            expected = isinstance(error, AfterturnError | TimeoutError)
            reason = "it took longer than review_timeout" if isinstance(error, TimeoutError) else str(error)
            logger.warning("review %s failed: %s", material.review.id, reason, exc_info=None if expected else error)
            return self._ending(material, self._staging(material), model, state, reason=_reason(error))
        return self._ending(material, staging, model, ReviewState.SAVED, reason=why)

    async def apply_rules(self, job: Job) -> Commit:
        """Without a model: what the user said outright (V11)."""
        material = await self._material(job)
        if material is None:
            return _nothing
        staging = self._staging(material)
        for change in changes_of(material.review, material.messages, material.known):
            await staging.stage(change)
        return self._ending(material, staging, None, ReviewState.SAVED, reason="")

    async def _material(self, job: Job) -> _ReviewInput | None:
        """None when the review was forgotten, or has ended."""
        review_id = json.loads(job.payload)["review"]

        def work(unit: Unit) -> _ReviewInput | None:
            review = _find_waiting(unit, job.tenant, review_id)
            if review is None:
                return None
            messages = unit.reviews.messages(job.tenant, review_id)
            now, scanning = self._services.clock.now(), self._services.config.scanning
            return _ReviewInput(review, messages, find_known(unit, review, messages, now=now, scanning=scanning))

        return await self._services.store.read(work)

    def _staging(self, material: _ReviewInput) -> Staging:
        return Staging(self._services, material.review, material.messages, material.known)

    def _model(self, review: ReviewRow) -> MeteredModel:
        assert self._reviewer is not None
        purpose = Purpose.EXTRACTION if review.kind is ReviewKind.EXTRACTION else Purpose.REVIEW
        return self._services.meter.of(self._reviewer, purpose, review.tenant, review.space)

    async def _calm(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CALM_WITHIN
        while self._services.has_open_turn and loop.time() < deadline:  # noqa: ASYNC110 turns end on other threads too
            await asyncio.sleep(CALM_POLL)

    def _ending(
        self, material: _ReviewInput, staging: Staging, model: MeteredModel | None, state: ReviewState, *, reason: str
    ) -> Commit:
        ended = replace(
            material.review,
            state=state,
            ended_at=self._services.clock.now(),
            calls=model.calls if model else 0,
            tokens=model.tokens if model else 0,
            reason=reason,
        )
        follow_up = self._services.ids.new()
        return lambda unit: self._end(unit, ended, material, staging, follow_up)

    def _end(
        self, unit: Unit, ended: ReviewRow, material: _ReviewInput, staging: Staging, follow_up: str
    ) -> Callable[[], None] | None:
        if _find_waiting(unit, ended.tenant, ended.id) is None:
            return None
        messages = unit.reviews.messages(ended.tenant, ended.id)
        left = unread(messages, material.messages)
        if _is_forgotten(unit, ended, material.messages):
            ended = replace(ended, state=ReviewState.FORGOTTEN, reason="forgotten")
        elif any(message not in messages for message in material.messages):
            # The model has read what is gone now, and may have put it into other words: the rest is read anew.
            ended, left = replace(ended, state=ReviewState.FORGOTTEN, reason="forgotten"), messages
        outcome = staging.commit(unit) if ended.state is ReviewState.SAVED else StagingOutcome()
        ended = _with(ended, outcome)
        unit.reviews.end(ended)
        if ended.state in (ReviewState.FAILED, ReviewState.TIMED_OUT) and ended.kind.takes_turns:
            _reopen(unit, ended, material.messages)
        if left:
            forgets = unit.operations.forgets(ended.tenant, ended.space)
            at = ended.ended_at or ended.created_at
            schedule(unit, replace(material.review, id=follow_up, created_at=at, forgets=forgets), left)
        return lambda: self._tell(ended)

    def _tell(self, review: ReviewRow) -> None:
        self._services.wake_jobs()
        events = self._services.events.of(review.tenant)
        where = {"space": review.space, "conversation": review.conversation, "turn": review.turn}
        events.emit(
            "review_ended",
            **where,
            review=review.id,
            kind=review.kind.value,
            state=review.state.value,
            written=review.written,
            proposed=review.proposed,
            refused=len(review.refusals),
            reason=review.reason,
        )
        if review.written and self._services.config.review_verbose:
            memories = "memory" if review.written == 1 else "memories"
            text = f"Saved {review.written} {memories} from your last conversation."
            events.emit("memories_saved", **where, review=review.id, text=text, memories=review.written)


def _nothing(unit: Unit) -> None:
    """There is nothing to write."""


def _reopen(unit: Unit, review: ReviewRow, messages: Sequence[ReviewMessage]) -> None:
    """It is not tried again, but what it should have learned is not lost: the next one reads it."""
    scope = Scope(review.tenant, (review.writes,))
    fresh = [message.source for message in messages if message.fresh and message.source is not None]
    positions = [unit.memories.get(scope, source).position for source in fresh[:1]]
    if positions and positions[0] is not None:
        key = ConversationKey(review.tenant, review.space, review.conversation)
        unit.reviews.reopen(key, position=positions[0])


def _find_waiting(unit: Unit, tenant: str, review_id: str) -> ReviewRow | None:
    """None when it was forgotten, or has ended."""
    try:
        review = unit.reviews.get(tenant, review_id)
    except NotFound:
        return None
    return review if review.state is ReviewState.WAITING else None


def _is_forgotten(unit: Unit, review: ReviewRow, messages: Sequence[ReviewMessage]) -> bool:
    speakers = {message.speaker for message in messages}
    return any(
        unit.operations.is_forgotten(
            review.tenant, space, conversation=review.conversation, speakers=speakers, since=review.forgets
        )
        for space in {review.space, review.writes}
    )


def _with(ended: ReviewRow, outcome: StagingOutcome) -> ReviewRow:
    """A review that saved nothing says so, and why."""
    state = ended.state
    if state is ReviewState.SAVED and not outcome.written + outcome.proposed:
        state = ReviewState.REFUSED if outcome.refusals else ReviewState.NOTHING
    return replace(
        ended,
        state=state,
        written=outcome.written,
        proposed=outcome.proposed,
        refusals=outcome.refusals,
        spaces=outcome.spaces,
    )


def _is_worth_a_retry(error: Exception) -> bool:
    if isinstance(error, StoreError | DeadlineExceeded | MemoryClosed):
        return True
    return isinstance(error, ModelError) and not isinstance(error, ModelRefused | ModelAnswerInvalid)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    return error.reason if isinstance(error, ModelError) else type(error).__name__


# The jobs that learn. Rules are quick and run with the other jobs; what asks a model has a runner of its own.


class ReviewRunner:
    """Lives on memory's loop. A model that hangs holds up reviews, and nothing else (V2)."""

    def __init__(self, services: Services, model: ChatModel | None, also: Mapping[str, Handler]) -> None:
        """`also` are other jobs that take their time. Without a `model`, reviews are left to other processes."""
        self.has_model = model is not None
        self._reviewing = ReviewJobs(services, model)
        lease = max(LEASE, 2 * services.config.review_timeout)
        handlers: dict[str, Handler] = {**also, **({JobKind.REVIEW: self._reviewing.review} if self.has_model else {})}
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
        """For the runner of the other jobs."""
        return {JobKind.RULES: self._reviewing.apply_rules}
