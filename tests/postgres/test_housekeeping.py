"""Housekeeping on a server: `afterturn worker` does it for every tenant, and an outage delays it for a short time."""

import asyncio
import subprocess
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import afterturn
from afterturn import blocking, maintenance
from afterturn.config import StoreUrl
from afterturn.runtime.clock import SystemClock
from afterturn.types import JobQueue
from lab.postgres.server import PostgresServer
from worker_process import running_worker

pytestmark = pytest.mark.postgres

RunSql = Callable[..., list[tuple[Any, ...]]]
QUICK = {"embedder": "none", "background": False}
# The command, with pauses that a test can wait for.
PROGRAM = """
import afterturn.maintenance as maintenance
maintenance.TENANTS_EVERY = maintenance.HOUSEKEEPING_RETRY = 0.2
from afterturn.hosts.cli import main
main()
"""
# Who has claimed a tenant's housekeeping, by the times that were written; and a tenant whose records cannot be erased.
LOG = """
CREATE TABLE {schema}.claims (number BIGSERIAL, tenant TEXT, due DOUBLE PRECISION, was DOUBLE PRECISION);
CREATE FUNCTION {schema}.note_claim() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    IF NEW.key LIKE 'housekeeping/%' THEN
        INSERT INTO {schema}.claims (tenant, due, was) VALUES (substr(NEW.key, 14), CAST(NEW.value AS DOUBLE PRECISION),
            CASE TG_OP WHEN 'UPDATE' THEN CAST(OLD.value AS DOUBLE PRECISION) END);
    END IF;
    RETURN NULL; END $$;
CREATE TRIGGER note_claim AFTER INSERT OR UPDATE ON {schema}.meta FOR EACH ROW EXECUTE FUNCTION {schema}.note_claim();
CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.tenant = 'broken' AND OLD.kind = 'record' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON {schema}.entry FOR EACH ROW EXECUTE FUNCTION {schema}.refuse();
"""


def talk(url: str, tenant: str) -> None:
    """A recorded turn, and one that is left open."""
    with blocking.open(url, QUICK, tenant=tenant) as memory:
        messages = [{"role": "user", "content": f"I belong to {tenant}."}]
        with memory.conversation("monday", user="ada").turn(messages) as turn:
            messages.append({"role": "assistant", "content": "Noted."})
        assert turn.wait_recorded(within=20.0)


@pytest.fixture
def sql(url: str, run_sql: RunSql) -> RunSql:
    return lambda statement: run_sql(statement.format(schema=StoreUrl(url).schema))


def worker(url: str, *arguments: str) -> "AbstractContextManager[subprocess.Popen[str]]":
    settings = {"AFTERTURN_EMBEDDER": "none", "AFTERTURN_RECORDS_RETENTION_DAYS": "30"}
    return running_worker(PROGRAM, url, *arguments, **settings)


def wait(condition: Callable[[], object], *, within: float = 60.0) -> None:
    gate = threading.Event()
    for _ in range(int(within / 0.05)):
        if condition():
            return
        gate.wait(0.05)
    raise AssertionError("it did not happen")


def test_workers_do_it_for_every_tenant_one_at_a_time_and_one_failure_stops_no_other(url: str, sql: RunSql) -> None:
    """M4, C8: the tenant of the settings has no turn at all; two workers share the others."""
    tenants = ["acme", "beta", "broken", "gamma"]
    for tenant in tenants:
        talk(url, tenant)
    sql(LOG)
    sql("UPDATE {schema}.entry SET recorded_at = recorded_at - 40 * 86400")
    sql("UPDATE {schema}.turn SET status = 'open', touched_at = touched_at - 40 * 86400 WHERE tenant <> 'acme'")
    left = "SELECT DISTINCT tenant FROM {schema}.entry WHERE kind = 'record'"
    failed = "SELECT count(*) FROM {schema}.claims WHERE tenant = 'broken'"
    with worker(url) as one, worker(url):
        wait(lambda: sql(left) == [("broken",)])
        # Tried again: each try is a claim, and then the time of the next one.
        wait(lambda: sql(failed)[0][0] >= 6)
        one.terminate()
        said = one.communicate(timeout=30)[1]
    assert "Traceback" not in said
    assert sql("SELECT DISTINCT status FROM {schema}.turn WHERE tenant <> 'acme'") == [("abandoned",)]
    done = "SELECT tenant, count(*) FROM {schema}.claims WHERE tenant <> 'broken' GROUP BY 1 ORDER BY 1"
    # A claim, and then the time of the next one, an hour later.
    assert sql(done) == [("acme", 2), ("beta", 2), ("gamma", 2)]


def test_a_worker_that_runs_once_does_it_too(url: str, sql: RunSql) -> None:
    talk(url, "acme")
    sql("UPDATE {schema}.entry SET recorded_at = recorded_at - 40 * 86400")
    with worker(url, "--once") as one:
        assert one.wait(60) == 0
    assert sql("SELECT 1 FROM {schema}.entry WHERE kind = 'record'") == []


async def test_after_an_outage_it_is_tried_again_soon_with_one_line_for_each_try(
    own_server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """M4: with growing pauses, and not after an hour."""
    url, settings = own_server.url(), {**QUICK, "busy_timeout": 0.0, "records_retention_days": 30}
    talk(url, "default")
    async with afterturn.open(url, {**settings, "spill_folder": str(tmp_path)}) as memory:
        housekeeping = memory._services.housekeeping
        assert await housekeeping.run_once() == maintenance.HOUSEKEEPING_EVERY
        own_server.stop()
        first, second = maintenance.HOUSEKEEPING_RETRY, 2 * maintenance.HOUSEKEEPING_RETRY
        assert [await housekeeping.run_once() for _ in range(2)] == [first, second]
        assert [await housekeeping.run_due_tenants() for _ in range(2)] == [first, second]
        lines = [one for one in caplog.records if "housekeeping" in one.getMessage()]
        # The same line is not logged again within a minute.
        assert {one.exc_info for one in lines} == {None}
        own_server.start()
        assert await housekeeping.run_once() == maintenance.HOUSEKEEPING_EVERY
        assert await housekeeping.run_due_tenants() == maintenance.TENANTS_EVERY


async def test_it_goes_on_after_an_administrator_has_cancelled_its_statement(
    url: str, server: PostgresServer, run_sql: RunSql
) -> None:
    """M4: so does it after a statement_timeout."""
    schema, pause = StoreUrl(url).schema, threading.Event()
    waiting = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND usename = 'memory'"
    talk(url, "acme")

    def cancel() -> None:
        while not run_sql(f"SELECT pg_cancel_backend(pid) {waiting}"):
            pause.wait(0.05)

    async with afterturn.open(url, {**QUICK, "busy_timeout": 60.0}, background=False) as memory:
        housekeeping = memory._services.housekeeping
        with psycopg.connect(server.url().partition("?")[0]) as connection:
            connection.execute(f"LOCK TABLE {schema}.space IN ACCESS EXCLUSIVE MODE".encode())
            looking = asyncio.ensure_future(housekeeping.run_due_tenants())
            await asyncio.to_thread(cancel)
            assert await looking == maintenance.HOUSEKEEPING_RETRY
        assert await housekeeping.run_due_tenants() == maintenance.TENANTS_EVERY


async def test_a_worker_that_loses_the_server_finishes_the_tenant_that_it_has_claimed(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M4: when the server is back, and not when the claim has run out."""
    url = own_server.url()
    talk(url, "acme")
    async with afterturn.open(url, {**QUICK, "busy_timeout": 0.0}) as memory:
        housekeeping = memory._services.housekeeping

        async def lose_the_server(tenant: str) -> None:
            await asyncio.to_thread(own_server.stop)
            await memory.stats()

        with monkeypatch.context() as patched:
            patched.setattr(housekeeping, "_abandon_turns", lose_the_server)
            assert await housekeeping.run_due_tenants() == maintenance.HOUSEKEEPING_RETRY
        await asyncio.to_thread(own_server.start)
        assert await housekeeping.run_due_tenants() == maintenance.TENANTS_EVERY
        claimed_until = SystemClock().now() + maintenance.TENANT_LEASE
        due = await memory._services.store.read(
            lambda unit: unit.jobs.due_tenants(now=claimed_until, limit=9), at=JobQueue()
        )
        assert due == []
