"""Entries that wait for their vectors, worked off in batches: one is read, one embedded and one stored at a time.

A long backlog is embedded in another process where there can be one: in this one, embedding and inserting would share
Python's lock, and take as long beside each other as one after the other.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from afterturn.base.errors import EmbedderUnavailable
from afterturn.base.jobs import Commit
from afterturn.base.ports import Aside, Embedder, Separable, Store, Unit
from afterturn.base.slot import is_set
from afterturn.base.types import EmbedderIdentity, Job

logger = logging.getLogger("afterturn")

BATCH = 512
# Well within a job's lease.
JOB_SECONDS_MAX = 20.0
# Starting the process takes a third of a second of one core: as long as embedding some thousand entries.
LONG = 4096
# An import that pauses for longer gets the rest of its vectors from a later job.
PAUSE = 1.0

Rows: TypeAlias = list[tuple[int, str]]
Vectors: TypeAlias = list[tuple[int, bytes]]
Follow: TypeAlias = Callable[[int], bool]
"""Told how many entries an import has or will have at least. Whether they are embedded in another process."""
InProcess: TypeAlias = Callable[[Sequence[str]], Awaitable[list[bytes]]]


@dataclass(slots=True)
class Beside:
    """The other process, as long as somebody has a use for it."""

    embedder: Embedder
    users: int = 0
    failed: bool = False
    running: Aside | None = field(default=None, repr=False)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Whoever leaves last ends the process."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1
            if not self.users:
                self.end()

    def start(self) -> Aside | None:
        """The process that runs or a new one. None where there can be none, or one has failed."""
        if self.running is not None and self.running.ended:
            self.end()
        if self.running is None and not self.failed and isinstance(self.embedder, Separable):
            self.running = self.embedder.start_aside()
            self.failed = self.running is None
        return self.running

    def fail(self) -> None:
        """It is not tried again: what broke one would break the next."""
        self.failed = True
        self.end()

    def end(self) -> None:
        if self.running is not None:
            self.running.close()
            self.running = None


class Backlog:
    """Lives on memory's loop. `in_process` embeds where the other process can not."""

    def __init__(self, embedder: Embedder, store: Store, in_process: InProcess) -> None:
        self._embedder = embedder
        self._store = store
        self._in_process = in_process
        self._beside = Beside(embedder)
        self._imports: Counter[tuple[str, str]] = Counter()
        self._arrived = asyncio.Event()
        self._busy = asyncio.Lock()

    @contextmanager
    def importing(self, tenant: str, space: str) -> Iterator[Follow]:
        """Around an import: vectors follow while it goes on."""
        key = (tenant, space)
        self._imports[key] += 1
        try:
            with self._beside.used():
                yield self._follow
        finally:
            self._imports[key] -= 1
            self._imports += Counter()
            self._arrived.set()

    def _follow(self, count: int) -> bool:
        self._arrived.set()
        if count >= LONG:
            self._beside.start()
        return self._beside.running is not None

    async def work_off(self, job: Job) -> tuple[Commit, bool]:
        """Gives the job's space its missing vectors; the last of them are stored with the job's end.

        False when some may be left: the time of a job is over.
        """
        # Two jobs at once would embed the same entries.
        async with self._busy:
            with self._beside.used():
                return await self._pass_through(job)

    async def _pass_through(self, job: Job) -> tuple[Commit, bool]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + JOB_SECONDS_MAX
        embedded: Vectors = []
        rows, count = await self._read(job, ()), 0
        while True:
            self._arrived.clear()
            count += len(rows)
            following, vectors = await _together(
                self._read(job, [*rows, *embedded]), self._embed([text for _, text in rows], count), self._put(embedded)
            )
            embedded = [(key, vector) for (key, _), vector in zip(rows, vectors, strict=True)]
            rows = following
            is_done = not rows and not await self._comes_more(job)
            if is_done or loop.time() > deadline:
                return functools.partial(_put, identity=self._embedder.identity, vectors=embedded), is_done

    async def _comes_more(self, job: Job) -> bool:
        return bool(self._imports[job.tenant, job.space]) and await is_set(self._arrived, within=PAUSE)

    async def _read(self, job: Job, under_way: Sequence[tuple[int, object]]) -> Rows:
        identity, limit = self._embedder.identity, BATCH + len(under_way)
        rows = await self._store.read(lambda unit: unit.index.unembedded(job.tenant, job.space, identity, limit=limit))
        taken = {key for key, _ in under_way}
        return [row for row in rows if row[0] not in taken]

    async def _embed(self, texts: list[str], count: int) -> list[bytes]:
        """`count` is how many this backlog had so far, these included."""
        aside = self._beside.running if count < LONG else self._beside.start()
        if aside is not None and texts:
            try:
                return await aside.embed(texts)
            except EmbedderUnavailable as error:
                logger.warning("%s", error)
                self._beside.fail()
        return await self._in_process(texts)

    async def _put(self, vectors: Vectors) -> None:
        if vectors:
            await self._store.write(functools.partial(_put, identity=self._embedder.identity, vectors=vectors))


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
