"""EmbeddingService: loads the embedder in the background, embeds questions, and runs the jobs that embed entries."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import importlib
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from afterturn.errors import EmbedderUnavailable
from afterturn.events import Events
from afterturn.log import logger
from afterturn.ports import (
    Aside,
    Batching,
    Clock,
    Closable,
    Embedder,
    Gradual,
    Ids,
    Immediate,
    Separable,
    Store,
    Unit,
    Worker,
)
from afterturn.recall.query import SPEAKERS_MAX, Embed, QueryVector, named_in, without_names
from afterturn.recall.relevance import prepare
from afterturn.runtime.jobs import Commit
from afterturn.runtime.loop_thread import run_on
from afterturn.runtime.once_future import is_set
from afterturn.types import EmbedderIdentity, Finding, Job, JobKind, Scope, Tenant, new_job

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from afterturn.recall.index.cache import IndexCache


# How many vectors of questions are cached: the turns of many conversations, at 384 dimensions half a megabyte.
CACHED_MAX = 256
_KEY_BYTES = 32
_DIGEST_BYTES = 16


def embed_checked(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Calls the embedder and checks what it returns. Raises EmbedderUnavailable for vectors of a wrong shape, or with
    numbers that are not finite, which could not be compared with its others."""
    import numpy as np

    rows = embedder.embed(texts)
    identity = embedder.identity
    if rows.shape != (len(texts), identity.dimensions):
        raise EmbedderUnavailable(
            f"The embedder {identity.name!r} returned {' × '.join(map(str, rows.shape))} numbers for "
            f"{len(texts)} texts, but its identity says {identity.dimensions} for each. {_REMEDY}"
        )
    if not np.isfinite(rows).all():
        raise EmbedderUnavailable(f"The embedder {identity.name!r} returned numbers that are not finite. {_REMEDY}")
    return rows


_Vectors: TypeAlias = "OrderedDict[bytes, NDArray[np.float32]]"


class QuestionVectors:
    """A cache of one embedder's vectors of questions: a turn that is recorded has the question that it has asked.

    Questions are found by a hash with a secret key, so no words are in the cache. Only `get` needs memory's loop.
    """

    def __init__(self, embedder: Embedder, worker: Worker) -> None:
        self._embedder = embedder
        self._worker = worker
        self._secret = os.urandom(_KEY_BYTES)
        self._vectors: _Vectors = OrderedDict()
        self._late: list[_Call] = []

    async def get(self, text: str) -> NDArray[np.float32]:
        """Waits without a limit, which the caller sets. Raises EmbedderUnavailable when the embedder fails.

        Raises it also while a call runs that its caller has given up: others would only queue behind an embedder that
        hangs.
        """
        known, kept = self.find(text), self._vectors
        if known is not None:
            return known
        self._late = [call for call in self._late if not call.is_over]
        if self._late:
            raise EmbedderUnavailable(
                "The embedder is still busy with an earlier question. You do not have to do anything."
            )
        call = _Call(self._embedder, text)
        try:
            return self._keep(kept, text, await run_on(self._worker, call))
        finally:
            if not call.is_over:
                self._late.append(call)

    def embed(self, text: str) -> NDArray[np.float32]:
        """On the caller's thread. Raises EmbedderUnavailable when the embedder fails."""
        known, kept = self.find(text), self._vectors
        return self._keep(kept, text, embed_checked(self._embedder, [text])[0]) if known is None else known

    def find(self, text: str) -> NDArray[np.float32] | None:
        """None if it is not cached."""
        name, kept = self._name(text), self._vectors
        if (vector := kept.pop(name, None)) is not None:
            kept[name] = vector
        return vector

    def clear(self) -> None:
        """For a forget: drops all vectors. Those of calls that still run are put into the dictionary before."""
        self._vectors = OrderedDict()

    def _keep(self, kept: _Vectors, text: str, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        vector.setflags(write=False)
        kept[self._name(text)] = vector
        if len(kept) > CACHED_MAX:
            kept.popitem(last=False)
        return vector

    def _name(self, text: str) -> bytes:
        words = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(words, key=self._secret, digest_size=_DIGEST_BYTES).digest()


class _Call:
    """One call of the embedder on a worker's thread. `is_over` is set when it returns or fails."""

    def __init__(self, embedder: Embedder, text: str) -> None:
        self._embedder = embedder
        self._text = text
        self.is_over = False

    def __call__(self) -> NDArray[np.float32]:
        try:
            rows = embed_checked(self._embedder, [self._text])
            vector: NDArray[np.float32] = rows[0]
            return vector
        finally:
            self.is_over = True


# The backlog of one job, in batches, in a child process if it is long.

# Starting the child process costs a third of a second of CPU: as much as embedding some 200 entries.
LONG = 512


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
            # A read first: a job with nothing to do should not write.
            while is_left := await self._store.read(
                lambda unit: unit.index.has_abandoned(*self._place, self._identity), at=self._scope
            ):
                if loop.time() > deadline:
                    break
                await self._store.write(self._drop_some, at=self._scope)
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
            with contextlib.suppress(EmbedderUnavailable):
                self._aside = await self._embedder.start_aside() if isinstance(self._embedder, Separable) else None
        self._count += len(texts)
        if self._aside is not None:
            try:
                self._aside.send(texts)
                return await self._aside.receive()
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


# Embedding is done in slices, so that closing and turns wait for few texts: 32 messages take about 60 ms. While a turn
# is open, a quarter of that and a pause.
SLICE = 32
SLICE_IN_TURN = 8
PAUSE_IN_TURN = 0.005
# A first turn that begins at once is answered by words alone, and the embedder loads while the model answers: some
# embedders hold Python's lock meanwhile for longer than the grace of a turn.
WARM_UP_DELAY = 0.5
# Between two steps of loading, so that a turn gets Python's lock.
LOADING_PAUSE = 0.001
# How long loading waits for a turn that waits for its block. Most have it sooner; some get none.
BLOCK_WITHIN = 0.2
# A question whose vector takes longer is answered by words.
QUERY_WITHIN = 1.0
# When an embedder that failed is tried again; twice as long each time, up to the maximum.
RETRY_AFTER = 2.0
RETRY_AFTER_MAX = 300.0
# Between two progress events of one backlog.
PROGRESS_EVERY = 2.0
_AWAITED_MAX = 256
_REMEDY = (
    "If it is your own, correct its `embed`. For minilm, run `afterturn models remove minilm`, then `afterturn models "
    "get minilm`. For a server, check embedder_url and embedder_model."
)

_AGREE = (
    "Give this process the setting `embedder` that made them. Or run `afterturn worker --once` with this setting: "
    "it embeds everything again."
)


class EmbeddingService:
    """Used on memory's loop; the embedder itself runs on two workers, so that no question waits for a batch of entries.

    `index` is the cache of spaces in memory, which exists from when the embedder is loaded. `failure` is what is wrong
    with the embedder, blank while it works.
    """

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
        self._retry_after = RETRY_AFTER
        self.tried = asyncio.Event()
        self.failure = ""
        self.index: IndexCache | None = None
        # Spaces of conversations that began before there was an index.
        self._awaited: dict[Scope, None] = {}
        self._is_adopted = False
        self._is_closed = threading.Event()
        # Cleared while a turn waits for its block.
        self._is_quiet = threading.Event()
        self._is_quiet.set()
        self._turns: weakref.WeakSet[object] = weakref.WeakSet()

    @property
    def identity(self) -> EmbedderIdentity | None:
        """The embedder's identity; None until a server has reported the length of its vectors."""
        try:
            return self._embedder.identity
        except EmbedderUnavailable:
            return None

    def want(self) -> None:
        """Loads the embedder now, instead of after WARM_UP_DELAY: no turn waits for its block."""
        self._is_quiet.set()
        self._wanted.set()

    def begin_turn(self, turn: object) -> None:
        """Slows background work down until `end_turn`, or until the host drops the turn. Loading stops until it has its
        block."""
        self._is_quiet.clear()
        self._turns.add(turn)

    def end_turn(self, turn: object) -> None:
        self._turns.discard(turn)
        self.want()

    def load_index(self, scope: Scope) -> None:
        """A conversation with these spaces has begun, and will ask. Call it on memory's loop."""
        if self.index is not None:
            self.index.load(scope)
        elif len(self._awaited) < _AWAITED_MAX:
            self._awaited[scope] = None

    async def import_index(self) -> None:
        """Imports numpy and the index, and loads the word lists of recall. To be awaited before the first turn:
        importing numpy holds Python's lock for longer than the grace of a turn, and a process that forks meanwhile may
        hang in the child."""
        await run_on(self._question_worker, lambda: importlib.import_module("afterturn.recall.index.cache"))
        await run_on(self._question_worker, prepare)

    async def warm_up(self, index_bytes_max: int, *, works: bool) -> bool:
        """Loads the embedder. Returns False when it cannot be loaded now; `tried` is set either way.

        If this process runs jobs, the store adopts the embedder, and entries with vectors of another are embedded
        again. A process that only asks uses the vectors that are there.
        """
        await is_set(self._wanted, within=WARM_UP_DELAY)
        try:
            index = await run_on(self._question_worker, lambda: self._load(index_bytes_max))
        except EmbedderUnavailable as error:
            self._note_failure(error)
            self.tried.set()
            return False
        self._note_success()
        await (self.adopt() if works else self.join())
        self.index = index
        for scope in self._awaited:
            index.load(scope)
        self._awaited.clear()
        self._events.emit("vectors_ready", embedder=self._embedder.identity.name)
        self.tried.set()
        return True

    def _load(self, index_bytes_max: int) -> IndexCache:
        """On a worker's thread: loading an embedder would block memory's loop."""
        from afterturn.recall.index.cache import IndexCache

        if isinstance(self._embedder, Gradual):
            self._embedder.load_gradually(self._pause)
        embed_checked(self._embedder, ["warm"])
        return IndexCache(self._embedder.identity, index_bytes_max)

    def _pause(self) -> bool:
        """Between two steps of loading, on a worker's thread. Returns whether memory is closed."""
        if not self._is_quiet.wait(BLOCK_WITHIN):
            self._is_quiet.set()
        return self._is_closed.wait(LOADING_PAUSE)

    def pause(self) -> float:
        """How long to wait before an embedder that has failed is tried again."""
        pause, self._retry_after = self._retry_after, min(2 * self._retry_after, RETRY_AFTER_MAX)
        return pause

    def _note_failure(self, error: EmbedderUnavailable) -> None:
        """Reports it when it begins, and again only when the reason changes."""
        if self.failure != str(error):
            self.failure = str(error)
            logger.warning("recall continues by words alone: %s", error)
            self._events.emit("embedder_unavailable", reason=self.failure)

    def _note_success(self) -> None:
        self.failure = ""
        self._retry_after = RETRY_AFTER

    async def ready(self, *, within: float) -> bool:
        """Waits until loading was tried. Returns whether recall uses vectors."""
        self.want()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.tried.wait()
        return await self.has_vectors()

    async def has_vectors(self) -> bool:
        return self.index is not None and await self.find_other() is None

    async def adopt(self) -> None:
        """Makes it the store's embedder, once, before this process runs jobs.

        If it was another, every space gets a job.
        """
        if self._is_adopted:
            return
        if await self._adopted() != self.identity:
            await self._store.write(self._adopt, at=None)
        self._is_adopted = True

    async def join(self) -> None:
        """Makes it the store's embedder if there is none."""
        if await self._adopted() is None:
            await self._store.write(lambda unit: self._adopt(unit) if unit.index.adopted() is None else None, at=None)
        other = await self.find_other()
        if other is not None:
            logger.warning("recall uses words alone: %s", _disagreement(other, self._embedder.identity.name))

    async def join_again(self) -> None:
        """After a restore: the store may have the vectors of another embedder."""
        if self.index is not None:
            was_adopted, self._is_adopted = self._is_adopted, False
            await (self.adopt() if was_adopted else self.join())

    async def find_other(self) -> EmbedderIdentity | None:
        """The store's embedder if it is not this one, and this one makes no vectors of its own."""
        adopted = self.identity if self._is_adopted else await self._adopted()
        return None if adopted == self.identity else adopted

    async def _adopted(self) -> EmbedderIdentity | None:
        return await self._store.read(lambda unit: unit.index.adopted(), at=None)

    def _adopt(self, unit: Unit) -> None:
        now = self._clock.now()
        for tenant, space in unit.index.adopt(self._embedder.identity):
            unit.jobs.add(new_job(JobKind.EMBED, self._ids.new(), tenant, space, now), coalesce=True)

    async def query_vector(self, text: str, scope: Scope) -> QueryVector | None:
        """The vector of a question without the names of those who spoke in the scope, or the function that makes it.

        An embedder that answers at once is called where the question is searched: a way to another thread and back
        takes longer. None while the embedder is not ready, fails or is late: recall then uses words alone.
        """
        if self.index is None:
            return None
        self.index.wake_builder()
        if self._immediate is not None:
            return self._immediate
        try:
            async with asyncio.timeout(QUERY_WITHIN):
                speakers = await self._store.read(lambda unit: unit.index.speakers(scope, limit=SPEAKERS_MAX), at=scope)
                asked = without_names(text, named_in(text, speakers))
                return await self._questions.get(asked)
        except EmbedderUnavailable as error:
            logger.warning("a question is answered by words alone: %s", error)
        except TimeoutError:
            logger.warning("a question is answered by words alone: its vector took over %g seconds", QUERY_WITHIN)
        except Exception as error:
            logger.warning("a question could not be embedded and is answered by words alone", exc_info=error)
        return None

    @functools.cached_property
    def _immediate(self) -> Embed | None:
        # Cached: `isinstance` with a protocol takes longer than the rest of the call.
        embedder = self._embedder
        if not isinstance(embedder, Immediate) or not embedder.is_immediate:
            return None
        return self._questions.embed

    def forget(self) -> None:
        """For a forget: drops the vectors of questions and the cached entries."""
        self._questions.clear()
        if self.index is not None:
            self.index.drop_cached_entries()

    def close(self) -> None:
        """Closes the embedder, if it can be closed."""
        self._is_closed.set()
        self._is_quiet.set()
        if isinstance(self._embedder, Closable):
            self._embedder.close()

    async def finding(self, name: str, tenant: str) -> Finding:
        """The line that `afterturn doctor` shows. `name` is the embedder's in the settings."""
        if self.index is None or self.failure:
            return Finding("warning", "embedder", self.failure or f"{name} is not ready; recall uses words alone.")
        other = await self.find_other()
        if other is not None:
            return Finding("warning", "embedder", f"{_disagreement(other, name)}; recall uses words alone.", _AGREE)
        waiting = await self.waiting(tenant)
        if not waiting:
            return Finding("ok", "embedder", f"{name} is ready, and every entry has its vector.")
        found_by_words = "entries wait for their vectors and are found by their words meanwhile."
        remedy = "`afterturn worker --once` makes them now."
        return Finding("ok", "embedder", f"{name} is ready; {waiting:,} {found_by_words}", remedy)

    async def waiting(self, tenant: str) -> int | None:
        """How many of the tenant's entries have no vector yet; None while the identity is unknown."""
        identity = self.identity
        if identity is None:
            return None
        return await self._store.read(lambda unit: unit.index.waiting(tenant, identity), at=Tenant(tenant))

    def embed_written(self, unit: Unit, tenant: str, space: str) -> bool:
        """Gives the entries that this unit has written their vectors, on the writer's thread. Returns False if that is
        left to a job: the embedder is not immediate or not ready, or more entries wait than one unit may embed.

        It saves the two commits of a job, and the next question finds the entries by their meaning.
        """
        if self.index is None or self._immediate is None or not self._is_adopted:
            return False
        identity = self._embedder.identity
        rows = unit.index.unembedded(tenant, space, identity, limit=SLICE_IN_TURN + 1)
        if len(rows) > SLICE_IN_TURN:
            return False
        vectors = {text: vector for _, text in rows if (vector := self._questions.find(text)) is not None}
        others = [text for _, text in rows if text not in vectors]
        try:
            vectors |= zip(others, embed_checked(self._embedder, others) if others else (), strict=True)
        except EmbedderUnavailable:
            return False  # the job reports it
        put = [(key, vectors[text].astype("<f2").tobytes()) for key, text in rows]
        unit.index.put_vectors(tenant, space, identity, put)
        return True

    def note_written(self, tenant: str, space: str) -> None:
        """After a unit that wrote entries was committed: their index in memory is updated. Call it on the loop."""
        if self.index is not None:
            self.index.note_changes(tenant, space)

    async def handle(self, job: Job) -> Commit:
        """Runs an embedding job: gives the space its missing vectors. The last ones are stored with the job's end.

        If the embedder fails, the job is added again for later and does not count as failed.
        """
        try:
            backlog = Backlog(job, self._embedder, self._store, self._in_slices, self._report_progress(job))
            last = await backlog.work_off()
        except EmbedderUnavailable as error:
            self._note_failure(error)
            later = new_job(JobKind.EMBED, self._ids.new(), job.tenant, job.space, self._clock.now() + self.pause())
            return Commit(lambda unit: unit.jobs.add(later, coalesce=True, later=True))
        self._note_success()
        rest = new_job(JobKind.EMBED, self._ids.new(), job.tenant, job.space, job.run_at)

        def commit(unit: Unit) -> Callable[[], None]:
            if last(unit):
                unit.jobs.add(rest, coalesce=True)
            return functools.partial(self.note_written, job.tenant, job.space)

        return Commit(commit)

    def _report_progress(self, job: Job) -> Progress:
        """Emits progress events of a long backlog, and one at its end."""
        loop, events = asyncio.get_running_loop(), self._events.of(job.tenant)
        last_at, has_reported = loop.time(), False

        def report(done: int, left: int) -> None:
            nonlocal last_at, has_reported
            if loop.time() - last_at >= PROGRESS_EVERY or (has_reported and not left):
                last_at, has_reported = loop.time(), True
                events.emit("embedding_progress", space=job.space, done=done, left=left)

        return report

    async def _in_slices(self, texts: Sequence[str]) -> list[bytes]:
        vectors: list[bytes] = []
        while len(vectors) < len(texts):
            size = SLICE_IN_TURN if self._turns else SLICE
            if isinstance(self._embedder, Batching):
                size = self._embedder.batch_texts
            part = texts[len(vectors) : len(vectors) + size]
            rows = await run_on(self._backlog_worker, functools.partial(embed_checked, self._embedder, part))
            vectors += [row.tobytes() for row in rows.astype("<f2")]
            await asyncio.sleep(PAUSE_IN_TURN if self._turns else 0)
        return vectors


def _disagreement(other: EmbedderIdentity, chosen: str) -> str:
    return f"the store's vectors are of {other.name}, and this process is set to {chosen}"
