"""What is not opened: each case has its own error, a message that says what to do, and stays as it was."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from plain import WAIT, find, insert, open_plain, values

from afterturn.config import default_store
from afterturn.errors import (
    ForeignFile,
    InvalidInput,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
)
from afterturn.stores.sqlite.connection import LockPatience
from afterturn.stores.sqlite.store import SqliteStore

NOBODY = 65534


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """§13: the message names a file that would do."""
    with pytest.raises(StoreUnavailable, match=r"is a folder.*memory\.db"):
        open_plain(tmp_path)


def test_a_missing_folder_is_refused_with_the_command_that_makes_it(tmp_path: Path) -> None:
    """§13: afterturn makes no folders where it was not asked to."""
    with pytest.raises(StoreUnavailable, match="mkdir -p"):
        open_plain(tmp_path / "none" / "memory.db")
    assert not (tmp_path / "none").exists()


def test_the_default_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """§2: without any setting the first command works, and its folder is private."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "a" / "b"))
    open_plain(default_store()).close()
    assert default_store().parent.stat().st_mode & 0o077 == 0


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    """§13: a path through a file leads nowhere."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        open_plain(tmp_path / "file" / "memory.db")


def test_a_path_with_a_nul_character_is_refused(tmp_path: Path) -> None:
    """§13: what the system takes for no path is refused like any other."""
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        open_plain(Path(f"{tmp_path}/a\0b"))


def test_a_socket_is_refused(tmp_path: Path) -> None:
    """§13: only regular files are stores."""
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "s"))
        with pytest.raises(StoreUnavailable, match="not a regular file"):
            open_plain(tmp_path / "s")


@pytest.mark.parametrize("content", [b"hello", b"x" * 5000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_what_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    """§13: a file of something else keeps every byte."""
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ForeignFile, match="not an afterturn store"):
        open_plain(path)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    """§13: the application id tells whose file it is."""
    path = tmp_path / "other.db"
    _run(path, "PRAGMA application_id=77", "CREATE TABLE t (a)")
    before = path.read_bytes()
    with pytest.raises(ForeignFile, match="another program"):
        open_plain(path)
    assert path.read_bytes() == before


def test_a_database_without_an_application_id_is_refused_when_it_has_tables(tmp_path: Path) -> None:
    """§13: somebody's plain SQLite file is not ours to fill."""
    path = tmp_path / "plain.db"
    _run(path, "CREATE TABLE t (a)")
    with pytest.raises(ForeignFile):
        open_plain(path)


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """§13: `touch` and `mktemp` make fine places."""
    (tmp_path / "memory.db").touch()
    engine = open_plain(tmp_path / "memory.db")
    assert engine.read_now(values) == []
    engine.close()


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    """§13: an older afterturn never touches what a newer one wrote."""
    path = tmp_path / "memory.db"
    open_plain(path).close()
    _run(path, "PRAGMA user_version=99")
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match=r"version 99.*Upgrade"):
        open_plain(path)
    assert path.read_bytes() == before


def test_a_damaged_store_names_the_way_out(tmp_path: Path) -> None:
    """§13: corruption is told apart from a foreign file, with the command that helps."""
    path = tmp_path / "memory.db"
    engine = open_plain(path)
    for value in range(50):
        engine.write_now(insert(value, "x" * 2000))
    engine.close()
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(os.path.getsize(path) - 4096))
    with pytest.raises(StoreCorrupt, match="afterturn restore"):
        open_plain(path).read_now(lambda unit: [values(unit), unit.session.rows("SELECT * FROM meta, item")])  # type: ignore[attr-defined]


def test_a_path_that_is_not_utf_8_is_refused_in_one_line(tmp_path: Path) -> None:
    """§13: SQLite takes UTF-8 only. Nothing is created, and the message can be printed anywhere."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    with pytest.raises(StoreUnavailable, match=r"caf\\xe9.*is not valid UTF-8") as refused:
        open_plain(folder / "memory.db")
    assert "\n" not in str(refused.value).encode().decode()
    engine = open_plain(tmp_path / "memory.db")
    for copying in (engine.backup, engine.restore):
        with pytest.raises(StoreUnavailable, match="is not valid UTF-8"):
            copying(folder / "copy.db")
    engine.close()
    assert list(folder.iterdir()) == []


def test_a_locked_store_is_reported_after_the_busy_timeout(tmp_path: Path) -> None:
    """§13: another process that holds the write lock gives StoreLocked, and reading goes on."""
    path = tmp_path / "memory.db"
    engine = open_plain(path, busy_timeout=0.05)
    other = apsw.Connection(str(path))
    other.set_busy_timeout(10_000)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreLocked, match="busy_timeout"):
        engine.write_now(insert(1))
    assert engine.read_now(values) == []
    other.execute("ROLLBACK")
    engine.write_now(insert(1))
    other.close()
    engine.close()


def test_a_lock_that_is_given_up_in_time_is_waited_for(tmp_path: Path) -> None:
    """§13: `busy_timeout` is how long another writer may take."""
    path = tmp_path / "memory.db"
    engine = open_plain(path, busy_timeout=WAIT)
    other = apsw.Connection(str(path))
    other.set_busy_timeout(10_000)
    other.execute("BEGIN IMMEDIATE")
    writer = threading.Thread(target=engine.write_now, args=(insert(1),))
    writer.start()
    other.execute("ROLLBACK")
    writer.join(WAIT)
    assert engine.read_now(values) == [1]
    other.close()
    engine.close()


def test_a_lock_is_waited_for_while_other_processes_write(tmp_path: Path) -> None:
    """§13: `busy_timeout` is for a lock that nobody uses. With many processes, each lock is short."""
    path = tmp_path / "memory.db"
    engine, waits = open_plain(path), []
    patience = LockPatience(str(path), lambda: 0.2)
    # Together these tries take more than twice the timeout.
    for attempt in range(14):
        engine.write_now(insert(attempt))
        waits.append(patience.wait(attempt))
    assert all(waits)
    while patience.wait(attempt):
        attempt += 1
    engine.close()


def test_a_new_store_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """§13: memories are private, whatever the umask; so are the log and its index."""
    engine = open_plain(tmp_path / "memory.db")
    engine.write_now(insert(1))
    assert {item.name: item.stat().st_mode & 0o777 for item in tmp_path.iterdir()} == {
        "memory.db": 0o600,
        "memory.db-shm": 0o600,
        "memory.db-wal": 0o600,
    }
    engine.close()


@pytest.mark.parametrize(
    "file_mode, folder_mode, expected",
    [
        (0o444, 0o777, StoreReadOnly),
        (0o666, 0o555, StoreReadOnly),
        (0o000, 0o777, StoreUnavailable),
        (0o666, 0o000, StoreUnavailable),
    ],
)
def test_missing_rights_are_refused(
    public_folder: Path, file_mode: int, folder_mode: int, expected: type[StoreError]
) -> None:
    """§13: what may not be written, read or reached has its own error each, as an ordinary user meets it."""
    folder = public_folder
    open_plain(folder / "memory.db").close()
    (folder / "memory.db").chmod(file_mode)
    folder.chmod(folder_mode)
    assert _as_nobody(folder / "memory.db") == expected.__name__


def test_a_new_store_in_a_read_only_folder_is_refused(public_folder: Path) -> None:
    """§13: nothing can be created there, and it says so."""
    public_folder.chmod(0o555)
    assert _as_nobody(public_folder / "memory.db") == "StoreReadOnly"


def test_a_file_that_may_not_grow_is_refused_and_leaves_the_store_whole(tmp_path: Path) -> None:
    """C2: acknowledged rows stay and the next write works once there is room."""
    engine = open_plain(tmp_path / "memory.db")
    engine.write_now(insert(1))
    pages = engine.read_now(lambda unit: unit.session.row("PRAGMA page_count")[0])  # type: ignore[attr-defined]
    engine.write_now(lambda unit: unit.session.rows(f"PRAGMA max_page_count={pages}"))  # type: ignore[attr-defined]
    with pytest.raises(StoreFull):
        engine.write_now(insert(2, "x" * 100_000))
    engine.write_now(lambda unit: unit.session.rows("PRAGMA max_page_count=100000"))  # type: ignore[attr-defined]
    engine.write_now(insert(3, "x" * 100_000))
    assert engine.read_now(values) == [1, 3]
    engine.close()


def _run(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that an ordinary user can reach. Pytest's own are private, and another session makes them so again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o700)


_CHILD = """
import os, sys
sys.path[:0] = {paths!r}
from pathlib import Path
from plain import open_plain
if not os.getuid():
    os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
try:
    open_plain(Path({path!r})).close()
    print("opened")
except Exception as error:
    print(type(error).__name__)
"""


def _as_nobody(path: Path) -> str:
    """Opens it in a child that root's rights were taken from, and gives the error's name."""
    code = _CHILD.format(paths=[str(Path(__file__).parent), *sys.path], nobody=NOBODY, path=str(path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=WAIT)
    return done.stdout.strip()


@pytest.mark.parametrize("value, text", [(1, "\ud800abc"), (2**64, "tea")])
async def test_a_value_that_has_no_room_is_bad_input(store: SqliteStore, value: int, text: str) -> None:
    """§13: what a model makes up is refused like any other input, whether it is written or asked for."""
    with pytest.raises(InvalidInput, match="cannot be stored or searched for"):
        await store.write(insert(value, text), at=None)
    with pytest.raises(InvalidInput, match="cannot be stored or searched for"):
        await store.read(find(value, text), at=None)
    assert await store.read(values, at=None) == []
