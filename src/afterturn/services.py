"""Chooses the parts: the one place that knows which stores, embedders, models, clocks and ids there are."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from afterturn.config import Config, models_folder, unknown_variables
from afterturn.conversation.engine import ConversationCore
from afterturn.conversation.record_sinks import NullSink, ProviderSink, RecordSink, RecordSinks, StoreSink
from afterturn.conversation.recorder import Recorder, RecorderParts
from afterturn.conversation.recording import SinkKind
from afterturn.conversation.services import ConversationParts, Outfit, furnish
from afterturn.conversation.spill import Spill
from afterturn.embedders.http import HttpEmbedder
from afterturn.embedders.minilm import MiniLmEmbedder
from afterturn.embedders.service import EmbeddingParts, EmbeddingService
from afterturn.embedders.word_vectors import StaticEmbedder
from afterturn.errors import AfterturnError, ConfigError, StoreError, StoreUnavailable
from afterturn.events import Events
from afterturn.guard.gate import Gate
from afterturn.learning.review_jobs import LearningParts, ReviewRunner
from afterturn.learning.scheduling import ReviewSchedule
from afterturn.maintenance import Housekeeping, HousekeepingParts, TimelineWriter
from afterturn.models.chat import OpenAICompatible
from afterturn.models.meter import Meter
from afterturn.ports import ChatModel, Clock, Embedder, Ids, RecordingProvider, Store, Unit, Worker
from afterturn.runtime.clock import SystemClock, TimeOrderedIds
from afterturn.runtime.jobs import Commit, Handler, JobRunner, Work
from afterturn.runtime.loop_thread import LoopThread, run_on
from afterturn.runtime.supervisor import Supervisor
from afterturn.runtime.worker import ThreadWorker
from afterturn.space.consolidation import consolidate_job
from afterturn.space.parts import SpaceParts
from afterturn.space.verbs import SpaceCore
from afterturn.stores.sqlite.engine import rescue_store
from afterturn.stores.sqlite.store import open_store as open_file
from afterturn.types import (
    ConversationKey,
    Event,
    Finding,
    Job,
    JobKind,
    JobState,
    Scope,
    Selector,
    SpaceSummary,
    UsageRow,
    new_job,
)


@dataclass(frozen=True, slots=True)
class Components:
    """Parts that tests, simulations and unusual hosts bring themselves; each has a default."""

    embedder: Embedder | None = None
    model: ChatModel | None = None
    review_model: ChatModel | None = None
    provider: RecordingProvider | None = None
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=TimeOrderedIds)
    loop: Callable[[str], LoopThread] = LoopThread
    worker: Callable[[str, int], Worker] = ThreadWorker
    store: Callable[[Path, Config, Clock], Store] | None = None


def open_store(target: Path, config: Config, parts: Components) -> Store:
    """Blocks; raises the specific StoreError."""
    if parts.store is not None:
        return parts.store(target, config, parts.clock)
    return open_file(target, config, parts.clock, worker=parts.worker)


def rescue(target: Path, source: Path, config: Config, progress: Callable[[int, int], None] | None) -> Path:
    """Puts a backup in the place of a store that is too damaged to open. Blocks; where the damaged file went."""
    return rescue_store(target, source, config, SystemClock(), progress=progress or no_progress)


def default_embedder(config: Config) -> Embedder | None:
    """The one that the settings name. It loads or connects when it is first asked."""
    if config.embedder == "static":
        return StaticEmbedder()
    if config.embedder == "minilm":
        return MiniLmEmbedder(models_folder(config))
    if config.embedder == "http":
        return _http_embedder(config)
    return None


def _http_embedder(config: Config) -> Embedder:
    url, model = _embedding_server(config)
    return HttpEmbedder(
        url,
        model,
        key=config.embedder_key,
        dimensions=config.embedder_dimensions,
        timeout=config.embedder_timeout,
    )


def _embedding_server(config: Config) -> tuple[str, str]:
    if config.embedder_url is None or config.embedder_model is None:
        raise ConfigError(
            "embedder is 'http', but embedder_url or embedder_model is not set. Name the server and its model."
        )
    return config.embedder_url, config.embedder_model


def default_model(config: Config) -> ChatModel | None:
    """The one that the settings name, if they do. It connects when it is first asked."""
    return _model(config, config.model, config.model_timeout)


def review_model(config: Config, parts: Components) -> ChatModel | None:
    """Who reviews (V2): a model that was brought for it, the one that the settings name for it, or whoever else."""
    if parts.review_model is not None or (parts.model is not None and config.review_model is None):
        return parts.review_model or parts.model
    return _model(config, config.review_model or config.model, config.review_timeout) or parts.model


def _model(config: Config, name: str | None, timeout: float) -> ChatModel | None:
    if config.model_url is None:
        return None
    return OpenAICompatible(config.model_url, name or "", key=config.model_key, timeout=timeout)


def make_keepers(config: Config, parts: Components, store: Store, gate: Gate) -> RecordSinks:
    """Who keeps finished turns (C7): a provider that was brought, or the one that the settings name."""
    own = SinkKind.NOBODY if config.recorder == "none" else SinkKind.MEMORY
    found: dict[SinkKind, RecordSink] = {
        SinkKind.MEMORY: StoreSink(store, gate, parts.ids, ReviewSchedule.of(config)),
        SinkKind.NOBODY: NullSink(store),
    }
    if parts.provider is not None:
        own, found[SinkKind.PROVIDER] = SinkKind.PROVIDER, ProviderSink(store, parts.clock, parts.provider)
    return RecordSinks(own, found)


def no_progress(done: int, total: int) -> None:
    """Nobody watches."""


# Runs the parts of one open memory: starts them, hands each what it needs, ends them. `parts` chooses them.

logger = logging.getLogger("afterturn")

# After which what the store would not take, or a reader still held, is tried again.
TRY_AGAIN_AFTER = 2.0
DRAIN_POLL = 0.02
# A server answers many questions at a time, and each takes as long as the way there and back.
QUESTIONS_ABROAD = 8
# Of the time for closing, so that turns which the store does not take can still go into files.
RECORDING_SHARE = 0.7
LEARNING_SHARE = 0.5
FILES_WITHIN = 0.5


class Runtime:
    """Everything of one open memory, on its loop. `target=None`: the same with no store, and so no memory."""

    def __init__(
        self, loop: LoopThread, target: Path | None, config: Config, parts: Components, events: Events
    ) -> None:
        self.loop = loop
        self.config = config
        self.tenant = config.tenant
        self._target = target
        self._parts = parts
        self._events = events
        self._supervisor = Supervisor()
        # Apart from each other, so that an embedder that hangs keeps no turn from being written to a file.
        self._questions = parts.worker("afterturn-embed", QUESTIONS_ABROAD if config.embedder == "http" else 1)
        self._backlogs = parts.worker("afterturn-backlog", 1)
        self._files = parts.worker("afterturn-files", 1)
        self._reads = parts.worker("afterturn-reads", 1)
        self._gate = Gate(config, parts.clock, parts.ids)
        self._lock = threading.Lock()
        self._conversations: weakref.WeakValueDictionary[ConversationKey, ConversationCore] = (
            weakref.WeakValueDictionary()
        )
        # The conversations with an open turn.
        self._busy: set[Any] = set()
        # By tenant, the newest of which this process knows.
        self._forgets: dict[str, int] = {}
        self._store: Store | None = None
        self._embedding: EmbeddingService | None = None
        self._connected = False

    # On the loop: a life.

    async def start(self) -> None:
        """Returns when the store is migrated and lexical recall is ready; the rest warms up behind it."""
        if self._target is None:
            logger.warning("memory is off: opened with no store")
            self._events.emit("memory_off")
            self.connect(None)
            return
        await run_on(self._files, self._open)
        self.connect(self._store)
        self._supervisor.start(self._warm(), "warm up")
        self._supervisor.start(self._timeline.run(), "timeline")
        if self.config.background:
            self._supervisor.start(self._housekeeping.run(), "housekeeping")
            self._supervisor.start(self._run_jobs(self._jobs), "jobs")
            self._supervisor.start(self._run_jobs(self._learning.runner), "reviews")
        self._events.emit("memory_opened")

    def _open(self) -> None:
        # Kept here and not handed over: whoever waits for it may be cancelled, and the store still wants closing.
        assert self._target is not None
        self._store = open_store(self._target, self.config, self._parts)

    def connect(self, store: Store | NoStore | None) -> None:
        """Makes everything that needs a store. None: memory is off; NoStore: there was one, and it is closed."""
        parts, config, events = self._parts, self.config, self._events
        chosen = store or NoStore()
        embedder = parts.embedder or default_embedder(config)
        if embedder is not None and store is not None:
            self._embedding = EmbeddingService(
                EmbeddingParts(embedder, self._questions, self._backlogs, store, events, parts.ids, parts.clock)
            )
        self._meter = Meter(chosen, config, parts.clock, events)
        slow: dict[str, Handler] = {JobKind.CONSOLIDATE: self._consolidate} if config.consolidation else {}
        self._learning = ReviewRunner(self._learning_parts(chosen), f"{os.getpid()}-{parts.ids.new()}", slow)
        # Those that embed are taken on when the embedder is there.
        handlers: dict[str, Handler] = {JobKind.SCRUB: self._scrub, **self._learning.quick}
        self._jobs = JobRunner(Work(chosen, parts.clock, events, f"{os.getpid()}-{parts.ids.new()}"), handlers)
        self._recorder = Recorder(
            RecorderParts(
                functools.partial(make_keepers, config, parts, chosen, self._gate),
                events,
                self._supervisor,
                self._files,
            ),
            config,
            Spill(_spill_folder(self._target)),
            self._wake,
        )
        self._timeline = TimelineWriter(chosen, events, config.timeline_entries_max)
        self._housekeeping = Housekeeping(
            HousekeepingParts(chosen, self._recorder, config, parts.clock, parts.ids, events)
        )
        self._model = parts.model or default_model(config)
        self._space_parts = SpaceParts(
            store=chosen,
            gate=self._gate,
            clock=parts.clock,
            ids=parts.ids,
            config=config,
            events=events,
            embedding=self._embedding,
            tenant=self.tenant,
            on_write=self._wake,
            on_forget=self._on_forget,
            on_erased=self._on_erased,
            out_of_reach=self._out_of_reach,
            run_reviews=self._run_reviews,
            has_model=self._learning.has_model,
        )
        self._connected = store is not None

    def _learning_parts(self, store: Store) -> LearningParts:
        parts = self._parts
        return LearningParts(
            store=store,
            gate=self._gate,
            config=self.config,
            clock=parts.clock,
            ids=parts.ids,
            events=self._events,
            meter=self._meter,
            model=review_model(self.config, parts),
            is_busy=lambda: bool(self._busy),
            on_write=self._wake,
        )

    async def _consolidate(self, job: Job) -> Commit:
        return await consolidate_job(self._space_parts, job, is_busy=lambda: bool(self._busy))

    async def _learn_quickly(self, *, within: float) -> None:
        """What rules found in the last turns: a program that ends after each turn would learn one turn late."""
        if not self.config.background:
            return
        try:
            async with asyncio.timeout(within):
                await self._jobs.run_due(list(self._learning.quick))
        except (TimeoutError, AfterturnError) as error:
            logger.info("what was said outright is learned by the next process: %r", error)

    async def _run_reviews(self) -> None:
        await self._jobs.run_due()
        await self._learning.runner.run_due()

    def _wake(self) -> None:
        self._jobs.wake()
        self._learning.runner.wake()

    @functools.cached_property
    def _conversation_parts(self) -> ConversationParts:
        """Made for the first conversation."""
        parts = self._parts
        outfit = Outfit(
            loop=self.loop,
            store=self._store,
            no_store=NoStore(),
            embedding=self._embedding,
            model=self._model,
            meter=self._meter,
            recorder=self._recorder,
            supervisor=self._supervisor,
            gate=self._gate,
            reads=self._reads,
            clock=parts.clock,
            ids=parts.ids,
            config=self.config,
            events=self._events,
            on_write=self._wake,
            busy=self._busy,
            forgets=self._forgets,
        )
        return furnish(outfit)

    async def close(self) -> None:
        """Within `close_timeout`: records what was handed over, ends every task, closes the store.

        Also after a start that failed halfway. To be called once, by `LoopThread.end`.
        """
        left = _countdown(self.config.close_timeout)
        undone: list[str] = []
        if self._connected:
            with self._lock:
                cores = list(self._conversations.values())
            for core in cores:
                core.close()
            undone += await self._recorder.close(within=left() * RECORDING_SHARE)
            await self._learn_quickly(within=left() * LEARNING_SHARE)
            undone += await _within(left(), self._timeline.flush(), "the last events are not in the timeline")
        await self._supervisor.close(within=left())
        if self._connected:
            for runner in (self._jobs, self._learning.runner):
                undone += await _within(left(), runner.release(), "jobs that were begun wait for their lease to end")
            undone += await _within(left(), self._timeline.flush(), "the last events are not in the timeline")
        if not self._files.close(within=max(left(), FILES_WITHIN)):
            undone.append("a file could not be written")
        if self._store is not None:
            await self._store.close(within=left())
        # A file system that hangs is not waited for: reading promised nothing.
        self._reads.close(within=0.0)
        # One that a host has brought is the host's to close.
        if self._embedding is not None and self._parts.embedder is None:
            self._embedding.close()
        closed = [worker.close(within=left()) for worker in (self._questions, self._backlogs)]
        if not all(closed):
            undone.append("the embedder does not end, its thread is left")
        if undone:
            logger.warning("closing %s had too little time: %s", self._target, "; ".join(dict.fromkeys(undone)))

    # From any thread.

    def conversation(self, key: ConversationKey) -> ConversationCore:
        """The same core for the same key, so that one conversation has one recall under way (R3)."""
        parts = self._conversation_parts
        with self._lock:
            core = self._conversations.get(key)
            if core is None:
                core = self._conversations[key] = ConversationCore(parts, key)
            return core

    def space(self, name: str) -> SpaceCore:
        return SpaceCore(self._space_parts, name)

    # On the loop: verbs of the whole memory.

    async def ready(self, *, within: float = 10.0) -> bool:
        """Waits until vectors are ready too. False when there is no embedder, it takes longer, or the store has
        another's vectors."""
        return self._embedding is not None and await self._embedding.ready(within=within)

    async def drain(self, *, within: float = 30.0) -> bool:
        """Runs jobs until none is left for this tenant, also those of other processes. False when time ran out.

        A store with vectors of another embedder is embedded anew.
        """
        if self._store is None:
            return True
        try:
            async with asyncio.timeout(within):
                await self._recorder.recover()
                await self.ready(within=within)
                while not await self._is_drained(within):  # noqa: ASYNC110 other processes work too and tell nobody
                    await asyncio.sleep(DRAIN_POLL)
        except TimeoutError:
            return False
        return True

    async def _is_drained(self, within: float) -> bool:
        if self._embedding is not None and self._embedding.index is not None:
            await self._embedding.adopt()
        recorded = await self._recorder.drain(within=within)
        await self._run_reviews()
        return recorded and await self._jobs.idle(self.tenant) and await self._learning.runner.idle(self.tenant)

    async def backup(
        self, target: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """A consistent copy of the store in a new file, while everything goes on."""
        await self._chosen().backup(Path(target), progress=progress or no_progress)

    async def restore(
        self, source: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Replaces the store's content by a backup's. Every process sees it at its next recall."""
        await self._chosen().restore(Path(source), progress=progress or no_progress)
        if self._embedding is not None:
            await self._embedding.join_again()
            self._wake()

    async def spaces(self) -> list[SpaceSummary]:
        """The tenant's spaces by name: how many statements and records each holds, and the newest time among them."""
        return await self._chosen().read(lambda unit: unit.memories.spaces(self.tenant))

    async def stats(self) -> dict[str, Any]:
        """Counts what the store holds of this tenant, in all spaces."""

        def count(unit: Unit) -> tuple[dict[str, int], int, Counter[str]]:
            spaces = [one.name for one in unit.memories.spaces(self.tenant)]
            entries: Counter[str] = Counter()
            # A scope is never empty, and a new tenant has no space yet.
            counted = unit.memories.counts(Scope(self.tenant, tuple(spaces))) if spaces else {}
            for (_, kind, status), number in counted.items():
                entries[f"{kind}.{status}"] += number
            return unit.jobs.counts(self.tenant), len(spaces), entries

        jobs, spaces, entries = await self._chosen().read(count)
        size = sum(path.stat().st_size for path in _files(self._target) if path.exists())
        return {
            "store": str(self._target),
            "tenant": self.tenant,
            "size_bytes": size,
            "spaces": spaces,
            "entries": dict(sorted(entries.items())),
            "jobs": {str(state): count for state, count in sorted(jobs.items())},
            "recordings_waiting": len(self._recorder.spill.files()),
            "vectors": self._embedding is not None and await self._embedding.has_vectors(),
            "vectors_waiting": None if self._embedding is None else await self._embedding.waiting(self.tenant),
            "embedder": self.config.embedder,
        }

    async def usage(self, *, limit: int = 1000) -> list[UsageRow]:
        """What models have cost by day, space and purpose, newest day first."""
        return await self._chosen().read(lambda unit: unit.usage.page(self.tenant, limit=limit))

    async def check(self) -> list[Finding]:
        """What `afterturn doctor` shows: the store's own findings, then those of everything around it."""
        findings = await self._chosen().check()
        dead = await self._chosen().read(lambda unit: unit.jobs.page(self.tenant, state=JobState.DEAD))
        for job in dead:
            findings.append(
                Finding(
                    "error",
                    f"job {job.kind}",
                    f"gave up on {job.space}: {job.error}",
                    "Mend the cause, then `afterturn worker --retry`.",
                )
            )
        findings.extend(self._recorder.spill.findings())
        findings.append(await self._embedder_finding())
        findings.append(await self._learning_finding())
        for variable, hint in unknown_variables().items():
            findings.append(Finding("warning", "settings", f"{variable} is not a setting", hint))
        for name, error in self._supervisor.failures:
            findings.append(Finding("warning", name, f"{type(error).__name__}: {error}", "See the log."))
        return findings

    async def retry_dead(self) -> int:
        """Gives jobs that were given up another chance; how many."""
        now = self._parts.clock.now()
        count = await self._chosen().write(lambda unit: unit.jobs.retry(self.tenant, now=now))
        self._wake()
        return count

    async def _learning_finding(self) -> Finding:
        waiting = await self._chosen().read(lambda unit: unit.jobs.counts(self.tenant, [JobKind.REVIEW]))
        if waiting.get(JobState.READY, 0) and not self._learning.has_model:
            count = waiting[JobState.READY]
            message = f"{count} {'review waits' if count == 1 else 'reviews wait'}, and no model is set here"
            return Finding("warning", "reviews", message, "Set model_url and model, or open memory with `model=`.")
        return Finding("ok", "reviews", "none waits for a model")

    async def _embedder_finding(self) -> Finding:
        if self._embedding is None:
            return Finding("ok", "embedder", "none: recall goes by words alone")
        await self.ready()
        return await self._embedding.finding(self.config.embedder, self.tenant)

    def _chosen(self) -> Store:
        if self._store is None:
            raise StoreUnavailable(_OFF)
        return self._store

    async def _warm(self) -> None:
        """Until it succeeds: a server may come up later than we do, and files may be brought meanwhile."""
        while self._embedding is not None:
            pause = TRY_AGAIN_AFTER
            try:
                if await self._embedding.warm_up(self.config.index_bytes_max, works=self.config.background):
                    self._jobs.take_on(JobKind.EMBED, self._embedding.handle)
                    self._supervisor.start(self._embedding.shelve(), "shelving")
                    return
                pause = self._embedding.pause()
            except StoreError as error:
                logger.warning("vectors have to wait, the store can not be written: %s", error)
            await asyncio.sleep(pause)

    async def _run_jobs(self, runner: JobRunner) -> None:
        while True:
            try:
                await runner.run()
            except StoreError as error:
                logger.warning("jobs pause, the store can not be written: %s", error)
                await asyncio.sleep(TRY_AGAIN_AFTER)

    async def _scrub(self, job: Job) -> Commit:
        """Finishes a `forget` whose bytes a reader still held."""
        if await self._chosen().scrub():
            return lambda unit: None
        at = self._parts.clock.now() + TRY_AGAIN_AFTER
        later = new_job(JobKind.SCRUB, self._parts.ids.new(), job.tenant, job.space, at)
        return lambda unit: unit.jobs.add(later)

    async def _on_forget(self, space: str, selector: Selector) -> int:
        self._drop_recalls(space)
        if self._embedding is not None:
            self._embedding.forget()
        self._events.drop(functools.partial(_is_about, space=space, selector=selector))
        return await self._recorder.forget(self.tenant, space, selector)

    def _on_erased(self, space: str, number: int) -> None:
        self._forgets[self.tenant] = max(number, self._forgets.get(self.tenant, 0))
        self._drop_recalls(space)

    def _drop_recalls(self, space: str) -> None:
        with self._lock:
            cores = list(self._conversations.values())
        for core in cores:
            core.drop_recalls(space)

    def _out_of_reach(self) -> list[str]:
        """What may still hold the text of something that was forgotten."""
        files = [str(path) for path in [*self._chosen().backups(), *self._recorder.spill.unreadable()]]
        provider = self._parts.provider
        return files if provider is None else [*files, f"what {type(provider).__name__} has kept"]


def _is_about(event: Event, *, space: str, selector: Selector) -> bool:
    if selector.everything:
        return event.space == space
    return selector.conversation is not None and event.conversation == selector.conversation


_OFF = "Memory is off: it was opened with no store. Pass a path to `afterturn.open(...)`."


class NoStore:
    """Stands where a store would: everything that needs one says why there is none."""

    def __getattr__(self, name: str) -> Any:
        raise StoreUnavailable(_OFF)


def _spill_folder(target: Path | None) -> Path:
    return Path(f"{target}.waiting") if target else Path(os.devnull)


def _files(target: Path | None) -> list[Path]:
    return [Path(f"{target}{suffix}") for suffix in ("", "-wal", "-shm")] if target else []


def _countdown(within: float) -> Callable[[], float]:
    """What is left of so many seconds of this loop's time, each time it is asked."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    return lambda: max(0.0, deadline - loop.time())


async def _within(seconds: float, work: Coroutine[Any, Any, None], undone: str) -> list[str]:
    """Nothing, or what is to be said when the work did not end in time or failed."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except Exception as error:  # the boundary of one step of closing: those after it have to be taken all the same
        if not isinstance(error, TimeoutError | AfterturnError):
            logger.exception("closing met an error")
        return [undone]
    return []
