"""Many statements and records at once, in chunks that one `undo` takes back together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from afterturn.base.errors import InvalidInput, NotFound
from afterturn.base.ports import Unit
from afterturn.base.types import (
    Admitted,
    Draft,
    JobKind,
    Kind,
    Operation,
    Origin,
    Scope,
    Verb,
    new_job,
)
from afterturn.guard.writing import Writing
from afterturn.recall.following import Following
from afterturn.space.parts import SpaceParts

CHUNK = 512
GATE_SLICE = 8

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
    """Returns when all is stored. A long import is embedded while it goes on, where another process can do that."""
    if not isinstance(drafts, Iterable):
        raise InvalidInput(f"A {type(drafts).__name__} is no list of drafts. Pass afterturn.Draft objects.")
    following = parts.embedding.follow(parts.tenant, space) if parts.embedding is not None else None
    try:
        if following is not None and isinstance(drafts, Sized):
            following.expect(len(drafts))
        return await _Import(parts, space, group, following).run(iter(drafts), progress)
    finally:
        if following is not None:
            following.end()


@dataclass(frozen=True, slots=True)
class _Import:
    parts: SpaceParts
    space: str
    group: str
    following: Following | None

    async def run(self, source: Iterator[Draft], progress: Progress | None) -> Imported:
        """A chunk is checked, then written. Doing both at once takes longer: they would fight for Python's lock."""
        created = total = 0
        while chunk := await _admitted(self.parts, source):
            created += await self._write(chunk)
            total += len(chunk)
            if progress:
                progress(total)
        await self._write_rest()
        return Imported(created, total - created, self.group)

    async def _write(self, chunk: list[Admitted]) -> int:
        parts, now = self.parts, self.parts.clock.now()
        operation = Operation(parts.ids.new(), parts.tenant, self.space, Verb.IMPORT, Origin.IMPORT, now, self.group)
        job = new_job(JobKind.EMBED, parts.ids.new(), parts.tenant, self.space, now)
        if self.following is not None:
            await self.following.take([admitted.text for admitted in chunk])
        put_ready = self.following.put_ready() if self.following is not None else None
        writing = Writing(parts.config)

        def work(unit: Unit) -> int:
            unit.operations.start(operation)
            created = sum(_store(unit, operation, admitted, writing) for admitted in chunk)
            unit.jobs.add(job, coalesce=True)
            if put_ready is not None:
                put_ready(unit)
            return created

        written = await parts.store.write(work)
        parts.on_write()
        return written

    async def _write_rest(self) -> None:
        if self.following is not None and await self.following.wait():
            await self.parts.store.write(self.following.put_ready())


async def _admitted(parts: SpaceParts, source: Iterator[Draft]) -> list[Admitted]:
    chunk: list[Admitted] = []
    while len(chunk) < CHUNK and (drafts := list(islice(source, GATE_SLICE))):
        chunk.extend(parts.gate.admit_import(draft) for draft in drafts)
        # Python-bound work yields every couple of milliseconds, so that turns beside it are not held up.
        await asyncio.sleep(0)
    return chunk


def _store(unit: Unit, operation: Operation, admitted: Admitted, writing: Writing) -> bool:
    """False when it was there already. A record is known by its id: the same export imported twice is there once."""
    if admitted.draft.kind is Kind.STATEMENT:
        return writing.put(unit, operation, admitted).created
    try:
        unit.memories.get(Scope(operation.tenant, (operation.space,)), admitted.id)
    except NotFound:
        unit.records.add(operation, [admitted])
        return True
    return False
