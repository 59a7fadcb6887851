"""Whole spaces in and out: everything held as lines, and many statements in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, TypeAlias

from afterturn.base.errors import InvalidInput, NotFound
from afterturn.base.ports import Unit
from afterturn.base.types import (
    Admitted,
    Draft,
    Entry,
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
from afterturn.space.parts import SpaceParts

EXPORT_FORMAT = 1
CHUNK = 512
GATE_SLICE = 8
PAGE = 1000
EVENTS_MAX = 100_000

Progress: TypeAlias = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Imported:
    """`group` is what `undo` takes to take the whole import back."""

    created: int
    existing: int
    group: str


async def import_drafts(
    parts: SpaceParts, space: str, drafts: Iterable[Draft], *, group: str, progress: Progress | None
) -> Imported:
    """A chunk is checked, then written. Doing both at once takes longer: they would fight for Python's lock."""
    if not isinstance(drafts, Iterable):
        raise InvalidInput(f"A {type(drafts).__name__} is no list of drafts. Pass afterturn.Draft objects.")
    source = iter(drafts)
    created = total = 0
    with _followed(parts, space, drafts) as stored:
        while chunk := await _admitted(parts, source):
            created += await _write_chunk(parts, space, chunk, group)
            total += len(chunk)
            stored(total)
            if progress:
                progress(total)
    return Imported(created, total - created, group)


@contextmanager
def _followed(parts: SpaceParts, space: str, drafts: Iterable[Draft]) -> Iterator[Callable[[int], None]]:
    """Has the new entries embedded: beside the import where another process can do that, else when it pauses."""
    if parts.embedding is None or not parts.config.background:
        yield lambda total: parts.on_write()
        return
    with parts.embedding.importing(parts.tenant, space) as follow:
        follow(len(drafts) if isinstance(drafts, Sized) else 0)
        is_following = False

        def stored(total: int) -> None:
            nonlocal is_following
            # The jobs wait until they have not been woken for a moment.
            if not is_following:
                parts.on_write()
            is_following = follow(total)

        yield stored
    parts.on_write()


async def _admitted(parts: SpaceParts, source: Iterator[Draft]) -> list[Admitted]:
    chunk: list[Admitted] = []
    while len(chunk) < CHUNK and (drafts := list(islice(source, GATE_SLICE))):
        chunk.extend(parts.gate.admit_import(draft) for draft in drafts)
        # Python-bound work yields every couple of milliseconds, so that turns beside it are not held up.
        await asyncio.sleep(0)
    return chunk


async def _write_chunk(parts: SpaceParts, space: str, chunk: list[Admitted], group: str) -> int:
    now = parts.clock.now()
    operation = Operation(parts.ids.new(), parts.tenant, space, Verb.IMPORT, Origin.IMPORT, now, group)
    job = new_job(JobKind.EMBED, parts.ids.new(), parts.tenant, space, now)

    def work(unit: Unit) -> int:
        unit.operations.start(operation)
        created = sum(_store(unit, operation, admitted) for admitted in chunk)
        unit.jobs.add(job, coalesce=True)
        return created

    return await parts.store.write(work)


def _store(unit: Unit, operation: Operation, admitted: Admitted) -> bool:
    """False when it was there already. A record is known by its id: the same export imported twice is there once."""
    if admitted.draft.kind is Kind.STATEMENT:
        return unit.memories.add(operation, admitted).created
    try:
        unit.memories.get(Scope(operation.tenant, (operation.space,)), admitted.id)
    except NotFound:
        unit.records.add(operation, [admitted])
        return True
    return False


def export_lines(unit: Unit, scope: Scope, now: float) -> list[dict[str, Any]]:
    """Everything held on the scope's space, one consistent snapshot (M4)."""
    (space,) = scope.spaces
    lines: list[dict[str, Any]] = [
        {"afterturn_export": EXPORT_FORMAT, "tenant": scope.tenant, "space": space, "exported_at": now}
    ]
    for entry in _all_entries(unit, scope):
        lines.extend({"entry": asdict(version)} for version in unit.memories.history(scope, entry.id))
    for operation in reversed(unit.operations.page(scope, limit=EVENTS_MAX)):
        lines.append({"operation": asdict(operation)})
    for conversation in unit.conversations.page(scope.tenant, space, limit=EVENTS_MAX):
        lines.append({"conversation": conversation})
    for event in unit.timeline.page(scope, limit=EVENTS_MAX):
        lines.append({"event": asdict(event)})
    return lines


def _all_entries(unit: Unit, scope: Scope) -> Iterator[Entry]:
    before: str | None = None
    while page := unit.memories.page(scope, Filter(statuses=tuple(Status)), limit=PAGE, before=before):
        yield from page
        before = page[-1].id
