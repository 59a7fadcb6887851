"""Moving a store to another file: what moves, in use, stopped in the middle, refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import apsw
import pytest

from afterturn import blocking
from afterturn.config import Config
from afterturn.errors import StoreError, StoreMoved, StoreTooNew, StoreUnavailable
from afterturn.hosts.cli.app import run
from afterturn.oneshot import recall_once
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.services import cancel_migration, migrate
from afterturn.stores.copier import CopyEngine, CopySide, StoreCopy, TableDigest
from afterturn.stores.sql.tables import NOT_MOVED, TABLES
from afterturn.stores.sqlite import change_notes
from afterturn.stores.sqlite.engine import open_to_copy
from afterturn.types import JobQueue, UnitScope
from moved_content import KILLED_MIGRATION, add_rare_rows, answers, digest_store, fill, leftovers, open_memory, say

R = TypeVar("R")
CONFIG = Config(synchronous="normal")


def move(source: Path, target: Path, *, tenant: str | None = None, keep: bool = False) -> int:
    """Returns the number of rows."""
    done = migrate(source, target, CONFIG, tenant=tenant, keep=keep, progress=lambda done, total: None)
    return sum(table.source.rows for table in done.tables)


def digest(path: Path, tenant: str | None = None) -> list[TableDigest]:
    with closing(open_to_copy(path, CONFIG, SystemClock())) as engine:
        return digest_store(engine, tenant)


@contextmanager
def side(path: Path) -> Iterator[CopySide]:
    with closing(open_to_copy(path, CONFIG, SystemClock())) as engine:
        yield CopySide(engine, change_notes)


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
    assert leftovers(source) == leftovers(target) == []


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


def test_what_is_written_while_rows_are_copied_moves_too(source: Path, tmp_path: Path) -> None:
    """The writes happen between the batches: new versions, deletions, undo, a forget, turns, an approval."""
    target, seen = tmp_path / "target.db", threading.Event()
    with open_memory(source) as memory:
        ada = memory.space("user:ada")

        def write(done: int, total: int) -> None:
            if seen.is_set():
                return
            if done > total // 2:
                seen.set()
            first = ada.add(f"Written after {done} rows")
            ada.update(first.entry.id, f"Changed after {done} rows")
            second = ada.add(f"Deleted after {done} rows")
            ada.delete(second.entry.id)
            third = ada.add(f"Changed after {done} rows again")
            ada.delete(first.entry.id)
            ada.update(third.entry.id, f"Changed after {done} rows")
            say(memory, "meanwhile", f"Message after {done} rows")
            ada.forget(conversation="talk-1")

        with side(source) as one, side(target) as other:
            StoreCopy(one, other, tenant=None, report=write, batch_rows=7).run(keep=False)
    assert seen.is_set()
    assert digest(target) == digest(source)
    with open_memory(target, background=False) as memory:
        assert any("Message after" in entry.text for entry in memory.space("user:ada").list(limit=100))


class Interrupted:
    """An engine whose program ends before its `at`th write."""

    def __init__(self, engine: CopyEngine, at: int) -> None:
        self.name = engine.name
        self.read_now = engine.read_now
        self.writes = 0
        self._engine = engine
        self._at = at

    def write_now(self, work: Callable[[Unit], R], *, at: UnitScope = None) -> R:
        self.writes += 1
        if self.writes == self._at:
            raise Stopped
        return self._engine.write_now(work, at=at)


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_copy_that_ends_before_any_of_its_writes_continues(source: Path, tmp_path: Path, which: str) -> None:
    """C2: whatever has been committed by then, the next try ends with everything that was written meanwhile."""
    at, is_complete = 0, False
    while not is_complete:
        at += 1
        start, target = tmp_path / f"start-{at}.db", tmp_path / f"target-{at}.db"
        shutil.copy(source, start)
        with side(start) as one, side(target) as other:
            sides = [
                CopySide(Interrupted(each.engine, at if name == which else 0), each.notes)
                for name, each in (("source", one), ("target", other))
            ]
            try:
                StoreCopy(*sides, tenant=None, report=lambda done, total: None, batch_rows=60).run(keep=False)
                is_complete = True
            except Stopped:
                pass
        try:
            with open_memory(start, background=False) as memory:
                memory.space("user:ada").add("Between two tries")
        except StoreMoved:
            assert at > 1
        before = digest(start)
        move(start, target)
        assert digest(target) == before
        with open_memory(target, background=False) as memory:
            assert memory.space("user:ada").add("In use").created
    assert at > 3


def test_a_target_that_is_not_complete_cannot_be_opened(source: Path, tmp_path: Path) -> None:
    with pytest.raises(Stopped), side(source) as one, side(tmp_path / "target.db") as other:
        StoreCopy(one, other, tenant=None, report=stop).run(keep=False)
    with pytest.raises(StoreUnavailable, match="not complete"):
        open_memory(tmp_path / "target.db").start()


@pytest.mark.slow
@pytest.mark.parametrize("call", [1, 9, 18, 26, 30])
def test_a_killed_migration_continues_and_loses_nothing(source: Path, tmp_path: Path, call: int) -> None:
    target, before = tmp_path / "target.db", digest(source)
    command = [sys.executable, "-c", KILLED_MIGRATION, str(source), str(target), str(call)]
    assert subprocess.run(command, timeout=60, check=False, env=dict(os.environ)).returncode == -signal.SIGKILL
    move(source, target)
    assert digest(target) == before


def test_a_difference_fails_the_migration_and_keeps_the_source_in_use(source: Path, tmp_path: Path) -> None:
    target, last = tmp_path / "target.db", 0
    with side(source) as one, side(target) as other:

        def damage(done: int, total: int) -> None:
            """At the first report of the comparison, which counts from the beginning."""
            nonlocal last
            if done < last:
                with apsw.Connection(str(target)) as connection:
                    connection.execute("UPDATE entry SET text = 'damaged' WHERE key = 1")
            last = done

        tables = StoreCopy(one, other, tenant=None, report=damage).run(keep=False)
    assert [table.source.name for table in tables if not table.is_equal] == ["entry"]
    with open_memory(source, background=False) as memory:
        assert memory.space("user:ada").add("Still in use").created


def stop(done: int, total: int) -> None:
    raise Stopped


def test_words_that_are_forgotten_during_a_copy_are_not_in_its_notes(source: Path, tmp_path: Path) -> None:
    """M2: and `forget` and `doctor` name the copy, which does not have the change yet."""
    target = tmp_path / "target.db"
    with pytest.raises(Stopped), side(source) as one, side(target) as other:
        StoreCopy(one, other, tenant=None, report=stop).run(keep=False)
    with open_memory(source, background=False) as memory:
        say(memory, "secret", "The password is xylophone.")
        forgotten = memory.space("user:ada").forget(conversation="secret")
        assert [str(target) in remaining.where for remaining in forgotten.remaining] == [True]
        assert [str(target) in one.message for one in memory.check() if one.subject == "copy"] == [True]
    with apsw.Connection(str(source)) as connection:
        notes = connection.execute("SELECT name, key FROM moving_row").fetchall()
    assert "frequency" in {name for name, _ in notes}
    assert [key for _, key in notes if "xylo" in key] == []
    move(source, target)
    assert digest(target) == digest(source)


def test_a_cancelled_migration_needs_a_new_target(source: Path, tmp_path: Path) -> None:
    """C2: what changed after it was cancelled was not noted."""
    with pytest.raises(Stopped), side(source) as one, side(tmp_path / "target.db") as other:
        StoreCopy(one, other, tenant=None, report=stop).run(keep=False)
    cancel_migration(source, CONFIG)
    assert leftovers(source) == []
    with open_memory(source, background=False) as memory:
        assert memory.space("user:ada").add("Not noted").created
    with pytest.raises(StoreError, match=r"was not noted\. Start again with a new target"):
        move(source, tmp_path / "target.db")
    move(source, tmp_path / "new.db")
    assert digest(tmp_path / "new.db") == digest(source)


def test_a_copy_that_is_cancelled_while_it_runs_moves_nothing(source: Path, tmp_path: Path) -> None:
    def cancel(done: int, total: int) -> None:
        if done == total:
            cancel_migration(source, CONFIG)

    with pytest.raises(StoreError), side(source) as one, side(tmp_path / "target.db") as other:
        StoreCopy(one, other, tenant=None, report=cancel).run(keep=False)
    with open_memory(source, background=False) as memory:
        assert memory.space("user:ada").add("Still in use").created


def test_a_copy_that_was_paused_writes_nothing_to_a_target_in_use(source: Path, tmp_path: Path) -> None:
    """C2, M1: another process finishes the copy meanwhile; what was forgotten since then does not come back."""
    target, is_moved = tmp_path / "target.db", False

    def finish_elsewhere(done: int, total: int) -> None:
        nonlocal is_moved
        if not is_moved:
            is_moved = True
            move(source, target)
            with open_memory(target, background=False) as memory:
                memory.space("user:ada").forget(everything=True)

    with (
        pytest.raises(StoreError, match="Another process has finished"),
        side(source) as one,
        side(target) as other,
    ):
        StoreCopy(one, other, tenant=None, report=finish_elsewhere, batch_rows=7).run(keep=False)
    assert is_moved
    with open_memory(target, background=False) as memory:
        assert memory.space("user:ada").list() == []


def test_a_migration_that_has_ended_is_not_cancelled(source: Path, tmp_path: Path) -> None:
    """C2: hosts may have written to the target."""
    move(source, tmp_path / "target.db")
    with pytest.raises(StoreMoved, match="To go back, migrate that one"):
        cancel_migration(source, CONFIG)
    with pytest.raises(StoreMoved):
        open_memory(source).start()


def test_a_copy_that_ended_before_its_triggers_were_removed_is_finished(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.db"
    with side(source) as one, side(target) as other:

        class Killed(Interrupted):
            def write_now(self, work: Callable[[Unit], R], *, at: UnitScope = None) -> R:
                if at == JobQueue():
                    raise Stopped
                return super().write_now(work, at=at)

        killed = CopySide(Killed(one.engine, 0), one.notes)
        with pytest.raises(Stopped):
            StoreCopy(killed, other, tenant=None, report=lambda done, total: None).run(keep=True)
    assert leftovers(source) != []
    with open_memory(target, background=False) as memory:
        assert memory.space("user:ada").add("In use").created
    assert run(["migrate", str(source), str(target), "--keep"]) == 0
    assert leftovers(source) == []


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


def test_a_target_that_is_filled_from_another_store_is_refused(source: Path, tmp_path: Path) -> None:
    target, other = tmp_path / "target.db", tmp_path / "other.db"
    with open_memory(other, background=False) as memory:
        memory.space("user:bob").add("From another store")

    with pytest.raises(Stopped), side(source) as one, side(target) as two:
        StoreCopy(one, two, tenant=None, report=stop).run(keep=False)
    with pytest.raises(StoreError, match=r"is being filled from .*source\.db"):
        move(other, target)


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
