"""Holds an embedder to its word: a vector for each text, as long as its identity says, of finite numbers."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from afterturn.errors import EmbedderUnavailable
from afterturn.ports import Aside, Embedder, Separable, Store, Unit
from afterturn.runtime.once_future import is_set
from afterturn.types import EmbedderIdentity, Job

if TYPE_CHECKING:
    pass


# Vectors for an import while it goes on: another process embeds what is checked, and each chunk stores what is back.
#
# What does not come back is left to the job that every chunk leaves behind.

logger = logging.getLogger("afterturn")

# Starting the process takes a core a third of a second: as long as embedding some thousand entries.
LONG = 4096
# So far may the other process be behind before an import waits for it.
_BEHIND_MAX = 4096

Put: TypeAlias = Callable[[Unit], None]


class ImportEmbedder:
    """Lives on memory's loop, for one import, which has to `end` it."""

    def __init__(self, embedder: Embedder, tenant: str, space: str) -> None:
        self.place = (tenant, space)
        self._embedder = embedder
        self._aside: Aside | None = None
        self._count = 0
        self._behind = 0
        self._unsent: list[list[str]] = []
        self._sent: deque[list[str]] = deque()
        self._ready: dict[str, bytes] = {}
        self._over = asyncio.Event()

    async def expect(self, count: int) -> None:
        """An import of `count` entries begins, or has come so far. Long ones are worth a process."""
        if count >= LONG and self._aside is None and not self._over.is_set():
            self._aside = await start_aside(self._embedder)
            if self._aside is None:
                await self.end()

    async def take(self, texts: list[str]) -> None:
        """The texts of entries that are about to be stored. Waits only while the other process is far behind."""
        self._count += len(texts)
        await self.expect(self._count)
        if not self._over.is_set():
            self._unsent.append(texts)
            await self._exchange(behind_max=_BEHIND_MAX)

    def put_ready(self) -> Put:
        """Stores, in the unit of a chunk's own writes, the vectors that are back by now."""
        ready, self._ready = self._ready, {}

        def put(unit: Unit) -> None:
            if ready:
                # They come back in the order of the entries, of which the oldest without a vector are given first.
                identity = self._embedder.identity
                rows = unit.index.unembedded(*self.place, identity, limit=len(ready))
                unit.index.put_vectors(identity, [(key, ready[text]) for key, text in rows if text in ready])

        return put

    async def wait(self) -> bool:
        """Until all vectors are back; nothing may be taken afterwards. Whether anything is left to be stored."""
        await self._exchange(behind_max=0)
        return bool(self._ready)

    async def is_over(self, *, within: float) -> bool:
        """Whether the entries are left to others: it never began, or it ends in time."""
        return self._aside is None or await is_set(self._over, within=within)

    async def end(self) -> None:
        """Vectors that are not back by now are left to the job."""
        self._over.set()
        self._unsent.clear()
        aside, self._aside = self._aside, None
        if aside is not None:
            await aside.close()

    async def _exchange(self, *, behind_max: int) -> None:
        if self._aside is None:
            return
        for texts in self._unsent:
            self._aside.send(texts)
            self._sent.append(texts)
            self._behind += len(texts)
        self._unsent.clear()
        try:
            while self._behind > behind_max:
                vectors = await self._aside.receive()
                texts = self._sent.popleft()
                self._behind -= len(texts)
                self._ready.update(zip(texts, vectors, strict=True))
        except EmbedderUnavailable as error:
            logger.warning("%s", error)
            await self.end()


async def start_aside(embedder: Embedder) -> Aside | None:
    """None when the embedder can not work in another process, or not at all: then words are enough."""
    try:
        return await embedder.start_aside() if isinstance(embedder, Separable) else None
    except EmbedderUnavailable:
        return None


async def embed_aside(aside: Aside, texts: Sequence[str]) -> list[bytes]:
    """One batch, awaited, when nothing else is outstanding."""
    aside.send(texts)
    return await aside.receive()


# Entries that wait for their vectors, worked off in batches: one is read, one embedded and one stored at a time.

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
Progress: TypeAlias = Callable[[int, int], None]
Finish: TypeAlias = Callable[[Unit], bool]


class Backlog:
    """What one job works off. It begins in this process, and goes on in another one when it turns out to be long."""

    def __init__(self, job: Job, embedder: Embedder, store: Store, in_process: InProcess, told: Progress) -> None:
        """`in_process` embeds here; `told` gets the number of entries that have vectors by now, and of those left."""
        self._place = (job.tenant, job.space)
        self._embedder = embedder
        self._store = store
        self._in_process = in_process
        self._told = told
        self._identity = embedder.identity
        self._size = BATCH_FIRST
        self._count = 0
        # What comes after that has a job of its own, for which others like it are waited for.
        self._has_read_all = False
        self._aside: Aside | None = None

    async def work_off(self) -> Finish:
        """Gives the job's space its missing vectors, then takes those of other embedders away.

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
            self._told(self._count, max(total - self._count, len(rows)))
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
            if not await self._store.read(self._has_abandoned):
                return True
            await self._store.write(self._drop_some)
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
        rows = await self._store.read(lambda unit: unit.index.unembedded(tenant, space, identity, limit=limit))
        self._has_read_all = len(rows) < limit
        taken = {key for key, _ in under_way}
        return [row for row in rows if row[0] not in taken]

    async def _total(self, rows: Rows) -> int:
        if self._has_read_all:
            return len(rows)
        (tenant, space), identity = self._place, self._identity
        return await self._store.read(lambda unit: unit.index.waiting(tenant, identity, space=space))

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
        """At most twice as many as before: the first texts may be short, and the others long."""
        affordable = BATCH_MAX if seconds <= 0 else int(count * BATCH_SECONDS / seconds)
        self._size = max(BATCH_MIN, min(BATCH_MAX, affordable, self._size * 2))

    async def _put(self, vectors: Vectors) -> None:
        if vectors:
            await self._store.write(functools.partial(_put, identity=self._identity, vectors=vectors))

    async def _end_aside(self) -> None:
        aside, self._aside = self._aside, None
        if aside is not None:
            await aside.close()


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
