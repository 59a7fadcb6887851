"""Care of the whole store: the timeline of events, hourly housekeeping, and the verbs of `Memory` that concern all
spaces (backup, restore, check, statistics, jobs)."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afterturn.config import StoreUrl, unknown_variables
from afterturn.errors import AfterturnError, DeadlineExceeded, InvalidInput, StoreError, StoreMoved, StoreUnavailable
from afterturn.events import Events, changes_in
from afterturn.log import describe, logger
from afterturn.ports import FileStore, ServerStore, Store, Unit
from afterturn.runtime.loop_thread import run_on
from afterturn.space.inbox import expire_proposals
from afterturn.stores.engine import no_progress
from afterturn.types.entries import Scope, Tenant, Verb
from afterturn.types.operations import Event, Finding, JobQueue, Operation, Selector, SpaceSummary, Step, TimelinePage
from afterturn.types.rows import JobKind, JobState, Showing, UsageRow, new_job
from afterturn.validation import check_limit, check_space

if TYPE_CHECKING:
    from afterturn.services import Services


# A turn of a few steps emits all its events in this time, and so costs one commit for them.
TIMELINE_DELAY = 1.0
# Events of a space that are kept for `afterturn trace`: those of about a thousand turns.
TIMELINE_ENTRIES_MAX = 10_000
HOUSEKEEPING_EVERY = 3600.0
# An open turn that no process continued for a day is abandoned; a proposal that nobody decided for a month is rejected.
TURN_IDLE_TIMEOUT = 86_400.0
INBOX_DAYS = 30
# After a failure it is tried again sooner, with pauses that double.
HOUSEKEEPING_RETRY = 5.0
HOUSEKEEPING_RETRY_MAX = 600.0
# How often a worker looks for tenants that are due, how many it reads at a time, and when another worker may take over
# the tenant of one that was killed.
TENANTS_EVERY = 60.0
TENANTS_BATCH = 100
TENANT_LEASE = 600.0
RETENTION_BATCH = 200
DAY = 86_400.0
DRAIN_POLL = 0.02
# How many spaces are watched for changes of other processes, and how many operations and memories of one are reported.
WATCHED_MAX = 64
_WATCH_EVERY_MAX = 86_400.0
WATCHED_OPERATIONS_MAX = 50
# Spaces at a time. A space in which nothing has changed is consolidated again after some days, because entries fade.
CONSOLIDATE_BATCH = 100
CONSOLIDATE_AGAIN_DAYS = 7
_DUMP = (
    "On a PostgreSQL server, run `PGOPTIONS='-c afterturn.tenant=*' pg_dump --enable-row-security --schema={schema} "
    "--format=custom`, or archive the whole server."
)
_UNDUMP = (
    "On a PostgreSQL server, run `pg_restore` with a file of pg_dump, or `afterturn import` with a file of "
    "`afterturn export`."
)


class TimelineWriter:
    """Stores events in batches, because a commit for each event would cost too much."""

    def __init__(self, store: Store, events: Events) -> None:
        self._store = store
        self._events = events
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        events.when_buffered(self._wake.set)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(TIMELINE_DELAY)
            await self.flush()

    async def flush(self) -> None:
        self._wake.clear()
        # Closing waits here for a batch that is being written.
        async with self._lock:
            if events := self._events.take():
                await self._write(events)

    async def _write(self, events: list[Event]) -> None:
        by_tenant: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            by_tenant[event.tenant].append(event)
        for tenant, batch in by_tenant.items():
            scope = Scope(tenant, tuple({event.space: None for event in batch}))

            def work(unit: Unit, events: Sequence[Event] = batch) -> None:
                unit.timeline.add(events, entries_max=TIMELINE_ENTRIES_MAX)

            try:
                await self._store.write(work, at=scope)
            except Exception as error:  # the boundary of one batch: the next may succeed
                logger.warning("%d events are missing from the timeline", len(batch), exc_info=error)


class Housekeeping:
    """When memory opens and every hour: stores turns that wait in files, ends turns that were left open, erases records
    past their retention, rejects proposals that nobody decided, and schedules the consolidation of spaces that have
    changed. For the tenant of the settings; a worker does it for every tenant of the store."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._recorder = services.recorder
        self._config = services.config
        self._clock = services.clock
        self._ids = services.ids
        self._events = services.events
        self._supervisor = services.supervisor
        # How often it has failed without a success in between: by tenant, and "" for the store as a whole.
        self._failures: Counter[str] = Counter()
        # A tenant that this process has claimed when the store became unavailable.
        self._held: str | None = None
        self._is_worker = False

    async def run(self) -> None:
        await self._repeat(self.run_once)

    async def _repeat(self, once: Callable[[], Awaitable[float]]) -> None:
        while True:
            pause = await once()
            await asyncio.sleep(pause)

    async def run_once(self) -> float:
        """Returns how many seconds later the next time is."""
        own = {"waiting turns": self._recorder.recover}
        error = await self._run_steps({**own, **self._steps_for(self._config.tenant)})
        if error is not None:
            return self._pause_after(error, self._config.tenant)
        del self._failures[self._config.tenant]
        return HOUSEKEEPING_EVERY

    def serve_all_tenants(self) -> None:
        """From now on until memory is closed. Call it on the loop."""
        if not self._is_worker:
            self._is_worker = True
            self._supervisor.start(self._repeat(self.run_due_tenants), "housekeeping of all tenants")

    async def run_due_tenants(self) -> float:
        """Does the housekeeping of every tenant that is due, one after the other; each is claimed by one process at a
        time, and fails alone. Returns how many seconds later to look again."""
        try:
            if self._held is not None:
                await self._run_claimed(self._held)
            while due := await self._store.read(
                lambda unit: unit.jobs.due_tenants(now=self._clock.now(), limit=TENANTS_BATCH), at=JobQueue()
            ):
                for tenant in due:
                    if await self._claim(tenant):
                        await self._run_claimed(tenant)
        except (StoreError, DeadlineExceeded) as error:
            return self._pause_after(error, "")
        del self._failures[""]
        return TENANTS_EVERY

    async def _claim(self, tenant: str) -> bool:
        now = self._clock.now()
        return await self._store.write(
            lambda unit: unit.jobs.claim_tenant(tenant, now=now, until=now + TENANT_LEASE), at=JobQueue()
        )

    async def _run_claimed(self, tenant: str) -> None:
        """Raises StoreUnavailable; then the tenant stays claimed by this process."""
        self._held = tenant
        error = await self._run_steps(self._steps_for(tenant))
        if isinstance(error, StoreUnavailable):
            raise error
        pause = HOUSEKEEPING_EVERY
        if error is None:
            del self._failures[tenant]
        else:
            pause = self._pause_after(error, tenant)
        until = self._clock.now() + pause
        await self._store.write(lambda unit: unit.jobs.put_off_tenant(tenant, until=until), at=JobQueue())
        self._held = None

    def _steps_for(self, tenant: str) -> dict[str, Callable[[], Awaitable[None]]]:
        steps = {
            "abandoned turns": self._abandon_turns,
            "retention": self._end_retention,
            "inbox": self._empty_inbox,
            "consolidation": self._consolidate,
        }
        return {name: functools.partial(step, tenant) for name, step in steps.items()}

    async def _run_steps(self, steps: Mapping[str, Callable[[], Awaitable[None]]]) -> Exception | None:
        """Returns the first error. The other steps are done anyway, unless the store is away."""
        first: Exception | None = None
        for name, step in steps.items():
            try:
                await step()
            except StoreMoved:
                # The next process that opens the store in its new place does it.
                return None
            except AfterturnError as error:
                first = first or error
                if isinstance(error, StoreUnavailable):
                    break
            except Exception as error:  # the boundary of one step: the others are done anyway
                logger.warning("housekeeping: %s failed", name, exc_info=error)
                first = first or error
        return first

    def _pause_after(self, error: Exception, subject: str) -> float:
        """Logs one line and returns a pause that is longer after each failure."""
        self._failures[subject] += 1
        pause = min(HOUSEKEEPING_RETRY * 2.0 ** (self._failures[subject] - 1), HOUSEKEEPING_RETRY_MAX)
        tenant = f" of tenant {subject!r}" if subject else ""
        logger.warning("housekeeping%s failed and is tried again in %g seconds: %s", tenant, pause, describe(error))
        return pause

    async def _abandon_turns(self, tenant: str) -> None:
        now = self._clock.now()
        before = now - TURN_IDLE_TIMEOUT
        count = await self._store.write(
            lambda unit: unit.conversations.abandon_turns(tenant, idle_since=before, at=now), at=Tenant(tenant)
        )
        if count:
            self._events.of(tenant).emit("turns_abandoned", turns=count)

    async def _end_retention(self, tenant: str) -> None:
        days = self._config.records_retention_days
        if days is None:
            return
        now = self._clock.now()
        before, erased, learned = now - days * DAY, 0, 0
        while ended := await self._store.read(
            lambda unit: unit.records.older_than(tenant, before, limit=RETENTION_BATCH), at=Tenant(tenant)
        ):
            # A forget follows what was learned from a record into every space of the tenant.
            work = functools.partial(_erase, tenant=tenant, entries=ended, at=now)
            learned += await self._store.write(work, at=Tenant(tenant))
            erased += len(ended)
        if erased:
            await self._store.scrub()
            self._events.of(tenant).emit("retention_ended", records=erased, statements=learned)

    async def _empty_inbox(self, tenant: str) -> None:
        now = self._clock.now()
        before, total, count = now - INBOX_DAYS * DAY, 0, 1
        while count:
            ended = await self._store.read(
                lambda unit: unit.memories.waiting_since(tenant, before, limit=RETENTION_BATCH), at=Tenant(tenant)
            )
            if not ended:
                break
            count = await self._store.write(
                functools.partial(expire_proposals, proposals=ended, tenant=tenant, at=now, ids=self._ids),
                at=Scope(tenant, tuple({space: None for space, _ in ended})),
            )
            total += count
        if total:
            self._events.of(tenant).emit("proposals_expired", proposals=total)

    async def _consolidate(self, tenant: str) -> None:
        if not self._config.consolidation:
            return
        now, ids = self._clock.now(), self._ids
        before = now - CONSOLIDATE_AGAIN_DAYS * DAY
        spaces = await self._store.read(
            lambda unit: unit.reviews.unconsolidated(tenant, before=before, limit=CONSOLIDATE_BATCH), at=Tenant(tenant)
        )

        def work(unit: Unit) -> None:
            for space in spaces:
                unit.jobs.add(new_job(JobKind.CONSOLIDATE, ids.new(), tenant, space, now), coalesce=True)

        if spaces:
            await self._store.write(work, at=Scope(tenant, tuple(spaces)))


def _erase(unit: Unit, *, tenant: str, entries: list[tuple[str, str]], at: float) -> int:
    """Erases records. Returns the number of statements that were erased too, because they had no other source."""
    statements = 0
    by_space: defaultdict[str, list[str]] = defaultdict(list)
    for space, entry_id in entries:
        by_space[space].append(entry_id)
    for space, ids in by_space.items():
        erased = unit.operations.forget(tenant, space, Selector(memories=tuple(ids)), at=at)
        statements += len(erased.ids) - len(ids)
    return statements


class Maintenance:
    """The verbs that concern the whole store, not one space: backup, restore, check, jobs. Runs on memory's loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tenant = services.tenant
        self._store = services.store
        self._embedding = services.embedding
        self._recorder = services.recorder
        # By watched space: its newest change that was looked at, and the operations that were the newest then.
        self._watched: dict[str, tuple[int, frozenset[str]]] = {}
        self._watch_every: float | None = None
        self._starting_watch = asyncio.Lock()

    async def ready(self, *, within: float = 10.0) -> bool:
        """Waits until vectors are ready too, at most `within` seconds.

        Returns False if vectors take longer, if there is no embedder, or if the store has the vectors of another one.
        """
        return self._embedding is not None and await self._embedding.ready(within=within)

    async def drain(
        self, *, within: float = 30.0, all_tenants: bool = False, stopped: Callable[[], bool] | None = None
    ) -> bool:
        """Runs background jobs until none is left for this tenant, or for all, those of other processes included.

        With `all_tenants`, the housekeeping of all tenants that are due comes first.

        Vectors of another embedder are computed again. Returns False if all that takes longer than `within` seconds, or
        if `stopped()` is true before.
        """
        if not self._services.has_store:
            return True
        try:
            async with asyncio.timeout(within):
                await self._recorder.recover()
                await self.ready(within=within)
                if all_tenants:
                    await self._services.housekeeping.run_due_tenants()
                while not await self._is_drained(within, None if all_tenants else self._tenant):
                    if stopped is not None and stopped():
                        return False
                    # Other processes run jobs too.
                    await asyncio.sleep(DRAIN_POLL)
        except TimeoutError:
            return False
        return True

    async def _is_drained(self, within: float, tenant: str | None) -> bool:
        if self._embedding is not None and self._embedding.index is not None:
            await self._embedding.adopt()
        recorded = await self._recorder.drain(within=within)
        await self._services.run_due_jobs()
        return recorded and await self._services.jobs.idle(tenant) and await self._services.reviews.runner.idle(tenant)

    async def backup(
        self, target: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Copies the store to a new file while it is in use. `progress` is called with (done, total) in pages."""
        store = self._file_store(_DUMP)
        await store.backup(Path(target), progress=progress or no_progress)

    async def restore(
        self, source: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Replaces the content of the store with a backup, whole or not at all.

        Other processes see it at their next recall. `progress` is called with (done, total) in pages.
        """
        store = self._file_store(_UNDUMP)
        await store.restore(Path(source), progress=progress or no_progress)
        if self._embedding is not None:
            await self._embedding.join_again()
            self._services.wake_jobs()
        self._services.events.pass_on("store_restored")

    def _file_store(self, advice: str) -> FileStore:
        """Raises StoreError, with what to do instead, for a store that is not a file."""
        if isinstance(self._store, FileStore):
            return self._store
        target = self._services.target
        schema = target.schema if isinstance(target, StoreUrl) else ""
        raise StoreError(f"The store {target} is no file that could be copied. {advice.format(schema=schema)}")

    async def watch(self, spaces: Sequence[str], *, every: float = 2.0) -> None:
        """From now on reports what other processes change in these spaces, at most 64, to `on_event`: one event
        `changed_elsewhere` for each space, every `every` seconds, with the ids of memories and what happened to them.

        What was forgotten has no id any more and is not reported. Raises InvalidInput without `on_event`, or if other
        spaces are watched with another `every`.
        """
        if isinstance(spaces, str) or not isinstance(spaces, Iterable) or not self._services.events.has_handler:
            raise InvalidInput("`watch` takes a list of spaces, and a memory that was opened with `on_event=`.")
        if not isinstance(every, int | float) or not 0 < every <= _WATCH_EVERY_MAX:
            raise InvalidInput(f"`every` is {every!r}. Pass seconds above 0, at most {_WATCH_EVERY_MAX:g}.")
        async with self._starting_watch:
            named = {check_space(space) for space in spaces} - self._watched.keys()
            if len(self._watched) + len(named) > WATCHED_MAX:
                raise InvalidInput(f"At most {WATCHED_MAX} spaces can be watched.")
            if self._watch_every not in (None, float(every)):
                raise InvalidInput(f"Spaces are watched every {self._watch_every:g} seconds. Pass the same `every`.")
            self._services.ids.keep()
            looks = {space: await self._look(space, None) for space in named}
            self._watched.update(looks)
            if named and self._watch_every is None:
                self._watch_every = float(every)
                self._services.supervisor.start(self._run_watch(self._watch_every), "watch")

    async def _run_watch(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            for space, state in list(self._watched.items()):
                try:
                    self._watched[space] = await self._look(space, state)
                except (StoreError, DeadlineExceeded) as error:
                    logger.warning("changes of other processes are not reported now: %s", error)

    async def _look(self, space: str, state: tuple[int, frozenset[str]] | None) -> tuple[int, frozenset[str]]:
        """Returns the state of a watched space, and reports what other processes have changed since `state`."""
        since, seen = state or (0, frozenset())
        scope, own = Scope(self._tenant, (space,)), self._services.ids.kept()

        def work(unit: Unit) -> tuple[int, list[Operation], list[Step]]:
            newest = unit.index.changes(self._tenant, space, since=since).seq
            page = unit.operations.page(scope, limit=WATCHED_OPERATIONS_MAX) if newest != since else []
            newer = itertools.takewhile(lambda one: state is not None and one.id not in seen, page)
            others = [one.id for one in newer if one.id not in own]
            return (
                newest,
                page,
                [step for one in reversed(others) for step in unit.operations.steps(scope, operation_id=one)],
            )

        newest, page, steps = await self._store.read(work, at=scope)
        if newest == since:
            return since, seen
        if made := changes_in(steps):
            kinds = ["recorded" if one.operation.verb is Verb.RECORD else one.event for one in made]
            self._services.events.pass_on(
                "changed_elsewhere",
                space=space,
                memories=",".join(one.memory for one in made[:WATCHED_OPERATIONS_MAX]),
                kinds=",".join(kinds[:WATCHED_OPERATIONS_MAX]),
                more=len(made) > WATCHED_OPERATIONS_MAX
                or (len(page) == WATCHED_OPERATIONS_MAX and page[-1].id not in seen),
            )
        return newest, frozenset(one.id for one in page)

    async def spaces(self) -> list[SpaceSummary]:
        """Lists the tenant's spaces by name, with the number of statements and records and the newest time."""
        return await self._store.read(lambda unit: unit.memories.spaces(self._tenant), at=Tenant(self._tenant))

    async def timeline(self, after: Mapping[str, tuple[int, float]] | None = None, *, limit: int = 200) -> TimelinePage:
        """Returns the newest `limit` events of all spaces of this tenant, oldest first, also those of other processes.

        With `after`, the `heads` of an earlier page, only those that were added since. A process adds its events about
        a second after they happened.
        """
        return await self._store.read(
            lambda unit: unit.timeline.follow(self._tenant, after, limit=check_limit(limit, TIMELINE_ENTRIES_MAX)),
            at=Tenant(self._tenant),
        )

    async def showings(self, refs: Sequence[str], *, limit: int = 1000) -> Sequence[Showing]:
        """Returns the turns in whose blocks one of these versions of memories was (`Entry.ref`), newest first."""
        count, tenant = check_limit(limit, TIMELINE_ENTRIES_MAX), Tenant(self._tenant)
        return await self._store.read(
            lambda unit: unit.conversations.showings(tenant.name, refs, limit=count), at=tenant
        )

    async def stats(self) -> dict[str, Any]:
        """Counts what the store holds for this tenant, in all spaces, and what is waiting to be done."""

        def count(unit: Unit) -> tuple[dict[str, int], int, Counter[str]]:
            spaces = [one.name for one in unit.memories.spaces(self._tenant)]
            entries: Counter[str] = Counter()
            # A scope is never empty, and a new tenant has no space yet.
            counted = unit.memories.counts(Scope(self._tenant, tuple(spaces))) if spaces else {}
            for (_, kind, status), number in counted.items():
                entries[f"{kind}.{status}"] += number
            return unit.jobs.counts(self._tenant), len(spaces), entries

        jobs, spaces, entries = await self._store.read(count, at=Tenant(self._tenant))
        return {
            "store": str(self._services.target),
            "tenant": self._tenant,
            "size_bytes": await self._size_bytes(),
            "spaces": spaces,
            "entries": dict(sorted(entries.items())),
            "jobs": {str(state): count for state, count in sorted(jobs.items())},
            "recordings_waiting": await run_on(self._recorder.file_writer, self._recorder.spill.count),
            "vectors": self._embedding is not None and await self._embedding.has_vectors(),
            "vectors_waiting": None if self._embedding is None else await self._embedding.waiting(self._tenant),
            "embedder": self._services.config.embedder,
        }

    async def _size_bytes(self) -> int:
        if isinstance(self._store, ServerStore):
            return await self._store.size_bytes()
        files = [Path(f"{self._services.target}{suffix}") for suffix in ("", "-wal", "-shm")]
        return sum(path.stat().st_size for path in files if path.exists())

    async def usage(self, *, limit: int = 1000) -> list[UsageRow]:
        """Lists model calls and tokens by day, space and purpose, newest day first."""
        return await self._store.read(lambda unit: unit.usage.page(self._tenant, limit=limit), at=Tenant(self._tenant))

    async def check(self) -> list[Finding]:
        """Checks the store, jobs, embedder, models and settings. `afterturn doctor` prints the findings.

        A store that cannot be read is a finding too, in place of those that need it."""
        findings: list[Finding] = []
        check_store = self._store.check  # raises if memory is off
        try:
            findings += await check_store()
            at = Tenant(self._tenant)
            dead = await self._store.read(lambda unit: unit.jobs.page(self._tenant, state=JobState.DEAD), at=at)
            remedy = "Fix the cause, then run `afterturn worker --retry`."
            gave_up = ((f"job {job.kind}", f"Gave up on {job.space}: {job.error}") for job in dead)
            findings += [Finding("error", *what, remedy) for what in gave_up]
            findings += [await self._embedder_finding(), await self._reviews_finding()]
        except StoreError as unreadable:
            findings.append(Finding("error", "store", str(unreadable)))
        findings += await run_on(self._recorder.file_writer, self._recorder.spill.findings)
        for variable, hint in unknown_variables().items():
            findings.append(Finding("warning", "settings", f"{variable} is not a setting.", hint))
        for name, error in self._services.supervisor.failures:
            findings.append(Finding("warning", name, f"{type(error).__name__}: {describe(error)}", "See the log."))
        return findings

    async def jobs(self) -> dict[str, int]:
        """Counts the jobs of all tenants: those that are `waiting`, `running` and `dead`, those that this process has
        `done`, and the attempts that `failed` in it."""
        counts = await self._store.read(lambda unit: unit.jobs.counts(None), at=JobQueue())
        runners = (self._services.jobs, self._services.reviews.runner)
        return {
            "waiting": counts.get(JobState.READY, 0),
            "running": counts.get(JobState.LEASED, 0),
            "dead": counts.get(JobState.DEAD, 0),
            "done": sum(runner.done for runner in runners),
            "failed": sum(runner.failed for runner in runners),
        }

    async def retry_dead(self, *, all_tenants: bool = False) -> int:
        """Queues the jobs again that failed too often, of this tenant or of all. Returns how many."""
        now, tenant = self._services.clock.now(), None if all_tenants else self._tenant
        scope = JobQueue() if tenant is None else Tenant(tenant)
        count = await self._store.write(lambda unit: unit.jobs.retry(tenant, now=now), at=scope)
        self._services.wake_jobs()
        return count

    async def _reviews_finding(self) -> Finding:
        waiting = await self._store.read(
            lambda unit: unit.jobs.counts(self._tenant, [JobKind.REVIEW]), at=Tenant(self._tenant)
        )
        count = waiting.get(JobState.READY, 0)
        if not count:
            return Finding("ok", "reviews", "No review waits for a model.")
        message = f"{count} {'review waits' if count == 1 else 'reviews wait'}"
        if self._services.reviews.has_model:
            return Finding("ok", "reviews", f"{message}.", "`afterturn review log` shows why.")
        remedy = "Set model_url and model, or open memory with `model=`."
        return Finding("warning", "reviews", f"{message}, and no model is set here.", remedy)

    async def _embedder_finding(self) -> Finding:
        if self._embedding is None:
            return Finding("ok", "embedder", "None: recall uses words only.")
        await self.ready()
        return await self._embedding.finding(self._services.config.embedder, self._tenant)
