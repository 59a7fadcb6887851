"""Services: builds, hands out and closes every component of one open memory. Only this module chooses components.

Threads: memory runs on one event loop in a thread of its own (`LoopThread`), and only that thread changes its state.
Calls that block run on worker threads: the store's, the embedder's, and two for files. The host's threads post work to
the loop and wait for results; a method that may be called from them says so.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from afterturn.config import Config, config_folder, models_folder
from afterturn.conversation.engine import ConversationCore
from afterturn.conversation.prefetcher import RecallClient
from afterturn.conversation.proposals import Proposals
from afterturn.conversation.record_sinks import NullSink, ProviderSink, RecordSink, RecordSinks, StoreSink
from afterturn.conversation.recorder import Recorder
from afterturn.conversation.recording import SinkKind
from afterturn.conversation.spill import Spill
from afterturn.conversation.subagents import Subagents
from afterturn.embedders.http import HttpEmbedder
from afterturn.embedders.minilm import MiniLmEmbedder
from afterturn.embedders.service import EmbeddingService
from afterturn.embedders.word_vectors import StaticEmbedder
from afterturn.errors import AfterturnError, ConfigError, StoreError, StoreUnavailable
from afterturn.events import Events
from afterturn.guard.gate import Gate
from afterturn.guard.statement_writer import StatementWriter
from afterturn.learning.review_jobs import ReviewRunner
from afterturn.learning.scheduling import ReviewSchedule
from afterturn.maintenance import Housekeeping, Maintenance, TimelineWriter, no_progress
from afterturn.models.chat import OpenAICompatible
from afterturn.models.meter import Meter
from afterturn.ports import ChatModel, Clock, Embedder, Ids, RecordingProvider, Store, Worker
from afterturn.runtime.clock import SystemClock, TimeOrderedIds
from afterturn.runtime.file_reads import FileReads
from afterturn.runtime.jobs import Commit, Handler, JobRunner
from afterturn.runtime.loop_thread import LoopThread, run_on
from afterturn.runtime.supervisor import Supervisor
from afterturn.runtime.worker import ThreadWorker
from afterturn.space.consolidation import consolidate_job
from afterturn.space.verbs import SpaceCore
from afterturn.stores.sqlite.engine import rescue_store
from afterturn.stores.sqlite.store import open_store as open_file
from afterturn.types import (
    ConversationKey,
    Event,
    Job,
    JobKind,
    Selector,
    new_job,
)


@dataclass(frozen=True, slots=True)
class Components:
    """Parts that replace the default ones, for tests, simulations and unusual programs. Each has a default."""

    embedder: Embedder | None = None
    model: ChatModel | None = None
    review_model: ChatModel | None = None
    provider: RecordingProvider | None = None
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=TimeOrderedIds)
    loop: Callable[[str], LoopThread] = LoopThread
    worker: Callable[[str, int], Worker] = ThreadWorker
    store: Callable[[Path, Config, Clock], Store] | None = None


def open_store(target: Path, config: Config, components: Components) -> Store:
    """Blocks; raises the specific StoreError."""
    if components.store is not None:
        return components.store(target, config, components.clock)
    return open_file(target, config, components.clock, worker=components.worker)


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


def review_model(config: Config, components: Components) -> ChatModel | None:
    """Who reviews (V2): a model that was brought for it, the one that the settings name for it, or whoever else."""
    if components.review_model is not None or (components.model is not None and config.review_model is None):
        return components.review_model or components.model
    return _model(config, config.review_model or config.model, config.review_timeout) or components.model


def _model(config: Config, name: str | None, timeout: float) -> ChatModel | None:
    if config.model_url is None:
        return None
    return OpenAICompatible(config.model_url, name or "", key=config.model_key, timeout=timeout)


def make_record_sinks(config: Config, components: Components, store: Store, gate: Gate) -> RecordSinks:
    """Who keeps finished turns (C7): a provider that was brought, or the one that the settings name."""
    own = SinkKind.NOBODY if config.recorder == "none" else SinkKind.MEMORY
    found: dict[SinkKind, RecordSink] = {
        SinkKind.MEMORY: StoreSink(store, gate, components.ids, ReviewSchedule.of(config)),
        SinkKind.NOBODY: NullSink(store),
    }
    if components.provider is not None:
        own, found[SinkKind.PROVIDER] = SinkKind.PROVIDER, ProviderSink(store, components.clock, components.provider)
    return RecordSinks(own, found)


logger = logging.getLogger("afterturn")

# After which what the store would not take, or a reader still held, is tried again.
TRY_AGAIN_AFTER = 2.0
# A server answers many questions at a time, and each takes as long as the way there and back.
QUESTIONS_ABROAD = 8
# Of the time for closing, so that turns which the store does not take can still go into files.
RECORDING_SHARE = 0.7
LEARNING_SHARE = 0.5
FILES_WITHIN = 0.5


class Services:
    """The components of one open memory, as attributes. `start` builds them and `close` ends them, both on the loop.

    Without a `target` memory is off: `has_store` is False, and every use of `store` raises StoreUnavailable.
    """

    embedding: EmbeddingService | None
    file_reads: FileReads
    housekeeping: Housekeeping
    jobs: JobRunner
    learning: ReviewRunner
    maintenance: Maintenance
    meter: Meter
    model: ChatModel | None
    proposals: Proposals
    recall_client: RecallClient
    recorder: Recorder
    subagents: Subagents
    timeline: TimelineWriter

    def __init__(
        self, loop: LoopThread, target: Path | None, config: Config, components: Components, events: Events
    ) -> None:
        self.loop = loop
        self.target = target
        self.config = config
        self.tenant = config.tenant
        self.components = components
        self.clock = components.clock
        self.ids = components.ids
        self.events = events
        self.supervisor = Supervisor()
        self.gate = Gate(config, self.clock, self.ids)
        self.statement_writer = StatementWriter(config)
        self.store: Store = NoStore()
        # Context files that apply to every project.
        self.context_folder = str(config_folder())
        # The conversations with an open turn.
        self.open_turns: set[Any] = set()
        # By tenant, the number of the newest forget that this process knows.
        self.forgets: dict[str, int] = {}
        # Separate workers: an embedder that hangs must not keep turns from being written to files.
        self._embed_worker = components.worker("afterturn-embed", QUESTIONS_ABROAD if config.embedder == "http" else 1)
        self._backlog_worker = components.worker("afterturn-backlog", 1)
        self._file_writer = components.worker("afterturn-files", 1)
        self._file_reader = components.worker("afterturn-reads", 1)
        self._conversations: weakref.WeakValueDictionary[ConversationKey, ConversationCore] = (
            weakref.WeakValueDictionary()
        )
        self._lock = threading.Lock()
        self._is_running = False

    @property
    def has_store(self) -> bool:
        return not isinstance(self.store, NoStore)

    @property
    def has_open_turn(self) -> bool:
        return bool(self.open_turns)

    # On the loop.

    async def start(self) -> None:
        """Returns when the store is migrated and recall by words is ready. The embedder loads in the background."""
        if self.target is None:
            logger.warning("memory is off: opened with no store")
            self.events.emit("memory_off")
            self._build()
            return
        await run_on(self._file_writer, self._open_store)
        self._build()
        self._is_running = True
        self.supervisor.start(self._warm_up(), "warm up")
        self.supervisor.start(self.timeline.run(), "timeline")
        if self.config.background:
            self.supervisor.start(self.housekeeping.run(), "housekeeping")
            self.supervisor.start(self._run_jobs(self.jobs), "jobs")
            self.supervisor.start(self._run_jobs(self.learning.runner), "reviews")
        self.events.emit("memory_opened")

    def _open_store(self) -> None:
        # Assigned on the worker's thread: if the caller is cancelled meanwhile, `close` still finds the store.
        assert self.target is not None
        self.store = open_store(self.target, self.config, self.components)

    def _build(self) -> None:
        """Makes every component that needs the store."""
        config, components, events, clock, ids = self.config, self.components, self.events, self.clock, self.ids
        embedder = components.embedder or default_embedder(config)
        self.embedding = None
        if embedder is not None and self.has_store:
            self.embedding = EmbeddingService(
                embedder, self._embed_worker, self._backlog_worker, self.store, events, ids, clock
            )
        self.model = components.model or default_model(config)
        self.meter = Meter(self.store, config, clock, events)
        self.file_reads = FileReads(self._file_reader, clock)
        self._build_jobs()
        self.recorder = Recorder(
            make_record_sinks(config, components, self.store, self.gate),
            events,
            self.supervisor,
            self._file_writer,
            config,
            Spill(_spill_folder(self.target)),
            self.wake_jobs,
        )
        self.timeline = TimelineWriter(self.store, events, config.timeline_entries_max)
        self.housekeeping = Housekeeping(self)
        self.recall_client = RecallClient(self.store, self.embedding, self.model, config, clock, events, self.meter)
        self.proposals = Proposals(self.store, self.gate, clock, ids, config, events)
        self.subagents = Subagents(self)
        self.maintenance = Maintenance(self)

    def _build_jobs(self) -> None:
        slow: dict[str, Handler] = {JobKind.CONSOLIDATE: self._consolidate} if self.config.consolidation else {}
        self.learning = ReviewRunner(self, review_model(self.config, self.components), slow)
        # Jobs that embed are added when the embedder is ready.
        handlers: dict[str, Handler] = {JobKind.SCRUB: self._scrub, **self.learning.quick}
        self.jobs = JobRunner(self.store, self.clock, self.events, self.new_owner(), handlers)

    async def close(self) -> None:
        """Within `close_timeout`: records the turns that are under way, ends every task, closes the store.

        Also works after a start that failed halfway. Called once, by `LoopThread.end`.
        """
        left = _countdown(self.config.close_timeout)
        undone: list[str] = []
        if self._is_running:
            for core in self._open_conversations():
                core.close()
            undone += await self.recorder.close(within=left() * RECORDING_SHARE)
            await self._apply_rules(within=left() * LEARNING_SHARE)
            undone += await _within(left(), self.timeline.flush(), "the last events are not in the timeline")
        await self.supervisor.close(within=left())
        if self._is_running:
            for runner in (self.jobs, self.learning.runner):
                undone += await _within(left(), runner.release(), "unfinished jobs wait until their lease ends")
            undone += await _within(left(), self.timeline.flush(), "the last events are not in the timeline")
        if not self._file_writer.close(within=max(left(), FILES_WITHIN)):
            undone.append("a file could not be written")
        if self.has_store:
            await self.store.close(within=left())
        # Nothing depends on reads, so a file system that hangs is not waited for.
        self._file_reader.close(within=0.0)
        # An embedder that the host passed in is the host's to close.
        if self._is_running and self.embedding is not None and self.components.embedder is None:
            self.embedding.close()
        closed = [worker.close(within=left()) for worker in (self._embed_worker, self._backlog_worker)]
        if not all(closed):
            undone.append("the embedder does not end, its thread is left")
        if undone:
            logger.warning("closing %s had too little time: %s", self.target, "; ".join(dict.fromkeys(undone)))

    # From any thread.

    def conversation(self, key: ConversationKey) -> ConversationCore:
        """The same object for the same key, so that one conversation has one recall at a time."""
        with self._lock:
            core = self._conversations.get(key)
            if core is None:
                core = self._conversations[key] = ConversationCore(self, key)
            return core

    def space(self, name: str) -> SpaceCore:
        return SpaceCore(self, name)

    # On the loop: what components ask of one another.

    def new_owner(self) -> str:
        """A name under which a job runner of this process claims jobs."""
        return f"{os.getpid()}-{self.ids.new()}"

    def wake_jobs(self) -> None:
        """There may be new jobs in the store."""
        self.jobs.wake()
        self.learning.runner.wake()

    async def run_due_jobs(self) -> None:
        await self.jobs.run_due()
        await self.learning.runner.run_due()

    async def forget_cached(self, space: str, selector: Selector) -> int:
        """Drops what is held outside the store: recalls, vectors of questions, events, and turns that wait to be
        recorded. Returns the number of those turns."""
        self._drop_recalls(space)
        if self.embedding is not None:
            self.embedding.forget()
        self.events.drop(functools.partial(_is_about, space=space, selector=selector))
        return await self.recorder.forget(self.tenant, space, selector)

    def note_forget(self, space: str, number: int) -> None:
        """After a forget was committed: recalls that began before it must not be shown."""
        self.forgets[self.tenant] = max(number, self.forgets.get(self.tenant, 0))
        self._drop_recalls(space)

    def unreachable_copies(self) -> list[str]:
        """Files and providers that may still hold forgotten text."""
        files = [str(path) for path in [*self.store.backups(), *self.recorder.spill.unreadable()]]
        provider = self.components.provider
        return files if provider is None else [*files, f"what {type(provider).__name__} has kept"]

    def _drop_recalls(self, space: str) -> None:
        for core in self._open_conversations():
            core.drop_recalls(space)

    def _open_conversations(self) -> list[ConversationCore]:
        with self._lock:
            return list(self._conversations.values())

    # On the loop: tasks and jobs.

    async def _warm_up(self) -> None:
        """Tries until it succeeds: an embedding server may start later, and model files may be installed later."""
        while self.embedding is not None:
            pause = TRY_AGAIN_AFTER
            try:
                if await self.embedding.warm_up(self.config.index_bytes_max, works=self.config.background):
                    self.jobs.take_on(JobKind.EMBED, self.embedding.handle)
                    self.supervisor.start(self.embedding.shelve(), "shelving")
                    return
                pause = self.embedding.pause()
            except StoreError as error:
                logger.warning("vectors have to wait, the store cannot be written: %s", error)
            await asyncio.sleep(pause)

    async def _run_jobs(self, runner: JobRunner) -> None:
        while True:
            try:
                await runner.run()
            except StoreError as error:
                logger.warning("jobs pause, the store cannot be written: %s", error)
                await asyncio.sleep(TRY_AGAIN_AFTER)

    async def _apply_rules(self, *, within: float) -> None:
        """Learns from the last turns by rules. Otherwise a program that ends after each turn learns one turn late."""
        if not self.config.background:
            return
        try:
            async with asyncio.timeout(within):
                await self.jobs.run_due(list(self.learning.quick))
        except (TimeoutError, AfterturnError) as error:
            logger.info("the next process learns by rules from the last turns: %r", error)

    async def _consolidate(self, job: Job) -> Commit:
        return await consolidate_job(self, job)

    async def _scrub(self, job: Job) -> Commit:
        """Finishes a `forget` while a reader still held the bytes."""
        if await self.store.scrub():
            return lambda unit: None
        at = self.clock.now() + TRY_AGAIN_AFTER
        later = new_job(JobKind.SCRUB, self.ids.new(), job.tenant, job.space, at)
        return lambda unit: unit.jobs.add(later)


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
