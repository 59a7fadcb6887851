"""`afterturn doctor` on a real server: each finding, and what it says to do."""

import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from afterturn.config import Config, StoreUrl
from afterturn.runtime.clock import SystemClock
from afterturn.stores.postgres import store as postgres_store
from afterturn.stores.postgres.connection import StoreServer
from afterturn.stores.postgres.engine import PostgresEngine, open_engine
from afterturn.stores.postgres.schema import ISOLATED, MIGRATIONS, Migration
from afterturn.stores.postgres.store import find_faults
from afterturn.testing.entries import admit, operation
from afterturn.types import Finding, JobKind, Tenant, new_job
from lab.postgres.server import PostgresServer

pytestmark = pytest.mark.postgres

RunSql = Callable[..., list[tuple[Any, ...]]]
GUIDE = Path(__file__).parents[2] / "docs" / "production.md"


@pytest.fixture
def engine(url: str) -> Iterator[PostgresEngine]:
    opened = open_engine(StoreUrl(url), Config(), SystemClock())
    yield opened
    opened.close()


def find(engine: PostgresEngine, subject: str) -> list[Finding]:
    return [finding for finding in find_faults(engine.server) if finding.subject == subject]


def test_a_healthy_store_has_no_warning(engine: PostgresEngine) -> None:
    """Except for a server with the usual settings of its log."""
    engine.write_now(lambda unit: unit.memories.add(operation(), admit("Ada keeps bees")))
    findings = {finding.subject: finding for finding in find_faults(engine.server)}
    assert [subject for subject, finding in findings.items() if finding.level != "ok"] == ["server log"]
    assert findings["schema"].message.endswith(f"has version {len(MIGRATIONS)}.")
    assert "PostgreSQL" in findings["server"].message
    assert findings["role"].message == "The role owns the tables."
    assert findings["hosts"].message.endswith(f": 1 of version {len(MIGRATIONS)}.")
    assert re.fullmatch(r"\d+ of \d+ connections are in use\.", findings["connections"].message)


def test_a_superuser_is_a_warning(engine: PostgresEngine, url: str) -> None:
    admin = StoreServer(StoreUrl(url.replace("memory@", "postgres@")), Config(), SystemClock())
    found = {finding.subject: finding.level for finding in find_faults(admin)}
    assert (found["role"], found["row-level security"]) == ("warning", "warning")


def test_a_store_without_tables_is_an_error(url: str) -> None:
    [schema] = [one for one in find_faults(StoreServer(StoreUrl(url), Config(), SystemClock())) if one.level == "error"]
    assert schema.subject == "schema"


def test_a_session_that_blocks_others_is_named(engine: PostgresEngine, url: str, run_sql: RunSql) -> None:
    schema = StoreUrl(url).schema
    lock = f"LOCK TABLE {schema}.entry".encode()
    with (
        psycopg.connect(StoreUrl(url).connection_url, application_name="report") as holder,
        psycopg.connect(StoreUrl(url).connection_url) as waiter,
        ThreadPoolExecutor(1) as pool,
    ):
        holder.execute(lock)
        waiting = pool.submit(waiter.execute, lock)
        wait_until(lambda: bool(run_sql("SELECT 1 FROM pg_locks WHERE NOT granted")))
        [finding] = find(engine, "locks")
        assert finding.level == "warning"
        assert f"waits for process {holder.info.backend_pid} (report, idle in transaction)" in finding.message
        assert f"pg_terminate_backend({holder.info.backend_pid})" in finding.remedy
        holder.rollback()
        waiting.result(30)
    assert find(engine, "locks") == []


def test_late_and_dead_jobs_of_all_tenants_are_counted(engine: PostgresEngine, url: str, run_sql: RunSql) -> None:
    assert find(engine, "jobs")[0].level == "ok"
    late = new_job(JobKind.SCRUB, "one", "acme", "user:ada", engine.clock.now() - 7200)
    engine.write_now(lambda unit: unit.jobs.add(late), at=Tenant("acme"))
    [finding] = find(engine, "jobs")
    assert (finding.level, "1 are late" in finding.message) == ("warning", True)
    run_sql(f"UPDATE {StoreUrl(url).schema}.job SET state = 'dead'")
    [finding] = find(engine, "jobs")
    assert (finding.level, "1 given up" in finding.message) == ("warning", True)
    assert "--retry" in finding.remedy


def test_dead_rows_that_nobody_cleans_up_are_a_warning(
    engine: PostgresEngine, url: str, run_sql: RunSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_DEAD_ROWS_MIN", 10)
    schema = StoreUrl(url).schema
    run_sql(f"ALTER TABLE {schema}.meta SET (autovacuum_enabled = off)")
    run_sql(f"INSERT INTO {schema}.meta SELECT 'test' || n, '' FROM generate_series(1, 100) AS n")
    run_sql(f"DELETE FROM {schema}.meta WHERE key LIKE 'test%'; SELECT pg_stat_force_next_flush()")
    wait_until(lambda: bool(find(engine, "bloat")))
    [finding] = find(engine, "bloat")
    assert "meta has 100 dead rows" in finding.message
    assert f"VACUUM {schema}.meta" in finding.remedy.replace('"', "")


def test_a_program_that_is_older_than_the_schema_is_an_error(engine: PostgresEngine, url: str) -> None:
    newer = (*MIGRATIONS, Migration("CREATE TABLE novelty (key BIGINT)"))
    open_engine(StoreUrl(url), Config(), SystemClock(), migrations=newer).close()
    [finding] = find(engine, "schema")
    assert (finding.level, "Upgrade afterturn" in finding.remedy) == ("error", True)


def test_connections_that_run_out_are_a_warning(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch, server: PostgresServer
) -> None:
    monkeypatch.setattr(postgres_store, "_CONNECTIONS_SHARE_MAX", 0.0)
    [finding] = find(engine, "connections")
    assert (finding.level, "PgBouncer" in finding.remedy) == ("warning", True)


def test_commits_that_are_not_on_the_disk_are_a_warning(engine: PostgresEngine, url: str) -> None:
    settings = "options=-c%20synchronous_commit%3Doff"
    relaxed = StoreServer(StoreUrl(f"{url}&{settings}"), Config(), SystemClock())
    assert [one.level for one in find_faults(relaxed) if one.subject == "durability"] == ["warning"]
    assert find(engine, "durability") == []


def test_an_unused_replication_slot_is_a_warning(own_server: PostgresServer) -> None:
    opened = open_engine(StoreUrl(own_server.url()), Config(), SystemClock())
    try:
        assert find(opened, "replication") == []
        with psycopg.connect(StoreUrl(own_server.url()).connection_url) as connection:
            connection.execute("SELECT pg_create_physical_replication_slot('gone')")
        [finding] = find(opened, "replication")
        assert (finding.level, "'gone'" in finding.message) == ("warning", True)
    finally:
        opened.close()


def test_the_queries_of_the_guide_run(engine: PostgresEngine, url: str) -> None:
    """As a role that may only read the store's tables and the server's statistics."""
    found = re.search(r"^## Monitoring\n.*?^```sql\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    statements = [
        each for each in found[1].replace("afterturn.", f"{StoreUrl(url).schema}.").split(";") if each.strip()
    ]
    assert len(statements) >= 4
    with psycopg.connect(StoreUrl(url).connection_url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.replace(f"{StoreUrl(url).schema}.tenant", "afterturn.tenant").encode())


def test_the_guide_names_the_tables_without_a_policy(engine: PostgresEngine, url: str, run_sql: RunSql) -> None:
    section = GUIDE.read_text().partition("## Row-level security")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    without = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    tables = run_sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{StoreUrl(url).schema}'")
    assert without == {name for (name,) in tables} - set(ISOLATED)


@pytest.mark.parametrize("page", ["production.md", "postgres.md"])
def test_the_backup_of_the_guide_can_be_restored(
    server: PostgresServer, url: str, run_sql: RunSql, tmp_path: Path, page: str
) -> None:
    """By the owner, for whom row-level security is on: every row, and the policies."""
    schema, target = StoreUrl(url).schema, f"{StoreUrl(url).schema}_restored"
    with closing(open_engine(StoreUrl(url), Config(), SystemClock())) as opened:
        for tenant in ("acme", "globex"):
            job = new_job(JobKind.SCRUB, f"job of {tenant}", tenant, "user:ada", 0.0)
            opened.write_now(lambda unit, job=job: unit.jobs.add(job), at=Tenant(tenant))  # type: ignore[misc]
    found = re.search(r"^(PGOPTIONS=.*pg_dump .*)\n(pg_restore .*)$", GUIDE.with_name(page).read_text(), re.MULTILINE)
    assert found is not None
    dump, restore = (
        command.replace("--schema=afterturn", f"--schema={schema}").replace("memory.dump", str(tmp_path / "dump"))
        for command in found.groups()
    )
    plain = dump[dump.index("pg_dump") :].replace(" --enable-row-security", "")

    def run(command: str, database: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PATH": f"{server.binaries}{os.pathsep}{os.environ['PATH']}",
            "URL": StoreUrl(url.replace("/postgres?", f"/{database}?")).connection_url,
        }
        options: dict[str, Any] = {"env": environment, "capture_output": True, "text": True, "timeout": 60}
        return subprocess.run(["bash", "-c", command], check=False, **options)

    assert "row-level security" in run(plain, "postgres").stderr
    run_sql(f"CREATE DATABASE {target} OWNER memory")
    try:
        for command, database in ((dump, "postgres"), (restore, target)):
            done = run(command, database)
            assert (done.returncode, done.stderr) == (0, "")
        with closing(open_engine(StoreUrl(url.replace("/postgres?", f"/{target}?")), Config(), SystemClock())) as copy:
            assert find(copy, "row-level security")[0].level == "ok"
        rows = run_sql(f"SELECT tenant FROM {schema}.job ORDER BY tenant", database=target)
        assert rows == [("acme",), ("globex",)]
    finally:
        run_sql(f"DROP DATABASE {target} WITH (FORCE)")


def wait_until(holds: Callable[[], bool]) -> None:
    gate = threading.Event()
    for _ in range(600):
        if holds():
            return
        gate.wait(0.05)
    raise AssertionError("it does not happen")
