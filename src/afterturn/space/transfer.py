"""Everything held on a space as JSON-able lines, read page by page from one snapshot (M4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

from afterturn.embedders.backlog import ImportEmbedder
from afterturn.errors import InvalidInput, NotFound
from afterturn.guard.statement_writer import StatementWriter
from afterturn.ports import Unit
from afterturn.types import (
    Admitted,
    ConversationKey,
    ConversationState,
    Draft,
    Entry,
    Event,
    Filter,
    JobKind,
    Kind,
    Operation,
    Origin,
    ReviewRow,
    Scope,
    Status,
    Step,
    Verb,
    new_job,
)

if TYPE_CHECKING:
    from afterturn.services import Services

EXPORT_FORMAT = 1
PAGE = 1000
# More than any space keeps.
ROWS_MAX = 10_000_000

Line: TypeAlias = dict[str, Any]


def export_lines(unit: Unit, scope: Scope, now: float) -> list[Line]:
    """A header, then one line a thing, under the name of its kind.

    Not among them: what is derived from entries, work that waits, and the hashes that are kept of what was forgotten.
    """
    (space,) = scope.spaces
    header: Line = {"afterturn_export": EXPORT_FORMAT, "tenant": scope.tenant, "space": space, "exported_at": now}
    return [
        header,
        *_entry_lines(unit, scope),
        *_operation_lines(unit, scope),
        *_conversation_lines(unit, scope.tenant, space),
        *_review_lines(unit, scope.tenant, space),
        *({"usage": asdict(spent)} for spent in unit.usage.page(scope.tenant, space=space, limit=ROWS_MAX)),
        *({"event": asdict(event)} for event in _events(unit, scope)),
    ]


def _entry_lines(unit: Unit, scope: Scope) -> Iterator[Line]:
    for entry in _entries(unit, scope):
        for version in unit.memories.history(scope, entry.id):
            yield {"entry": asdict(version)}


def _operation_lines(unit: Unit, scope: Scope) -> Iterator[Line]:
    """Oldest first, each with what it did."""
    for operation in reversed(list(_operations(unit, scope))):
        yield {"operation": asdict(operation)}
        for step in unit.operations.steps(scope, operation_id=operation.id):
            yield {"step": _flat(step)}


def _conversation_lines(unit: Unit, tenant: str, space: str) -> Iterator[Line]:
    for conversation in every_conversation(unit, tenant, space):
        key = ConversationKey(tenant, space, conversation)
        yield {"conversation": conversation}
        for turn in unit.conversations.turns(key):
            yield {"turn": {"conversation": conversation, **asdict(turn)}}
        for block in unit.conversations.blocks(key):
            # Those of forgotten conversations come with every other, and belong to no turn.
            if block.turn:
                yield {"block": {"conversation": conversation, **asdict(block)}}
        yield from _kept_lines(unit, key)


def _kept_lines(unit: Unit, key: ConversationKey) -> Iterator[Line]:
    """What the conversation takes along from turn to turn, if anything, and what its recalls came to."""
    state = unit.conversations.state(key)
    kept = {
        "state": None if state == ConversationState() else state,
        "carried": unit.conversations.find_carried(key),
        "standing": unit.conversations.find_standing(key),
    }
    for name, row in kept.items():
        if row is not None:
            yield {name: {"conversation": key.id, **asdict(row)}}
    for recall in unit.recalls.page(key, limit=ROWS_MAX):
        yield {"recall": {"conversation": key.id, **asdict(recall)}}


def _review_lines(unit: Unit, tenant: str, space: str) -> Iterator[Line]:
    """Oldest first; one that waits is followed by what it is to read."""
    for review in reversed(list(_reviews(unit, tenant, space))):
        yield {"review": asdict(review)}
        for message in unit.reviews.messages(tenant, review.id):
            yield {"review_message": {"review": review.id, **asdict(message)}}


def _flat(step: Step) -> Line:
    return {**asdict(step), "operation": step.operation.id}


def _entries(unit: Unit, scope: Scope) -> Iterator[Entry]:
    before: str | None = None
    while page := unit.memories.page(scope, Filter(statuses=tuple(Status)), limit=PAGE, before=before):
        yield from page
        before = page[-1].id


def _operations(unit: Unit, scope: Scope) -> Iterator[Operation]:
    before: str | None = None
    while page := unit.operations.page(scope, limit=PAGE, before=before):
        yield from page
        before = page[-1].id


def _reviews(unit: Unit, tenant: str, space: str) -> Iterator[ReviewRow]:
    before: str | None = None
    while page := unit.reviews.page(tenant, space, limit=PAGE, before=before):
        yield from page
        before = page[-1].id


def every_conversation(unit: Unit, tenant: str, space: str) -> Iterator[str]:
    before: str | None = None
    while page := unit.conversations.page(tenant, space, limit=PAGE, before=before):
        yield from page
        before = page[-1]


def _events(unit: Unit, scope: Scope) -> Iterator[Event]:
    pages: list[list[Event]] = []
    while page := unit.timeline.page(scope, limit=PAGE, skip=PAGE * len(pages)):
        pages.append(page)
    return chain.from_iterable(reversed(pages))


# Many statements and records at once, in chunks that one `undo` takes back together.

CHUNK = 512
GATE_SLICE = 8

Progress: TypeAlias = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of `add_many`. `existing` counts the drafts that were stored already. `undo` takes `group`."""

    created: int
    existing: int
    group: str


async def import_drafts(
    services: Services, space: str, drafts: Iterable[Draft], *, group: str, progress: Progress | None
) -> Imported:
    """Returns when all is stored. A long import is embedded while it goes on, where another process can do that."""
    if not isinstance(drafts, Iterable):
        raise InvalidInput(f"A {type(drafts).__name__} is not a list of drafts. Pass afterturn.Draft objects.")
    following = services.embedding.follow(services.tenant, space) if services.embedding is not None else None
    try:
        if following is not None and isinstance(drafts, Sized):
            await following.expect(len(drafts))
        return await _Import(services, space, group, following).run(iter(drafts), progress)
    finally:
        if following is not None:
            await following.end()


@dataclass(frozen=True, slots=True)
class _Import:
    services: Services
    space: str
    group: str
    following: ImportEmbedder | None

    async def run(self, source: Iterator[Draft], progress: Progress | None) -> Imported:
        """A chunk is checked, then written. Doing both at once takes longer: they would fight for Python's lock."""
        created = total = 0
        while chunk := await _admitted(self.services, source):
            created += await self._write(chunk)
            total += len(chunk)
            if progress:
                progress(total)
        await self._write_rest()
        return Imported(created, total - created, self.group)

    async def _write(self, chunk: list[Admitted]) -> int:
        services, now = self.services, self.services.clock.now()
        operation = Operation(
            services.ids.new(), services.tenant, self.space, Verb.IMPORT, Origin.IMPORT, now, self.group
        )
        job = new_job(JobKind.EMBED, services.ids.new(), services.tenant, self.space, now)
        if self.following is not None:
            await self.following.take([admitted.text for admitted in chunk])
        put_ready = self.following.put_ready() if self.following is not None else None

        def work(unit: Unit) -> int:
            unit.operations.start(operation)
            created = sum(_store(unit, operation, admitted, services.statement_writer) for admitted in chunk)
            unit.jobs.add(job, coalesce=True)
            if put_ready is not None:
                put_ready(unit)
            return created

        written = await services.store.write(work)
        services.wake_jobs()
        return written

    async def _write_rest(self) -> None:
        if self.following is not None and await self.following.wait():
            await self.services.store.write(self.following.put_ready())


async def _admitted(services: Services, source: Iterator[Draft]) -> list[Admitted]:
    chunk: list[Admitted] = []
    while len(chunk) < CHUNK and (drafts := list(islice(source, GATE_SLICE))):
        chunk.extend(services.gate.admit_import(draft) for draft in drafts)
        # Python-bound work yields every couple of milliseconds, so that turns beside it are not held up.
        await asyncio.sleep(0)
    return chunk


def _store(unit: Unit, operation: Operation, admitted: Admitted, writer: StatementWriter) -> bool:
    """False when it was there already. A record is known by its id: the same export imported twice is there once."""
    if admitted.draft.kind is Kind.STATEMENT:
        return writer.put(unit, operation, admitted).created
    try:
        unit.memories.get(Scope(operation.tenant, (operation.space,)), admitted.id)
    except NotFound:
        unit.records.add(operation, [admitted])
        return True
    return False
