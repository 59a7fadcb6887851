"""Running jobs on a real store with a manual clock: leases, retries, giving up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from afterturn.config import Config
from afterturn.errors import StoreLocked
from afterturn.events import Events
from afterturn.ports import Store, Unit
from afterturn.runtime import jobs as running
from afterturn.runtime.jobs import Commit, JobRunner
from afterturn.stores.sqlite.store import open_store
from afterturn.testing.clock import ManualClock
from afterturn.types import Event, Job, JobState, Tenant, UnitScope

Handler = Callable[[Job], Awaitable[Commit]]


class JobsFixture:
    """One store, its clock, and runners that share them."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.events: list[Event] = []
        self.done: list[str] = []

    def runner(self, owner: str = "me", handler: Handler | None = None) -> JobRunner:
        events = Events(self.clock, "default", self.events.append)
        return JobRunner(self.store, self.clock, events, owner, {"note": handler or self.note})

    async def note(self, job: Job) -> Commit:
        self.done.append(job.id)
        return Commit()

    async def fail(self, job: Job) -> Commit:
        raise ValueError(f"attempt {job.attempts}")

    async def add(self, *ids: str, run_at: float | None = None) -> None:
        at = self.clock.now() if run_at is None else run_at
        for job_id in ids:
            job = Job(job_id, "note", "default", "user:ada", f'"{job_id}"', at)
            await self.store.write(lambda unit, job=job: unit.jobs.add(job), at=None)

    async def page(self) -> list[Job]:
        return await self.store.read(lambda unit: unit.jobs.page("default"), at=None)


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[JobsFixture]:
    clock = ManualClock()
    store = open_store(tmp_path / "memory.db", Config(), clock)
    yield JobsFixture(store, clock)
    await store.close(within=5.0)


async def test_due_jobs_run_in_order_and_are_gone(jobs: JobsFixture) -> None:
    """C8: what is due runs, once; what is not waits."""
    await jobs.add("job-1", "job-2")
    await jobs.add("job-3", run_at=jobs.clock.now() + 60)
    assert await jobs.runner().run_due() == 2
    assert jobs.done == ["job-1", "job-2"]
    assert [job.id for job in await jobs.page()] == ["job-3"]


async def test_a_failed_job_is_tried_again_later_and_later(jobs: JobsFixture) -> None:
    """C8: backoff: two seconds, then four; of the error its kind is kept, since its words may be a memory's."""
    await jobs.add("job-1")
    runner = jobs.runner(handler=jobs.fail)
    waits = []
    for _ in range(3):
        await runner.run_due()
        (job,) = await jobs.page()
        waits.append(job.run_at - jobs.clock.now())
        jobs.clock.advance(waits[-1])
    assert waits == [2.0, 4.0, 8.0]
    assert job.error == "ValueError"
    assert [event.name for event in jobs.events] == ["job_failed"] * 3


async def test_a_job_is_given_up_after_the_limit_and_has_another_chance(jobs: JobsFixture) -> None:
    """C8: dead jobs are shown and told; `retry` makes them ready, with all their attempts before them."""
    await jobs.add("job-1")
    failing = jobs.runner(handler=jobs.fail)
    for _ in range(running.ATTEMPTS_MAX):
        await failing.run_due()
        jobs.clock.advance(3600)
    (dead,) = await jobs.page()
    assert (dead.state, jobs.events[-1].name) == (JobState.DEAD, "job_dead")
    assert await failing.run_due() == 0
    now = jobs.clock.now()
    assert await jobs.store.write(lambda unit: unit.jobs.retry("default", now=now), at=None) == 1
    assert await jobs.runner().run_due() == 1
    assert await jobs.page() == []


async def test_a_job_whose_lease_was_lost_commits_nothing(jobs: JobsFixture) -> None:
    """C8: another owner took it over meanwhile; only that one's writes count."""
    await jobs.add("job-1")

    async def slow(job: Job) -> Commit:
        jobs.clock.advance(running.LEASE + 1)
        assert await jobs.runner("other").run_due() == 1
        return Commit(lambda unit: unit.jobs.add(Job("written", "other", "default", "user:ada", "{}", 0.0)))

    assert await jobs.runner("slow", slow).run_due() == 0
    assert jobs.done == ["job-1"]
    assert await jobs.page() == []


async def test_a_handlers_writes_commit_with_the_end_of_its_job(jobs: JobsFixture) -> None:
    """C8: when those writes fail, the job is not done either."""
    await jobs.add("job-1")

    async def broken(job: Job) -> Commit:
        def commit(unit: Unit) -> None:
            unit.jobs.add(Job("written", "other", "default", "user:ada", "{}", 0.0))
            raise ValueError("broken")

        return Commit(commit)

    assert await jobs.runner(handler=broken).run_due() == 0
    assert [(job.id, job.state) for job in await jobs.page()] == [("job-1", JobState.READY)]


async def test_one_bad_job_does_not_stop_the_others(jobs: JobsFixture) -> None:
    """C8: the rest of the claim runs."""
    await jobs.add("job-1", "job-2", "job-3")

    async def picky(job: Job) -> Commit:
        if job.id == "job-2":
            raise ValueError("broken")
        return await jobs.note(job)

    assert await jobs.runner(handler=picky).run_due() == 2
    assert jobs.done == ["job-1", "job-3"]


async def test_released_jobs_are_as_if_never_claimed(jobs: JobsFixture) -> None:
    """C8: a runner that is cancelled in the middle gives back what it holds, and no attempt is counted."""
    await jobs.add("job-1", "job-2")
    begun = asyncio.Event()

    async def hang(job: Job) -> Commit:
        begun.set()
        return await asyncio.get_running_loop().create_future()

    runner = jobs.runner(handler=hang)
    running_task = asyncio.ensure_future(runner.run_due())
    await begun.wait()
    running_task.cancel()
    await asyncio.wait({running_task})
    await runner.release()
    assert [(job.state, job.attempts) for job in await jobs.page()] == [(JobState.READY, 0)] * 2


async def test_a_runner_that_finishes_ends_its_job_and_gives_back_the_others(jobs: JobsFixture) -> None:
    """C8: a worker that is stopped leaves nothing half done, and nothing that waits for its lease."""
    await jobs.add("job-1", "job-2", "job-3")
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(job: Job) -> Commit:
        begun.set()
        await may_end.wait()
        return await jobs.note(job)

    runner = jobs.runner(handler=slow)
    running_task = asyncio.ensure_future(runner.run())
    await begun.wait()
    finishing = asyncio.ensure_future(runner.finish())
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(running_task, finishing)
    assert jobs.done == ["job-1"]
    assert (runner.done, runner.failed) == (1, 0)
    assert [(job.id, job.state, job.attempts) for job in await jobs.page()] == [
        ("job-2", JobState.READY, 0),
        ("job-3", JobState.READY, 0),
    ]


async def test_a_newer_job_of_another_tenant_does_not_wait_for_all_that_were_due_before(jobs: JobsFixture) -> None:
    """C8: a runner with much to do looks for newer jobs before it has done everything."""
    await jobs.add(*(f"job-{number:02d}" for number in range(40)))

    async def note_and_add(job: Job) -> Commit:
        if len(jobs.done) == 4:
            jobs.clock.advance(1.0)
            other = Job("other", "note", "acme", "user:bob", "{}", jobs.clock.now())
            await jobs.store.write(lambda unit: unit.jobs.add(other), at=Tenant("acme"))
            jobs.clock.advance(1.0)
        return await jobs.note(job)

    runner = jobs.runner(handler=note_and_add)
    await runner.run_due(by=jobs.clock.now())
    assert jobs.done.index("other") < 20


async def test_waking_runs_newer_jobs(jobs: JobsFixture) -> None:
    """C8: `run` goes on until it is cancelled, and looks soon when it is woken."""
    done = asyncio.Event()

    async def tell(job: Job) -> Commit:
        done.set()
        return Commit()

    runner = jobs.runner(handler=tell)
    task = asyncio.ensure_future(runner.run())
    await jobs.add("job-1")
    runner.wake()
    await asyncio.wait_for(done.wait(), 100)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_jobs_that_become_due_while_others_run_are_batched(jobs: JobsFixture) -> None:
    """C8: beside a steady writer a job for each of its writes would cost more than the writes do."""
    await jobs.add("job-1")

    async def followed(job: Job) -> Commit:
        jobs.clock.advance(1.0)
        await jobs.add(f"{job.id}-again")
        return Commit()

    runner = jobs.runner(handler=followed)
    assert await runner.run_due(by=jobs.clock.now()) == 1
    assert [(job.id, job.state) for job in await jobs.page()] == [("job-1-again", JobState.READY)]


async def test_a_lease_lasts_from_its_claim_however_long_others_took(jobs: JobsFixture) -> None:
    """C8: jobs that were due long ago are not taken over by the next process at once."""
    await jobs.add("job-1")
    begun = jobs.clock.now()
    jobs.clock.advance(running.LEASE - 1)

    async def slow(job: Job) -> Commit:
        jobs.clock.advance(running.LEASE - 1)
        assert await jobs.runner("other").run_due() == 0
        return await jobs.note(job)

    assert await jobs.runner(handler=slow).run_due(by=begun) == 1


async def test_many_writes_are_not_gathered_for_long(jobs: JobsFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """C8: a batch is limited, although the writer continues."""
    monkeypatch.setattr(running, "GATHER", 3600.0)
    monkeypatch.setattr(running, "GATHER_MAX", 3600.0)
    looked, done = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    async def tell(job: Job) -> Commit:
        ran.append(job.id)
        (looked if job.id == "job-1" else done).set()
        return Commit()

    runner = jobs.runner(handler=tell)
    await jobs.add("job-1")
    task = asyncio.ensure_future(runner.run())
    await asyncio.wait_for(looked.wait(), 100)
    jobs.clock.advance(1.0)
    await jobs.add("job-2")
    for _ in range(2 * running.GATHER_WRITES_MAX):
        runner.wake()
    await asyncio.wait_for(done.wait(), 100)
    task.cancel()
    await asyncio.wait({task})
    assert ran == ["job-1", "job-2"]


async def test_idle_means_nothing_is_left_that_could_be_done(jobs: JobsFixture) -> None:
    """C8: ready and leased jobs count, dead ones do not."""
    runner = jobs.runner()
    assert await runner.idle("default")
    await jobs.add("job-1")
    assert not await runner.idle("default")
    await runner.run_due()
    assert await runner.idle("default")


class _Refusing:
    """A store that refuses one write when it is told to."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.is_told = False
        self.refused = asyncio.Event()

    async def write(self, work: Callable[[Unit], Any], *, at: UnitScope) -> Any:
        if not self.is_told:
            return await self._inner.write(work, at=at)
        self.is_told = False
        self.refused.set()
        raise StoreLocked("The store is busy. Try again later.")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_a_failure_that_cannot_be_stored_does_not_affect_other_jobs(jobs: JobsFixture) -> None:
    """C8: the other jobs end, the runner reports the store error, and the failed job is tried again."""
    store = _Refusing(jobs.store)

    async def handle(job: Job) -> Commit:
        if job.id == "job-2" or store.refused.is_set():
            await store.refused.wait()
            return await jobs.note(job)
        store.is_told = True
        raise ValueError("no")

    await jobs.add("job-1", "job-2")
    events = Events(jobs.clock, "default", jobs.events.append)
    runner = JobRunner(store, jobs.clock, events, "me", {"note": handle}, concurrent=True)
    with pytest.raises(StoreLocked):
        await runner.run_due()
    assert [job.id for job in await jobs.page()] == ["job-1"]
    assert await runner.run_due() == 1
    assert jobs.done == ["job-2", "job-1"]
