"""Entries that wait for their vectors, worked off in batches: one is read, one embedded and one stored at a time."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from afterturn.base.embedder_ports import Aside
from afterturn.base.errors import EmbedderUnavailable
from afterturn.base.ports import Embedder, Store, Unit
from afterturn.base.types import EmbedderIdentity, Job
from afterturn.recall.following import LONG, embed_aside, start_aside

logger = logging.getLogger("afterturn")

# What is embedded at a time is stored at a time. It grows and shrinks with the embedder's speed: a batch that takes
# seconds is a batch that is lost when the process ends, and one that outlasts a job's lease would be done twice.
BATCH_FIRST = 64
BATCH_MIN = 8
BATCH_MAX = 512
BATCH_SECONDS = 2.0
# Well within a job's lease.
JOB_SECONDS_MAX = 20.0
# Old vectors that leave in one transaction, some 10 ms.
DROPPED = 1000

Rows: TypeAlias = list[tuple[int, str]]
Vectors: TypeAlias = list[tuple[int, bytes]]
InProcess: TypeAlias = Callable[[Sequence[str]], Awaitable[list[bytes]]]
Told: TypeAlias = Callable[[int, int], None]
Last: TypeAlias = Callable[[Unit], bool]


@dataclass(frozen=True, slots=True)
class BacklogParts:
    """`in_process` embeds here; `told` hears how many entries have vectors by now, and how many of the space wait."""

    embedder: Embedder
    store: Store
    in_process: InProcess
    told: Told


class Backlog:
    """What one job works off. It begins in this process, and goes on in another one when it turns out to be long."""

    def __init__(self, job: Job, parts: BacklogParts) -> None:
        self._place = (job.tenant, job.space)
        self._parts = parts
        self._identity = parts.embedder.identity
        self._size = BATCH_FIRST
        self._count = 0
        # What comes after that has a job of its own, for which others like it are waited for.
        self._has_read_all = False
        self._aside: Aside | None = None

    async def work_off(self) -> Last:
        """Gives the job's space its missing vectors, then takes those of other embedders away.

        The function that comes back has to run with the job's end: it stores the last of them, and says whether
        something may be left, since a job's time is over.
        """
        try:
            return await self._pass_through()
        finally:
            self._end_aside()

    async def _pass_through(self) -> Last:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + JOB_SECONDS_MAX
        embedded: Vectors = []
        rows = await self._read(())
        if not rows:
            is_left = not await self._drop_abandoned(deadline)
            return lambda unit: is_left
        total = await self._total(rows)
        while rows and loop.time() <= deadline:
            begun = loop.time()
            following, vectors = await _together(
                self._read([*rows, *embedded]), self._embed([text for _, text in rows]), self._put(embedded)
            )
            self._adapt(len(rows), loop.time() - begun)
            embedded = [(key, vector) for (key, _), vector in zip(rows, vectors, strict=True)]
            rows = following
            self._parts.told(self._count, max(total - self._count, len(rows)))
        return functools.partial(self._finish, vectors=embedded, is_done=not rows)

    def _finish(self, unit: Unit, *, vectors: Vectors, is_done: bool) -> bool:
        _put(unit, self._identity, vectors)
        # Of a space that has all its new vectors, the old ones are of no more use (M3). The rest has the next job.
        return not is_done or self._drop_some(unit) == DROPPED

    async def _drop_abandoned(self, deadline: float) -> bool:
        """Whether all are gone."""
        loop = asyncio.get_running_loop()
        while loop.time() <= deadline:
            # Looking first: a job with nothing to do has no need to write.
            if not await self._parts.store.read(self._has_abandoned):
                return True
            await self._parts.store.write(self._drop_some)
        return False

    def _has_abandoned(self, unit: Unit) -> bool:
        return unit.index.has_abandoned(*self._place, self._identity)

    def _drop_some(self, unit: Unit) -> int:
        return unit.index.drop_abandoned(*self._place, self._identity, limit=DROPPED)

    async def _read(self, under_way: Sequence[tuple[int, object]]) -> Rows:
        if self._has_read_all:
            return []
        tenant, space, identity = *self._place, self._identity
        limit = self._size + len(under_way)
        rows = await self._parts.store.read(lambda unit: unit.index.unembedded(tenant, space, identity, limit=limit))
        self._has_read_all = len(rows) < limit
        taken = {key for key, _ in under_way}
        return [row for row in rows if row[0] not in taken]

    async def _total(self, rows: Rows) -> int:
        if self._has_read_all:
            return len(rows)
        (tenant, space), identity = self._place, self._identity
        return await self._parts.store.read(lambda unit: unit.index.waiting(tenant, identity, space=space))

    async def _embed(self, texts: list[str]) -> list[bytes]:
        if self._count < LONG <= self._count + len(texts):
            self._aside = start_aside(self._parts.embedder)
        self._count += len(texts)
        if self._aside is not None:
            try:
                return await embed_aside(self._aside, texts)
            except EmbedderUnavailable as error:
                logger.warning("%s", error)
                self._end_aside()
        return await self._parts.in_process(texts)

    def _adapt(self, count: int, seconds: float) -> None:
        """At most twice as many as before: the first texts may be short, and the others long."""
        affordable = BATCH_MAX if seconds <= 0 else int(count * BATCH_SECONDS / seconds)
        self._size = max(BATCH_MIN, min(BATCH_MAX, affordable, self._size * 2))

    async def _put(self, vectors: Vectors) -> None:
        if vectors:
            await self._parts.store.write(functools.partial(_put, identity=self._identity, vectors=vectors))

    def _end_aside(self) -> None:
        if self._aside is not None:
            self._aside.close()
            self._aside = None


def _put(unit: Unit, identity: EmbedderIdentity, vectors: Vectors) -> None:
    if vectors:
        unit.index.put_vectors(identity, vectors)


async def _together(
    reading: Awaitable[Rows], embedding: Awaitable[list[bytes]], storing: Awaitable[None]
) -> tuple[Rows, list[bytes]]:
    """Waits for all three even when one fails: none may go on behind its job's back."""
    read, embedded, stored = await asyncio.gather(reading, embedding, storing, return_exceptions=True)
    if isinstance(stored, BaseException):
        raise stored
    if isinstance(read, BaseException):
        raise read
    if isinstance(embedded, BaseException):
        raise embedded
    return read, embedded
