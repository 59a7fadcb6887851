"""Export of a space as JSON-serialisable lines, and import of many drafts in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from afterturn.errors import Conflict, InvalidInput
from afterturn.guard.statement_writer import StatementWriter
from afterturn.guard.trust import as_report, find_entry
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
    Scope,
    Status,
    Verb,
    new_job,
)
from afterturn.types.operations import OwnDraft

if TYPE_CHECKING:
    from afterturn.services import Services

EXPORT_FORMAT = 1
PAGE = 1000
# More rows than any space has.
ROWS_MAX = 10_000_000

Line: TypeAlias = dict[str, Any]
# What makes two versions of a memory the same.
Content: TypeAlias = tuple[object, ...]
T = TypeVar("T")


def export_lines(unit: Unit, scope: Scope, now: float) -> list[Line]:
    """A header, then one line per row, under the name of its kind, all read from one snapshot of the store.

    Left out are derived data (indexes, vectors), jobs, and the hashes of forgotten texts.
    """
    (space,) = scope.spaces
    header: Line = {"afterturn_export": EXPORT_FORMAT, "tenant": scope.tenant, "space": space, "exported_at": now}
    entries = every_entry(unit, scope, Filter(statuses=tuple(Status)))
    operations = _all_pages(lambda before: unit.operations.page(scope, limit=PAGE, before=before), lambda one: one.id)
    reviews = _all_pages(
        lambda before: unit.reviews.page(scope.tenant, space, limit=PAGE, before=before), lambda one: one.id
    )
    lines = [header]
    lines += ({"entry": asdict(version)} for entry in entries for version in unit.memories.history(scope, entry.id))
    # Oldest first, each operation followed by its steps, and a review that waits by its messages.
    for operation in reversed(list(operations)):
        lines.append({"operation": asdict(operation)})
        for step in unit.operations.steps(scope, operation_id=operation.id):
            lines.append({"step": {**asdict(step), "operation": step.operation.id}})
    lines += _conversation_lines(unit, scope.tenant, space)
    for review in reversed(list(reviews)):
        lines.append({"review": asdict(review)})
        for message in unit.reviews.messages(scope.tenant, review.id):
            lines.append({"review_message": {"review": review.id, **asdict(message)}})
    return [
        *lines,
        *({"usage": asdict(spent)} for spent in unit.usage.page(scope.tenant, space=space, limit=ROWS_MAX)),
        *({"event": asdict(event)} for event in _events(unit, scope)),
    ]


def _conversation_lines(unit: Unit, tenant: str, space: str) -> Iterator[Line]:
    for conversation in every_conversation(unit, tenant, space):
        key = ConversationKey(tenant, space, conversation)
        yield {"conversation": conversation}
        for turn in unit.conversations.turns(key):
            yield {"turn": {"conversation": conversation, **asdict(turn)}}
        for block in unit.conversations.blocks(key):
            # Blocks of forgotten conversations are returned for every conversation and have no turn.
            if block.turn:
                yield {"block": {"conversation": conversation, **asdict(block)}}
        # What it keeps between turns.
        stored = unit.conversations.read(key)
        rows = {
            "state": None if stored.state == ConversationState() else stored.state,
            "carried": stored.carried,
            "standing": stored.standing,
        }
        for name, row in rows.items():
            if row is not None:
                yield {name: {"conversation": conversation, **asdict(row)}}
        for recall in unit.recalls.page(key, limit=ROWS_MAX):
            yield {"recall": {"conversation": conversation, **asdict(recall)}}


def every_conversation(unit: Unit, tenant: str, space: str) -> Iterator[str]:
    """The ids of all conversations, newest activity first."""
    return _all_pages(lambda before: unit.conversations.page(tenant, space, limit=PAGE, before=before), str)


def every_entry(unit: Unit, scope: Scope, wanted: Filter) -> Iterator[Entry]:
    """Newest first."""
    return _all_pages(lambda before: unit.memories.page(scope, wanted, limit=PAGE, before=before), lambda one: one.id)


def _all_pages(read: Callable[[str | None], list[T]], id_of: Callable[[T], str]) -> Iterator[T]:
    before: str | None = None
    while page := read(before):
        yield from page
        before = id_of(page[-1])


def _events(unit: Unit, scope: Scope) -> Iterator[Event]:
    pages: list[list[Event]] = []
    while page := unit.timeline.page(scope, limit=PAGE, skip=PAGE * len(pages)):
        pages.append(page)
    return chain.from_iterable(reversed(pages))


CHUNK = 512
GATE_SLICE = 8

Progress: TypeAlias = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of `add_many`. `existing` counts the drafts that were stored already. `undo` takes `group`."""

    created: int
    existing: int
    group: str


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """The versions of one memory that were stored before an import, without those that it has met."""

    id: str = ""
    contents: tuple[Content, ...] = ()


async def import_drafts(
    services: Services, space: str, drafts: Iterable[Draft], *, group: str, progress: Progress | None, clean: bool
) -> Imported:
    """Returns when all drafts are stored. They are found by their words until a job has embedded them."""
    if not isinstance(drafts, Iterable):
        raise InvalidInput(f"A {type(drafts).__name__} is not a list of drafts. Pass afterturn.Draft objects.")
    source, created, total, stored = iter(drafts), 0, 0, StoredVersions()
    # Checks a chunk, then writes it. Doing both at once takes longer, because both need the GIL.
    while chunk := await _admit_chunk(services, source, clean=clean):
        added, stored = await _write_chunk(services, space, group, chunk, stored)
        created += added
        total += len(chunk)
        if progress:
            progress(total)
    return Imported(created, total - created, group)


async def _admit_chunk(services: Services, source: Iterator[Draft], *, clean: bool) -> list[Admitted]:
    chunk: list[Admitted] = []
    while len(chunk) < CHUNK and (drafts := list(islice(source, GATE_SLICE))):
        for draft in drafts:
            stated, lineage = as_report(draft, clean=clean) if isinstance(draft, Draft) else (draft, ())
            if isinstance(draft, OwnDraft):
                stated, lineage = draft, (draft.trust,)
            chunk.append(services.gate.admit_import(stated, lineage=lineage))
        # Yields every few milliseconds, so that open turns are not held up.
        await asyncio.sleep(0)
    return chunk


async def _write_chunk(
    services: Services, space: str, group: str, chunk: list[Admitted], before: StoredVersions
) -> tuple[int, StoredVersions]:
    tenant, now = services.tenant, services.clock.now()
    actor = Origin.USER if any(isinstance(admitted.draft, OwnDraft) for admitted in chunk) else Origin.IMPORT

    def operation(verb: Verb) -> Operation:
        return Operation(services.ids.new(), tenant, space, verb, actor, now, group)

    importing, approving, hiding = map(operation, (Verb.IMPORT, Verb.APPROVE, Verb.HIDE))
    job = new_job(JobKind.EMBED, services.ids.new(), tenant, space, now)

    def work(unit: Unit) -> tuple[int, StoredVersions]:
        created, stored = 0, before
        for admitted in chunk:
            entry, stored = _store(unit, importing, admitted, services.statement_writer, stored)
            created += entry is not None
            if entry is not None and isinstance(admitted.draft, OwnDraft):
                if admitted.draft.approved and entry.status is Status.PROPOSED:
                    entry = unit.memories.approve(approving, entry.id)
                if admitted.draft.hidden and entry.status is Status.ACTIVE:
                    unit.memories.hide(hiding, entry.id)
        unit.jobs.add(job, coalesce=True)
        return created, stored

    written = await services.store.write(work, at=Scope(tenant, (space,)))
    services.wake_jobs()
    return written


def _store(
    unit: Unit, operation: Operation, admitted: Admitted, writer: StatementWriter, stored: StoredVersions
) -> tuple[Entry | None, StoredVersions]:
    """The new version; None if it was there already. Records are compared by id, so that importing an export twice adds
    nothing. Versions of the person's own memories are compared with those that were there before the import, each with
    one of them, so that a change back to an older text is imported too."""
    scope, draft = Scope(operation.tenant, (operation.space,)), admitted.draft
    known = find_entry(unit, scope, admitted.id) if draft.kind is Kind.RECORD or isinstance(draft, OwnDraft) else None
    if draft.kind is Kind.RECORD:
        return (unit.records.add(operation, [admitted])[0] if known is None else None), stored
    if known is None:
        added = writer.put(unit, operation, admitted)
        return (added.entry if added.created else None), StoredVersions(admitted.id)
    if stored.id != known.id:
        history = unit.memories.history(scope, known.id)
        stored = StoredVersions(known.id, tuple(_content_of(one, one.text) for one in history))
    content = _content_of(draft, admitted.text)
    if content in stored.contents:
        at = stored.contents.index(content)
        return None, StoredVersions(known.id, stored.contents[:at] + stored.contents[at + 1 :])
    if content == _content_of(known, known.text):
        return None, stored
    try:
        return writer.update(unit, operation, known.id, admitted, expected_version=None), stored
    except Conflict:  # It was deleted here, or another memory has this text.
        return None, stored


def _content_of(one: Draft | Entry, text: str) -> Content:
    return text, one.target, one.origin, one.pinned, one.firm, dict(one.metadata)
