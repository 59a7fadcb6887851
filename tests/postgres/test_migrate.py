"""Moving a store from a file to a server and back, and between two schemas."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from afterturn import blocking
from afterturn.config import Config, StoreUrl, find_store
from afterturn.errors import StoreError, StoreLocked, StoreMoved
from afterturn.oneshot import recall_once
from afterturn.runtime.clock import SystemClock
from afterturn.services import migrate
from afterturn.stores.copier import TableDigest
from afterturn.stores.postgres.engine import open_to_copy as open_server
from afterturn.stores.sql.tables import TABLES
from afterturn.stores.sqlite.engine import open_to_copy as open_file
from moved_content import (
    KILLED_MIGRATION,
    NOT_MOVED,
    SETTINGS,
    add_rare_rows,
    answers,
    digest_store,
    fill,
    open_memory,
    say,
)

pytestmark = pytest.mark.postgres

RunSql = Callable[..., list[tuple[Any, ...]]]
CONFIG = Config(synchronous="normal")


def digest(target: str) -> list[TableDigest]:
    place = find_store(target)
    if isinstance(place, StoreUrl):
        with closing(open_server(place, CONFIG, SystemClock())) as server:
            return digest_store(server)
    with closing(open_file(place, CONFIG, SystemClock())) as file:
        return digest_store(file)


def move(source: str, target: str) -> None:
    migrate(find_store(source), find_store(target), CONFIG, tenant=None, keep=False, progress=lambda done, total: None)


@pytest.fixture
def file(tmp_path: Path) -> tuple[str, dict[str, str]]:
    path = tmp_path / "memory.db"
    operations = fill(path)
    add_rare_rows(path)
    return str(path), operations


@pytest.fixture
def second_url(url: str, run_sql: RunSql) -> Iterator[str]:
    yield f"{url}_second"
    run_sql(f"DROP SCHEMA IF EXISTS {url.rpartition('=')[2]}_second CASCADE")


def test_every_table_and_column_of_the_schema_is_described(url: str, run_sql: RunSql) -> None:
    open_memory(url, background=False).__enter__().close()
    schema = url.rpartition("=")[2]
    rows = run_sql(f"SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = '{schema}'")
    found: dict[str, set[str]] = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    assert set(found) - NOT_MOVED == {table.name for table in TABLES}
    for table in TABLES:
        assert found[table.name] == set(table.columns), table.name


def test_a_file_moves_to_a_server_and_back(file: tuple[str, dict[str, str]], url: str, tmp_path: Path) -> None:
    """M1, L6: the same answers with the same scores, and old changes can be undone in either place."""
    source, operations = file
    before, asked = digest(source), answers(source)
    assert [table.name for table in before if not table.rows] == []
    move(source, url)
    assert (digest(url), answers(url)) == (before, asked)
    with open_memory(url) as memory:
        memory.space("user:ada").undo(operations["delete"])
        assert "Miso" in say(memory, "later", "What food is my cat allergic to?")
        assert memory.drain(within=60.0)
    changed, asked = digest(url), answers(url)
    back = str(tmp_path / "back.db")
    move(url, back)
    assert (digest(back), answers(back)) == (changed, asked)
    with open_memory(back) as memory:
        ada = memory.space("user:ada")
        ada.undo(operations["update"])
        assert {"Ada has three hives", "Ada prefers oolong tea"} <= {entry.text for entry in ada.list(limit=100)}


def test_a_schema_moves_to_another_one(file: tuple[str, dict[str, str]], url: str, second_url: str) -> None:
    move(file[0], url)
    before = digest(url)
    move(url, second_url)
    assert digest(second_url) == before
    with open_memory(second_url, background=False) as memory:
        added = [memory.space("user:ada").add(f"New fact {number}") for number in range(3)]
    assert all(one.created for one in added)


def test_a_server_that_was_moved_refuses_writes_and_names_the_target(url: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target.db")
    with open_memory(url, background=False) as memory:
        memory.space("user:ada").add("Ada keeps bees")
        move(url, target)
        with pytest.raises(StoreMoved, match=r"target\.db"):
            memory.space("user:ada").add("Lost?")
        assert memory.space("user:ada").list() != []
    for attempt in (lambda: open_memory(url).start(), lambda: recall_once("bees", user="ada", store=url)):
        with pytest.raises(StoreMoved, match=r"target\.db"):
            attempt()
    with pytest.raises(StoreError, match="the same store"):
        move(url, url)


def test_writes_wait_while_rows_are_copied(url: str, second_url: str) -> None:
    """C2: reads go on; a write is refused after `busy_timeout`, and nothing of it is stored."""
    refused: list[int] = []
    settings = {**SETTINGS, "embedder": "none", "busy_timeout": 0.01}
    with blocking.open(url, settings, background=False) as memory:
        memory.space("user:ada").add("Ada keeps bees")

        def write(done: int, total: int) -> None:
            if not refused:
                with pytest.raises(StoreLocked):
                    memory.space("user:ada").add("Too late")
                assert [entry.text for entry in memory.space("user:ada").list()] == ["Ada keeps bees"]
                refused.append(done)

        migrate(find_store(url), find_store(second_url), CONFIG, tenant=None, keep=False, progress=write)
    assert refused != []
    assert digest(second_url) == digest(url)


def test_a_killed_migration_can_be_run_again_and_loses_nothing(
    file: tuple[str, dict[str, str]], url: str, second_url: str
) -> None:
    """C2: killed while it copies to a server, then while it compares two schemas."""
    for source, target, call in ((file[0], url, 9), (url, second_url, 30)):
        before = digest(source)
        command = [sys.executable, "-c", KILLED_MIGRATION, source, target, str(call)]
        assert subprocess.run(command, timeout=60, check=False, env=dict(os.environ)).returncode == -signal.SIGKILL
        move(source, target)
        assert digest(target) == before
