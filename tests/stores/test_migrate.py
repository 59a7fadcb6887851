"""Moving a store to another file: what moves, stopped in the middle, refused."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from afterturn import blocking
from afterturn.config import Config
from afterturn.errors import StoreError, StoreLocked, StoreMoved, StoreTooNew
from afterturn.hosts.cli.app import run
from afterturn.oneshot import recall_once
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.services import migrate
from afterturn.stores import copier
from afterturn.stores.copier import StoreCopy, TableDigest, _insert
from afterturn.stores.engine import StoreEngine
from afterturn.stores.sql.tables import TABLES
from afterturn.stores.sql.unit import SqlUnit
from afterturn.stores.sqlite.engine import open_to_copy
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

R = TypeVar("R")
CONFIG = Config(synchronous="normal")


def move(source: Path, target: Path, *, tenant: str | None = None, keep: bool = False) -> int:
    """Returns the number of rows."""
    done = migrate(source, target, CONFIG, tenant=tenant, keep=keep, progress=lambda done, total: None)
    return sum(table.source.rows for table in done.tables)


def digest(path: Path, tenant: str | None = None) -> list[TableDigest]:
    with closing(open_to_copy(path, CONFIG, SystemClock())) as engine:
        return digest_store(engine, tenant)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    path = tmp_path_factory.mktemp("filled") / "memory.db"
    operations = fill(path)
    add_rare_rows(path)
    return path, operations


@pytest.fixture
def source(filled: tuple[Path, dict[str, str]], tmp_path: Path) -> Path:
    path = tmp_path / "source.db"
    with blocking.open(filled[0], {"embedder": "none"}, background=False) as memory:
        memory.backup(path)
    return path


def test_every_table_and_column_of_the_schema_is_described(source: Path) -> None:
    with apsw.Connection(str(source)) as connection:
        tables = {
            str(name)
            for name, kind in connection.execute("SELECT name, type FROM pragma_table_list WHERE schema = 'main'")
            if kind == "table" and not str(name).startswith("sqlite_")
        }
        found = {
            table: [(str(name), bool(primary)) for name, primary in rows]
            for table in tables
            if (rows := connection.execute("SELECT name, pk FROM pragma_table_info(?)", (table,)).fetchall())
        }
    described = {table.name: table for table in TABLES}
    assert set(found) - NOT_MOVED == set(described)
    for name, table in described.items():
        assert {column for column, _ in found[name]} == set(table.columns), name
        assert {column for column, primary in found[name] if primary} == set(table.primary), name
        keys = {column for column in table.columns if column.endswith("_key") or column == "operation_seq"}
        assert keys <= set(table.numbers), name


def test_everything_moves_and_answers_the_same(
    source: Path, filled: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """M1: a change that was made before the move can be undone after it."""
    target, before, asked = tmp_path / "target.db", digest(source), answers(source)
    assert [table.name for table in before if not table.rows] == []
    move(source, target)
    assert (digest(target), answers(target)) == (before, asked)
    with open_memory(target, background=False) as memory:
        ada = memory.space("user:ada")
        ada.undo(filled[1]["delete"])
        ada.undo(filled[1]["update"])
        texts = [entry.text for entry in ada.list(limit=100)]
        assert "Ada has three hives" in texts
        assert "Ada prefers oolong tea" in texts
        assert "Miso" in say(memory, "later", "What food is my cat allergic to?")


def test_there_and_back_has_the_same_content(source: Path, tmp_path: Path) -> None:
    before = digest(source)
    move(source, tmp_path / "there.db")
    move(tmp_path / "there.db", tmp_path / "back.db")
    assert digest(tmp_path / "back.db") == before


def test_a_store_that_was_moved_refuses_writes_and_names_the_target(source: Path, tmp_path: Path) -> None:
    """C2: no turn is recorded where nobody will look for it."""
    target = tmp_path / "target.db"
    with open_memory(source, background=False) as memory:
        move(source, target)
        with pytest.raises(StoreMoved, match=r"target\.db") as caught:
            memory.space("user:ada").add("Lost?")
    assert caught.value.target == str(target)
    for attempt in (lambda: open_memory(source).start(), lambda: recall_once("bees", user="ada", store=source)):
        with pytest.raises(StoreMoved, match=r"target\.db"):
            attempt()


def test_a_turn_that_waits_in_a_file_is_recorded_by_the_target(source: Path, tmp_path: Path) -> None:
    """C4: a host that still has the source open keeps its turns in files; the command hands them over."""
    target = tmp_path / "target.db"
    with open_memory(source, background=False) as memory:
        move(source, target)
        messages = [{"role": "user", "content": "My tortoise is called Blitz."}]
        with memory.conversation("late", user="ada").turn(messages) as turn:
            messages.append({"role": "assistant", "content": "Noted."})
        assert not turn.wait_recorded(within=0.5)
    done = migrate(source, target, CONFIG, tenant=None, keep=False, progress=lambda done, total: None)
    assert (done.tables, done.waiting) == ((), 1)
    with open_memory(target) as memory:
        assert memory.drain(within=30.0)
        assert "Blitz" in say(memory, "later", "What is my tortoise called?")


def test_a_copy_leaves_the_source_in_use(source: Path, tmp_path: Path) -> None:
    move(source, tmp_path / "target.db", keep=True)
    for path in (source, tmp_path / "target.db"):
        with open_memory(path, background=False) as memory:
            assert memory.space("user:ada").add(f"Written to {path.name}").created


def test_one_tenant_is_copied_without_the_others(source: Path, tmp_path: Path) -> None:
    target, before = tmp_path / "target.db", digest(source, "acme")
    move(source, target, tenant="acme", keep=True)
    # Vectors of other tenants' embedders are no content of this one.
    assert digest(target, "acme") == before
    assert digest(target, "default")[0].rows == 0


class Stopped(Exception):
    pass


def test_writes_wait_while_rows_are_copied(source: Path, tmp_path: Path) -> None:
    """C2: the copy has what was there when it began, and whoever writes meanwhile is refused, not lost."""
    target, refused = tmp_path / "target.db", []
    with blocking.open(source, {**SETTINGS, "embedder": "none", "busy_timeout": 0.01}, background=False) as memory:

        def write(done: int, total: int) -> None:
            if not refused:
                with pytest.raises(StoreLocked):
                    memory.space("user:ada").add("Too late")
                assert memory.space("user:ada").list() != []
                refused.append(done)

        migrate(source, target, CONFIG, tenant=None, keep=False, progress=write)
    assert refused != []
    assert digest(target) == digest(source)


@pytest.mark.parametrize("call", [1, 9, 30])
def test_a_copy_that_fails_changes_nothing(source: Path, tmp_path: Path, call: int) -> None:
    """C2: while it copies or compares. The target is empty, and the same command starts again."""
    target, before, calls = tmp_path / "target.db", digest(source), iter(range(1, 1000))

    def stop(done: int, total: int) -> None:
        if next(calls) == call:
            raise Stopped

    with pytest.raises(Stopped):
        migrate(source, target, CONFIG, tenant=None, keep=False, progress=stop)
    with open_memory(source, background=False) as memory:
        assert memory.space("user:ada").list() != []
    move(source, target)
    assert digest(target) == before


class Announced:
    """An engine that says when it is about to wait for the lock of its store."""

    def __init__(self, engine: StoreEngine) -> None:
        self.name, self.read_now, self.advance_sequences = engine.name, engine.read_now, engine.advance_sequences
        self.waits = threading.Event()
        self._engine = engine

    def write_now(self, work: Callable[[Unit], R]) -> R:
        self.waits.set()
        return self._engine.write_now(work)


def test_of_two_migrations_at_once_one_moves_the_store(source: Path, tmp_path: Path) -> None:
    """C2: the second waits for the lock, and finds that the store was moved. No host writes to two targets."""
    first, second, running = tmp_path / "first.db", tmp_path / "second.db", []
    patient = Config(synchronous="normal", busy_timeout=60.0)
    with (
        ThreadPoolExecutor(1) as pool,
        closing(open_to_copy(source, patient, SystemClock())) as engine,
        closing(open_to_copy(second, patient, SystemClock())) as other,
    ):
        one = Announced(engine)
        copy = StoreCopy(one, other, tenant=None, report=lambda done, total: None)

        def start_second(done: int, total: int) -> None:
            if not running:
                running.append(pool.submit(copy.run, keep=False))
                assert one.waits.wait(60)

        migrate(source, first, patient, tenant=None, keep=False, progress=start_second)
        with pytest.raises(StoreMoved, match=r"was moved to .*first\.db"):
            running[0].result(60)
    assert digest(first) == digest(source)
    assert digest(second)[0].rows == 0


@pytest.mark.slow
@pytest.mark.parametrize("call", [1, 9, 18, 26, 30])
def test_a_killed_migration_can_be_run_again_and_loses_nothing(source: Path, tmp_path: Path, call: int) -> None:
    target, before = tmp_path / "target.db", digest(source)
    command = [sys.executable, "-c", KILLED_MIGRATION, str(source), str(target), str(call)]
    assert subprocess.run(command, timeout=60, check=False, env=dict(os.environ)).returncode == -signal.SIGKILL
    move(source, target)
    assert digest(target) == before


def test_a_difference_fails_the_migration_and_keeps_the_source_in_use(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target.db"

    def lose(unit: SqlUnit, batch: Any) -> None:
        _insert(unit, batch._replace(rows=batch.rows[1:]) if batch.table.name == "entry" else batch)

    monkeypatch.setattr(copier, "_insert", lose)
    done = migrate(source, target, CONFIG, tenant=None, keep=False, progress=lambda done, total: None)
    assert [table.source.name for table in done.tables if not table.is_equal] == ["entry"]
    assert not done.is_equal
    with open_memory(source, background=False) as memory:
        assert memory.space("user:ada").add("Still in use").created
    assert digest(target)[0].rows == 0


def test_wrong_sources_and_targets_are_refused(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.db"
    with pytest.raises(StoreError, match="the same store"):
        move(source, source)
    with open_memory(target, background=False) as memory:
        memory.space("user:bob").add("Here already")
    with pytest.raises(StoreError, match="is not empty: it has the space user:bob"):
        move(source, target)
    move(source, tmp_path / "first.db")
    with pytest.raises(StoreMoved, match="was moved to"):
        move(source, tmp_path / "second.db")
    with apsw.Connection(str(target)) as connection:
        connection.execute("PRAGMA user_version=999")
    with pytest.raises(StoreTooNew, match="Upgrade afterturn"):
        move(target, tmp_path / "third.db")


def test_the_command_prints_what_was_compared(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migrate", str(source), str(tmp_path / "one.db"), "--keep", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["moved"] is False
    assert all(table["equal"] for table in printed["tables"])
    assert run(["migrate", str(source), str(tmp_path / "two.db")]) == 0
    shown = capsys.readouterr().out
    assert "rows are equal on both sides" in shown
    assert "accepts no writes" in shown
    assert run(["migrate", str(tmp_path / "missing.db"), str(tmp_path / "three.db")]) == 2
    assert run(["migrate", str(tmp_path / "one.db"), str(tmp_path / "four.db"), "--tenant", "acme"]) == 2
    assert "Add --keep" in capsys.readouterr().err
