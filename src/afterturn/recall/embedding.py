"""The embedder at work: loaded behind `open`, asked for query vectors, run over new entries as jobs."""

from __future__ import annotations

import asyncio
import functools
import logging
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from afterturn.base.errors import EmbedderUnavailable
from afterturn.base.events import Events
from afterturn.base.jobs import Commit
from afterturn.base.loop import run_on
from afterturn.base.ports import Embedder, Ids, Store, Unit, Worker
from afterturn.base.slot import is_set
from afterturn.base.types import Job, JobKind, new_job
from afterturn.recall.backlog import Backlog
from afterturn.recall.following import Following

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from afterturn.recall.vectors import VectorIndex

logger = logging.getLogger("afterturn")

# A question's vector waits for the slice under way: 64 short texts are about 4 ms. Beside a turn, which Python-bound
# work costs by the GIL, it is 2 ms and a pause.
SLICE = 64
SLICE_BESIDE_TURN = 32
PAUSE_BESIDE_TURN = 0.005
# Reading the tokenizer's file holds the GIL for 60 ms and more, longer than the grace of a turn. So a process whose
# first turn begins at once has that turn first, by words alone, and loads while the model answers.
WARM_UP_DELAY = 0.5
# An import embeds what it brings; a job that finds one looks again later, and lets other jobs have their turn.
FOLLOWED_WITHIN = 1.0
# An embedder that takes longer for one question than a person waits for an answer does not help it.
QUERY_WITHIN = 1.0


class Embedding:
    """Lives on memory's loop; the embedder itself on a worker's thread."""

    def __init__(self, embedder: Embedder, worker: Worker, store: Store, events: Events, ids: Ids) -> None:
        self._embedder = embedder
        self._ids = ids
        self._worker = worker
        self._store = store
        self._events = events
        self._wanted = asyncio.Event()
        self.index: VectorIndex | None = None
        self._turns: weakref.WeakSet[object] = weakref.WeakSet()
        self._followed: weakref.WeakSet[Following] = weakref.WeakSet()

    def want(self) -> None:
        """Now is a good moment to load: somebody waits for vectors, or a turn has what it needs."""
        self._wanted.set()

    def begin_turn(self, turn: object) -> None:
        """From now on until `end_turn`, or until the host drops it, background work keeps out of the turn's way."""
        self._turns.add(turn)

    def end_turn(self, turn: object) -> None:
        self._turns.discard(turn)
        self.want()

    async def warm_up(self, index_bytes_max: int, now: float) -> None:
        """Loads the embedder and makes it the store's; a store that knew another one is embedded anew (M3)."""
        await is_set(self._wanted, within=WARM_UP_DELAY)
        try:
            await run_on(self._worker, lambda: self._embedder.embed(["warm"]))
        except EmbedderUnavailable as error:
            logger.warning("recall goes on with words alone: %s", error)
            self._events.emit("embedder_unavailable", reason=str(error))
            return
        from afterturn.recall.vectors import VectorIndex

        await self._store.write(lambda unit: self._adopt(unit, now))
        self.index = VectorIndex(self._embedder.identity, index_bytes_max)
        self._events.emit("vectors_ready", embedder=self._embedder.identity.name)

    def _adopt(self, unit: Unit, now: float) -> None:
        for tenant, space in unit.index.adopt(self._embedder.identity):
            unit.jobs.add(new_job(JobKind.EMBED, self._ids.new(), tenant, space, now), coalesce=True)

    async def query_vector(self, text: str) -> NDArray[np.float32] | None:
        """None while the embedder is not ready, fails or takes too long: recall then goes by words, and says so."""
        if self.index is None:
            return None
        try:
            embedding = run_on(self._worker, lambda: self._embedder.embed([text]))
            async with asyncio.timeout(QUERY_WITHIN):
                rows: NDArray[np.float32] = await embedding
        except Exception as error:
            logger.warning("a question could not be embedded; it is recalled by words alone", exc_info=error)
            return None
        vector: NDArray[np.float32] = rows[0]
        return vector

    def follow(self, tenant: str, space: str) -> Following:
        """For an import, which is embedded while it goes on, and has to end it."""
        following = Following(self._embedder, tenant, space)
        self._followed.add(following)
        return following

    async def handle(self, job: Job) -> Commit:
        """Gives the job's space its missing vectors; the last of them are stored with the job's end."""
        commit, is_done = await self._work_off(job)
        if is_done:
            return commit
        rest = new_job(JobKind.EMBED, self._ids.new(), job.tenant, job.space, job.run_at)

        def commit_and_go_on(unit: Unit) -> None:
            commit(unit)
            unit.jobs.add(rest, coalesce=True)

        return commit_and_go_on

    async def _work_off(self, job: Job) -> tuple[Commit, bool]:
        for following in list(self._followed):
            if following.place == (job.tenant, job.space) and not await following.is_over(within=FOLLOWED_WITHIN):
                return (lambda unit: None), False
        return await Backlog(job, self._embedder, self._store, self._in_slices).work_off()

    async def _in_slices(self, texts: Sequence[str]) -> list[bytes]:
        vectors: list[bytes] = []
        while len(vectors) < len(texts):
            size = SLICE_BESIDE_TURN if self._turns else SLICE
            part = texts[len(vectors) : len(vectors) + size]
            vectors += await run_on(self._worker, functools.partial(self._packed, part))
            await asyncio.sleep(PAUSE_BESIDE_TURN if self._turns else 0)
        return vectors

    def _packed(self, texts: Sequence[str]) -> list[bytes]:
        return [row.tobytes() for row in self._embedder.embed(texts).astype("<f2")]
