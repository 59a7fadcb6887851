"""From one version to the next, with a copy kept, while other processes open the store, and killed in the middle."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest
from plain import SECOND, THIRD, WAIT, insert, integrity, open_plain, values

from afterturn.errors import StoreError, StoreTooNew, StoreUnavailable

BROKEN = "CREATE TABLE half (a); INSERT INTO nowhere VALUES (1)"


def _version(path: Path) -> int:
    connection = apsw.Connection(str(path))
    version = int(connection.pragma("user_version"))
    connection.close()
    return version


def test_a_store_older_than_the_first_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    """M4, §13: nothing can migrate it; the message says how to keep its memories."""
    path = tmp_path / "memory.db"
    _old_store(path)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"version 1, .* opens version 5 and later\. Export it"):
        open_plain(path, first=5)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["memory.db"]


def test_a_copy_of_the_version_before_is_kept(tmp_path: Path) -> None:
    """M4: an automatic backup precedes each migration, and the rows are migrated."""
    path = tmp_path / "memory.db"
    _old_store(path)
    engine = open_plain(path, migrations=(SECOND, THIRD))
    assert [_version(copy) for copy in engine.backups()] == [1]
    assert engine.read_now(lambda unit: unit.session.rows("SELECT DISTINCT text FROM item")) == [("migrated",)]  # type: ignore[attr-defined]
    engine.close()


def test_a_host_of_an_older_version_cannot_write_after_a_migration(tmp_path: Path) -> None:
    """M4, C2: a store's error, so its turns wait in files until a newer process records them."""
    path = tmp_path / "memory.db"
    older = open_plain(path)
    open_plain(path, migrations=(SECOND,)).close()
    with pytest.raises(StoreTooNew, match="Upgrade afterturn in this process"):
        older.write_now(insert(1))
    assert older.read_now(values) == []
    older.close()


def test_a_new_store_keeps_no_copy(tmp_path: Path) -> None:
    """M4: there is nothing to keep before the first version."""
    engine = open_plain(tmp_path / "memory.db", migrations=(SECOND, THIRD))
    assert engine.backups() == []
    engine.close()
    assert _version(tmp_path / "memory.db") == 3


def test_a_failing_migration_leaves_the_store_at_its_version(tmp_path: Path) -> None:
    """M4: a migration is one transaction, and the older afterturn still opens the store."""
    path = tmp_path / "memory.db"
    _old_store(path)
    with pytest.raises(StoreError):
        open_plain(path, migrations=(SECOND, BROKEN))
    assert _version(path) == 1
    engine = open_plain(path)
    assert engine.read_now(lambda unit: unit.session.rows("SELECT name FROM sqlite_master WHERE name = 'half'")) == []  # type: ignore[attr-defined]
    engine.close()


def test_only_the_newest_automatic_copies_are_kept(tmp_path: Path) -> None:
    """M4: `BACKUPS_MAX` bounds what migrations leave behind."""
    path = tmp_path / "memory.db"
    _old_store(path)
    migrations: tuple[str, ...] = ()
    for number in range(5):
        migrations = (*migrations, f"CREATE TABLE t{number} (a)")
        engine = open_plain(path, migrations=migrations)
        copies = engine.backups()
        engine.close()
    assert [_version(copy) for copy in copies] == [5, 4, 3]


@pytest.mark.slow
def test_many_openings_at_once_migrate_once(tmp_path: Path) -> None:
    """M4: threads and processes that open one old store together all find it migrated, and nobody twice."""
    path = tmp_path / "memory.db"
    _old_store(path)
    children = [_start_opening(path) for _ in range(3)]
    thread = threading.Thread(target=lambda: open_plain(path, migrations=(SECOND, THIRD)).close())
    thread.start()
    assert [child.wait(WAIT) for child in children] == [0, 0, 0]
    thread.join(WAIT)
    engine = open_plain(path, migrations=(SECOND, THIRD))
    assert engine.read_now(lambda unit: unit.session.rows("SELECT count(*) FROM more")) == [(20,)]  # type: ignore[attr-defined]
    assert len(engine.backups()) == 1
    engine.close()


@pytest.mark.slow
def test_many_openings_at_once_create_one_store(tmp_path: Path) -> None:
    """M4: the same for a file that is not there yet."""
    path = tmp_path / "memory.db"
    children = [_start_opening(path) for _ in range(4)]
    assert [child.wait(WAIT) for child in children] == [0, 0, 0, 0]
    assert _version(path) == 3


@pytest.mark.slow
@pytest.mark.parametrize("call", range(0, 40, 3))
def test_a_migration_killed_at_any_call_goes_on_at_the_next_opening(tmp_path: Path, call: int) -> None:
    """M4: killed with -9 at the nth write, sync or truncate, the store is at one version or the other, whole."""
    path = tmp_path / "memory.db"
    _old_store(path)
    assert _start_opening(path, kill_at=call).wait(WAIT) == -signal.SIGKILL
    assert _version(path) in (1, 3)
    engine = open_plain(path, migrations=(SECOND, THIRD))
    assert engine.read_now(values) == list(range(20))
    assert engine.read_now(lambda unit: unit.session.rows("SELECT DISTINCT text, extra FROM item")) == [
        ("migrated", "two")
    ]  # type: ignore[attr-defined]
    assert engine.read_now(integrity) == "ok"
    engine.close()


def _old_store(path: Path) -> None:
    engine = open_plain(path)
    for value in range(20):
        engine.write_now(insert(value, "old" * 1000))
    engine.close()


_CHILD = """
import os, sys
from pathlib import Path
from faults import Disk
from plain import SECOND, THIRD, open_plain

disk = Disk("deadly")
kill_at = int(sys.argv[2])
if kill_at >= 0:
    disk.break_down("write", "sync", "truncate", after=kill_at, error=lambda text: os.kill(os.getpid(), 9))
open_plain(Path(sys.argv[1]), migrations=(SECOND, THIRD), vfs=disk.name).close()
"""


def _start_opening(path: Path, kill_at: int = -1) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.Popen([sys.executable, "-c", _CHILD, str(path), str(kill_at)], env=environment)
