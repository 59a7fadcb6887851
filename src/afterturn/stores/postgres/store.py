"""The Store port on PostgreSQL."""

from __future__ import annotations

from functools import partial

from afterturn.config import Config, StoreUrl
from afterturn.ports import Clock, KeyProvider
from afterturn.runtime.worker import ThreadWorker
from afterturn.stores.postgres.doctor import find_faults
from afterturn.stores.postgres.engine import PostgresEngine, open_engine
from afterturn.stores.threaded_store import ThreadedStore, Workers


def open_store(
    url: StoreUrl,
    config: Config,
    clock: Clock,
    *,
    worker: Workers = ThreadWorker,
    keys: KeyProvider | None = None,
) -> PostgresStore:
    """Blocks while the server is checked and the schema is migrated: do not call it on an event loop. Raises a
    StoreError."""
    return PostgresStore(open_engine(url, config, clock, keys=keys), worker)


class PostgresStore(ThreadedStore):
    def __init__(self, engine: PostgresEngine, worker: Workers = ThreadWorker) -> None:
        super().__init__(engine, partial(find_faults, engine.server), worker)
        self.engine = engine
        self.write_now = engine.write_now
        self.read_now = engine.read_now

    async def size_bytes(self) -> int:
        return await self._run_aside(lambda stopped: self.engine.size_bytes())
