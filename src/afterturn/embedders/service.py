"""Vectors of questions: embedded apart from any backlog, and remembered for a while without their words."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import os
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from afterturn.base.heap import give_back
from afterturn.embedders.backlog import Backlog, ImportEmbedder, Last, Told, embed_as_promised
from afterturn.errors import EmbedderUnavailable, StoreError
from afterturn.events import Events
from afterturn.ports import Batching, Clock, Closable, Embedder, Ids, Immediate, Store, Unit, Worker
from afterturn.recall.query import SPEAKERS_MAX, Embed, QueryVector, named_in, without_names
from afterturn.runtime.jobs import Commit
from afterturn.runtime.loop_thread import run_on
from afterturn.runtime.once_future import is_set
from afterturn.types import EmbedderIdentity, Finding, Job, JobKind, Scope, new_job

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from afterturn.recall.index.cache import IndexCache


# The turns of many conversations; at 384 dimensions less than half a megabyte.
KEPT_MAX = 256
_KEY_BYTES = 32
_DIGEST_BYTES = 16


class QuestionVectors:
    """Of one embedder, so that vectors of two never mix (M3). Lives on memory's loop.

    A question is known again by a hash whose key never leaves this object: its words are not kept (M2).
    """

    def __init__(self, embedder: Embedder, worker: Worker) -> None:
        self._embedder = embedder
        self._worker = worker
        self._secret = os.urandom(_KEY_BYTES)
        self._kept: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()
        self._forgets = 0
        self._late: list[_Call] = []

    async def get(self, text: str) -> NDArray[np.float32]:
        """Waits without a limit: the caller sets it. EmbedderUnavailable when it fails.

        Also while a call is under way that nobody waits for any more: those who ask meanwhile would only queue up
        behind an embedder that hangs.
        """
        name = self._name(text)
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        self._late = [call for call in self._late if not call.is_over]
        if self._late:
            raise EmbedderUnavailable("The embedder is still busy with an earlier question. Nothing has to be done.")
        return await self._embedded(name, text)

    def clear(self) -> None:
        """What was asked may be what is forgotten; nothing of it is left, nor comes from calls that are under way."""
        self._forgets += 1
        self._kept.clear()

    async def _embedded(self, name: bytes, text: str) -> NDArray[np.float32]:
        call, forgets = _Call(self._embedder, text), self._forgets
        try:
            vector = await run_on(self._worker, call)
        finally:
            if not call.is_over:
                self._late.append(call)
        vector.setflags(write=False)
        if forgets == self._forgets:
            self._kept[name] = vector
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return vector

    def _name(self, text: str) -> bytes:
        words = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(words, key=self._secret, digest_size=_DIGEST_BYTES).digest()


class _Call:
    """One question on its way through the embedder, on the worker's thread."""

    def __init__(self, embedder: Embedder, text: str) -> None:
        self._embedder = embedder
        self._text = text
        self.is_over = False

    def __call__(self) -> NDArray[np.float32]:
        try:
            rows = embed_as_promised(self._embedder, [self._text])
            vector: NDArray[np.float32] = rows[0]
            return vector
        finally:
            self.is_over = True


# The embedder at work: loaded behind `open`, asked for query vectors, run over new entries as jobs.

logger = logging.getLogger("afterturn")

# What holds Python's lock is done in small pieces: 64 short texts are about 4 ms. Beside a turn, which it costs by that
# lock, it is 2 ms and a pause.
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
# After which an embedder that failed is asked again; twice as long each time, up to the other.
AGAIN_AFTER = 2.0
AGAIN_AFTER_MAX = 300.0
SHELVED_AFTER = 0.02
# Building one of 100,000 entries leaves 20 MB behind that nobody uses.
LARGE_SHELF_BYTES = 1 << 23
# Between two events about one backlog.
TOLD_EVERY = 2.0

_AGREE = (
    "Give this process the setting `embedder` that made them. Or run `afterturn worker --once` with this setting: "
    "it embeds everything anew."
)


class EmbeddingService:
    """Lives on memory's loop; the embedder itself on its workers' threads."""

    def __init__(
        self,
        embedder: Embedder,
        question_worker: Worker,
        backlog_worker: Worker,
        store: Store,
        events: Events,
        ids: Ids,
        clock: Clock,
    ) -> None:
        """Two workers, so that no question waits for a batch of a backlog."""
        self._embedder = embedder
        self._question_worker = question_worker
        self._backlog_worker = backlog_worker
        self._store = store
        self._events = events
        self._ids = ids
        self._clock = clock
        self._questions = QuestionVectors(embedder, question_worker)
        self._wanted = asyncio.Event()
        self._again_after = AGAIN_AFTER
        self.tried = asyncio.Event()
        self.trouble = ""
        self.index: IndexCache | None = None
        self._is_adopted = False
        self._asked = asyncio.Event()
        self._turns: weakref.WeakSet[object] = weakref.WeakSet()
        self._followed: weakref.WeakSet[ImportEmbedder] = weakref.WeakSet()

    @property
    def identity(self) -> EmbedderIdentity | None:
        """Whose vectors these are; None before a server has told how long they are."""
        try:
            return self._embedder.identity
        except EmbedderUnavailable:
            return None

    def want(self) -> None:
        """Now is a good moment to load: somebody waits for vectors, or a turn has what it needs."""
        self._wanted.set()

    def begin_turn(self, turn: object) -> None:
        """From now on until `end_turn`, or until the host drops it, background work keeps out of the turn's way."""
        self._turns.add(turn)

    def end_turn(self, turn: object) -> None:
        self._turns.discard(turn)
        self.want()

    async def warm_up(self, index_bytes_max: int, *, works: bool) -> bool:
        """Loads the embedder. If this process works on jobs, it becomes the store's: one that knew another is embedded
        anew (M3). A process that only asks uses what is there, and so undoes nobody's work.

        False when it can not be loaded now. `tried` is set either way, and `trouble` says what is wrong.
        """
        await is_set(self._wanted, within=WARM_UP_DELAY)
        try:
            index = await run_on(self._question_worker, lambda: self._load(index_bytes_max))
        except EmbedderUnavailable as error:
            self._fails(error)
            self.tried.set()
            return False
        self._works()
        await (self.adopt() if works else self.join())
        self.index = index
        self._events.emit("vectors_ready", embedder=self._embedder.identity.name)
        self.tried.set()
        return True

    def _load(self, index_bytes_max: int) -> IndexCache:
        """On a worker's thread: importing numpy and loading an embedder would hold up memory's loop."""
        from afterturn.recall.index.cache import IndexCache

        self._embed_now(["warm"])
        return IndexCache(self._embedder.identity, index_bytes_max)

    def pause(self) -> float:
        """How long to leave an embedder alone that has failed."""
        pause, self._again_after = self._again_after, min(2 * self._again_after, AGAIN_AFTER_MAX)
        return pause

    def _fails(self, error: EmbedderUnavailable) -> None:
        """Said when it begins, and again only when it is about something else."""
        if self.trouble != str(error):
            self.trouble = str(error)
            logger.warning("recall goes on with words alone: %s", error)
            self._events.emit("embedder_unavailable", reason=self.trouble)

    def _works(self) -> None:
        self.trouble = ""
        self._again_after = AGAIN_AFTER

    async def ready(self, *, within: float) -> bool:
        """Waits until it was tried to load it. Whether recall has vectors then, as far as they were made."""
        self.want()
        await is_set(self.tried, within=within)
        return await self.has_vectors()

    async def has_vectors(self) -> bool:
        return self.index is not None and await self.find_other() is None

    async def adopt(self) -> None:
        """Makes it the store's, once; if another was before, every space gets a job. For who works on jobs, before."""
        if self._is_adopted:
            return
        if await self._adopted() != self.identity:
            await self._store.write(self._adopt)
        self._is_adopted = True

    async def join(self) -> None:
        """Makes it the store's where none was before."""
        if await self._adopted() is None:
            await self._store.write(self._adopt_first)
        other = await self.find_other()
        if other is not None:
            logger.warning("recall goes by words alone: %s", _disagreement(other, self._embedder.identity.name))

    async def join_again(self) -> None:
        """After the store's content was replaced: its vectors may be another's."""
        if self.index is not None:
            was_adopted, self._is_adopted = self._is_adopted, False
            await (self.adopt() if was_adopted else self.join())

    async def find_other(self) -> EmbedderIdentity | None:
        """The store's embedder, if it is another than this one and this one makes no vectors of its own."""
        adopted = self.identity if self._is_adopted else await self._adopted()
        return None if adopted == self.identity else adopted

    async def _adopted(self) -> EmbedderIdentity | None:
        return await self._store.read(lambda unit: unit.index.adopted())

    def _adopt_first(self, unit: Unit) -> None:
        if unit.index.adopted() is None:
            self._adopt(unit)

    def _adopt(self, unit: Unit) -> None:
        now = self._clock.now()
        for tenant, space in unit.index.adopt(self._embedder.identity):
            unit.jobs.add(new_job(JobKind.EMBED, self._ids.new(), tenant, space, now), coalesce=True)

    async def query_vector(self, text: str, scope: Scope) -> QueryVector | None:
        """The vector of a question without the names of those who spoke in the scope, or the function that makes it.

        An embedder that answers at once is called where the question is searched: a way to another thread and back
        takes longer. None while the embedder is not ready, fails or is late: recall then goes by words and says so.
        """
        if self.index is None:
            return None
        self._asked.set()
        if self._immediate is not None:
            return self._immediate
        try:
            async with asyncio.timeout(QUERY_WITHIN):
                speakers = await self._store.read(lambda unit: unit.index.speakers(scope, limit=SPEAKERS_MAX))
                asked = without_names(text, named_in(text, speakers))
                return await self._questions.get(asked)
        except EmbedderUnavailable as error:
            logger.warning("a question is recalled by words alone: %s", error)
        except Exception as error:
            logger.warning("a question could not be embedded; it is recalled by words alone", exc_info=error)
        return None

    @functools.cached_property
    def _immediate(self) -> Embed | None:
        # Once: telling what an embedder can do takes longer than the rest of a question's way to it.
        embedder = self._embedder
        if not isinstance(embedder, Immediate) or not embedder.is_immediate:
            return None
        return lambda text: self._embed_now([text])[0]

    def _embed_now(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return embed_as_promised(self._embedder, texts)

    async def shelve(self) -> None:
        """Brings spaces that are asked for into memory, for as long as memory is open. To be supervised."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            # What was asked is answered first; the next question finds the space in memory.
            await asyncio.sleep(SHELVED_AFTER)
            while self.index is not None and self.index.is_wanted:
                await self._build_shelf(self.index)
                # A space that changes faster than it can be read is wanted again and again.
                await asyncio.sleep(SHELVED_AFTER)

    async def _build_shelf(self, shelves: IndexCache) -> None:
        size_bytes = shelves.size_bytes
        try:
            await shelves.build_wanted(self._store)
            if shelves.size_bytes > size_bytes + LARGE_SHELF_BYTES:
                await run_on(self._backlog_worker, give_back)
        except StoreError as error:
            logger.warning("a space is not brought into memory yet, the store can not be read: %s", error)
        except Exception:  # the boundary: what can not be brought into memory is still found in the store
            logger.exception("a space could not be brought into memory; recall goes on more slowly")

    def forget(self) -> None:
        """Something is being forgotten, which may have been asked for, or be in memory as an answer."""
        self._questions.clear()
        if self.index is not None:
            self.index.let_entries_go()

    def close(self) -> None:
        """Ends what the embedder does, where it can be told to."""
        if isinstance(self._embedder, Closable):
            self._embedder.close()

    async def finding(self, name: str, tenant: str) -> Finding:
        """What `afterturn doctor` shows of it, under the name that the settings give it."""
        if self.index is None or self.trouble:
            return Finding("warning", "embedder", self.trouble or f"{name} is not ready; recall goes by words alone")
        other = await self.find_other()
        if other is not None:
            return Finding("warning", "embedder", f"{_disagreement(other, name)}; recall goes by words alone", _AGREE)
        waiting = await self.waiting(tenant)
        if not waiting:
            return Finding("ok", "embedder", f"{name} is ready, and every entry has its vector")
        found_by_words = "entries wait for their vectors and are found by their words meanwhile"
        remedy = "`afterturn worker --once` makes them now."
        return Finding("ok", "embedder", f"{name} is ready; {waiting:,} {found_by_words}", remedy)

    async def waiting(self, tenant: str) -> int | None:
        """How many of the tenant's entries have no vector yet; None when nobody can say."""
        identity = self.identity
        if identity is None:
            return None
        return await self._store.read(lambda unit: unit.index.waiting(tenant, identity))

    def follow(self, tenant: str, space: str) -> ImportEmbedder:
        """For an import, which is embedded while it goes on, and has to end it."""
        following = ImportEmbedder(self._embedder, tenant, space)
        self._followed.add(following)
        return following

    async def handle(self, job: Job) -> Commit:
        """Gives the job's space its missing vectors; the last of them are stored with the job's end.

        While the embedder is out of order the job waits: that is no fault of its own, and need not be told to each.
        """
        try:
            last = await self._work_off(job)
        except EmbedderUnavailable as error:
            self._fails(error)
            later = new_job(JobKind.EMBED, self._ids.new(), job.tenant, job.space, self._clock.now() + self.pause())
            return lambda unit: unit.jobs.add(later, coalesce=True)
        self._works()
        rest = new_job(JobKind.EMBED, self._ids.new(), job.tenant, job.space, job.run_at)

        def commit(unit: Unit) -> None:
            if last(unit):
                unit.jobs.add(rest, coalesce=True)

        return commit

    async def _work_off(self, job: Job) -> Last:
        for following in list(self._followed):
            if following.place == (job.tenant, job.space) and not await following.is_over(within=FOLLOWED_WITHIN):
                return lambda unit: True
        backlog = Backlog(job, self._embedder, self._store, self._in_slices, self._teller(job))
        return await backlog.work_off()

    def _teller(self, job: Job) -> Told:
        """Tells of a backlog that takes long, now and then, and when it has come to its end."""
        loop, events = asyncio.get_running_loop(), self._events.of(job.tenant)
        last_at, has_told = loop.time(), False

        def tell(done: int, left: int) -> None:
            nonlocal last_at, has_told
            if loop.time() - last_at >= TOLD_EVERY or (has_told and not left):
                last_at, has_told = loop.time(), True
                events.emit("embedding_progress", space=job.space, done=done, left=left)

        return tell

    async def _in_slices(self, texts: Sequence[str]) -> list[bytes]:
        vectors: list[bytes] = []
        while len(vectors) < len(texts):
            part = texts[len(vectors) : len(vectors) + self._slice()]
            vectors += await run_on(self._backlog_worker, functools.partial(self._packed, part))
            await asyncio.sleep(PAUSE_BESIDE_TURN if self._turns else 0)
        return vectors

    def _slice(self) -> int:
        if isinstance(self._embedder, Batching):
            return self._embedder.batch_texts
        return SLICE_BESIDE_TURN if self._turns else SLICE

    def _packed(self, texts: Sequence[str]) -> list[bytes]:
        return [row.tobytes() for row in self._embed_now(texts).astype("<f2")]


def _disagreement(other: EmbedderIdentity, chosen: str) -> str:
    return f"the store's vectors are of {other.name}, and this process is set to {chosen}"
