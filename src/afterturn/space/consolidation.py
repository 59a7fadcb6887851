"""What can be tidied up in a space (V10): restatements, contradictions, what nobody used. Pure: it only plans.

Rather too little than too much: what is left stands as two memories with their dates, and harms nobody.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from afterturn.drafts import successor
from afterturn.errors import AfterturnError, Conflict, InvalidInput, NotAllowed, NotFound
from afterturn.guard.trust import check_change, lineage_of, waits
from afterturn.learning.single_value import contradict, single_value
from afterturn.ports import Unit
from afterturn.recall.duplicates import collapse
from afterturn.runtime.jobs import Commit
from afterturn.space.reviews import get_review
from afterturn.types import (
    SOURCES_MAX,
    Entry,
    Filter,
    Hit,
    Job,
    Kind,
    Lane,
    Operation,
    Origin,
    Review,
    ReviewedChange,
    ReviewKind,
    ReviewRow,
    ReviewState,
    Scope,
    Verb,
    Verdict,
)

if TYPE_CHECKING:
    from afterturn.services import Services

STEPS_MAX = 50
DAY = 86_400.0
TRUST_MIN = Origin.BACKGROUND_REVIEW.trust


class ConsolidationReason(StrEnum):
    RESTATED = "restated"
    OUTDATED = "outdated"
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class ConsolidationStep:
    """`entry` goes, because of `by`, which stays. `merged` is what `by` rests on from then on; None: as before.

    `asks`: a person should decide, since it takes the word of somebody who is trusted more.
    """

    why: ConsolidationReason
    entry: Entry
    by: Entry | None = None
    merged: tuple[str, ...] | None = None
    asks: bool = False


@dataclass(frozen=True, slots=True)
class RecallUsage:
    """When memories were last shown, by reference, and after how many days without it they fade; None: never."""

    shown: Mapping[str, float]
    now: float
    fade_days: float | None = None


def plan(
    entries: Sequence[Entry], restated: Iterable[tuple[Entry, Entry]], usage: RecallUsage
) -> list[ConsolidationStep]:
    """`restated` are pairs: what is said again, and what says it. Each entry goes once, and none that something stays
    for goes itself. Pinned memories are left alone."""
    found: list[ConsolidationStep] = []
    gone: set[str] = set()
    kept: set[str] = set()
    for step in _steps(entries, restated, usage):
        names = {step.by.id} if step.by is not None else set()
        if step.entry.pinned or step.entry.id in gone | kept or names & gone:
            continue
        found.append(step)
        gone.add(step.entry.id)
        kept |= names
    return found[:STEPS_MAX]


def _steps(
    entries: Sequence[Entry], restated: Iterable[tuple[Entry, Entry]], usage: RecallUsage
) -> Iterator[ConsolidationStep]:
    for again, says in restated:
        if _are_comparable(again, says):
            yield _restatement(again, says)
    yield from _outdated(entries)
    yield from (ConsolidationStep(ConsolidationReason.UNUSED, entry) for entry in entries if _is_unused(entry, usage))


def _are_comparable(again: Entry, says: Entry) -> bool:
    """Of the same kind, so that nothing leaves the system prompt, and nobody's word gives way to one trusted less."""
    one, other = (
        (entry.target, entry.agent, entry.project, entry.metadata.get("kind") or "") for entry in (again, says)
    )
    return one == other and says.trust >= again.trust


def _restatement(again: Entry, says: Entry) -> ConsolidationStep:
    """Equally trusted, they become one that rests on what both rested on, and is trusted no more than either.

    Whoever is trusted more stays as they were, since their word needs no other's, and so does what is pinned.
    """
    if again.trust != says.trust or says.pinned or not says.sources:
        return ConsolidationStep(ConsolidationReason.RESTATED, again, says)
    # What one of them says on its own account must not go when the other's sources do (M2).
    merged = tuple(dict.fromkeys((*says.sources, *again.sources)))[:SOURCES_MAX] if again.sources else ()
    return ConsolidationStep(
        ConsolidationReason.RESTATED, again, says, merged if set(merged) != set(says.sources) else None
    )


def _outdated(entries: Sequence[Entry]) -> Iterator[ConsolidationStep]:
    """Of what can have one value only, the newest trusted one stands."""
    told: dict[tuple[object, ...], list[tuple[Entry, str]]] = {}
    for entry in entries:
        if (found := single_value(entry.text)) is not None and entry.trust >= TRUST_MIN:
            key = (entry.target, entry.agent, entry.project, entry.speaker, found[0])
            told.setdefault(key, []).append((entry, found[1]))
    for values in told.values():
        values.sort(key=lambda pair: (pair[0].occurred_at, pair[0].id))
        newest, value = values[-1]
        for entry, other in values[:-1]:
            if contradict(other, value):
                yield ConsolidationStep(ConsolidationReason.OUTDATED, entry, newest, asks=entry.trust > newest.trust)


def _is_unused(entry: Entry, usage: RecallUsage) -> bool:
    """Only what was learned fades, never what somebody wrote, and not before it had its time."""
    if usage.fade_days is None or entry.origin is not Origin.BACKGROUND_REVIEW:
        return False
    last = max(entry.recorded_at, usage.shown.get(entry.ref, 0.0))
    return last + usage.fade_days * DAY < usage.now


# Consolidation of a space (V10): plans on a snapshot, writes as one group that one `undo` takes back.

# The newest of a space; comparing more takes longer than anybody is idle.
ENTRIES_MAX = 1_000
_PAGE = 200
_STATEMENTS = Filter(kind=Kind.STATEMENT)
_ACTOR = Origin.BACKGROUND_REVIEW


@dataclass(slots=True)
class _Consolidated:
    """What came of the steps so far."""

    done: list[ConsolidationStep] = field(default_factory=list)
    waiting: int = 0
    refusals: list[str] = field(default_factory=list)

    def allows(self, steps: Sequence[ConsolidationStep], does: Callable[[], None]) -> bool:
        """Whether it could be done; one refusal for each of the steps if not."""
        try:
            does()
        except (Conflict, InvalidInput, NotAllowed, NotFound) as error:
            self.refusals += [_refusal(error)] * len(steps)
            return False
        return True


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Of one space. `steps` are what it will do, as long as nobody changes what they are about."""

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
            forgets=unit.conversations.forgets(tenant, space),
        )
        entries = list(_entries(unit, Scope(tenant, (space,)), now))
        fade_days = services.config.fade_days
        shown = {} if fade_days is None else unit.conversations.last_shown(tenant, [entry.ref for entry in entries])
        return cls(services, row, plan(entries, _restated(entries), RecallUsage(shown, now, fade_days)))

    @property
    def preview(self) -> Review:
        """What it would do, for a person; nothing is written."""
        changes = [ReviewedChange(Verb.DELETE, self.row.space, "", step.entry, None, "planned") for step in self.steps]
        return Review(replace(self.row, state=ReviewState.WAITING, notes=_notes(self.steps)), tuple(changes))

    def commit(self, unit: Unit) -> ReviewRow:
        """The row as it is stored. What has changed meanwhile is left alone."""
        tidied = _Consolidated()
        for steps in _by_what_stays(self.steps):
            self._tidy(unit, steps, tidied)
        row = replace(
            self.row,
            state=ReviewState.SAVED if tidied.done else ReviewState.NOTHING,
            ended_at=self.services.clock.now(),
            written=len(tidied.done) - tidied.waiting,
            proposed=tidied.waiting,
            refusals=tuple(tidied.refusals),
            spaces=(self.row.space,) if tidied.done else (),
            notes=_notes(tidied.done),
        )
        unit.reviews.add(row, ())
        return row

    def _tidy(self, unit: Unit, steps: Sequence[ConsolidationStep], tidied: _Consolidated) -> None:
        """All steps for which the same memory stays. What is refused has written nothing."""
        steps = [step for step in steps if tidied.allows([step], functools.partial(self._check, unit, step))]
        asking = [step for step in steps if step.asks or waits(self.services.config, _ACTOR)]
        for step in asking:
            if tidied.allows([step], functools.partial(self._propose, unit, step)):
                tidied.done.append(step)
                tidied.waiting += 1
        deciding = [step for step in steps if step not in asking]
        merging = [step for step in deciding if step.merged is not None]
        if merging and not tidied.allows(merging, functools.partial(self._merge, unit, merging)):
            deciding = [step for step in deciding if step not in merging]
        for step in deciding:
            self._delete(unit, step)
        tidied.done += deciding

    def _check(self, unit: Unit, step: ConsolidationStep) -> None:
        self._check_stands(unit, step.entry)
        check_change(step.entry, _ACTOR.trust)
        if step.by is not None:
            self._check_stands(unit, step.by)
        if step.by is not None and step.merged:
            check_change(step.by, min([step.by.trust, *lineage_of(unit, self._scope, step.entry.sources)]))

    def _check_stands(self, unit: Unit, entry: Entry) -> None:
        """Sources come and go without a new version: by a repetition, or because they were forgotten."""
        if unit.memories.get(self._scope, entry.id) != entry:
            raise Conflict(f"{entry.id} was changed meanwhile.")

    def _propose(self, unit: Unit, step: ConsolidationStep) -> None:
        operation = unit.operations.start(self._operation(Verb.DELETE))
        unit.memories.propose_delete(operation, step.entry.id, expected_version=step.entry.version)

    def _delete(self, unit: Unit, step: ConsolidationStep) -> None:
        entry, operation = step.entry, self._operation(Verb.DELETE)
        self.services.statement_writer.delete(
            unit, operation, entry.id, trust=_ACTOR.trust, expected_version=entry.version
        )

    def _merge(self, unit: Unit, steps: Sequence[ConsolidationStep]) -> None:
        """The same words, resting on more: trusted no more than the least of it. One version, however many say it."""
        entry = steps[0].by
        assert entry is not None
        told = [entry, *(step.entry for step in steps)]
        # What one of them says on its own account must not go when the others' sources do (M2).
        sources = _together(told) if all(one.sources for one in told) else ()
        draft = replace(successor(entry, entry.text), occurred_at=entry.occurred_at, sources=sources)
        lineage = [*(one.trust for one in told), *lineage_of(unit, self._scope, sources)]
        admitted = self.services.gate.admit(draft, lineage=lineage)
        if admitted.verdict is Verdict.QUARANTINE:
            raise NotAllowed(f"{entry.id} would be out of sight, and nothing left in its place.")
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
    """Now, on request. With `dry_run` nothing is written."""
    prepared = await _prepare(services, services.tenant, space)
    if dry_run:
        return prepared.preview
    row = await services.store.write(prepared.commit)
    services.wake_jobs()
    return await get_review(services, space, row.id)


async def consolidate_job(services: Services, job: Job) -> Commit:
    """In idle time: while a turn is open nothing is done, and the next housekeeping asks again."""
    if services.has_open_turn:
        return lambda unit: None
    prepared = await _prepare(services, job.tenant, job.space)
    return lambda unit: functools.partial(_tell, services, prepared.commit(unit))


async def _prepare(services: Services, tenant: str, space: str) -> Consolidation:
    return await services.store.read(lambda unit: Consolidation.prepared(unit, services, tenant, space))


def _tell(services: Services, row: ReviewRow) -> None:
    services.wake_jobs()
    services.events.of(row.tenant).emit(
        "review_ended",
        space=row.space,
        review=row.id,
        kind=row.kind.value,
        state=row.state.value,
        written=row.written,
        proposed=row.proposed,
        refused=len(row.refusals),
        reason=row.reason,
    )


def _entries(unit: Unit, scope: Scope, now: float) -> Iterator[Entry]:
    before: str | None = None
    for _ in range(ENTRIES_MAX // _PAGE):
        page = unit.memories.page(scope, _STATEMENTS, limit=_PAGE, before=before)
        yield from (entry for entry in page if entry.holds(now))
        if len(page) < _PAGE:
            return
        before = page[-1].id
        unit.check()


def _restated(entries: Sequence[Entry]) -> list[tuple[Entry, Entry]]:
    """As recall judges it (L10), so that what a block would show once is one memory."""
    hits = [Hit(entry, Lane.LONG_TERM, 1.0, 1.0, None, ()) for entry in entries]
    by_ref = {entry.ref: entry for entry in entries}
    return [(again.hit.entry, by_ref[again.by_ref]) for again in collapse(hits)[1]]


def _notes(steps: Sequence[ConsolidationStep]) -> tuple[str, ...]:
    """One line each, by id: what went, why, and for what."""
    return tuple(f"{step.entry.id} {step.why.value}" + (f" by {step.by.id}" if step.by else "") for step in steps)


def _by_what_stays(steps: Sequence[ConsolidationStep]) -> list[list[ConsolidationStep]]:
    groups: dict[str, list[ConsolidationStep]] = {}
    for step in steps:
        groups.setdefault((step.by or step.entry).id, []).append(step)
    return list(groups.values())


def _together(entries: Sequence[Entry]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(source for entry in entries for source in entry.sources))[:SOURCES_MAX]


def _refusal(error: AfterturnError) -> str:
    """The words that reviews use."""
    if isinstance(error, InvalidInput):
        return "guard"
    return "not_allowed" if isinstance(error, NotAllowed) else "changed"
