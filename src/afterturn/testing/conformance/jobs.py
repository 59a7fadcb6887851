"""Jobs: leased to one owner at a time, completed by that owner, retried, or left dead."""

import asyncio
from typing import Any

from afterturn.ports import Store
from afterturn.testing.conformance.actions import ALL_SPACES, QUEUE, SPACE, TENANT
from afterturn.types import Job, JobState, Tenant

_KINDS = ("embed", "review")


class TestJobs:
    async def test_a_due_job_is_claimed_once(self, store: Store) -> None:
        """C8: no two owners get the same job."""
        await self._add(store, "j1")
        assert [job.id for job in await self._claim(store, "one")] == ["j1"]
        assert await self._claim(store, "two") == []

    async def test_owners_at_once_share_the_jobs_out(self, store: Store) -> None:
        """C8: a claim is atomic."""
        for number in range(12):
            await self._add(store, f"j{number:02d}")
        claims = await asyncio.gather(*(self._claim(store, f"owner{number}", limit=2) for number in range(8)))
        claimed = [job.id for claim in claims for job in claim]
        assert sorted(claimed) == [f"j{number:02d}" for number in range(12)]

    async def test_jobs_come_in_the_order_they_are_due(self, store: Store) -> None:
        """C8: oldest first, then by id."""
        for name, run_at in (("j3", 5.0), ("j1", 9.0), ("j2", 5.0)):
            await self._add(store, name, run_at=run_at)
        assert [job.id for job in await self._claim(store, "one")] == ["j2", "j3", "j1"]

    async def test_a_job_is_not_claimed_before_its_time(self, store: Store) -> None:
        await self._add(store, "j1", run_at=11.0)
        assert await self._claim(store, "one", now=10.0) == []
        assert await self._due_kinds(store, now=10.0) == []
        assert await self._due_kinds(store, now=11.0) == ["embed"]

    async def test_only_the_kinds_asked_for_are_claimed(self, store: Store) -> None:
        await self._add(store, "j1", kind="backup")
        assert await self._claim(store, "one") == []
        assert await self._due_kinds(store, now=10.0) == []

    async def test_an_owner_without_kinds_claims_nothing(self, store: Store) -> None:
        await self._add(store, "j1")
        assert await store.read(lambda unit: unit.jobs.due_kinds([], now=10.0), at=QUEUE) == []
        assert (
            await store.write(lambda unit: unit.jobs.claim([], owner="x", now=10.0, lease=9.0, limit=1), at=QUEUE) == []
        )

    async def test_no_claim_exceeds_its_limit(self, store: Store) -> None:
        """C8: leases that ran out, jobs of several kinds and jobs that were put off count together."""
        for number in range(6):
            await self._add(store, f"a{number}")
        await self._claim(store, "gone", now=2.0, lease=1.0, limit=3)
        for number in range(6):
            await self._add(store, f"b{number}", kind="review")
            await self._add(store, f"c{number}", later=True)
        sizes = [len(await self._claim(store, "one", limit=4)) for _ in range(5)]
        assert sizes == [4, 4, 4, 4, 2]

    async def test_the_first_job_of_a_tenant_does_not_wait_for_the_many_of_another(self, store: Store) -> None:
        """C8: each tenant gets its turn."""
        for number in range(40):
            await self._add(store, f"a{number:02d}")
        await self._claim(store, "one", limit=4)
        await self._add(store, "b0", tenant="acme", run_at=9.0)
        assert "b0" in [job.id for job in await self._claim(store, "one", limit=2)]

    async def test_tenants_that_keep_adding_do_not_hold_up_the_many_of_another(self, store: Store) -> None:
        """C8: half of what is claimed is the oldest."""
        for number in range(10):
            await self._add(store, f"a{number}")
        claimed: list[str] = []
        for number in range(10):
            for tenant in ("acme", "globex", "initech"):
                await self._add(store, f"{tenant}{number}", tenant=tenant, run_at=2.0 + number)
            claimed += [job.id for job in await self._claim(store, "one", now=20.0, limit=2)]
        assert {f"a{number}" for number in range(10)} <= set(claimed)

    async def test_many_jobs_of_one_kind_do_not_hold_up_another_kind(self, store: Store) -> None:
        """C8: of each kind that is asked for, one at least."""
        for number in range(40):
            await self._add(store, f"a{number:02d}")
        await self._add(store, "review", kind="review", run_at=9.0)
        assert "review" in [job.id for job in await self._claim(store, "one", limit=4)]

    async def test_a_job_that_was_put_off_is_claimed_when_it_is_due(self, store: Store) -> None:
        """C8: whatever else waits."""
        await self._add(store, "late", run_at=11.0, later=True)
        for number in range(8):
            await self._add(store, f"a{number}", run_at=12.0)
        assert await self._claim(store, "one", now=10.0) == []
        assert "late" in [job.id for job in await self._claim(store, "one", now=12.0, limit=2)]

    async def test_a_lease_that_ran_out_goes_to_another_owner(self, store: Store) -> None:
        """C8: any process finishes what another began."""
        await self._add(store, "j1")
        await self._claim(store, "one", now=10.0, lease=5.0)
        assert await self._claim(store, "two", now=14.9) == []
        assert [job.attempts for job in await self._claim(store, "two", now=15.0)] == [2]

    async def test_a_lost_lease_completes_nothing(self, store: Store) -> None:
        """C8: a process that lost the lease must not commit its writes."""
        await self._add(store, "j1")
        await self._claim(store, "one", now=10.0, lease=5.0)
        await self._claim(store, "two", now=20.0, lease=5.0)
        assert not await self._complete(store, "one")
        assert await self._complete(store, "two")
        assert not await self._complete(store, "two")

    async def test_a_failed_job_waits_for_its_next_try(self, store: Store) -> None:
        """C8: retried with backoff."""
        await self._add(store, "j1")
        await self._claim(store, "one")
        await self._fail(store, "one", retry_at=30.0)
        assert await self._claim(store, "one", now=29.0) == []
        assert [(job.attempts, job.error) for job in await self._claim(store, "one", now=30.0)] == [(2, "no luck")]

    async def test_a_job_without_another_try_is_dead(self, store: Store) -> None:
        """C8: dead-lettered, and shown."""
        await self._add(store, "j1")
        await self._claim(store, "one")
        await self._fail(store, "one", retry_at=None)
        assert await self._claim(store, "one", now=1e9) == []
        dead = await store.read(lambda unit: unit.jobs.page(TENANT, state="dead"), at=ALL_SPACES)
        assert [(job.id, job.state, job.error) for job in dead] == [("j1", JobState.DEAD, "no luck")]

    async def test_a_failure_after_the_lease_was_lost_changes_nothing(self, store: Store) -> None:
        """C8: the job is the new owner's."""
        await self._add(store, "j1")
        await self._claim(store, "one", now=10.0, lease=5.0)
        await self._claim(store, "two", now=20.0, lease=5.0)
        await self._fail(store, "one", retry_at=None)
        assert await store.read(lambda unit: unit.jobs.counts(TENANT), at=ALL_SPACES) == {"leased": 1}

    async def test_dead_jobs_can_be_tried_again(self, store: Store) -> None:
        await self._add(store, "j1")
        await self._claim(store, "one")
        await self._fail(store, "one", retry_at=None)
        assert await store.write(lambda unit: unit.jobs.retry(TENANT, now=40.0), at=ALL_SPACES) == 1
        assert [job.attempts for job in await self._claim(store, "one", now=40.0)] == [1]

    async def test_a_renewed_lease_is_not_taken_over(self, store: Store) -> None:
        """C8: only by its owner, and only while that still has it."""
        for name in ("j1", "j2"):
            await self._add(store, name)
        await self._claim(store, "one", now=10.0, lease=5.0, limit=1)
        await self._claim(store, "two", now=10.0, lease=5.0, limit=1)
        assert await store.write(lambda unit: unit.jobs.renew(owner="one", until=30.0), at=QUEUE) == 1
        assert [job.id for job in await self._claim(store, "three", now=20.0)] == ["j2"]
        assert await store.write(lambda unit: unit.jobs.renew(owner="two", until=90.0), at=QUEUE) == 0
        assert [job.id for job in await self._claim(store, "two", now=30.0)] == ["j1"]

    async def test_a_released_job_is_as_if_it_had_not_been_claimed(self, store: Store) -> None:
        """C8: a process that closes gives its jobs back, and nobody waits for the lease."""
        await self._add(store, "j1")
        await self._claim(store, "one")
        assert await self._release(store, "one") == 1
        assert [(job.id, job.attempts) for job in await self._claim(store, "two")] == [("j1", 1)]

    async def test_only_what_the_owner_holds_is_released(self, store: Store) -> None:
        """C8: neither another's, nor what it lost to another."""
        await self._add(store, "j1")
        await self._claim(store, "one", now=10.0, lease=5.0)
        await self._claim(store, "two", now=20.0, lease=5.0)
        assert await self._release(store, "one") == 0
        assert await self._complete(store, "two")

    async def test_a_job_like_one_that_waits_is_superfluous(self, store: Store) -> None:
        """C8: a second trigger coalesces with the job that waits."""
        await self._add(store, "j1")
        await self._add(store, "j2", coalesce=True)
        await self._add(store, "j3", coalesce=True, payload='{"other": 1}')
        waiting = await store.read(lambda unit: unit.jobs.page(TENANT), at=ALL_SPACES)
        assert [job.id for job in waiting] == ["j1", "j3"]

    async def test_a_job_like_one_that_runs_is_wanted(self, store: Store) -> None:
        """C8: what is running may have begun too early to see the newest write."""
        await self._add(store, "j1")
        await self._claim(store, "one")
        await self._add(store, "j2", coalesce=True)
        assert await store.read(lambda unit: unit.jobs.counts(TENANT), at=ALL_SPACES) == {"leased": 1, "ready": 1}

    async def test_a_claimed_job_is_what_was_added(self, store: Store) -> None:
        await self._add(store, "j1", payload='{"ids": ["a"]}')
        assert await self._claim(store, "one") == [
            Job("j1", "embed", TENANT, SPACE, '{"ids": ["a"]}', 1.0, 1, JobState.LEASED)
        ]

    async def test_a_job_is_found_by_its_id_until_it_is_done(self, store: Store) -> None:
        """C8: in whatever state, however many others wait."""
        await self._add(store, "j1")
        await self._add(store, "j2")
        await self._claim(store, "one", limit=1)
        await self._fail(store, "one", retry_at=30.0)
        tried, untried = await self._find(store, "j1"), await self._find(store, "j2")
        assert (tried and (tried.state, tried.error)) == (JobState.READY, "no luck")
        assert untried == Job("j2", "embed", TENANT, SPACE, "{}", 1.0)
        await self._claim(store, "one", now=30.0)
        assert await self._complete(store, "one")
        assert await self._find(store, "j1") is None

    async def test_the_housekeeping_of_each_tenant_is_claimed_once_when_it_is_due(self, store: Store) -> None:
        """C8: by one process at a time, and again when its time has come."""
        for tenant in ("beta", "acme", TENANT):
            for number in range(3):
                await self._add(store, f"{tenant}{number}", tenant=tenant, space=f"user:{number}")
        tenants = sorted(("beta", "acme", TENANT))
        assert await self._due_tenants(store, now=10.0) == tenants
        claims = await asyncio.gather(*(self._claim_tenant(store, "acme", now=10.0, until=20.0) for _ in range(8)))
        assert sorted(claims) == [False] * 7 + [True]
        assert await self._due_tenants(store, now=19.0) == [tenant for tenant in tenants if tenant != "acme"]
        await store.write(lambda unit: unit.jobs.put_off_tenant("beta", until=15.0), at=QUEUE)
        assert (await self._due_tenants(store, now=20.0))[-2:] == ["beta", "acme"]
        assert await self._claim_tenant(store, "acme", now=20.0, until=30.0)

    async def _due_tenants(self, store: Store, *, now: float) -> list[str]:
        return await store.read(lambda unit: unit.jobs.due_tenants(now=now, limit=100), at=QUEUE)

    async def _claim_tenant(self, store: Store, tenant: str, *, now: float, until: float) -> bool:
        return await store.write(lambda unit: unit.jobs.claim_tenant(tenant, now=now, until=until), at=QUEUE)

    async def test_another_tenant_s_jobs_are_not_listed(self, store: Store) -> None:
        """L2: figures stay with their tenant."""
        await self._add(store, "j1")
        assert await store.read(lambda unit: unit.jobs.page("acme"), at=Tenant("acme")) == []
        assert await store.read(lambda unit: unit.jobs.find("acme", "j1"), at=Tenant("acme")) is None
        assert await store.read(lambda unit: unit.jobs.counts("acme"), at=Tenant("acme")) == {}
        assert await store.read(lambda unit: unit.jobs.counts(None), at=QUEUE) == {"ready": 1}
        assert await store.write(lambda unit: unit.jobs.retry("acme", now=1.0), at=Tenant("acme")) == 0

    async def _add(
        self, store: Store, job_id: str, *, coalesce: bool = False, later: bool = False, **fields: Any
    ) -> None:
        job = Job(job_id, "embed", TENANT, SPACE, "{}", 1.0)._replace(**fields)
        await store.write(lambda unit: unit.jobs.add(job, coalesce=coalesce, later=later), at=Tenant(job.tenant))

    async def _claim(
        self, store: Store, owner: str, *, now: float = 10.0, lease: float = 60.0, limit: int = 100
    ) -> list[Job]:
        return await store.write(
            lambda unit: unit.jobs.claim(_KINDS, owner=owner, now=now, lease=lease, limit=limit), at=QUEUE
        )

    async def _find(self, store: Store, job_id: str) -> Job | None:
        return await store.read(lambda unit: unit.jobs.find(TENANT, job_id), at=ALL_SPACES)

    async def _due_kinds(self, store: Store, *, now: float) -> list[str]:
        return await store.read(lambda unit: unit.jobs.due_kinds(_KINDS, now=now), at=QUEUE)

    async def _release(self, store: Store, owner: str) -> int:
        return await store.write(lambda unit: unit.jobs.release(owner=owner), at=QUEUE)

    async def _complete(self, store: Store, owner: str) -> bool:
        return await store.write(lambda unit: unit.jobs.complete("j1", owner=owner), at=ALL_SPACES)

    async def _fail(self, store: Store, owner: str, *, retry_at: float | None) -> None:
        await store.write(
            lambda unit: unit.jobs.fail("j1", owner=owner, error="no luck", retry_at=retry_at), at=ALL_SPACES
        )
