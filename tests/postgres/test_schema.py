"""The schema on a server: the same tables as in SQLite, created once, and refusals that say what to do."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from afterturn.config import Config, StoreUrl
from afterturn.errors import ForeignFile, StoreTooNew, StoreUnavailable
from afterturn.runtime.clock import SystemClock
from afterturn.stores.postgres.engine import PostgresEngine
from afterturn.stores.postgres.engine import open_engine as open_server
from afterturn.stores.sqlite.engine import open_engine as open_file
from lab.postgres.server import PostgresServer

pytestmark = pytest.mark.postgres
RunSql = Callable[..., list[tuple[Any, ...]]]


def open_url(url: str) -> PostgresEngine:
    return open_server(StoreUrl(url), Config(), SystemClock())


def test_every_column_of_the_file_is_on_the_server(url: str, run_sql: RunSql, tmp_path: Path) -> None:
    """§13: two stores differ in SQL only. `entry_terms` is each store's own index, `last_commit` and `migration`
    are the server's, and so are most columns
    `tenant`."""
    open_url(url).close()
    open_file(tmp_path / "memory.db", Config(), SystemClock()).close()
    file = apsw.Connection(str(tmp_path / "memory.db"))
    tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    in_file = {
        (table, column)
        for table in tables
        if not table.startswith(("entry_terms", "sqlite_"))
        for (column,) in file.execute("SELECT name FROM pragma_table_info(?)", (table,))
    }
    file.close()
    columns = (
        f"SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = '{StoreUrl(url).schema}'"
    )
    on_server = {
        (table, column)
        for table, column in run_sql(columns)
        if table not in ("entry_terms", "last_commit", "migration")
        and (column != "tenant" or (table, column) in in_file)
    }
    assert on_server == in_file
    collations = run_sql(
        "SELECT DISTINCT collation_name FROM information_schema.columns "
        f"WHERE table_schema = '{StoreUrl(url).schema}' AND data_type = 'text'"
    )
    assert collations == [("C",)]


def test_processes_that_open_a_new_store_at_once_create_it_once(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        engines = list(pool.map(open_url, [url] * 4))
    generations = {
        engine.read_now(lambda unit: unit.index.changes("default", "user:ada", since=0)) for engine in engines
    }
    for engine in engines:
        engine.close()
    assert len(generations) == 1


def test_a_store_of_a_newer_version_is_refused(url: str, run_sql: RunSql) -> None:
    open_url(url).close()
    run_sql(f"INSERT INTO {StoreUrl(url).schema}.migration VALUES (99)")
    with pytest.raises(StoreTooNew, match="Upgrade afterturn"):
        open_url(url)


def test_tables_of_another_program_are_left_alone(url: str, run_sql: RunSql) -> None:
    schema = StoreUrl(url).schema
    run_sql(f"CREATE SCHEMA {schema} AUTHORIZATION memory; CREATE TABLE {schema}.space (note text)")
    with pytest.raises(ForeignFile, match="another schema"):
        open_url(url)
    assert run_sql(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'") == [("space",)]


def test_a_role_that_may_not_create_tables_is_told_so(url: str, run_sql: RunSql) -> None:
    run_sql("CREATE ROLE guest LOGIN")
    with pytest.raises(StoreUnavailable, match="CREATE SCHEMA"):
        open_url(url.replace("memory@", "guest@"))


def test_a_role_that_owns_only_its_schema_is_enough(url: str, run_sql: RunSql) -> None:
    """No superuser, no extension, no right on the database."""
    schema = StoreUrl(url).schema
    run_sql(f"CREATE ROLE host LOGIN; CREATE SCHEMA {schema} AUTHORIZATION host")
    engine = open_url(url.replace("memory@", "host@"))
    assert engine.write_now(lambda unit: unit.conversations.forgets("default")) == 0
    engine.close()


def test_a_database_that_cannot_hold_every_text_is_refused(server: PostgresServer, run_sql: RunSql) -> None:
    run_sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StoreUnavailable, match="UTF8"):
        open_url(server.url("latin"))
