"""The job that saves what a small space's shelf holds, so that its first question finds it in memory."""

from __future__ import annotations

from functools import partial

from afterturn.base.jobs import Commit
from afterturn.base.ports import Ids, Store, Unit
from afterturn.base.types import Job, JobKind, Scope, new_job
from afterturn.recall.assembly import Place, Plan
from afterturn.recall.digests import is_due, load_digest, make_digest
from afterturn.recall.shelves import build
from afterturn.recall.stock import Stock


class Digesting:
    def __init__(self, store: Store, ids: Ids) -> None:
        self._store = store
        self._ids = ids

    def want(self, unit: Unit, tenant: str, space: str, at: float) -> None:
        """Leaves a job behind where a digest is missing, or has fallen behind."""
        if is_due(unit, tenant, space):
            unit.jobs.add(new_job(JobKind.DIGEST, self._ids.new(), tenant, space, at), coalesce=True)

    async def handle(self, job: Job) -> Commit:
        """Reads words alone: a digest is the same whatever the embedder."""
        place = Place(job.tenant, job.space)
        # Before anything of the space: what is forgotten from now on must not be in it.
        forgets = await self._store.read(lambda unit: unit.operations.forgets(job.tenant, job.space))
        stock = await self._store.read(partial(_continue, place)) or await self._build(place)
        if stock is None:
            return lambda unit: None
        digest = await self._store.read(lambda _: make_digest(stock, forgets))

        def commit(unit: Unit) -> None:
            if digest is not None and not unit.digests.put(job.tenant, job.space, digest):
                self.want(unit, job.tenant, job.space, job.run_at)

        return commit

    async def _build(self, place: Place) -> Stock | None:
        """None when the space is empty, or moves too fast: who writes there next will want it again."""
        plan = await self._store.read(partial(_plan, place))
        if plan is None:
            return None
        changes = await self._store.read(
            lambda unit: unit.index.changes(place.tenant, place.space, since=plan.extent.seq)
        )
        return await build(self._store, place, plan, changes)


def _plan(place: Place, unit: Unit) -> Plan | None:
    extent = unit.index.extents(Scope(place.tenant, (place.space,))).get(place.space)
    return None if extent is None else Plan(None, extent)


def _continue(place: Place, unit: Unit) -> Stock | None:
    """What was saved, brought up to date; None when it is better made anew."""
    plan, digest = _plan(place, unit), unit.digests.find(place.tenant, place.space)
    stock = None if plan is None or digest is None else load_digest(unit, place, plan, digest)
    return stock if stock is not None and stock.follow(unit.index) and not stock.is_worn else None
