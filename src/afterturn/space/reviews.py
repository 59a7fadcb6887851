"""The reviews of a space: lists them with their changes, undoes them, and runs one on request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from afterturn.errors import ConfigError, Conflict, DeadlineExceeded, ModelUnavailable, NotFound
from afterturn.learning.scheduling import join_or_schedule, review_job, schedule, schedule_conversation
from afterturn.learning.snapshot import snapshot_records
from afterturn.ports import Unit
from afterturn.space.arguments import LIMIT_MAX, SpaceVerbs, check_conversation
from afterturn.space.inbox import WAITING, base_version
from afterturn.types import (
    ConversationKey,
    Entry,
    JobState,
    Operation,
    Origin,
    ReviewKind,
    ReviewRow,
    ReviewState,
    Scope,
    Status,
    Step,
    Tenant,
    Undone,
    Verb,
)
from afterturn.validation import check_id, check_limit, check_name, check_space

if TYPE_CHECKING:
    from afterturn.services import Services


@dataclass(frozen=True, slots=True)
class ReviewedChange:
    """One change by a review: the version before, and the version after, None where there is none.

    `state` says what happened to it since: `active` (unchanged), `waits` for approval, `approved`, `rejected`,
    `undone`, `changed` by somebody else, or `planned` in a dry run.
    """

    verb: Verb
    space: str
    operation: str
    before: Entry | None
    after: Entry | None
    state: str = "active"


@dataclass(frozen=True, slots=True)
class Review:
    """A review with the changes that it made."""

    row: ReviewRow
    changes: tuple[ReviewedChange, ...] = ()


# While another process runs a review, its state is polled until this long after the review's own time limit.
POLL = 0.1
EXTRA_WAIT = 5.0
_DECISIONS = {Verb.APPROVE: "approved", Verb.DELETE: "rejected"}


class ReviewVerbs(SpaceVerbs):
    async def reviews(
        self, *, conversation: str | None = None, limit: int = 50, before: str | None = None
    ) -> Sequence[ReviewRow]:
        """Returns the reviews of this space's conversations, newest first, with their states and counts."""
        count, last = check_limit(limit, LIMIT_MAX), None if before is None else check_id(before, "review id")
        named, tenant = check_conversation(conversation), self._services.tenant

        def work(unit: Unit) -> list[ReviewRow]:
            rows = unit.reviews.page(tenant, self.name, conversation=named, limit=count, before=last)
            return [_with_job_error(unit, row) for row in rows]

        return await self._services.store.read(work, at=Tenant(tenant))

    async def review(self, review_id: str) -> Review:
        """Returns a review with its changes. Raises NotFound if this space has no such review."""
        return await get_review(self._services, self.name, review_id)

    async def undo_review(self, review_id: str) -> Sequence[Undone]:
        """Takes back all changes of a review and the decisions on its proposals: in every space if the conversation
        belongs to this one, else only here.

        Raises NotFound if it changed nothing, and Conflict, with nothing changed, as `undo` does.
        """
        check_id(review_id, "review id")
        services, at = self._services, self._services.clock.now()

        def undo(unit: Unit, one: str, target: str) -> Undone:
            operation = Operation(services.ids.new(), services.tenant, one, Verb.UNDO, Origin.USER, at)
            return Undone(operation.id, tuple(unit.operations.undo(operation, target=target)))

        def work(unit: Unit) -> list[Undone]:
            review = _review(unit, _row(unit, services.tenant, self.name, review_id), self.name)
            if not review.changes:
                raise NotFound(f"Review {review_id} has changed nothing, so there is nothing to undo.")
            if all(change.state == "undone" for change in review.changes):
                raise Conflict(f"Review {review_id} is already undone.")
            undone = []
            for one in dict.fromkeys(change.space for change in review.changes):
                decisions = _decisions(unit, Scope(services.tenant, (one,)), review_id)
                undone += [undo(unit, one, target) for target in (*decisions, review_id)]
            return undone

        # Which spaces it has written to is known only when its row is read.
        undone = await services.store.write(work, at=Tenant(services.tenant))
        services.wake_jobs()
        for one in undone:
            changed_space = one.steps[0].operation.space if one.steps else self.name
            services.events.report_undone(changed_space, review_id, one)
        return undone

    async def run_review(
        self, conversation: str, *, writes: str | None = None, rules: bool = False, everything: bool = False
    ) -> Review | None:
        """Reviews a conversation of this space now and waits for the result. None if there is nothing new to review.

        Uses a model, or rules if `rules` is true. `everything` includes messages that were reviewed before. `writes` is
        the space that the conversation is recorded in, if it is not this one.

        Raises ConfigError if there is no model, NotFound if the conversation has no records, ModelUnavailable if the
        model failed and the review will be tried again, DeadlineExceeded if another process runs it and is not done.
        """
        services = self._services
        if not rules and not services.reviews.has_model:
            raise ConfigError(
                "A review needs a model. Pass `model=` to `open`, or set model_url and model; or let the rules do it."
            )
        row = ReviewRow(
            id=services.ids.new(),
            kind=ReviewKind.RULES if rules else ReviewKind.ASKED,
            tenant=services.tenant,
            space=self.name,
            writes=self.name if writes is None else check_space(writes),
            created_at=services.clock.now(),
            conversation=check_name(conversation, "conversation"),
            reads=(self.name,),
        )
        scheduled = await services.store.write(
            lambda unit: _schedule(unit, row, everything=everything or rules), at=self._scope
        )
        if scheduled is None:
            return None
        services.wake_jobs()
        return await _wait_until_ended(services, self.name, scheduled)


async def get_review(services: Services, space: str, review_id: str) -> Review:
    check_id(review_id, "review id")

    def work(unit: Unit) -> Review:
        return _review(unit, _with_job_error(unit, _row(unit, services.tenant, space, review_id)), space)

    return await services.store.read(work, at=Tenant(services.tenant))


def _with_job_error(unit: Unit, row: ReviewRow) -> ReviewRow:
    """A review that waits for another try has the last error as its reason, such as a model server that is down."""
    job = unit.jobs.find(row.tenant, review_job(row).id) if row.state is ReviewState.WAITING else None
    return replace(row, reason=job.error) if job is not None and job.error else row


async def _wait_until_ended(services: Services, space: str, review_id: str) -> Review:
    try:
        async with asyncio.timeout(2 * services.config.review_timeout + EXTRA_WAIT):
            await services.run_due_jobs()
            review = await get_review(services, space, review_id)
            while review.row.state is ReviewState.WAITING:
                await _check_not_failed(services, review.row)
                # Another process runs it.
                await asyncio.sleep(POLL)
                review = await get_review(services, space, review_id)
    except TimeoutError as error:
        raise DeadlineExceeded(
            f"Review {review_id} has not finished: another process runs it. `afterturn review log` shows its result."
        ) from error
    return review


async def _check_not_failed(services: Services, row: ReviewRow) -> None:
    """Raises ModelUnavailable if it failed and waits for its next attempt, which may be far away."""
    job = await services.store.read(
        lambda unit: unit.jobs.find(row.tenant, review_job(row).id), at=Scope(row.tenant, (row.space,))
    )
    if job is not None and job.state is JobState.READY and job.error:
        raise ModelUnavailable(
            f"Review {row.id} failed and will be tried again ({job.error}). Any process that runs jobs does that, such "
            "as `afterturn worker`.",
            reason="retrying",
        )


def _schedule(unit: Unit, row: ReviewRow, *, everything: bool) -> str | None:
    row = replace(row, forgets=unit.conversations.forgets(row.tenant))
    key = ConversationKey(row.tenant, row.space, row.conversation)
    if not unit.records.of_conversation(Scope(row.tenant, (row.writes,)), row.conversation, limit=1):
        raise NotFound(
            f"{row.writes} has no recorded messages of conversation {row.conversation!r}. "
            "Check its id; `afterturn list --json` shows the conversation of each message."
        )
    if everything:
        messages = snapshot_records(unit, key, row.writes, since=0)
        return (join_or_schedule if row.kind.takes_turns else schedule)(unit, row, messages).review
    scheduled = schedule_conversation(unit, row)
    return scheduled[0].review if scheduled else None


def _row(unit: Unit, tenant: str, space: str, review_id: str) -> ReviewRow:
    """The message is the same whether another space has it or none, so that nobody learns of others' reviews."""
    try:
        row = unit.reviews.get(tenant, review_id)
    except NotFound:
        row = None
    if row is None or (space != row.space and space not in row.spaces):
        raise NotFound(f"{space} has no review {review_id}. `afterturn review log` lists them.")
    return row


def _decisions(unit: Unit, scope: Scope, review_id: str) -> list[str]:
    """The operations that decided on its proposals, latest first."""
    waited = [step for step in unit.operations.steps(scope, group=review_id) if step.after in WAITING]
    last = [_last(unit, scope, step).operation for step in waited]
    # A deletion that the review itself proposed is a delete too.
    return sorted((one.id for one in last if one.verb in _DECISIONS and one.group != review_id), reverse=True)


def _last(unit: Unit, scope: Scope, step: Step) -> Step:
    """The last step on the same version."""
    taken = unit.operations.steps(scope, entry_id=step.entry_id)
    return [one for one in taken if one.version == step.version][-1]


def _review(unit: Unit, row: ReviewRow, space: str) -> Review:
    """All changes for the space that owns the conversation; for another space only the changes there."""
    spaces = row.spaces if space == row.space else (space,)
    if not spaces:
        return Review(row)
    scope = Scope(row.tenant, spaces)
    steps = unit.operations.steps(scope, group=row.id)
    changes = [_change(unit, list(taken)) for _, taken in groupby(steps, key=lambda step: step.operation.id)]
    return Review(row, tuple(changes))


def _change(unit: Unit, steps: Sequence[Step]) -> ReviewedChange:
    """One operation may change several versions: a delete also removes the memory's proposals."""
    operation = steps[0].operation
    scope = Scope(operation.tenant, (operation.space,))
    versions = {(step.entry_id, step.version): step for step in steps}
    entries = {key: unit.memories.get(scope, key[0], version=key[1]) for key in versions}
    found = [entries[key] for key, step in versions.items() if step.before is Status.ACTIVE]
    left = [entries[key] for key, step in versions.items() if step.before is None]
    before, after = found[0] if found else None, left[0] if left else None
    return ReviewedChange(
        operation.verb,
        operation.space,
        operation.id,
        before or _base(unit, scope, after),
        after,
        _state([(step, entries[key].status, _last(unit, scope, step)) for key, step in versions.items()]),
    )


def _base(unit: Unit, scope: Scope, after: Entry | None) -> Entry | None:
    """The version that a proposal would change."""
    if after is None or after.version == 1:
        return None
    number = base_version(unit.operations.steps(scope, entry_id=after.id), after.version)
    return None if number is None else unit.memories.get(scope, after.id, version=number)


def _state(moved: Sequence[tuple[Step, Status, Step]]) -> str:
    """`moved` has, for each version, the review's last step, its status now, and the last step of all."""
    if all(now is step.after for step, now, _ in moved):
        return "waits" if any(now in WAITING for _, now, _ in moved) else "active"
    if all(now is (step.before or Status.UNDONE) for step, now, _ in moved):
        return "undone"
    decided = {last.operation.verb for step, _, last in moved if step.after in WAITING and last != step}
    return _DECISIONS[decided.pop()] if len(decided) == 1 and decided <= _DECISIONS.keys() else "changed"
