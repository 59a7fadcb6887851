"""A real PostgreSQL server for each test session. The tests run only with `-m postgres`, by make test-postgres."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lab.postgres.pooler import PgBouncer
    from lab.postgres.server import PostgresServer

_not_collected: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pooler", action="store_true", help="with -m postgres: through PgBouncer in transaction mode")
    parser.addoption("--postgres-binaries", type=Path, help="with -m postgres: the programs of another PostgreSQL")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without the extra, the store cannot even be imported."""
    if "postgres" in (config.getoption("-m") or "").split() or not collection_path.name.startswith("test_"):
        return None
    _not_collected.append(collection_path.name)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _not_collected:
        terminalreporter.section("tests on a real PostgreSQL were NOT run: make test-postgres", sep="!", red=True)
        terminalreporter.write_line(" ".join(sorted(set(_not_collected))))


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Iterator["PostgresServer"]:
    from lab.postgres.server import PostgresServer

    with PostgresServer(pytestconfig.getoption("--postgres-binaries", default=None)) as started:
        yield started


@pytest.fixture
def own_server(pytestconfig: pytest.Config) -> Iterator["PostgresServer"]:
    """For a test that stops it."""
    from lab.postgres.server import PostgresServer

    with PostgresServer(pytestconfig.getoption("--postgres-binaries", default=None)) as started:
        yield started


@pytest.fixture(scope="session")
def run_sql(server: "PostgresServer") -> Callable[..., list[tuple[Any, ...]]]:
    """Runs statements as the server's administrator."""
    import psycopg

    def run(statement: str, *, database: str = "postgres") -> list[tuple[Any, ...]]:
        url = f"postgresql://postgres@127.0.0.1:{server.port}/{database}"
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture(scope="session")
def place(server: "PostgresServer", pytestconfig: pytest.Config) -> Iterator["PostgresServer | PgBouncer"]:
    """What clients connect to: the server, or with --pooler the pooler before it."""
    if not pytestconfig.getoption("--pooler", default=False):
        yield server
        return
    from lab.postgres.pooler import PgBouncer

    with PgBouncer(server) as pooler:
        yield pooler


@pytest.fixture
def url(place: "PostgresServer | PgBouncer", run_sql: Callable[..., object]) -> Iterator[str]:
    """The URL of a schema that is removed after the test, with a role for which row-level security is on."""
    yield from _new_schema(place, run_sql)


@pytest.fixture(scope="module")
def module_url(place: "PostgresServer | PgBouncer", run_sql: Callable[..., object]) -> Iterator[str]:
    """Like `url`, for all tests of a module."""
    yield from _new_schema(place, run_sql)


def _new_schema(place: "PostgresServer | PgBouncer", run_sql: Callable[..., object]) -> Iterator[str]:
    if not run_sql("SELECT 1 FROM pg_roles WHERE rolname = 'memory'"):
        run_sql("CREATE ROLE memory LOGIN; GRANT CREATE ON DATABASE postgres TO memory")
    _numbers.append(len(_numbers))
    schema = f"test_{_numbers[-1]}"
    yield place.url(schema=schema, user="memory")
    run_sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


_numbers: list[int] = []
