"""The job that saves what a small space's shelf holds, so that its first question finds it in memory."""

from __future__ import annotations

from functools import partial

from afterturn.base.jobs import Commit
from afterturn.base.ports import Ids, Store, Unit
from afterturn.base.types import Job, JobKind, new_job
from afterturn.recall.assembly import Place, Plan, extent_of
from afterturn.recall.digests import is_due, is_worth_saving, load_digest, make_digest
from afterturn.recall.shelves import build
from afterturn.recall.stock import Stock


class Digesting:
    def __init__(self, store: Store, ids: Ids) -> None:
        self._store = store
        self._ids = ids

    def want(self, unit: Unit, tenant: str, space: str, at: float) -> None:
        """Leaves a job behind where a digest is missing or has fallen behind, and takes one away that is not worth it
        any more."""
        if is_due(unit, tenant, space):
            unit.jobs.add(new_job(JobKind.DIGEST, self._ids.new(), tenant, space, at), coalesce=True)
        elif not is_worth_saving(extent_of(unit, Place(tenant, space))):
            unit.digests.drop(tenant, space)

    async def handle(self, job: Job) -> Commit:
        """Reads words alone: a digest is the same whatever the embedder."""
        place = Place(job.tenant, job.space)
        # Before anything of the space is read: what is forgotten from now on must not be in it.
        begun = await self._store.read(lambda unit: unit.digests.moment())
        stock = await self._store.read(partial(_continue, place)) or await self._build(place)
        if stock is None:
            return lambda unit: None
        digest = await self._store.read(lambda _: make_digest(stock))

        def commit(unit: Unit) -> None:
            if digest is not None and not unit.digests.put(job.tenant, job.space, digest, begun=begun):
                self.want(unit, job.tenant, job.space, job.run_at)

        return commit

    async def _build(self, place: Place) -> Stock | None:
        """None when the space is empty, or moves too fast: who writes there next will want it again."""
        extent = await self._store.read(lambda unit: extent_of(unit, place))
        if extent is None:
            return None
        changes = await self._store.read(lambda unit: unit.index.changes(place.tenant, place.space, since=extent.seq))
        return await build(self._store, place, Plan(None, extent), changes)


def _continue(place: Place, unit: Unit) -> Stock | None:
    """What was saved, brought up to date; None when it is better made anew."""
    extent, digest = extent_of(unit, place), unit.digests.find(place.tenant, place.space)
    stock = None if extent is None or digest is None else load_digest(unit, place, Plan(None, extent), digest)
    return None if stock is None or stock.is_worn else stock
