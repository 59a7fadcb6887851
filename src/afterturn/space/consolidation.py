"""Consolidation of a space: merges duplicates, resolves contradictions, hides unused memories.

It plans on a snapshot and writes the steps as one group for `undo`. In doubt it does nothing: two memories with their
dates do no harm.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from afterturn.errors import Conflict, InvalidInput, NotAllowed, NotFound
from afterturn.guard.trust import check_change, is_privileged, lineage_of, waits
from afterturn.learning.evidence import find_losses
from afterturn.learning.review_jobs import report_review_ended, steps_of_review
from afterturn.learning.single_value import contradict, single_value
from afterturn.ports import Unit
from afterturn.recall.duplicates import collapse
from afterturn.recall.what_holds import find_replaced
from afterturn.runtime.jobs import Commit
from afterturn.space.reviews import Review, ReviewedChange, get_review
from afterturn.standing.lineage import StandingLineage
from afterturn.types import (
    SOURCES_MAX,
    Draft,
    Entry,
    Filter,
    Hit,
    Job,
    Kind,
    Lane,
    Operation,
    Origin,
    ReviewKind,
    ReviewRow,
    ReviewState,
    Scope,
    Status,
    Step,
    Verb,
    Verdict,
)

if TYPE_CHECKING:
    from afterturn.services import Services

STEPS_MAX = 50
# A consolidation of at least this many statements asks a person if it would hide a larger share of them.
ENTRIES_MANY, HIDDEN_SHARE_MAX = 20, 1 / 3
DAY = 86_400.0
_ACTOR = Origin.BACKGROUND_REVIEW
TRUST_MIN = _ACTOR.trust


class ConsolidationReason(StrEnum):
    RESTATED = "restated"
    OUTDATED = "outdated"
    UNUSED = "unused"


class ConsolidationStep(NamedTuple):
    """Hides `entry` because of `by`, which stays. `merged` are the new sources of `by`; None if they do not change.

    `needs_approval`: a person should decide, because `entry` is trusted more, or standing and `by` was not typed.
    """

    why: ConsolidationReason
    entry: Entry
    by: Entry | None = None
    merged: tuple[str, ...] | None = None
    needs_approval: bool = False


class RecallUsage(NamedTuple):
    """When memories were last shown, by `Entry.ref`. Those not shown for `fade_days` are hidden; None for never."""

    shown: Mapping[str, float]
    now: float
    fade_days: float | None = None


def plan(
    entries: Sequence[Entry], restated: Iterable[tuple[Entry, Entry]], usage: RecallUsage
) -> list[ConsolidationStep]:
    """The steps, at most `STEPS_MAX`. `restated` are pairs: a duplicate, and the memory that says the same.

    An entry is hidden at most once, and never if another one is hidden because of it. Pinned memories stay.
    """
    found: list[ConsolidationStep] = []
    gone: set[str] = set()
    kept: set[str] = set()
    for step in _steps(entries, restated, usage):
        names = {step.by.id} if step.by is not None else set()
        if step.entry.pinned or step.entry.firm or step.entry.id in gone | kept or names & gone:
            continue
        found.append(step)
        gone.add(step.entry.id)
        kept |= names
    return found[:STEPS_MAX]


def _steps(
    entries: Sequence[Entry], restated: Iterable[tuple[Entry, Entry]], usage: RecallUsage
) -> Iterator[ConsolidationStep]:
    for again, says in restated:
        # Of the same kind, so that nothing leaves the system prompt, and `says` trusted at least as much.
        one = (again.target, again.agent, again.project, again.metadata.get("kind") or "")
        other = (says.target, says.agent, says.project, says.metadata.get("kind") or "")
        if one == other and says.trust >= again.trust and not find_losses(says.text, again.text):
            yield _restatement(again, says)
    yield from _find_outdated(entries)
    for entry in entries if usage.fade_days is not None else ():
        last = max(entry.recorded_at, usage.shown.get(entry.ref, 0.0))
        # Only memories that reviews learned can be unused, never what a person wrote.
        if entry.origin is Origin.BACKGROUND_REVIEW and last + (usage.fade_days or 0.0) * DAY < usage.now:
            yield ConsolidationStep(ConsolidationReason.UNUSED, entry)


def _restatement(again: Entry, says: Entry) -> ConsolidationStep:
    """If both are equally trusted, the one that stays gets the sources of both. If it is trusted more, or pinned, it
    stays as it is."""
    if again.trust != says.trust or says.pinned or says.firm or not says.sources:
        return ConsolidationStep(ConsolidationReason.RESTATED, again, says)
    if says.origin is _ACTOR and is_privileged(says) and not again.sources:
        # Without its sources nobody could see that the user typed it.
        return ConsolidationStep(ConsolidationReason.RESTATED, again, says, needs_approval=True)
    # A memory without sources must not disappear when the other's sources are forgotten.
    merged = tuple(dict.fromkeys((*says.sources, *again.sources)))[:SOURCES_MAX] if again.sources else ()
    return ConsolidationStep(
        ConsolidationReason.RESTATED, again, says, merged if set(merged) != set(says.sources) else None
    )


def _find_outdated(entries: Sequence[Entry]) -> Iterator[ConsolidationStep]:
    """Older values of things that have only one value, and statements that a newer one seems to replace."""
    values_by_thing: dict[tuple[object, ...], list[tuple[Entry, str]]] = {}
    for entry in entries:
        if (found := single_value(entry.text)) is not None and entry.trust >= TRUST_MIN:
            key = (entry.target, entry.agent, entry.project, entry.speaker, found[0])
            values_by_thing.setdefault(key, []).append((entry, found[1]))
    for values in values_by_thing.values():
        values.sort(key=lambda pair: (pair[0].occurred_at, pair[0].id))
        newest, value = values[-1]
        for entry, other in values[:-1]:
            if contradict(other, value):
                yield ConsolidationStep(
                    ConsolidationReason.OUTDATED, entry, newest, needs_approval=entry.trust > newest.trust
                )
    # Recall's judgement is less certain than the form of a statement, so a person decides.
    trusted = [entry for entry in entries if entry.trust >= TRUST_MIN]
    replaced = find_replaced(trusted)
    for entry in trusted:
        if entry.ref in replaced:
            yield ConsolidationStep(ConsolidationReason.OUTDATED, entry, replaced[entry.ref], needs_approval=True)


# Only the newest of a space are compared: more would take longer than idle time lasts.
ENTRIES_MAX = 1_000
_STATEMENTS = Filter(kind=Kind.STATEMENT)


@dataclass(slots=True)
class _ConsolidationResults:
    """The results of the steps so far."""

    done: list[ConsolidationStep] = field(default_factory=list)
    waiting: int = 0
    refusals: list[str] = field(default_factory=list)

    def attempt(self, steps: Sequence[ConsolidationStep], does: Callable[[], None]) -> bool:
        """Whether it could be done. If not, counts one refusal for each of the steps."""
        try:
            does()
        except (Conflict, InvalidInput, NotAllowed, NotFound) as error:
            why = "not_allowed" if isinstance(error, NotAllowed) else "changed"
            self.refusals += ["guard" if isinstance(error, InvalidInput) else why] * len(steps)
            return False
        return True


class Consolidation(NamedTuple):
    """The consolidation of one space. A step is taken only if its memories have not changed since."""

    services: Services
    row: ReviewRow
    steps: Sequence[ConsolidationStep]

    @classmethod
    def prepared(cls, unit: Unit, services: Services, tenant: str, space: str) -> Consolidation:
        now = services.clock.now()
        row = ReviewRow(
            id=services.ids.new(),
            kind=ReviewKind.CONSOLIDATION,
            tenant=tenant,
            space=space,
            writes=space,
            created_at=now,
            forgets=unit.conversations.forgets(tenant),
        )
        scope = Scope(tenant, (space,))
        entries = [one for one in unit.memories.page(scope, _STATEMENTS, limit=ENTRIES_MAX) if one.holds(now)]
        fade_days = services.config.fade_days
        shown = {} if fade_days is None else unit.conversations.last_shown(tenant, [entry.ref for entry in entries])
        # Pairs of a duplicate and the memory that says the same, as recall compares them.
        hits = [Hit(one, Lane.LONG_TERM, 1.0, 1.0, None, ()) for one in entries]
        by_ref = {one.ref: one for one in entries}
        restated = [(again.hit.entry, by_ref[again.by_ref]) for again in collapse(hits)[1]]
        steps = plan(entries, restated, RecallUsage(shown, now, fade_days))
        deciding = sum(not step.needs_approval for step in steps)
        if len(entries) >= ENTRIES_MANY and deciding > HIDDEN_SHARE_MAX * len(entries):
            steps = [step._replace(needs_approval=True) for step in steps]
        lineage = StandingLineage(unit, scope)
        for at, step in enumerate(steps):
            if step.by is not None and is_privileged(step.entry) and not lineage.is_trusted(step.by):
                steps[at] = step._replace(needs_approval=True)
        return cls(services, row, [step for step in steps if not _was_rejected(unit, scope, step)])

    @property
    def preview(self) -> Review:
        """The changes that it would make."""
        changes = [ReviewedChange(Verb.DELETE, self.row.space, "", step.entry, None, "planned") for step in self.steps]
        return Review(replace(self.row, state=ReviewState.WAITING, notes=_notes(self.steps)), tuple(changes))

    def commit(self, unit: Unit) -> tuple[ReviewRow, list[Step]]:
        """Takes the steps and stores the review. Returns its row and what it changed."""
        results = _ConsolidationResults()
        by_remaining: dict[str, list[ConsolidationStep]] = {}
        for step in self.steps:
            by_remaining.setdefault((step.by or step.entry).id, []).append(step)
        for steps in by_remaining.values():
            self._take_steps(unit, steps, results)
        row = replace(
            self.row,
            state=ReviewState.SAVED if results.done else ReviewState.NOTHING,
            ended_at=self.services.clock.now(),
            written=len(results.done) - results.waiting,
            proposed=results.waiting,
            refusals=tuple(results.refusals),
            spaces=(self.row.space,) if results.done else (),
            notes=_notes(results.done),
        )
        unit.reviews.add(row, ())
        return row, steps_of_review(unit, row)

    def _take_steps(self, unit: Unit, steps: Sequence[ConsolidationStep], results: _ConsolidationResults) -> None:
        """Takes all steps with the same remaining memory. A refused step writes nothing."""
        steps = [step for step in steps if results.attempt([step], functools.partial(self._check, unit, step))]
        asking = [step for step in steps if step.needs_approval or waits(self.services.config, _ACTOR)]
        for step in asking:
            if results.attempt([step], functools.partial(self._delete, unit, step)):
                results.done.append(step)
                results.waiting += 1
        deciding = [step for step in steps if step not in asking]
        merging = [step for step in deciding if step.merged is not None]
        if merging and not results.attempt(merging, functools.partial(self._merge, unit, merging)):
            deciding = [step for step in deciding if step not in merging]
        for step in deciding:
            self._delete(unit, step)
        results.done += deciding

    def _check(self, unit: Unit, step: ConsolidationStep) -> None:
        self._check_unchanged(unit, step.entry)
        check_change(step.entry, _ACTOR.trust)
        if step.by is not None:
            self._check_unchanged(unit, step.by)
        if step.by is not None and step.merged:
            check_change(step.by, min([step.by.trust, *lineage_of(unit, self._scope, step.entry.sources)]))

    def _check_unchanged(self, unit: Unit, entry: Entry) -> None:
        """Compares whole entries, because sources change without a new version."""
        if unit.memories.get(self._scope, entry.id) != entry:
            raise Conflict(f"{entry.id} has changed since the plan was made.")

    def _delete(self, unit: Unit, step: ConsolidationStep) -> None:
        """Or proposes it."""
        version, asks = step.entry.version, step.needs_approval
        self.services.statement_writer.delete(
            unit,
            self._operation(Verb.DELETE),
            step.entry.id,
            trust=_ACTOR.trust,
            expected_version=version,
            asks=asks,
        )

    def _merge(self, unit: Unit, steps: Sequence[ConsolidationStep]) -> None:
        """Writes one new version with the same text and the sources of all, trusted as the least of them."""
        entry = steps[0].by
        assert entry is not None
        merged = [entry, *(step.entry for step in steps)]
        # A memory without sources must not disappear when the others' sources are forgotten.
        joined = dict.fromkeys(source for one in merged for source in one.sources)
        sources = tuple(joined)[:SOURCES_MAX] if all(one.sources for one in merged) else ()
        draft = replace(Draft.successor(entry, entry.text), occurred_at=entry.occurred_at, sources=sources)
        lineage = [*(one.trust for one in merged), *lineage_of(unit, self._scope, sources)]
        admitted = self.services.gate.admit(draft, lineage=lineage)
        if admitted.verdict is Verdict.QUARANTINE or admitted.draft.proposed:
            raise NotAllowed(f"{entry.id} would be quarantined or wait, and nothing would take its place.")
        self.services.statement_writer.update(
            unit, self._operation(Verb.UPDATE), entry.id, admitted, expected_version=entry.version
        )

    @property
    def _scope(self) -> Scope:
        return Scope(self.row.tenant, (self.row.space,))

    def _operation(self, verb: Verb) -> Operation:
        row = self.row
        return Operation(self.services.ids.new(), row.tenant, row.space, verb, _ACTOR, row.created_at, row.id)


async def consolidate(services: Services, space: str, *, dry_run: bool) -> Review:
    """Consolidates now. With `dry_run` nothing is written."""
    prepared = await _prepare(services, services.tenant, space)
    if dry_run:
        return prepared.preview
    row, steps = await services.store.write(prepared.commit, at=Scope(services.tenant, (space,)))
    services.wake_jobs()
    services.events.report_changes(steps)
    return await get_review(services, space, row.id)


async def consolidate_job(services: Services, job: Job) -> Commit:
    """Consolidates in idle time. Does nothing while a turn is open; housekeeping schedules it again."""
    if services.has_open_turn:
        return Commit()
    prepared = await _prepare(services, job.tenant, job.space)
    return Commit(lambda unit: functools.partial(report_review_ended, services, *prepared.commit(unit)))


async def _prepare(services: Services, tenant: str, space: str) -> Consolidation:
    return await services.store.read(
        lambda unit: Consolidation.prepared(unit, services, tenant, space), at=Scope(tenant, (space,))
    )


def _was_rejected(unit: Unit, scope: Scope, step: ConsolidationStep) -> bool:
    """Whether a person rejected it, or it waits already: then a version of the memory is newer than the active one."""
    if not step.needs_approval:
        return False
    later = [version for version in unit.memories.history(scope, step.entry.id) if version.version > step.entry.version]
    return any(version.status in (Status.DELETED, Status.WITHDRAWAL) for version in later)


def _notes(steps: Sequence[ConsolidationStep]) -> tuple[str, ...]:
    """One line per step: the hidden id, the reason, and the id that stays."""
    return tuple(f"{step.entry.id} {step.why.value}" + (f" by {step.by.id}" if step.by else "") for step in steps)
