"""Backups, restores and the log: online, whole or not at all."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest
from faults import BROKEN, FULL, Disk
from plain import WAIT, insert, integrity, open_plain, place_at, plain_store, values

from afterturn.config import Config
from afterturn.errors import AfterturnError, InvalidFile, StoreError, StoreTooNew
from afterturn.runtime.clock import SystemClock
from afterturn.stores.sqlite.backup import rescue
from afterturn.stores.sqlite.engine import rescue_store
from afterturn.stores.sqlite.store import SqliteStore

TEXT = "x" * 3000


def generation(unit: Any) -> str:
    return str(unit.session.row("SELECT value FROM meta WHERE key = 'generation'")[0])


def _ignore(done: int, total: int) -> None:
    return None


async def test_a_backup_is_one_private_file_that_opens(store: SqliteStore, tmp_path: Path) -> None:
    """M4: a backup needs nothing beside it and is as private as the store."""
    await store.write(insert(1), at=None)
    await store.backup(tmp_path / "copy.db", progress=_ignore)
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert sorted(item.name for item in tmp_path.iterdir() if "copy" in item.name) == ["copy.db"]
    copy = open_plain(tmp_path / "copy.db")
    assert copy.read_now(values) == [1]
    copy.close()


async def test_a_backup_is_one_state_while_others_write(store: SqliteStore, tmp_path: Path) -> None:
    """M4: every write of a unit is in a backup or none is, and writers do not make it start again."""
    for value in range(0, 1200, 2):
        await store.write(insert(value, TEXT), at=None)
    steps: list[tuple[int, int]] = []
    written = [1]

    def write_between(done: int, total: int) -> None:
        steps.append((done, total))
        store.write_now(lambda unit: (insert(written[0])(unit), insert(written[0] + 1000000)(unit)))
        written[0] += 2

    await store.backup(tmp_path / "copy.db", progress=write_between)
    copy = open_plain(tmp_path / "copy.db")
    assert copy.read_now(values) == list(range(0, 1200, 2))
    assert len(steps) > 2
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1][0] == steps[-1][1]
    copy.close()


async def test_a_backup_never_overwrites(store: SqliteStore, tmp_path: Path) -> None:
    """M4: an existing file is somebody's; the message says what to do."""
    (tmp_path / "copy.db").write_text("precious")
    with pytest.raises(InvalidFile, match="already exists"):
        await store.backup(tmp_path / "copy.db", progress=_ignore)
    assert (tmp_path / "copy.db").read_text() == "precious"


async def test_a_backup_into_a_missing_folder_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    """M4: the command that makes the folder is named."""
    with pytest.raises(InvalidFile, match="mkdir -p"):
        await store.backup(tmp_path / "none" / "copy.db", progress=_ignore)


async def test_a_cancelled_backup_leaves_nothing(store: SqliteStore, tmp_path: Path) -> None:
    """M4: a backup is whole or not there."""
    for value in range(600):
        await store.write(insert(value, TEXT), at=None)
    stepped, go_on = threading.Event(), threading.Event()

    def pause(done: int, total: int) -> None:
        stepped.set()
        go_on.wait(WAIT)

    backup = asyncio.ensure_future(store.backup(tmp_path / "copy.db", progress=pause))
    await asyncio.to_thread(stepped.wait, WAIT)
    backup.cancel()
    await asyncio.wait([backup])
    go_on.set()
    await store.close(within=WAIT)
    assert [item.name for item in tmp_path.iterdir()] == ["memory.db"]


@pytest.mark.parametrize("after", [0, 3, 50])
async def test_a_backup_on_a_failing_disk_leaves_nothing(tmp_path: Path, after: int) -> None:
    """M4: an error on the way removes what was written so far."""
    disk = Disk("failing")
    store = plain_store(tmp_path / "memory.db", vfs=disk.name)
    for value in range(300):
        await store.write(insert(value, TEXT), at=None)
    disk.break_down("write", after=after, error=FULL)
    with pytest.raises(StoreError):
        await store.backup(tmp_path / "copy.db", progress=_ignore)
    disk.mend()
    await store.close(within=WAIT)
    assert [item.name for item in tmp_path.iterdir()] == ["memory.db"]
    disk.unplug()


async def test_a_restore_replaces_everything_and_starts_a_new_generation(store: SqliteStore, tmp_path: Path) -> None:
    """M4: rows are those of the backup, and derived structures anywhere can tell that they are stale."""
    await store.write(insert(1), at=None)
    await store.backup(tmp_path / "copy.db", progress=_ignore)
    await store.write(insert(2), at=None)
    other = open_plain(tmp_path / "memory.db")
    before = other.read_now(generation)
    steps: list[tuple[int, int]] = []
    await store.restore(tmp_path / "copy.db", progress=lambda done, total: steps.append((done, total)))
    assert other.read_now(values) == [1]
    assert other.read_now(generation) != before
    assert steps[-1][0] == steps[-1][1]
    await store.write(insert(3), at=None)
    assert other.read_now(values) == [1, 3]
    other.close()


async def test_a_reader_keeps_its_state_while_a_restore_happens(store: SqliteStore, tmp_path: Path) -> None:
    """M4: a restore is one transaction: nobody sees half of it."""
    await store.write(insert(1), at=None)
    await store.backup(tmp_path / "copy.db", progress=_ignore)
    await store.write(insert(2), at=None)
    looked, go_on = threading.Event(), threading.Event()

    def look_twice(unit: Any) -> tuple[list[int], list[int]]:
        before = values(unit)
        looked.set()
        go_on.wait(WAIT)
        return before, values(unit)

    read = asyncio.ensure_future(store.read(look_twice, at=None))
    await asyncio.to_thread(looked.wait, WAIT)
    await store.restore(tmp_path / "copy.db", progress=_ignore)
    go_on.set()
    assert await read == ([1, 2], [1, 2])
    assert await store.read(values, at=None) == [1]


async def test_an_older_backup_is_migrated_before_it_is_restored(tmp_path: Path) -> None:
    """M4: the store never has an older schema than its processes expect; the backup stays as it was."""
    old = open_plain(tmp_path / "old.db")
    old.write_now(insert(1))
    old.backup(tmp_path / "copy.db")
    old.close()
    bytes_before = (tmp_path / "copy.db").read_bytes()
    second = "ALTER TABLE item ADD COLUMN extra TEXT DEFAULT 'new'"
    store = plain_store(tmp_path / "memory.db", migrations=(second,))
    await store.restore(tmp_path / "copy.db", progress=_ignore)
    assert await store.read(lambda unit: unit.session.rows("SELECT value, extra FROM item"), at=None) == [(1, "new")]  # type: ignore[attr-defined]
    assert (tmp_path / "copy.db").read_bytes() == bytes_before
    await store.close(within=WAIT)


async def test_what_is_no_backup_is_refused_and_the_store_stays(store: SqliteStore, tmp_path: Path) -> None:
    """M4: a source is verified before anything is touched."""
    await store.write(insert(1), at=None)
    (tmp_path / "text").write_text("hello, this is no database")
    (tmp_path / "empty").touch()
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.execute("CREATE TABLE t (a)")
    other.close()
    for source in ("text", "empty", "other.db", "missing", "."):
        with pytest.raises(InvalidFile):
            await store.restore(tmp_path / source, progress=_ignore)
    assert await store.read(values, at=None) == [1]
    assert not [item for item in tmp_path.iterdir() if "partial" in item.name]


async def test_a_damaged_backup_is_refused_and_the_store_stays(store: SqliteStore, tmp_path: Path) -> None:
    """M4: damage is found in the copy, not after it has replaced what was whole."""
    for value in range(100):
        await store.write(insert(value, TEXT), at=None)
    await store.backup(tmp_path / "copy.db", progress=_ignore)
    with open(tmp_path / "copy.db", "r+b") as file:
        file.seek(5 * 4096)
        file.write(os.urandom(40 * 4096))
    with pytest.raises(InvalidFile, match="damaged"):
        await store.restore(tmp_path / "copy.db", progress=_ignore)
    assert len(await store.read(values, at=None)) == 100


async def test_a_backup_of_a_newer_schema_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    """M4: an older afterturn restores nothing that it does not understand."""
    newer = open_plain(tmp_path / "newer.db", migrations=("CREATE TABLE more (a)",))
    newer.close()
    with pytest.raises(StoreTooNew):
        await store.restore(tmp_path / "newer.db", progress=_ignore)


@pytest.mark.parametrize("after", [0, 5, 40, 200])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_restore_on_a_failing_disk_changes_nothing(tmp_path: Path, operation: str, after: int) -> None:
    """M4: a restore is whole or not at all, whichever write or sync fails."""
    disk = Disk("failing-restore")
    engine = open_plain(tmp_path / "memory.db", vfs=disk.name)
    for value in range(100):
        engine.write_now(insert(value, TEXT))
    engine.backup(tmp_path / "copy.db")
    engine.write_now(insert(1000))
    disk.break_down(operation, after=after, error=BROKEN)
    try:
        engine.restore(tmp_path / "copy.db")
        expected = list(range(100))
    except AfterturnError:
        expected = [*range(100), 1000]
    disk.mend()
    assert engine.read_now(values) == expected
    assert engine.read_now(integrity) == "ok"
    engine.write_now(insert(2000))
    engine.close()
    disk.unplug()


def test_a_store_that_does_not_open_is_rescued_from_a_backup(tmp_path: Path) -> None:
    """M4: the damaged file is put aside, not destroyed, and the backup takes its place."""
    path = tmp_path / "memory.db"
    engine = open_plain(path)
    engine.write_now(insert(1))
    engine.backup(tmp_path / "copy.db")
    engine.close()
    path.write_bytes(b"rubbish" * 1000)
    aside = rescue(place_at(path), tmp_path / "copy.db")
    assert aside.read_bytes() == b"rubbish" * 1000
    rescued = open_plain(path)
    assert rescued.read_now(values) == [1]
    assert rescued.backups() == [aside]
    rescued.close()


def test_a_rescue_without_a_good_backup_leaves_the_damaged_store_where_it_is(tmp_path: Path) -> None:
    """M4: nothing is put aside before there is something to put in its place."""
    path = tmp_path / "memory.db"
    path.write_bytes(b"rubbish" * 1000)
    (tmp_path / "copy.db").write_text("no backup either")
    with pytest.raises(InvalidFile):
        rescue_store(path, tmp_path / "copy.db", Config(), SystemClock())
    assert sorted(item.name for item in tmp_path.iterdir()) == ["copy.db", "memory.db"]


async def test_scrubbing_empties_the_log(store: SqliteStore, tmp_path: Path) -> None:
    """M2: after a scrub no old page is left beside the file."""
    await store.write(insert(1, "sentinel"), at=None)
    assert b"sentinel" in (tmp_path / "memory.db-wal").read_bytes()
    assert await store.scrub() == ()
    assert (tmp_path / "memory.db-wal").read_bytes() == b""


async def test_deleted_text_is_gone_from_every_file_after_a_scrub(store: SqliteStore, tmp_path: Path) -> None:
    """M2: secure_delete overwrites, the scrub removes the log: no byte of the text is left."""
    await store.write(insert(1, "sentinel" * 2000), at=None)
    assert await store.scrub() == ()
    await store.write(lambda unit: unit.session.run("DELETE FROM item"), at=None)  # type: ignore[attr-defined]
    assert await store.scrub() == ()
    assert not [item.name for item in tmp_path.iterdir() if b"sentinel" in item.read_bytes()]


async def test_a_scrub_answers_at_once_while_a_reader_holds_the_log(store: SqliteStore, tmp_path: Path) -> None:
    """M2: `pending` is said rather than waited for; when the reader has gone, it is done."""
    await store.write(insert(1), at=None)
    reader = apsw.Connection(str(tmp_path / "memory.db"))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM item").fetchall()
    await store.write(insert(2), at=None)
    assert [remaining.retry for remaining in await asyncio.wait_for(store.scrub(), WAIT)] == [True]
    reader.execute("ROLLBACK")
    assert await store.scrub() == ()
    reader.close()


async def test_a_scrub_removes_what_a_rolled_back_write_left_in_the_log(store: SqliteStore, tmp_path: Path) -> None:
    """M2: pages that were spilled and never committed go too."""

    def spill_and_fail(unit: Any) -> None:
        unit.session.rows("PRAGMA cache_size=1")
        for value in range(100):
            insert(value, "sentinel" * 500)(unit)
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(spill_and_fail, at=None)
    assert b"sentinel" in (tmp_path / "memory.db-wal").read_bytes()
    assert await store.scrub() == ()
    assert not [item.name for item in tmp_path.iterdir() if b"sentinel" in item.read_bytes()]
