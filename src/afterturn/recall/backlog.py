"""Entries that wait for their vectors, worked off in batches: one is read, one embedded and one stored at a time."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from afterturn.base.errors import EmbedderUnavailable
from afterturn.base.jobs import Commit
from afterturn.base.ports import Aside, Embedder, Store, Unit
from afterturn.base.types import EmbedderIdentity, Job
from afterturn.recall.following import LONG, embed_aside, start_aside

logger = logging.getLogger("afterturn")

BATCH = 512
# Well within a job's lease.
JOB_SECONDS_MAX = 20.0

Rows: TypeAlias = list[tuple[int, str]]
Vectors: TypeAlias = list[tuple[int, bytes]]
InProcess: TypeAlias = Callable[[Sequence[str]], Awaitable[list[bytes]]]


class Backlog:
    """What one job works off. It begins in this process, and goes on in another one when it turns out to be long."""

    def __init__(self, job: Job, embedder: Embedder, store: Store, in_process: InProcess) -> None:
        self._job = job
        self._embedder = embedder
        self._store = store
        self._in_process = in_process
        self._count = 0
        self._aside: Aside | None = None

    async def work_off(self) -> tuple[Commit, bool]:
        """Gives the job's space its missing vectors; the commit stores the last of them with the job's end.

        False when some may be left: a job's time is over.
        """
        try:
            return await self._pass_through()
        finally:
            self._end_aside()

    async def _pass_through(self) -> tuple[Commit, bool]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + JOB_SECONDS_MAX
        embedded: Vectors = []
        rows = await self._read(())
        while rows and loop.time() <= deadline:
            following, vectors = await _together(
                self._read([*rows, *embedded]), self._embed([text for _, text in rows]), self._put(embedded)
            )
            embedded = [(key, vector) for (key, _), vector in zip(rows, vectors, strict=True)]
            rows = following
        return functools.partial(_put, identity=self._embedder.identity, vectors=embedded), not rows

    async def _read(self, under_way: Sequence[tuple[int, object]]) -> Rows:
        tenant, space, identity = self._job.tenant, self._job.space, self._embedder.identity
        limit = BATCH + len(under_way)
        rows = await self._store.read(lambda unit: unit.index.unembedded(tenant, space, identity, limit=limit))
        taken = {key for key, _ in under_way}
        return [row for row in rows if row[0] not in taken]

    async def _embed(self, texts: list[str]) -> list[bytes]:
        if self._count < LONG <= self._count + len(texts):
            self._aside = start_aside(self._embedder)
        self._count += len(texts)
        if self._aside is not None:
            try:
                return await embed_aside(self._aside, texts)
            except EmbedderUnavailable as error:
                logger.warning("%s", error)
                self._end_aside()
        return await self._in_process(texts)

    async def _put(self, vectors: Vectors) -> None:
        if vectors:
            await self._store.write(functools.partial(_put, identity=self._embedder.identity, vectors=vectors))

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
