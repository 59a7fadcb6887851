"""What goes on beside the turns: events reach the timeline, old turns and records come to their end."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import defaultdict
from dataclasses import dataclass

from afterturn.config import Config
from afterturn.conversation.recorder import Recorder
from afterturn.events import Events
from afterturn.ports import Clock, Ids, Store, Unit
from afterturn.types import Event, JobKind, Selector, new_job

logger = logging.getLogger("afterturn")

TIMELINE_DELAY = 0.2
HOUSEKEEPING_EVERY = 3600.0
RETENTION_BATCH = 200
DAY = 86_400.0
# Spaces at a time; and after how long one in which nothing has changed is looked at again, for what fades.
CONSOLIDATE_BATCH = 100
CONSOLIDATE_AGAIN_DAYS = 7


class TimelineWriter:
    """Stores events in batches: an event is worth keeping, but not a commit of its own."""

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
        # Closing waits here for the batch under way, which would be cut short otherwise.
        async with self._lock:
            if events := self._events.take():
                await self._write(events)

    async def _write(self, events: list[Event]) -> None:
        try:
            await self._store.write(lambda unit: unit.timeline.add(events, entries_max=self._entries_max))
        except Exception as error:  # the boundary of one batch: the next one may fare better
            logger.warning("%d events are missing from the timeline", len(events), exc_info=error)


@dataclass(frozen=True, slots=True)
class HousekeepingParts:
    store: Store
    recorder: Recorder
    config: Config
    clock: Clock
    ids: Ids
    events: Events


class Housekeeping:
    """At opening and every hour: recover what waits, abandon turns nobody came back to, end records' retention, have
    spaces consolidated that have changed."""

    def __init__(self, parts: HousekeepingParts) -> None:
        self._parts = parts
        self._store = parts.store
        self._config = parts.config
        self._clock = parts.clock
        self._events = parts.events

    async def run(self) -> None:
        while True:
            for step in (self._parts.recorder.recover, self._abandon_turns, self._end_retention, self._consolidate):
                try:
                    await step()
                except Exception as error:  # the boundary of one chore: the others are done all the same
                    logger.warning("%s waits for the next hour", step.__name__, exc_info=error)
            await asyncio.sleep(HOUSEKEEPING_EVERY)

    async def _abandon_turns(self) -> None:
        now = self._clock.now()
        before = now - self._config.turn_idle_timeout
        tenant = self._config.tenant
        count = await self._store.write(
            lambda unit: unit.conversations.abandon_turns(tenant, idle_since=before, at=now)
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
            lambda unit: unit.records.older_than(tenant, before, limit=RETENTION_BATCH)
        ):
            learned += await self._store.write(functools.partial(_erase, tenant=tenant, entries=ended, at=now))
            erased += len(ended)
        if erased:
            await self._store.scrub()
            self._events.emit("retention_ended", records=erased, statements=learned)

    async def _consolidate(self) -> None:
        if not self._config.consolidation:
            return
        tenant, now, ids = self._config.tenant, self._clock.now(), self._parts.ids

        def work(unit: Unit) -> None:
            before = now - CONSOLIDATE_AGAIN_DAYS * DAY
            for space in unit.reviews.unconsolidated(tenant, before=before, limit=CONSOLIDATE_BATCH):
                unit.jobs.add(new_job(JobKind.CONSOLIDATE, ids.new(), tenant, space, now), coalesce=True)

        await self._store.write(work)


def _erase(unit: Unit, *, tenant: str, entries: list[tuple[str, str]], at: float) -> int:
    """How many statements went along, since nothing else is left that they rest on (M2)."""
    statements = 0
    by_space: defaultdict[str, list[str]] = defaultdict(list)
    for space, entry_id in entries:
        by_space[space].append(entry_id)
    for space, ids in by_space.items():
        erased = unit.operations.forget(tenant, space, Selector(memories=tuple(ids)), at=at)
        statements += len(erased.ids) - len(ids)
    return statements
