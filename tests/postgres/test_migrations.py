"""Migrations of the schema while hosts of the version before read and write."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from afterturn.config import Config, StoreUrl
from afterturn.errors import StoreTooNew
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.stores.postgres.engine import PostgresEngine, open_engine
from afterturn.stores.postgres.migration import ALIVE_SECONDS
from afterturn.stores.postgres.schema import MIGRATIONS, Backfill, Migration, NewIndex
from afterturn.testing.clock import ManualClock
from afterturn.testing.entries import admit, operation
from afterturn.types import Filter, Scope

pytestmark = pytest.mark.postgres

WAIT = 60.0
ADA = Scope("default", ("user:ada",))
RunSql = Callable[..., list[tuple[Any, ...]]]
OpenOne = Callable[..., PostgresEngine]
# A version that the program of today knows nothing of, and works with. The contract fails if a row was left out.
NEXT = Migration(
    expand=("ALTER TABLE entry ADD COLUMN length BIGINT", "CREATE TABLE novelty (key BIGINT PRIMARY KEY)"),
    indexes=(NewIndex("entry_length", "entry (space_key, length)"),),
    backfills=(
        Backfill("entry", "key", "UPDATE entry SET length = length(text) WHERE key > %(first)s AND key <= %(last)s"),
    ),
    contract=("ALTER TABLE entry ALTER COLUMN length SET NOT NULL, ALTER COLUMN length SET DEFAULT 0",),
)
NEWER = (*MIGRATIONS, NEXT)
VERSION = len(NEWER)

# Talks until its input ends. Prints a line for each turn that is stored; everything else is an error.
HOST = """
import sys, threading
import afterturn.blocking as blocking
name, done = sys.argv[1], threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
with blocking.open({url!r}, {{"embedder": "none", "grace": 5.0}}) as memory:
    conversation, number = memory.conversation(name, user=name), 0
    while not done.is_set():
        messages = [{{"role": "user", "content": f"My locker {{number}} holds thing{{number}}."}}]
        with conversation.turn(messages) as turn:
            turn.inject(messages)
            messages.append({{"role": "assistant", "content": "Noted."}})
        assert turn.wait_recorded(within=60.0), "a turn was not stored"
        number += 1
        print(number, flush=True)
    assert memory.drain(within=60.0), "jobs are left"
    assert memory.stats()["recordings_waiting"] == 0, "a turn waits in a file"
    assert [f for f in memory.check() if f.level == "error"] == [], "doctor found an error"
"""


@pytest.fixture
def open_one(url: str) -> Iterator[OpenOne]:
    """Opens the store as another process would. All are closed after the test."""
    opened: list[PostgresEngine] = []

    def open_(migrations: tuple[Migration, ...] = MIGRATIONS, *, clock: Any = None) -> PostgresEngine:
        opened.append(open_engine(StoreUrl(url), Config(), clock or SystemClock(), migrations=migrations))
        return opened[-1]

    yield open_
    for engine in opened:
        engine.close()


def add(text: str) -> Callable[[Unit], str]:
    made, admitted = operation(), admit(text)
    return lambda unit: unit.memories.add(unit.operations.start(made), admitted).entry.id


def texts(engine: PostgresEngine) -> list[str]:
    return sorted(entry.text for entry in engine.read_now(lambda unit: unit.memories.page(ADA, Filter(), limit=1000)))


def never() -> bool:
    return False


def state(url: str, run_sql: RunSql) -> tuple[Any, ...]:
    """The phase of the made-up migration, and how many of its backfills are done."""
    [row] = run_sql(f"SELECT phase, backfill FROM {StoreUrl(url).schema}.migration WHERE version = {VERSION}")
    return row


def read_lines(host: subprocess.Popen[str], count: int) -> None:
    assert host.stdout is not None
    assert host.stderr is not None
    for _ in range(count):
        if not host.stdout.readline().strip():
            raise AssertionError(f"a host has ended: {host.stderr.read()}")


@contextmanager
def start_host(url: str, name: str) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-c", HOST.format(url=url), name]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as host:
        try:
            yield host
        finally:
            host.kill()


def end(host: subprocess.Popen[str]) -> str:
    """The last line that it printed. It must not have complained."""
    assert host.stdin is not None
    assert host.stdout is not None
    assert host.stderr is not None
    host.stdin.close()
    lines, errors = host.stdout.read(), host.stderr.read()
    assert (host.wait(WAIT), errors) == (0, "")
    return lines.split()[-1]


def test_a_migration_runs_beside_two_hosts_of_the_version_before(url: str, run_sql: RunSql, open_one: OpenOne) -> None:
    """C2: hosts are replaced one after the other, and no turn is lost, refused or delayed by the migration."""
    schema = StoreUrl(url).schema
    with start_host(url, "ada") as ada, start_host(url, "ben") as ben:
        hosts = (ada, ben)
        for host in hosts:
            read_lines(host, 5)
        newer = open_one(NEWER)
        assert state(url, run_sql) == ("expanded", 0)
        for host in hosts:
            read_lines(host, 5)
        newer.maintain(never)
        # Filled in once, and not finished: rows of the older hosts arrive all the time.
        assert state(url, run_sql) == ("expanded", 1)
        for host in hosts:
            read_lines(host, 5)
        older = open_one(MIGRATIONS)
        older.write_now(add("An older host may even be started"))
        newer.write_now(add("A newer host works beside it"))
        turns = [int(end(host)) for host in hosts]
    stored = f"SELECT count(*) FROM {schema}.entry WHERE kind = 'record' AND conversation = "
    assert [run_sql(f"{stored}'{name}'") for name in ("ada", "ben")] == [[(2 * count,)] for count in turns]

    newer.maintain(never)
    assert state(url, run_sql) == ("expanded", 1), "one older host is left"
    older.close()
    newer.maintain(never)
    assert state(url, run_sql) == ("done", 1)
    assert run_sql(f"SELECT count(*) FROM {schema}.entry WHERE length IS DISTINCT FROM length(text)") == [(0,)]
    with pytest.raises(StoreTooNew, match="Upgrade afterturn"):
        open_one(MIGRATIONS)


def test_processes_that_migrate_at_once_take_each_step_once(url: str, run_sql: RunSql, open_one: OpenOne) -> None:
    schema = StoreUrl(url).schema
    open_one().close()
    run_sql(f"INSERT INTO {schema}.space (tenant, name) SELECT 'default', 'user:' || n FROM generate_series(1, 2500) n")
    counted = Migration(
        expand=("ALTER TABLE space ADD COLUMN passes BIGINT NOT NULL DEFAULT 0",),
        indexes=(NewIndex("space_passes", "space (passes)"),),
        backfills=(
            Backfill("space", "key", "UPDATE space SET passes = passes + 1 WHERE key > %(first)s AND key <= %(last)s"),
        ),
    )
    with ThreadPoolExecutor(4) as pool:
        engines = list(pool.map(open_one, [(*MIGRATIONS, counted)] * 4))
        for done in [pool.submit(engine.maintain, never) for engine in engines]:
            done.result(WAIT)
    assert state(url, run_sql)[0] == "done"
    # Once while older hosts might write, and once after they were refused.
    assert run_sql(f"SELECT DISTINCT passes FROM {schema}.space") == [(2,)]


def test_a_backfill_that_was_stopped_goes_on_where_it_was(url: str, run_sql: RunSql, open_one: OpenOne) -> None:
    schema = StoreUrl(url).schema
    open_one().close()
    run_sql(f"INSERT INTO {schema}.space (tenant, name) SELECT 'default', 'user:' || n FROM generate_series(1, 2500) n")
    statement = "UPDATE space SET passes = passes + 1 WHERE key > %(first)s AND key <= %(last)s"
    added = "ALTER TABLE space ADD COLUMN passes BIGINT NOT NULL DEFAULT 0"
    engine = open_one((*MIGRATIONS, Migration(expand=(added,), backfills=(Backfill("space", "key", statement),))))
    engine.maintain(lambda: True)
    passes = f"SELECT passes, count(*) FROM {schema}.space GROUP BY passes ORDER BY passes"
    assert run_sql(passes) == [(0, 1500), (1, 1000)]
    engine.maintain(lambda: True)
    assert run_sql(passes) == [(0, 500), (1, 2000)]
    engine.maintain(never)
    assert run_sql(passes) == [(2, 2500)]


def test_the_last_part_waits_for_a_host_that_is_idle_and_not_for_a_dead_one(
    url: str, run_sql: RunSql, open_one: OpenOne
) -> None:
    clock = ManualClock()
    older, newer = open_one(clock=clock), open_one(NEWER, clock=clock)
    older.maintain(never)
    clock.advance(ALIVE_SECONDS / 2)
    older.maintain(never)
    clock.advance(ALIVE_SECONDS - 1)
    newer.maintain(never)
    assert state(url, run_sql) == ("expanded", 1)
    clock.advance(2)
    newer.maintain(never)
    assert state(url, run_sql) == ("done", 1)


def test_a_host_that_has_closed_the_store_is_not_waited_for(url: str, run_sql: RunSql, open_one: OpenOne) -> None:
    older, newer = open_one(), open_one(NEWER)
    older.write_now(add("Ada keeps bees"))
    newer.maintain(never)
    assert state(url, run_sql) == ("expanded", 1)
    older.close()
    newer.maintain(never)
    assert state(url, run_sql) == ("done", 1)


def test_an_old_host_that_was_taken_for_dead_cannot_write_any_more(url: str, open_one: OpenOne) -> None:
    """C2: a laptop that slept through the migration. The server refuses the commit, whole."""
    clock = ManualClock()
    older, newer = open_one(clock=clock), open_one(NEWER, clock=clock)
    older.write_now(add("Ada keeps bees"))
    clock.advance(ALIVE_SECONDS + 1)
    newer.maintain(never)
    with pytest.raises(StoreTooNew, match="Upgrade afterturn"):
        older.write_now(add("Ada likes tea"))
    assert texts(newer) == ["Ada keeps bees"]


def test_an_index_that_was_left_half_built_is_built_again(url: str, run_sql: RunSql, open_one: OpenOne) -> None:
    schema = StoreUrl(url).schema
    older = open_one()
    older.write_now(add("Ada keeps bees"))
    older.write_now(add("Ada likes tea"))
    with pytest.raises(psycopg.errors.UniqueViolation):
        run_sql(f"CREATE UNIQUE INDEX CONCURRENTLY entry_length ON {schema}.entry (kind)")
    valid = f"SELECT indisvalid FROM pg_index WHERE indexrelid = '{schema}.entry_length'::regclass"
    assert run_sql(valid) == [(False,)]
    open_one(NEWER)
    assert run_sql(valid) == [(True,)]
    assert state(url, run_sql) == ("expanded", 0)


def test_nobody_queues_behind_a_migration_that_waits_for_a_table(
    url: str, server: Any, run_sql: RunSql, open_one: OpenOne
) -> None:
    """L1: a long report holds a table. Hosts go on, and the migration follows when the report has ended."""
    schema = StoreUrl(url).schema
    older = open_one()
    tries = "SELECT 1 FROM pg_locks WHERE locktype = 'relation' AND NOT granted AND mode = 'AccessExclusiveLock'"
    gate = threading.Event()

    def wait_for_try() -> None:
        for _ in range(2000):
            if run_sql(tries):
                return
            gate.wait(0.01)
        raise AssertionError("the migration does not try")

    with psycopg.connect(server.url().partition("?")[0]) as report, ThreadPoolExecutor(1) as pool:
        report.execute(f"SELECT count(*) FROM {schema}.entry".encode())
        migrating = pool.submit(open_one, NEWER)
        for number in range(3):
            wait_for_try()
            older.write_now(add(f"Ada owns {number} bees"))
            assert len(texts(older)) == number + 1
        assert not migrating.done()
        report.rollback()
        migrating.result(WAIT)
    assert state(url, run_sql) == ("expanded", 0)
