"""Consolidation of a space (V10): plans on a snapshot, writes as one group that one `undo` takes back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from afterturn.base.config import Config
from afterturn.base.errors import Conflict, NotAllowed, NotFound
from afterturn.base.jobs import Commit
from afterturn.base.ports import Clock, Ids, Unit
from afterturn.base.reviews import Review, ReviewedChange, ReviewKind, ReviewRow, ReviewState
from afterturn.base.types import (
    Draft,
    Entry,
    Filter,
    Hit,
    Job,
    Kind,
    Lane,
    Operation,
    Origin,
    Scope,
    Status,
    Verb,
)
from afterturn.guard.gate import Gate
from afterturn.guard.trust import lineage_of
from afterturn.guard.writing import Writing
from afterturn.learn.consolidate import Tidying, Usage, plan
from afterturn.recall.restated import collapse
from afterturn.space.parts import SpaceParts
from afterturn.space.reviews import get_review

# The newest of a space; comparing more takes longer than anybody is idle.
ENTRIES_MAX = 1_000
_PAGE = 200
_STATEMENTS = Filter(kind=Kind.STATEMENT)


@dataclass(frozen=True, slots=True)
class ConsolidationParts:
    gate: Gate
    config: Config
    clock: Clock
    ids: Ids


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
        done: list[Tidying] = []
        waiting, refusals = 0, []
        for step in self.steps:
            try:
                waiting += self._do(unit, step)
            except (Conflict, NotAllowed, NotFound) as error:
                refusals.append("not_allowed" if isinstance(error, NotAllowed) else "changed")
                continue
            done.append(step)
        row = replace(
            self.row,
            state=ReviewState.SAVED if done else ReviewState.NOTHING,
            ended_at=self.parts.clock.now(),
            written=len(done) - waiting,
            proposed=waiting,
            refusals=tuple(refusals),
            spaces=(self.row.space,) if done else (),
            notes=_notes(done),
        )
        unit.reviews.add(row, ())
        return row

    def _do(self, unit: Unit, step: Tidying) -> int:
        """1 when it waits for a person's word."""
        if step.by is not None:
            self._check_stands(unit, step.by)
        trust = Origin.BACKGROUND_REVIEW.trust
        writing, entry_id, version = Writing(self.parts.config), step.entry.id, step.entry.version
        if step.asks:
            operation = unit.operations.start(self._operation(Verb.DELETE))
            left = unit.memories.propose_delete(operation, entry_id, expected_version=version)
        else:
            left = writing.delete(unit, self._operation(Verb.DELETE), entry_id, trust=trust, expected_version=version)
        waits = left.status is Status.WITHDRAWAL
        if step.merged is not None and step.by is not None and not waits:
            self._merge(unit, writing, step.by, step.merged)
        return int(waits)

    def _check_stands(self, unit: Unit, entry: Entry) -> None:
        current = unit.memories.get(Scope(self.row.tenant, (self.row.space,)), entry.id)
        if current.version != entry.version or current.status is not Status.ACTIVE:
            raise Conflict(f"{entry.id} was changed meanwhile.")

    def _merge(self, unit: Unit, writing: Writing, entry: Entry, sources: tuple[str, ...]) -> None:
        """The same words, resting on more: trusted no more than the least of it."""
        scope = Scope(self.row.tenant, (self.row.space,))
        draft = replace(_draft(entry), sources=sources)
        admitted = self.parts.gate.admit(draft, lineage=[entry.trust, *lineage_of(unit, scope, sources)])
        writing.update(unit, self._operation(Verb.UPDATE), entry.id, admitted, expected_version=entry.version)

    def _operation(self, verb: Verb) -> Operation:
        row = self.row
        return Operation(
            self.parts.ids.new(), row.tenant, row.space, verb, Origin.BACKGROUND_REVIEW, row.created_at, row.id
        )


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


def _draft(entry: Entry) -> Draft:
    return Draft(
        text=entry.text,
        origin=entry.origin,
        target=entry.target,
        agent=entry.agent,
        project=entry.project,
        conversation=entry.conversation,
        owner=entry.owner,
        turn=entry.turn,
        speaker=entry.speaker,
        occurred_at=entry.occurred_at,
        valid_from=entry.valid_from,
        valid_to=entry.valid_to,
        expires_at=entry.expires_at,
        metadata=entry.metadata,
        id=entry.id,
    )
