"""Embeds many entries: the backlog of one job in batches, in a child process if it is long."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from afterturn.errors import EmbedderUnavailable
from afterturn.log import logger
from afterturn.ports import Aside, Embedder, Separable, Store, Unit
from afterturn.types import Job, Scope

# Starting the child process costs a third of a second of CPU: as much as embedding some 200 entries.
LONG = 512


async def start_aside(embedder: Embedder) -> Aside | None:
    """None when the embedder cannot run in another process, or not at all."""
    try:
        return await embedder.start_aside() if isinstance(embedder, Separable) else None
    except EmbedderUnavailable:
        return None


async def embed_aside(aside: Aside, texts: Sequence[str]) -> list[bytes]:
    """Embeds one batch, while no other is being embedded."""
    aside.send(texts)
    return await aside.receive()


# A batch is embedded and stored as a whole. Its size follows the embedder's speed: a slow batch is lost when the
# process ends, and one that outlasts a job's lease is embedded twice.
BATCH_FIRST = 64
BATCH_MIN = 8
BATCH_MAX = 512
BATCH_SECONDS = 2.0
# Well within a job's lease.
JOB_SECONDS_MAX = 20.0
# How many old vectors one transaction deletes, in some 10 ms.
DROPPED = 1000

Rows: TypeAlias = list[tuple[int, str]]
Vectors: TypeAlias = list[tuple[int, bytes]]
InProcess: TypeAlias = Callable[[Sequence[str]], Awaitable[list[bytes]]]
Progress: TypeAlias = Callable[[int, int], None]
Finish: TypeAlias = Callable[[Unit], bool]


class Backlog:
    """The entries of one job. It starts in this process and continues in a child process when it is long.

    While one batch is embedded, the next is read and the last is stored.
    """

    def __init__(self, job: Job, embedder: Embedder, store: Store, in_process: InProcess, report: Progress) -> None:
        """`in_process` embeds in this process; `report` gets how many entries have vectors now, and how many wait."""
        self._place = (job.tenant, job.space)
        self._scope = Scope(job.tenant, (job.space,))
        self._embedder = embedder
        self._store = store
        self._in_process = in_process
        self._report = report
        self._identity = embedder.identity
        self._size = BATCH_FIRST
        self._count = 0
        # Entries that are added after that have a job of their own.
        self._has_read_all = False
        self._aside: Aside | None = None

    async def work_off(self) -> Finish:
        """Gives the job's space its missing vectors, then deletes those of other embedders.

        The function that comes back has to run with the job's end: it stores the last of them, and says whether
        something may be left, since a job's time is over.
        """
        try:
            return await self._pass_through()
        finally:
            await self._end_aside()

    async def _pass_through(self) -> Finish:
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
            self._report(self._count, max(total - self._count, len(rows)))
        return functools.partial(self._finish, vectors=embedded, is_done=not rows)

    def _finish(self, unit: Unit, *, vectors: Vectors, is_done: bool) -> bool:
        self._store_vectors(unit, vectors)
        # Once a space has all its new vectors, the old ones are deleted; the next job deletes the rest.
        return not is_done or self._drop_some(unit) == DROPPED

    async def _drop_abandoned(self, deadline: float) -> bool:
        """Returns whether all are deleted."""
        loop = asyncio.get_running_loop()
        while loop.time() <= deadline:
            # A read first: a job with nothing to do should not write.
            if not await self._store.read(self._has_abandoned, at=self._scope):
                return True
            await self._store.write(self._drop_some, at=self._scope)
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
        rows = await self._store.read(
            lambda unit: unit.index.unembedded(tenant, space, identity, limit=limit), at=self._scope
        )
        self._has_read_all = len(rows) < limit
        taken = {key for key, _ in under_way}
        return [row for row in rows if row[0] not in taken]

    async def _total(self, rows: Rows) -> int:
        if self._has_read_all:
            return len(rows)
        (tenant, space), identity = self._place, self._identity
        return await self._store.read(lambda unit: unit.index.waiting(tenant, identity, space=space), at=self._scope)

    async def _embed(self, texts: list[str]) -> list[bytes]:
        if self._count < LONG <= self._count + len(texts):
            self._aside = await start_aside(self._embedder)
        self._count += len(texts)
        if self._aside is not None:
            try:
                return await embed_aside(self._aside, texts)
            except EmbedderUnavailable as error:
                logger.warning("%s", error)
                await self._end_aside()
        return await self._in_process(texts)

    def _adapt(self, count: int, seconds: float) -> None:
        """At most doubles it: the first texts may be short and the others long."""
        affordable = BATCH_MAX if seconds <= 0 else int(count * BATCH_SECONDS / seconds)
        self._size = max(BATCH_MIN, min(BATCH_MAX, affordable, self._size * 2))

    async def _put(self, vectors: Vectors) -> None:
        if vectors:
            await self._store.write(functools.partial(self._store_vectors, vectors=vectors), at=self._scope)

    def _store_vectors(self, unit: Unit, vectors: Vectors) -> None:
        if vectors:
            unit.index.put_vectors(*self._place, self._identity, vectors)

    async def _end_aside(self) -> None:
        aside, self._aside = self._aside, None
        if aside is not None:
            await aside.close()


async def _together(
    reading: Awaitable[Rows], embedding: Awaitable[list[bytes]], storing: Awaitable[None]
) -> tuple[Rows, list[bytes]]:
    """Waits for all three even when one fails, so that none runs after the job has ended."""
    read, embedded, stored = await asyncio.gather(reading, embedding, storing, return_exceptions=True)
    if isinstance(stored, BaseException):
        raise stored
    if isinstance(read, BaseException):
        raise read
    if isinstance(embedded, BaseException):
        raise embedded
    return read, embedded
