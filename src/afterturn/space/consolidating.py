"""Consolidation of a space (V10): plans on a snapshot, writes as one group that one `undo` takes back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from afterturn.base.config import Config
from afterturn.base.drafts import successor
from afterturn.base.errors import AfterturnError, Conflict, InvalidInput, NotAllowed, NotFound
from afterturn.base.jobs import Commit
from afterturn.base.ports import Clock, Ids, Unit
from afterturn.base.reviews import Review, ReviewedChange, ReviewKind, ReviewRow, ReviewState
from afterturn.base.types import (
    SOURCES_MAX,
    Entry,
    Filter,
    Hit,
    Job,
    Kind,
    Lane,
    Operation,
    Origin,
    Scope,
    Verb,
    Verdict,
)
from afterturn.guard.gate import Gate
from afterturn.guard.trust import check_change, lineage_of, waits
from afterturn.guard.writing import Writing
from afterturn.learn.consolidate import Tidying, Usage, plan
from afterturn.recall.restated import collapse
from afterturn.space.parts import SpaceParts
from afterturn.space.reviews import get_review

# The newest of a space; comparing more takes longer than anybody is idle.
ENTRIES_MAX = 1_000
_PAGE = 200
_STATEMENTS = Filter(kind=Kind.STATEMENT)
_ACTOR = Origin.BACKGROUND_REVIEW


@dataclass(frozen=True, slots=True)
class ConsolidationParts:
    gate: Gate
    config: Config
    clock: Clock
    ids: Ids


@dataclass(slots=True)
class _Tidied:
    """What came of the steps so far."""

    done: list[Tidying] = field(default_factory=list)
    waiting: int = 0
    refusals: list[str] = field(default_factory=list)

    def allows(self, steps: Sequence[Tidying], does: Callable[[], None]) -> bool:
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

    parts: ConsolidationParts
    row: ReviewRow
    steps: Sequence[Tidying]

    @classmethod
    def prepared(cls, unit: Unit, parts: ConsolidationParts, tenant: str, space: str) -> Consolidation:
        now = parts.clock.now()
        row = ReviewRow(
            id=parts.ids.new(),
            kind=ReviewKind.CONSOLIDATION,
            tenant=tenant,
            space=space,
            writes=space,
            created_at=now,
            forgets=unit.operations.forgets(tenant, space),
        )
        entries = list(_entries(unit, Scope(tenant, (space,)), now))
        fade_days = parts.config.fade_days
        shown = {} if fade_days is None else unit.conversations.last_shown(tenant, [entry.ref for entry in entries])
        return cls(parts, row, plan(entries, _restated(entries), Usage(shown, now, fade_days)))

    @property
    def preview(self) -> Review:
        """What it would do, for a person; nothing is written."""
        changes = [ReviewedChange(Verb.DELETE, self.row.space, "", step.entry, None, "planned") for step in self.steps]
        return Review(replace(self.row, state=ReviewState.WAITING, notes=_notes(self.steps)), tuple(changes))

    def commit(self, unit: Unit) -> ReviewRow:
        """The row as it is stored. What has changed meanwhile is left alone."""
        tidied = _Tidied()
        for steps in _by_what_stays(self.steps):
            self._tidy(unit, steps, tidied)
        row = replace(
            self.row,
            state=ReviewState.SAVED if tidied.done else ReviewState.NOTHING,
            ended_at=self.parts.clock.now(),
            written=len(tidied.done) - tidied.waiting,
            proposed=tidied.waiting,
            refusals=tuple(tidied.refusals),
            spaces=(self.row.space,) if tidied.done else (),
            notes=_notes(tidied.done),
        )
        unit.reviews.add(row, ())
        return row

    def _tidy(self, unit: Unit, steps: Sequence[Tidying], tidied: _Tidied) -> None:
        """All steps for which the same memory stays. What is refused has written nothing."""
        steps = [step for step in steps if tidied.allows([step], functools.partial(self._check, unit, step))]
        asking = [step for step in steps if step.asks or waits(self.parts.config, _ACTOR)]
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

    def _check(self, unit: Unit, step: Tidying) -> None:
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

    def _propose(self, unit: Unit, step: Tidying) -> None:
        operation = unit.operations.start(self._operation(Verb.DELETE))
        unit.memories.propose_delete(operation, step.entry.id, expected_version=step.entry.version)

    def _delete(self, unit: Unit, step: Tidying) -> None:
        entry, operation = step.entry, self._operation(Verb.DELETE)
        self._writing.delete(unit, operation, entry.id, trust=_ACTOR.trust, expected_version=entry.version)

    def _merge(self, unit: Unit, steps: Sequence[Tidying]) -> None:
        """The same words, resting on more: trusted no more than the least of it. One version, however many say it."""
        entry = steps[0].by
        assert entry is not None
        told = [entry, *(step.entry for step in steps)]
        # What one of them says on its own account must not go when the others' sources do (M2).
        sources = _together(told) if all(one.sources for one in told) else ()
        draft = replace(successor(entry, entry.text), occurred_at=entry.occurred_at, sources=sources)
        lineage = [*(one.trust for one in told), *lineage_of(unit, self._scope, sources)]
        admitted = self.parts.gate.admit(draft, lineage=lineage)
        if admitted.verdict is Verdict.QUARANTINE:
            raise NotAllowed(f"{entry.id} would be out of sight, and nothing left in its place.")
        self._writing.update(unit, self._operation(Verb.UPDATE), entry.id, admitted, expected_version=entry.version)

    @property
    def _writing(self) -> Writing:
        return Writing(self.parts.config)

    @property
    def _scope(self) -> Scope:
        return Scope(self.row.tenant, (self.row.space,))

    def _operation(self, verb: Verb) -> Operation:
        row = self.row
        return Operation(self.parts.ids.new(), row.tenant, row.space, verb, _ACTOR, row.created_at, row.id)


async def consolidate(parts: SpaceParts, space: str, *, dry_run: bool) -> Review:
    """Now, on request. With `dry_run` nothing is written."""
    prepared = await _prepare(parts, parts.tenant, space)
    if dry_run:
        return prepared.preview
    row = await parts.store.write(prepared.commit)
    parts.on_write()
    return await get_review(parts, space, row.id)


async def consolidate_job(parts: SpaceParts, job: Job, *, is_busy: Callable[[], bool]) -> Commit:
    """In idle time: while a turn is open nothing is done, and the next housekeeping asks again."""
    if is_busy():
        return lambda unit: None
    prepared = await _prepare(parts, job.tenant, job.space)
    return lambda unit: functools.partial(_tell, parts, prepared.commit(unit))


async def _prepare(parts: SpaceParts, tenant: str, space: str) -> Consolidation:
    needed = ConsolidationParts(parts.gate, parts.config, parts.clock, parts.ids)
    return await parts.store.read(lambda unit: Consolidation.prepared(unit, needed, tenant, space))


def _tell(parts: SpaceParts, row: ReviewRow) -> None:
    parts.on_write()
    parts.events.of(row.tenant).emit(
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


def _notes(steps: Sequence[Tidying]) -> tuple[str, ...]:
    """One line each, by id: what went, why, and for what."""
    return tuple(f"{step.entry.id} {step.why.value}" + (f" by {step.by.id}" if step.by else "") for step in steps)


def _by_what_stays(steps: Sequence[Tidying]) -> list[list[Tidying]]:
    groups: dict[str, list[Tidying]] = {}
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
