"""Runs background jobs from the store: each is claimed under a lease, retried with backoff, and finally marked dead."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from afterturn.errors import AfterturnError, ModelPaused, StoreMoved
from afterturn.events import Events
from afterturn.log import logger
from afterturn.ports import Clock, Store, Unit
from afterturn.runtime.once_future import is_set
from afterturn.types import Job, JobQueue, Scope, Tenant

LEASE = 60.0
# A lease is renewed while a job runs: several that were claimed together take longer than one. Not for ever, so that
# another process can take over from one that hangs.
RENEWALS_A_LEASE = 3
RENEWALS_MAX = 10 * RENEWALS_A_LEASE
POLL = 2.0
# A job costs two commits and much CPU time, so it waits until writes pause for a moment. It does not wait long, nor for
# many writes: until it has run, recall has no vectors of what they added. A long import embeds its own entries.
GATHER = 0.2
GATHER_MAX = 0.4
GATHER_WRITES_MAX = 32
ATTEMPTS_MAX = 5
# A job that kills its process is claimed again after each lease, but not for ever.
CLAIMS_MAX = 20
BACKOFF = 2.0
CLAIM_MAX = 4
# `idle` ignores jobs that are due later than this, such as a review that waits for tomorrow's tokens.
SOON = 120.0


class Commit(NamedTuple):
    """The writes that end a job, in one unit with its removal. `work` returns a function to call afterwards, or None.

    `spaces` are the spaces of the job's tenant that it writes to, in addition to the job's own.
    """

    work: Callable[[Unit], Callable[[], None] | None] = lambda unit: None
    spaces: tuple[str, ...] = ()


Handler: TypeAlias = Callable[[Job], Awaitable[Commit]]


class TooManyClaims(AfterturnError):
    """Each process that claimed the job died, or the job has waited for too many days."""


class LeaseLost(AfterturnError):
    """Another process took the job over. Its writes count, not ours."""


class JobRunner:
    """A handler prepares outside of any transaction and returns the writes, which are committed with the job's removal.

    `owner` names this runner in the store. `lease` is renewed while its jobs run, for up to ten times as long. With
    `concurrent`, claimed jobs run at the same time: for jobs that mostly wait for a server.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        events: Events,
        owner: str,
        handlers: Mapping[str, Handler],
        *,
        lease: float | None = None,
        concurrent: bool = False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._owner = owner
        self._handlers = dict(handlers)
        self._lease = LEASE if lease is None else lease
        self._concurrent = concurrent
        self._wake = asyncio.Event()
        self._writes = 0
        self._is_enough = asyncio.Event()
        self._running = asyncio.Lock()
        self._is_holding = False
        self._is_ending = False
        # How many jobs have ended well here, and how many attempts have failed.
        self.done = 0
        self.failed = 0

    def wake(self) -> None:
        """There may be new jobs; looks for them as soon as writes pause. Call it on the loop."""
        self._wake.set()
        self._writes += 1
        if self._writes == GATHER_WRITES_MAX:
            self._is_enough.set()

    def take_on(self, kind: str, handler: Handler) -> None:
        """From now on runs jobs of this kind too, also those that wait already."""
        self._handlers[kind] = handler
        self.wake()

    async def run(self) -> None:
        """Runs jobs until it is cancelled or `finish` is called. Polls the store: other processes add jobs too."""
        while not self._is_ending:
            self._wake.clear()
            self._is_enough.clear()
            self._writes = 0
            # Jobs that become due meanwhile wait for the next round, together with others.
            await self.run_due(by=self._clock.now())
            if await is_set(self._wake, within=POLL):
                await self._gather()

    async def _gather(self) -> None:
        for _ in range(round(GATHER_MAX / GATHER)):
            self._wake.clear()
            if await is_set(self._is_enough, within=GATHER) or not self._wake.is_set():
                return

    async def run_due(self, kinds: Sequence[str] | None = None, *, by: float | None = None) -> int:
        """Runs jobs, of `kinds` if given, until none is due now, or none that was due `by` then, or that has been due
        for GATHER_MAX. Returns how many succeeded. Jobs that a cancelled call had claimed run first."""
        done = 0
        async with self._running:
            await self.release()
            while not self._is_ending and (
                jobs := await self._claim(list(self._handlers if kinds is None else kinds), by)
            ):
                done += await self._run_held(jobs)
                # Those that were not begun are given back by `finish`.
                self._is_holding = self._is_ending
                if by is not None:
                    if len(jobs) < CLAIM_MAX:
                        break  # there are no others that were due then
                    # While many wait, a tenant's first job must not wait for all of them.
                    by = max(by, self._clock.now() - GATHER_MAX)
        return done

    async def _run_held(self, jobs: Sequence[Job]) -> int:
        """Runs them and keeps their leases meanwhile."""
        ended = asyncio.Event()

        async def run() -> int:
            try:
                return await self._run_all(jobs)
            finally:
                ended.set()

        done, _ = await asyncio.gather(run(), self._renew_until(ended))
        return done

    async def _renew_until(self, ended: asyncio.Event) -> None:
        for _ in range(RENEWALS_MAX):
            if await is_set(ended, within=self._lease / RENEWALS_A_LEASE):
                return
            until = self._clock.now() + self._lease
            try:
                await self._store.write(functools.partial(self._renew, until=until), at=JobQueue())
            except AfterturnError as error:
                logger.warning("the leases of running jobs could not be renewed: %s", error)

    def _renew(self, unit: Unit, *, until: float) -> None:
        unit.jobs.renew(owner=self._owner, until=until)

    async def _run_all(self, jobs: Sequence[Job]) -> int:
        if not self._concurrent:
            return sum([await self._run_one(job) for job in jobs if not self._is_ending])
        # Not a TaskGroup: when the end of one job cannot be written, the others continue, and its own error is raised.
        ended = await asyncio.gather(*(self._run_one(job) for job in jobs), return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error
        return ended.count(True)

    async def release(self) -> None:
        """Gives back jobs that were claimed and not finished, so that nobody waits until their lease ends."""
        if self._is_holding:
            await self._store.write(lambda unit: unit.jobs.release(owner=self._owner), at=JobQueue())
            self._is_holding = False

    async def finish(self) -> None:
        """Lets the jobs that run now end, gives back those that were claimed and not begun, and claims no others."""
        self._is_ending = True
        self._wake.set()
        self._is_enough.set()
        async with self._running:
            await self.release()

    async def idle(self, tenant: str | None) -> bool:
        """Whether this tenant, or all of them, has no job left that this process could run soon. Dead jobs do not
        count."""
        kinds, soon = list(self._handlers), self._clock.now() + SOON
        scope = JobQueue() if tenant is None else Tenant(tenant)
        return not await self._store.read(lambda unit: unit.jobs.has_unfinished(tenant, kinds, by=soon), at=scope)

    async def _claim(self, kinds: list[str], by: float | None) -> list[Job]:
        if not kinds:
            return []
        now, owner = self._clock.now(), self._owner
        due = now if by is None else min(by, now)
        # Read first, so that an idle process does not write: that would cost a lock and a sync each time.
        waiting = await self._store.read(lambda unit: unit.jobs.due_kinds(kinds, now=due), at=JobQueue())
        if not waiting:
            return []
        # Set before the write: a call that is cancelled now may have claimed jobs without learning of it.
        self._is_holding = True
        claimed = await self._store.write(
            lambda unit: unit.jobs.claim(
                waiting, owner=owner, now=due, lease=self._lease + (now - due), limit=CLAIM_MAX
            ),
            at=JobQueue(),
        )
        self._is_holding = bool(claimed)
        return claimed

    async def _run_one(self, job: Job) -> bool:
        try:
            if job.attempts > CLAIMS_MAX:
                raise TooManyClaims(f"It was started {job.attempts} times and never finished.")
            commit = await self._handlers[job.kind](job)
            scope = Scope(job.tenant, tuple(dict.fromkeys((job.space, *commit.spaces))))
            after_commit = await self._store.write(lambda unit: self._finish(unit, job, commit), at=scope)
        except (LeaseLost, StoreMoved):
            # The jobs of a store that was moved are free in the other place.
            return False
        except Exception as error:  # noqa: BLE001  the boundary: one bad job must not stop the others
            await self._fail(job, error)
            return False
        self.done += 1
        if after_commit is not None:
            after_commit()
        return True

    def _finish(self, unit: Unit, job: Job, commit: Commit) -> Callable[[], None] | None:
        if not unit.jobs.complete(job.id, owner=self._owner):
            raise LeaseLost(f"Job {job.id} was taken over by another process.")
        return commit.work(unit)

    async def _fail(self, job: Job, error: Exception) -> None:
        self.failed += 1
        paused = error.resumes_at if isinstance(error, ModelPaused) else None
        dead = job.attempts >= ATTEMPTS_MAX and paused is None
        retry_at = None if dead else paused or self._clock.now() + BACKOFF**job.attempts
        # Messages of foreign errors may quote memories; ours do not.
        reason = f"{type(error).__name__}: {error}"[:500] if isinstance(error, AfterturnError) else type(error).__name__
        # An AfterturnError says what happened, such as a model server that is down. Anything else needs a traceback.
        expected = isinstance(error, AfterturnError)
        logger.warning(
            "job %s (%s) failed on attempt %d: %s",
            job.id,
            job.kind,
            job.attempts,
            reason,
            exc_info=None if expected else error,
        )
        await self._store.write(
            lambda unit: unit.jobs.fail(job.id, owner=self._owner, error=reason, retry_at=retry_at),
            at=Scope(job.tenant, (job.space,)),
        )
        name = "job_dead" if dead else "job_failed"
        self._events.of(job.tenant).emit(
            name, space=job.space, kind=job.kind, job=job.id, attempts=job.attempts, error=reason
        )
