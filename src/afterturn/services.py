"""Services: builds, hands out and closes every component of one open memory. Only this module chooses components.

Threads: memory runs on one event loop in a thread of its own (`LoopThread`), and only that thread changes its state.
Calls that block run on worker threads: the store's, the embedder's, and two for files. The host's threads post work to
the loop and wait for results; a method that may be called from them says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from afterturn.config import Config, StoreUrl, config_folder, models_folder, spill_folder
from afterturn.conversation.engine import ConversationEngine
from afterturn.conversation.proposals import Proposals
from afterturn.conversation.recall_client import RecallClient, RecallQueue
from afterturn.conversation.record_sinks import NullSink, ProviderSink, RecordSink, RecordSinks, StoreSink
from afterturn.conversation.recorder import Recorder
from afterturn.conversation.recording import SinkKind
from afterturn.conversation.spill import Spill
from afterturn.conversation.subagents import Subagents
from afterturn.embedders.sentence_encoder import SentenceEncoder
from afterturn.embedders.service import EmbeddingService
from afterturn.errors import AfterturnError, ConfigError, DeadlineExceeded, InvalidInput, StoreError, StoreUnavailable
from afterturn.events import Events
from afterturn.guard.gate import Gate
from afterturn.guard.statement_writer import StatementWriter
from afterturn.learning.review_jobs import ReviewRunner
from afterturn.learning.scheduling import ReviewSchedule
from afterturn.log import logger
from afterturn.maintenance import Housekeeping, Maintenance, TimelineWriter
from afterturn.models.meter import MODEL_TIMEOUT, Meter
from afterturn.ports import (
    ChatModel,
    Clock,
    Embedder,
    FileStore,
    Ids,
    KeyProvider,
    RecordingProvider,
    Store,
    Unit,
    Worker,
)
from afterturn.runtime.clock import OwnIds, SystemClock, TimeOrderedIds
from afterturn.runtime.file_reads import FileReads
from afterturn.runtime.jobs import Commit, Handler, JobRunner
from afterturn.runtime.loop_thread import LoopThread, run_on
from afterturn.runtime.once_future import run_pending
from afterturn.runtime.supervisor import Supervisor
from afterturn.runtime.worker import ThreadWorker
from afterturn.space.verbs import SpaceCore
from afterturn.stores.directory import find_tenant, needs_postgres
from afterturn.stores.engine import StoreEngine, no_progress
from afterturn.stores.keys import key_provider
from afterturn.stores.sqlite.engine import open_to_copy, rescue_store
from afterturn.stores.sqlite.store import open_store as open_file
from afterturn.stores.threaded_store import ThreadedStore
from afterturn.types import ConversationKey, Event, Job, JobKind, Operation, Scope, Selector, Step, new_job

if TYPE_CHECKING:
    from afterturn.stores.copier import MigrationResult

R = TypeVar("R")

# The pause before a write that the store refused, or bytes that a reader still held, are tried again.
RETRY_AFTER = 2.0
# A server answers several questions at a time; a local embedder answers one.
SERVER_QUESTIONS_MAX = 8
# Shares of the time for closing. Some is left to write turns into files if the store does not take them.
RECORDING_SHARE = 0.7
LEARNING_SHARE = 0.5
FILE_WRITER_WITHIN = 0.5


@dataclass(frozen=True, slots=True)
class Components:
    """Replacements for the default components, for tests, simulations and unusual programs.

    `provider_timeout` is how many seconds `provider` may take to record a turn; a turn that takes longer is offered to
    it again later. Raise it for a provider behind a slow network.
    """

    embedder: Embedder | None = None
    model: ChatModel | None = None
    review_model: ChatModel | None = None
    compaction_model: ChatModel | None = None
    provider: RecordingProvider | None = None
    provider_timeout: float = 5.0
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=TimeOrderedIds)
    loop: Callable[[str], LoopThread] = LoopThread
    worker: Callable[[str, int], Worker] = ThreadWorker
    store: Callable[[Path, Config, Clock], Store] | None = None
    keys: KeyProvider | None = None


_OFF = "Memory is off: it was opened without a store. Pass a path to `afterturn.open(...)`."


class NoStore:
    """The store when memory is off. Every use raises StoreUnavailable."""

    def __getattr__(self, name: str) -> Any:
        raise StoreUnavailable(_OFF)


class Services:
    """The components of one open memory, as attributes. `start` builds them and `close` ends them, both on the loop.

    Without a `target` memory is off: `has_store` is False, and every use of `store` raises StoreUnavailable.
    """

    embedding: EmbeddingService | None
    model: ChatModel | None
    compaction_model: ChatModel | None

    def __init__(
        self, loop: LoopThread, target: Path | StoreUrl | None, config: Config, components: Components, events: Events
    ) -> None:
        self.loop = loop
        self.target = target
        self.config = config
        self.tenant = config.tenant
        self.ids = OwnIds(components.ids)
        self.components = replace(components, ids=self.ids)
        self.clock = components.clock
        self.events = events
        self.supervisor = Supervisor()
        self.recall_queue = RecallQueue()
        self.gate = Gate(config, self.clock, self.ids)
        self.statement_writer = StatementWriter(config)
        self.store: Store = NoStore()
        self.has_store = False
        # Context files that apply to every project.
        self.context_folder = str(config_folder())
        # The conversations with an open turn.
        self.open_turns: set[Any] = set()
        # By tenant, the number of the newest forget that this process knows.
        self.forgets: dict[str, int] = {}
        # Separate workers: an embedder that hangs must not keep turns from being written to files.
        self._embed_worker = components.worker(
            "afterturn-embed", SERVER_QUESTIONS_MAX if config.embedder == "http" else 1
        )
        self._backlog_worker = components.worker("afterturn-backlog", 1)
        self._file_writer = components.worker("afterturn-files", 1)
        self._file_reader = components.worker("afterturn-reads", 1)
        self._conversations: weakref.WeakValueDictionary[ConversationKey, ConversationEngine] = (
            weakref.WeakValueDictionary()
        )
        self._lock = threading.Lock()
        self._is_running = False

    @property
    def has_open_turn(self) -> bool:
        return bool(self.open_turns)

    # On the loop: start and close.

    async def start(self) -> None:
        """Returns when the store is migrated and recall by words is ready. The embedder loads in the background.

        A process that works in the background is expected to live, so it imports numpy at once."""
        if self.target is None:
            logger.warning("memory is off: it was opened without a store")
            self.events.emit("memory_off")
            self._build()
            return
        await run_on(self._file_writer, functools.partial(self._open_store, self.target))
        self._build()
        if self.embedding is not None and self.config.background:
            await self.embedding.import_index()
        self._is_running = True
        self.supervisor.start(self._warm_up(), "warm up")
        self.supervisor.start(self.timeline.run(), "timeline")
        if self.config.background:
            self.supervisor.start(self.housekeeping.run(), "housekeeping")
            self.supervisor.start(self._run_jobs(self.jobs), "jobs")
            self.supervisor.start(self._run_jobs(self.reviews.runner), "reviews")
        self.events.emit("memory_opened")

    def _open_store(self, target: Path | StoreUrl) -> None:
        # Assigned on the worker's thread: if the caller is cancelled meanwhile, `close` still finds the store.
        self.store = open_store(target, self.config, self.components)
        self.has_store = True

    def _build(self) -> None:
        """Makes every component that needs the store."""
        config, components, events, clock, ids = self.config, self.components, self.events, self.clock, self.ids
        embedder = components.embedder or default_embedder(config)
        self.embedding = None
        if embedder is not None and self.has_store:
            workers = (self._embed_worker, self._backlog_worker)
            self.embedding = EmbeddingService(embedder, *workers, self.store, events, ids, clock)
        self.model = components.model or _model(config, config.model)
        self.compaction_model = components.compaction_model or self.model
        self.meter = Meter(self.store, config, clock, events)
        self.file_reads = FileReads(self._file_reader, clock)
        slow: dict[str, Handler] = {JobKind.CONSOLIDATE: self._consolidate} if self.config.consolidation else {}
        self.reviews = ReviewRunner(self, review_model(self.config, self.components), slow)
        # Jobs that embed are added when the embedder is ready.
        handlers: dict[str, Handler] = {JobKind.SCRUB: self._scrub, **self.reviews.quick}
        self.jobs = JobRunner(self.store, self.clock, self.events, self.new_owner(), handlers)
        self.recorder = Recorder(
            make_record_sinks(config, components, self.store, self.gate, self.embedding),
            events,
            self.supervisor,
            self._file_writer,
            Spill(
                Path(os.devnull) if self.target is None else spill_folder(config, self.target),
                self.store.keys if isinstance(self.store, ThreadedStore) else None,
            ),
            self.wake_jobs,
        )
        self.timeline = TimelineWriter(self.store, events)
        self.housekeeping = Housekeeping(self)
        self.recall_client = RecallClient(self.store, self.embedding, self.model, config, clock, events, self.meter)
        self.proposals = Proposals(self.store, self.gate, clock, ids, config, events)
        self.subagents = Subagents(self)
        self.maintenance = Maintenance(self)

    async def close(self) -> None:
        """Within `close_timeout`: records the turns that are under way, ends every task, closes the store.

        Also works after a start that failed halfway. Called once, by `LoopThread.end`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.close_timeout

        def left() -> float:
            return max(0.0, deadline - loop.time())

        undone: list[str] = []
        # A turn that was left just before must be under way when recording is closed.
        run_pending(loop)
        if self._is_running:
            for core in self._open_conversations():
                core.close()
            undone += await self.recorder.close(within=left() * RECORDING_SHARE)
            await self._apply_rules(within=left() * LEARNING_SHARE)
            undone += await _within(left(), self.timeline.flush(), "the last events are not in the timeline")
        await self.supervisor.close(within=left())
        if self._is_running:
            for runner in (self.jobs, self.reviews.runner):
                undone += await _within(left(), runner.release(), "unfinished jobs are locked until their lease ends")
            undone += await _within(left(), self.timeline.flush(), "the last events are not in the timeline")
        if not self._file_writer.close(within=max(left(), FILE_WRITER_WITHIN)):
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
            undone.append("the embedder did not stop; its thread is still running")
        if undone:
            logger.warning(
                "%s could not be closed completely within close_timeout: %s",
                self.target,
                "; ".join(dict.fromkeys(undone)),
            )

    # From any thread.

    def conversation(self, key: ConversationKey) -> ConversationEngine:
        """The same object for the same key, so that one conversation has one recall at a time."""
        with self._lock:
            core = self._conversations.get(key)
            if core is None:
                core = self._conversations[key] = ConversationEngine(self, key)
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
        self.reviews.runner.wake()

    async def write_change(self, operation: Operation, work: Callable[[Unit], R]) -> R:
        """Runs a unit of work that does one operation, and reports what it changed to the host."""

        def run(unit: Unit) -> tuple[R, Sequence[Step]]:
            result, scope = work(unit), Scope(operation.tenant, (operation.space,))
            return result, unit.operations.steps(scope, operation_id=operation.id) if self.events.has_handler else ()

        result, steps = await self.store.write(run, at=Scope(operation.tenant, (operation.space,)))
        self.wake_jobs()
        self.events.report_changes(steps)
        return result

    async def finish_jobs(self) -> None:
        """Lets the jobs that run now end, within `close_timeout`, and begins no others in this process."""
        finishing = asyncio.gather(self.jobs.finish(), self.reviews.runner.finish())
        with contextlib.suppress(TimeoutError):
            # Closing gives back what takes longer.
            async with asyncio.timeout(self.config.close_timeout):
                await finishing

    async def run_due_jobs(self) -> None:
        await self.jobs.run_due()
        await self.reviews.runner.run_due()

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

    def unreachable_copies(self, *, sealed: bool = False) -> list[str]:
        """Files and providers that may still hold forgotten text. `sealed`: except copies of the store."""
        copies = self.store.backups() if isinstance(self.store, FileStore) and not sealed else []
        found = [str(path) for path in [*copies, *self.recorder.spill.unreadable()]]
        if (provider := self.components.provider) is not None:
            found.append(f"the records of {type(provider).__name__}")
        return found

    def _drop_recalls(self, space: str) -> None:
        for core in self._open_conversations():
            core.drop_recalls(space)

    def _open_conversations(self) -> list[ConversationEngine]:
        with self._lock:
            return list(self._conversations.values())

    # On the loop: tasks and jobs.

    async def _warm_up(self) -> None:
        """Tries until it succeeds: an embedding server may start later, and model files may be installed later."""
        while self.embedding is not None:
            pause = RETRY_AFTER
            try:
                if await self.embedding.warm_up(self.config.index_bytes_max, works=self.config.background):
                    self.jobs.take_on(JobKind.EMBED, self.embedding.handle)
                    assert self.embedding.index is not None
                    self.supervisor.start(self.embedding.index.run_builder(self.store), "index builder")
                    return
                pause = self.embedding.pause()
            except (StoreError, DeadlineExceeded) as error:
                logger.warning("vectors are not available yet, because the store cannot be written: %s", error)
            await asyncio.sleep(pause)

    async def _run_jobs(self, runner: JobRunner) -> None:
        while True:
            try:
                return await runner.run()
            except (StoreError, DeadlineExceeded) as error:
                logger.warning("background jobs pause, because the store cannot be written: %s", error)
                await asyncio.sleep(RETRY_AFTER)

    async def _apply_rules(self, *, within: float) -> None:
        """Learns from the last turns by rules. Otherwise a program that ends after each turn learns one turn late."""
        if not self.config.background:
            return
        try:
            async with asyncio.timeout(within):
                await self.jobs.run_due(list(self.reviews.quick))
        except (TimeoutError, AfterturnError) as error:
            logger.info("the next process learns by rules from the last turns: %r", error)

    async def _consolidate(self, job: Job) -> Commit:
        from afterturn.space.consolidation import consolidate_job

        return await consolidate_job(self, job)

    async def _scrub(self, job: Job) -> Commit:
        """Finishes a `forget` that could not erase all bytes, because a reader still held them."""
        if not any(remaining.retry for remaining in await self.store.scrub()):
            return Commit()
        at = self.clock.now() + RETRY_AFTER
        later = new_job(JobKind.SCRUB, self.ids.new(), job.tenant, job.space, at)
        return Commit(lambda unit: unit.jobs.add(later, later=True))


# Which components an open memory gets.


def open_store(target: Path | StoreUrl, config: Config, components: Components) -> Store:
    """Blocks. Raises the StoreError that says what is wrong, or ExtraMissing."""
    if isinstance(target, StoreUrl):
        if components.store is not None:
            raise InvalidInput("`components` has a store of its own, which opens a path. Pass a path and not a URL.")
        with needs_postgres():
            from afterturn.stores.postgres.store import open_store as open_url
        keys, url = components.keys or key_provider(config), find_tenant(target, config.tenant)
        return open_url(url, config, components.clock, worker=components.worker, keys=keys)
    if components.store is not None:
        return components.store(target, config, components.clock)
    keys = components.keys or key_provider(config)
    return open_file(target, config, components.clock, worker=components.worker, keys=keys)


def has_tables(url: StoreUrl, config: Config) -> bool:
    """Whether there is a store at the URL. Blocks; raises the StoreError that says what is wrong, or ExtraMissing."""
    with needs_postgres():
        from afterturn.stores.postgres.engine import is_created
    return is_created(find_tenant(url, config.tenant), config, SystemClock())


def rescue(target: Path | StoreUrl, source: Path, config: Config, progress: Callable[[int, int], None] | None) -> Path:
    """Replaces a store that is too damaged to open with a backup. Blocks. Returns where the damaged file is now."""
    if isinstance(target, StoreUrl):
        raise StoreUnavailable(f"{target} is on a server, which is restored there: run `pg_restore`.")
    return rescue_store(target, source, config, SystemClock(), progress=progress or no_progress)


def migrate(
    source: Path | StoreUrl,
    target: Path | StoreUrl,
    config: Config,
    *,
    tenant: str | None,
    keep: bool,
    progress: Callable[[int, int], None],
) -> MigrationResult:
    """Copies a store into an empty one and compares both; with a tenant, only what belongs to it. Blocks, and writes to
    the source wait.

    The source refuses writes afterwards, unless `keep`. Turns that wait in files of this machine go to the target.
    """
    from afterturn.stores.copier import MigrationResult, StoreCopy

    with ExitStack() as stack:
        sides = [stack.enter_context(_opened_to_copy(place, config)) for place in (source, target)]
        tables = StoreCopy(*sides, tenant=tenant, report=progress, wants_keys=config.keys is not None).run(keep=keep)
    waiting, is_moved = 0, not keep and all(table.is_equal for table in tables)
    if is_moved:
        waiting = Spill(spill_folder(config, source)).move_to(Spill(spill_folder(config, target)))
    return MigrationResult(str(source), str(target), tuple(tables), waiting)


@contextmanager
def _opened_to_copy(place: Path | StoreUrl, config: Config) -> Iterator[StoreEngine]:
    if isinstance(place, StoreUrl):
        if place.directory is not None:
            raise InvalidInput(f"{place} is a directory of tenants. Name one of its stores by ?schema= instead.")
        with needs_postgres():
            from afterturn.stores.postgres.engine import open_to_copy as open_server
        server = open_server(place, config, SystemClock())
        with closing(server):
            yield server
        return
    with closing(open_to_copy(place, config, SystemClock())) as file:
        yield file


def default_embedder(config: Config) -> Embedder | None:
    """The embedder that the settings name. It loads or connects when it is first used."""
    if config.embedder == "static":
        return SentenceEncoder()
    if config.embedder == "minilm":
        from afterturn.embedders.minilm import MiniLmEmbedder

        return MiniLmEmbedder(models_folder())
    if config.embedder == "http":
        if config.embedder_url is None or config.embedder_model is None:
            raise ConfigError(
                "embedder is 'http', but embedder_url or embedder_model is not set. Name the server and its model."
            )
        from afterturn.embedders.http import HttpEmbedder

        return HttpEmbedder(config.embedder_url, config.embedder_model, key=config.embedder_key)
    return None


def review_model(config: Config, components: Components) -> ChatModel | None:
    """The model for reviews: `review_model` of the host, then of the settings, then the model for everything else."""
    if components.review_model is not None or (components.model is not None and config.review_model is None):
        return components.review_model or components.model
    return _model(config, config.review_model or config.model, config.review_timeout) or components.model


def _model(config: Config, name: str | None, timeout: float = MODEL_TIMEOUT) -> ChatModel | None:
    if config.model_url is None:
        return None
    from afterturn.models.chat import OpenAICompatible

    return OpenAICompatible(config.model_url, name or "", key=config.model_key, timeout=timeout)


def make_record_sinks(
    config: Config, components: Components, store: Store, gate: Gate, embedding: EmbeddingService | None
) -> RecordSinks:
    """Where finished turns are stored: at the host's provider if there is one, else as the settings say."""
    own = SinkKind.NOBODY if config.recorder == "none" else SinkKind.MEMORY
    found: dict[SinkKind, RecordSink] = {
        SinkKind.MEMORY: StoreSink(store, gate, components.ids, ReviewSchedule.of(config), embedding),
        SinkKind.NOBODY: NullSink(store),
    }
    if components.provider is not None:
        sink = ProviderSink(store, components.clock, components.provider, components.provider_timeout)
        own, found[SinkKind.PROVIDER] = SinkKind.PROVIDER, sink
    return RecordSinks(own, found)


def _is_about(event: Event, *, space: str, selector: Selector) -> bool:
    if selector.everything:
        return event.space == space
    return selector.conversation is not None and event.conversation == selector.conversation


async def _within(seconds: float, work: Coroutine[Any, Any, None], undone: str) -> list[str]:
    """Returns nothing, or `undone` if the work failed or did not end in time."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except Exception as error:  # the boundary of one step of closing: the steps after it must be taken too
        if not isinstance(error, TimeoutError | AfterturnError):
            logger.exception("an error occurred during closing")
        return [undone]
    return []
