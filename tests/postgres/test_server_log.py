"""What the server writes to its log when a statement fails, and how to keep texts out of it."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from afterturn.config import Config, StoreUrl
from afterturn.errors import StoreError
from afterturn.runtime.clock import SystemClock
from afterturn.stores.postgres.engine import open_engine
from afterturn.stores.postgres.store import find_faults
from afterturn.testing.entries import admit, operation
from afterturn.types import Scope
from lab.postgres.server import PostgresServer

pytestmark = pytest.mark.postgres
ADA = Scope("default", ("user:ada",))


def fail_to_add(server: PostgresServer, url: str, text: str) -> list[str]:
    """A write that gives up waiting for a table. Returns what doctor says about the log."""
    engine = open_engine(StoreUrl(url), Config(busy_timeout=0.02), SystemClock())
    made, admitted = operation(), admit(text)
    with psycopg.connect(server.url().partition("?")[0]) as other:
        other.execute(f"LOCK TABLE {StoreUrl(url).schema}.entry IN EXCLUSIVE MODE".encode())
        with pytest.raises(StoreError):
            engine.write_now(lambda unit: unit.memories.add(made, admitted), at=ADA)
    findings = find_faults(engine.server)
    engine.close()
    return [finding.message for finding in findings if finding.subject == "server log"]


def test_texts_of_failed_statements_are_logged_unless_the_role_says_no(
    url: str, server: PostgresServer, run_sql: Callable[..., list[tuple[Any, ...]]]
) -> None:
    """M2: doctor names the settings that copy texts to a place that forget cannot reach."""
    schema = StoreUrl(url).schema
    run_sql(f"CREATE ROLE keeper LOGIN; CREATE SCHEMA {schema} AUTHORIZATION keeper")
    as_keeper = url.replace("memory@", "keeper@")
    [warning] = fail_to_add(server, as_keeper, "Ada keeps bees in the attic")
    assert "log_min_error_statement = error" in warning
    run_sql("ALTER ROLE keeper SET log_min_error_statement = panic")
    assert fail_to_add(server, as_keeper, "Ada keeps wasps in the cellar") == []
    assert ["bees in the attic" in server.log(), "wasps in the cellar" in server.log()] == [True, False]


@pytest.mark.parametrize("setting", ["log_statement = mod", "log_min_duration_statement = 1000"])
def test_doctor_names_a_setting_that_logs_statements(
    url: str, run_sql: Callable[..., list[tuple[Any, ...]]], setting: str
) -> None:
    role = f"logged_{StoreUrl(url).schema}"
    run_sql(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA {StoreUrl(url).schema} AUTHORIZATION {role}")
    run_sql(f"ALTER ROLE {role} SET log_min_error_statement = panic; ALTER ROLE {role} SET {setting}")
    engine = open_engine(StoreUrl(url.replace("memory@", f"{role}@")), Config(), SystemClock())
    [found] = [finding for finding in find_faults(engine.server) if finding.subject == "server log"]
    engine.close()
    assert setting.partition(" ")[0] in found.message
