"""Runs the jobs that writes leave behind: claimed under a lease, retried with backoff, given up visibly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from afterturn.errors import AfterturnError, ModelPaused
from afterturn.events import Events
from afterturn.ports import Clock, Store, Unit
from afterturn.runtime.once_future import is_set
from afterturn.types import Job, JobState

logger = logging.getLogger("afterturn")

LEASE = 60.0
POLL = 2.0
# A job costs two commits and much of a processor, so it waits until writes pause for a moment, but not for long or for
# many of them: what waits beside a steady writer is what recall has no vectors of. A long import embeds what it brings
# by itself.
GATHER = 0.2
GATHER_MAX = 0.4
GATHER_WRITES_MAX = 32
ATTEMPTS_MAX = 5
# A job that ends the process of whoever runs it is claimed again after each lease, but not for ever.
CLAIMS_MAX = 20
BACKOFF = 2.0
CLAIM_MAX = 4
# What is due later than this, such as a review that waits for tomorrow's tokens, is not waited for.
SOON = 120.0
JOBS_LOOKED_AT = 10_000

# What it gives is called once the writes are durable: to tell of them.
Commit: TypeAlias = Callable[[Unit], "Callable[[], None] | None"]
Handler: TypeAlias = Callable[[Job], Awaitable[Commit]]


class TooManyClaims(AfterturnError):
    """Whoever claims it dies, or it has waited for too many days."""


class LeaseLost(AfterturnError):
    """Another process took the job over; its writes count, not ours."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a runner needs to know of its surroundings.

    `lease` is longer than any of its jobs takes; `side_by_side`: jobs that mostly wait for somebody else need not wait
    for one another.
    """

    store: Store
    clock: Clock
    events: Events
    owner: str
    lease: float = field(default_factory=lambda: LEASE)
    side_by_side: bool = False


class JobRunner:
    """A handler prepares outside of any transaction and returns the writes; those commit with the job's removal."""

    def __init__(self, work: Work, handlers: Mapping[str, Handler]) -> None:
        self._work = work
        self._handlers = dict(handlers)
        self._wake = asyncio.Event()
        self._writes = 0
        self._is_enough = asyncio.Event()
        self._running = asyncio.Lock()
        self._is_holding = False

    def wake(self) -> None:
        """There may be something to do, as soon as writes pause. To be called on the loop."""
        self._wake.set()
        self._writes += 1
        if self._writes == GATHER_WRITES_MAX:
            self._is_enough.set()

    def take_on(self, kind: str, handler: Handler) -> None:
        """From now on jobs of this kind are done here too; others, and those that wait, were left alone until now."""
        self._handlers[kind] = handler
        self.wake()

    async def run(self) -> None:
        """Until it is cancelled. Looks at the store now and then, since other processes write jobs too."""
        while True:
            self._wake.clear()
            self._is_enough.clear()
            self._writes = 0
            # What becomes due meanwhile waits for others like it.
            await self.run_due(by=self._work.clock.now())
            if await is_set(self._wake, within=POLL):
                await self._gather()

    async def _gather(self) -> None:
        for _ in range(round(GATHER_MAX / GATHER)):
            self._wake.clear()
            if await is_set(self._is_enough, within=GATHER) or not self._wake.is_set():
                return

    async def run_due(self, kinds: Sequence[str] | None = None, *, by: float | None = None) -> int:
        """Runs jobs, or those of some `kinds`, until none is due, or none that was so `by` then; how many ended well.
        What a call that was cancelled had claimed runs first."""
        done = 0
        async with self._running:
            await self.release()
            while jobs := await self._claim(list(self._handlers if kinds is None else kinds), by):
                done += await self._run_all(jobs)
                self._is_holding = False
        return done

    async def _run_all(self, jobs: Sequence[Job]) -> int:
        if not self._work.side_by_side:
            return sum([await self._run_one(job) for job in jobs])
        # Not a group: where the end of one can not be written, the others go on, and its error comes as it is.
        ended = await asyncio.gather(*(self._run_one(job) for job in jobs), return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error
        return ended.count(True)

    async def release(self) -> None:
        """Gives back what was claimed and not ended, so that nobody has to wait until the lease is over."""
        if self._is_holding:
            await self._work.store.write(lambda unit: unit.jobs.release(owner=self._work.owner))
            self._is_holding = False

    async def idle(self, tenant: str) -> bool:
        """Whether nothing is left to do for this tenant that this process could do soon. Dead jobs do not count."""
        kinds, soon = list(self._handlers), self._work.clock.now() + SOON
        counts = await self._work.store.read(lambda unit: unit.jobs.counts(tenant, kinds))
        if counts.get(JobState.READY, 0) + counts.get(JobState.LEASED, 0) == 0:
            return True
        jobs = await self._work.store.read(lambda unit: unit.jobs.page(tenant, limit=JOBS_LOOKED_AT))
        return not any(
            job.kind in kinds and (job.state is JobState.LEASED or (job.state is JobState.READY and job.run_at <= soon))
            for job in jobs
        )

    async def _claim(self, kinds: list[str], by: float | None) -> list[Job]:
        now, owner = self._work.clock.now(), self._work.owner
        due = now if by is None else min(by, now)
        # Looking first keeps an idle process from writing, which would cost a lock and a sync every time.
        if not await self._work.store.read(lambda unit: unit.jobs.waiting(kinds, now=due)):
            return []
        # Before it is known: whoever is cancelled now may have claimed something and never hear of it.
        self._is_holding = True
        claimed = await self._work.store.write(
            lambda unit: unit.jobs.claim(
                kinds, owner=owner, now=due, lease=self._work.lease + (now - due), limit=CLAIM_MAX
            )
        )
        self._is_holding = bool(claimed)
        return claimed

    async def _run_one(self, job: Job) -> bool:
        try:
            if job.attempts > CLAIMS_MAX:
                raise TooManyClaims(f"It was begun {job.attempts} times and never ended.")
            commit = await self._handlers[job.kind](job)
            told = await self._work.store.write(lambda unit: self._finish(unit, job, commit))
        except LeaseLost:
            return False
        except Exception as error:  # noqa: BLE001  the boundary: one bad job must not stop the others
            await self._fail(job, error)
            return False
        if told is not None:
            told()
        return True

    def _finish(self, unit: Unit, job: Job, commit: Commit) -> Callable[[], None] | None:
        if not unit.jobs.complete(job.id, owner=self._work.owner):
            raise LeaseLost(f"Job {job.id} was taken over by another process.")
        return commit(unit)

    async def _fail(self, job: Job, error: Exception) -> None:
        paused = error.resumes_at if isinstance(error, ModelPaused) else None
        dead = job.attempts >= ATTEMPTS_MAX and paused is None
        retry_at = None if dead else paused or self._work.clock.now() + BACKOFF**job.attempts
        # Another's message may quote what it was given, which is somebody's memory; ours do not.
        reason = f"{type(error).__name__}: {error}"[:500] if isinstance(error, AfterturnError) else type(error).__name__
        # An AfterturnError says what happened, such as a model server that is down; anything else needs its traceback.
        expected = isinstance(error, AfterturnError)
        logger.warning(
            "job %s (%s) failed on attempt %d: %s",
            job.id,
            job.kind,
            job.attempts,
            reason,
            exc_info=None if expected else error,
        )
        await self._work.store.write(
            lambda unit: unit.jobs.fail(job.id, owner=self._work.owner, error=reason, retry_at=retry_at)
        )
        name = "job_dead" if dead else "job_failed"
        self._work.events.of(job.tenant).emit(
            name, space=job.space, kind=job.kind, job=job.id, attempts=job.attempts, error=reason
        )
