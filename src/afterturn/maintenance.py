"""Care of the whole store: the timeline of events, hourly housekeeping, and the verbs of `Memory` that concern all
spaces (backup, restore, check, statistics, jobs)."""

from __future__ import annotations

import asyncio
import functools
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afterturn.config import StoreUrl, unknown_variables
from afterturn.errors import StoreError
from afterturn.events import Events
from afterturn.log import describe, logger
from afterturn.ports import FileStore, ServerStore, Store, Unit
from afterturn.space.inbox import expire_proposals
from afterturn.types import (
    Event,
    Finding,
    JobKind,
    JobQueue,
    JobState,
    Scope,
    Selector,
    SpaceSummary,
    Tenant,
    UsageRow,
    new_job,
)

if TYPE_CHECKING:
    from afterturn.services import Services


# A turn of a few steps emits all its events in this time, and so costs one commit for them.
TIMELINE_DELAY = 1.0
HOUSEKEEPING_EVERY = 3600.0
RETENTION_BATCH = 200
DAY = 86_400.0
DRAIN_POLL = 0.02
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

    def __init__(self, store: Store, events: Events, entries_max: int) -> None:
        self._store = store
        self._events = events
        self._entries_max = entries_max
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
            work = functools.partial(_add_events, events=batch, entries_max=self._entries_max)
            try:
                await self._store.write(work, at=scope)
            except Exception as error:  # the boundary of one batch: the next may succeed
                logger.warning("%d events are missing from the timeline", len(batch), exc_info=error)


def _add_events(unit: Unit, *, events: list[Event], entries_max: int) -> None:
    unit.timeline.add(events, entries_max=entries_max)


class Housekeeping:
    """When memory opens and every hour: stores turns that wait in files, ends turns that were left open, erases records
    past their retention, rejects proposals that nobody decided, and schedules the consolidation of spaces that have
    changed."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._recorder = services.recorder
        self._config = services.config
        self._clock = services.clock
        self._ids = services.ids
        self._events = services.events

    async def run(self) -> None:
        while True:
            for step in (
                self._store.maintain,
                self._recorder.recover,
                self._abandon_turns,
                self._end_retention,
                self._empty_inbox,
                self._consolidate,
            ):
                try:
                    await step()
                except Exception as error:  # the boundary of one step: the others are done anyway
                    logger.warning(
                        "housekeeping: %s failed and is tried again in an hour", step.__name__, exc_info=error
                    )
            await asyncio.sleep(HOUSEKEEPING_EVERY)

    async def _abandon_turns(self) -> None:
        now = self._clock.now()
        before = now - self._config.turn_idle_timeout
        tenant = self._config.tenant
        count = await self._store.write(
            lambda unit: unit.conversations.abandon_turns(tenant, idle_since=before, at=now), at=Tenant(tenant)
        )
        if count:
            self._events.emit("turns_abandoned", turns=count)

    async def _end_retention(self) -> None:
        days, tenant = self._config.records_retention_days, self._config.tenant
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
            self._events.emit("retention_ended", records=erased, statements=learned)

    async def _empty_inbox(self) -> None:
        days, tenant, now = self._config.inbox_days, self._config.tenant, self._clock.now()
        if days is None:
            return
        before, total, count = now - days * DAY, 0, 1
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
            self._events.emit("proposals_expired", proposals=total)

    async def _consolidate(self) -> None:
        if not self._config.consolidation:
            return
        tenant, now, ids = self._config.tenant, self._clock.now(), self._ids
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

    async def ready(self, *, within: float = 10.0) -> bool:
        """Waits until vectors and the word table are ready too, at most `within` seconds.

        Returns False if vectors take longer, if there is no embedder, or if the store has the vectors of another one.
        """
        return self._embedding is not None and await self._embedding.ready(within=within)

    async def drain(self, *, within: float = 30.0, all_tenants: bool = False) -> bool:
        """Runs background jobs until none is left for this tenant, or for all, those of other processes included.

        Vectors of another embedder are computed again. Returns False if all that takes longer than `within` seconds.
        """
        if not self._services.has_store:
            return True
        try:
            async with asyncio.timeout(within):
                await self._recorder.recover()
                await self.ready(within=within)
                while not await self._is_drained(within, None if all_tenants else self._tenant):  # noqa: ASYNC110 other processes run jobs too
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

    async def spaces(self) -> list[SpaceSummary]:
        """Lists the tenant's spaces by name, with the number of statements and records and the newest time."""
        return await self._store.read(lambda unit: unit.memories.spaces(self._tenant), at=Tenant(self._tenant))

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
            "recordings_waiting": len(self._recorder.spill.files()),
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
            findings += await self._dead_jobs()
            findings += [await self._embedder_finding(), await self._reviews_finding()]
        except StoreError as unreadable:
            findings.append(Finding("error", "store", str(unreadable)))
        findings.extend(self._recorder.spill.findings())
        if self._embedding is not None:
            findings.append(self._embedding.table_finding())
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

    async def _dead_jobs(self) -> list[Finding]:
        dead = await self._store.read(
            lambda unit: unit.jobs.page(self._tenant, state=JobState.DEAD), at=Tenant(self._tenant)
        )
        remedy = "Fix the cause, then run `afterturn worker --retry`."
        return [Finding("error", f"job {job.kind}", f"Gave up on {job.space}: {job.error}", remedy) for job in dead]

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


def no_progress(done: int, total: int) -> None:
    """The default for `progress`."""
