"""`afterturn worker` in several processes on one server: every job once, even if one of them is killed."""

import asyncio
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest

from afterturn import blocking
from afterturn.config import Config, StoreUrl
from afterturn.events import Events
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.runtime.jobs import Commit, JobRunner
from afterturn.runtime.once_future import is_set
from afterturn.stores.postgres.engine import PostgresEngine, open_engine
from afterturn.stores.postgres.store import open_store
from afterturn.stores.sql.unit import SqlUnit
from afterturn.testing.clock import ManualClock
from afterturn.testing.entries import admit, operation
from afterturn.types import Job, JobKind, JobQueue, Kind
from lab.postgres.server import PostgresServer
from worker_process import running_worker

pytestmark = pytest.mark.postgres

RunSql = Callable[..., list[tuple[Any, ...]]]
WORKERS, LEASE = 4, 6.0
# One tenant has most jobs; the last one comes when many have been done.
LARGE, LATE = "large", "late"
# The command, with a lease that a test can wait for.
PROGRAM = f"""
import afterturn.runtime.jobs as jobs
jobs.LEASE = {LEASE}
from afterturn.hosts.cli import main
main()
"""
# What a worker has written, in the order of its commits' locks: a vector for each entry, and the removal of each job.
LOG = """
CREATE TABLE {schema}.done (number BIGSERIAL, id TEXT, tenant TEXT, owner TEXT);
CREATE TABLE {schema}.written (entry_key BIGINT);
CREATE FUNCTION {schema}.note_job() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO {schema}.done (id, tenant, owner) VALUES (OLD.id, OLD.tenant, OLD.owner); RETURN NULL; END $$;
CREATE FUNCTION {schema}.note_vector() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO {schema}.written VALUES (NEW.entry_key); RETURN NULL; END $$;
CREATE TRIGGER note_job AFTER DELETE ON {schema}.job FOR EACH ROW EXECUTE FUNCTION {schema}.note_job();
CREATE TRIGGER note_vector AFTER INSERT OR UPDATE ON {schema}.embedding
    FOR EACH ROW EXECUTE FUNCTION {schema}.note_vector();
"""


class Fleet:
    """Workers on one store, and what they have done."""

    def __init__(self, url: str, run_sql: RunSql) -> None:
        self._url, self._run_sql = url, run_sql
        self._schema = StoreUrl(url).schema
        self.engine: PostgresEngine = open_engine(StoreUrl(url), Config(), SystemClock())
        run_sql(LOG.format(schema=self._schema))

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return self._run_sql(statement.format(schema=self._schema))

    def add(self, tenant: str, spaces: range) -> None:
        """A statement and a job in each space."""

        def work(unit: Unit) -> None:
            for number in spaces:
                space = f"user:{number}"
                unit.memories.add(operation(tenant=tenant, space=space), admit(f"Number {number} keeps bees"))
                job_id = f"{tenant}-{number:04d}"
                unit.jobs.add(Job(job_id, JobKind.EMBED, tenant, space, "{}", self.engine.clock.now()))

        self.engine.write_now(work)

    def worker(self, *arguments: str) -> "AbstractContextManager[subprocess.Popen[str]]":
        return running_worker(PROGRAM, self._url, *arguments)

    def done(self) -> int:
        return int(self.sql("SELECT count(*) FROM {schema}.done")[0][0])

    def wait(self, condition: Callable[[], object], *, within: float = 240.0) -> None:
        gate = threading.Event()
        for _ in range(int(within / 0.05)):
            if condition():
                return
            gate.wait(0.05)
        raise AssertionError(f"it did not happen: {self.done()} jobs are done")

    def kill_while_it_holds_jobs(self, worker: "subprocess.Popen[str]") -> int:
        """Kills it between claiming jobs and ending them. Returns how many it held."""
        held = 0

        def is_holding() -> bool:
            nonlocal held
            worker.send_signal(signal.SIGSTOP)
            found = "SELECT count(*) FROM {schema}.job WHERE state = 'leased' AND owner LIKE '" + f"{worker.pid}-%'"
            held = int(self.sql(found)[0][0])
            if not held:
                worker.send_signal(signal.SIGCONT)
            return held > 0

        self.wait(is_holding)
        worker.kill()
        worker.wait()
        return held


@pytest.fixture
def fleet(url: str, run_sql: RunSql) -> Iterator[Fleet]:
    opened = Fleet(url, run_sql)
    yield opened
    opened.engine.close()


def test_background_jobs_go_on_after_an_administrator_has_cancelled_their_statements(
    url: str, server: PostgresServer, run_sql: RunSql
) -> None:
    """C4: so do they after a statement_timeout."""
    schema, pause = StoreUrl(url).schema, threading.Event()
    waiting = (
        "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'afterturn' AND usename = 'memory'"
    )
    with blocking.open(url, {"embedder": "none", "busy_timeout": 60.0}) as memory:
        with psycopg.connect(server.url().partition("?")[0]) as connection:
            connection.execute(f"LOCK TABLE {schema}.job IN ACCESS EXCLUSIVE MODE".encode())
            while not run_sql(f"SELECT count(*) {waiting}")[0][0]:
                pause.wait(0.05)
            run_sql(f"SELECT pg_cancel_backend(pid) {waiting}")
            while run_sql(f"SELECT count(*) {waiting}")[0][0]:
                pause.wait(0.05)
        messages = [{"role": "user", "content": "Remember that I keep bees."}]
        with memory.conversation("monday", user="ada").turn(messages):
            messages.append({"role": "assistant", "content": "Noted."})
        # Not with `drain`, which runs jobs itself.
        learned: list[Kind] = []
        for _ in range(1200):
            learned = [entry.kind for entry in memory.space("user:ada").list()]
            if Kind.STATEMENT in learned:
                break
            pause.wait(0.05)
    assert Kind.STATEMENT in learned


def test_four_workers_run_every_job_once_though_one_is_killed(fleet: Fleet) -> None:
    """C8: its jobs are taken up after their lease, and a tenant with one job does not wait for one with many."""
    for start in range(0, 300, 100):
        fleet.add(LARGE, range(start, start + 100))
    for number in range(28):
        fleet.add(f"small{number}", range(5))
    total = 300 + 28 * 5 + 1
    with fleet.worker() as one, fleet.worker(), fleet.worker(), fleet.worker():
        fleet.wait(lambda: fleet.done() >= 40)
        held = fleet.kill_while_it_holds_jobs(one)
        fleet.add(LATE, range(1))
        before = fleet.done()
        fleet.wait(lambda: fleet.done() == total)
    assert held > 0
    assert fleet.sql("SELECT count(*), count(DISTINCT id) FROM {schema}.done") == [(total, total)]
    assert fleet.sql("SELECT count(*), count(DISTINCT entry_key) FROM {schema}.written") == [(total, total)]
    assert fleet.sql("SELECT count(*) FROM {schema}.job") == [(0,)]
    [(late,)] = fleet.sql("SELECT number FROM {schema}.done WHERE tenant = 'late'")
    # What the others had claimed by then, and the first jobs of the small ones, come before it; not the large one's.
    assert late - before < (total - before) / 2


async def test_jobs_that_outlast_their_lease_are_not_done_twice(url: str) -> None:
    """C8: it is renewed while they run, also for those that were claimed together and have not begun."""
    clock, done, lease = ManualClock(), [], 0.3
    stores = [open_store(StoreUrl(url), Config(), clock) for _ in range(2)]
    kind, wait = "note", asyncio.Event()

    def add(unit: Unit) -> None:
        for number in range(4):
            unit.jobs.add(Job(f"job-{number}", kind, "default", f"user:{number}", "{}", 1.0))

    async def quick(job: Job) -> Commit:
        done.append(job.id)
        return Commit()

    other = JobRunner(stores[1], clock, Events(clock, "default", None), "other", {kind: quick}, lease=lease)

    async def slow(job: Job) -> Commit:
        for _ in range(3):
            clock.advance(0.8 * lease)
            await until_renewed(job)
        assert await other.run_due() == 0
        return await quick(job)

    async def until_renewed(job: Job) -> None:
        renewed = clock.now() + 0.9 * lease
        for _ in range(100):
            if (job.id,) in await stores[0].read(lambda unit: find_leases(unit, renewed), at=JobQueue()):
                return
            await is_set(wait, within=0.05)
        raise AssertionError("it was not renewed")

    await stores[0].write(add, at=None)
    runner = JobRunner(stores[0], clock, Events(clock, "default", None), "slow", {kind: slow}, lease=lease)
    assert await runner.run_due() == 4
    assert sorted(done) == [f"job-{number}" for number in range(4)]
    for store in stores:
        await store.close(within=5.0)


def find_leases(unit: Unit, after: float) -> list[tuple[Any, ...]]:
    assert isinstance(unit, SqlUnit)
    return unit.session.rows("SELECT id FROM job WHERE state = 'leased' AND leased_until > ?", (after,))
