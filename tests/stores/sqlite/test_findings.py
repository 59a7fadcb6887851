"""What `doctor` is told about a store."""

from pathlib import Path

from plain import WAIT, insert, plain_store

from afterturn.stores.sqlite.store import SqliteStore
from afterturn.types import Finding


async def test_a_sound_store_has_only_good_findings(store: SqliteStore) -> None:
    """M4: schema, integrity, log, permissions, space and backups are each looked at."""
    await store.write(insert(1), at=None)
    found = await store.check()
    assert [item.subject for item in found] == ["schema", "integrity", "log", "permissions", "space", "backups"]
    assert {item.level for item in found} == {"ok"}


async def test_a_store_that_others_can_read_is_a_warning(store: SqliteStore, tmp_path: Path) -> None:
    """M4: the remedy is the command to type."""
    (tmp_path / "memory.db").chmod(0o644)
    found = _by_subject(await store.check())["permissions"]
    assert (found.level, found.remedy) == ("warning", f"Run `chmod 600 {tmp_path / 'memory.db'}`.")


async def test_a_damaged_store_is_an_error(tmp_path: Path) -> None:
    """M4: damage is found by looking at the file, not by stumbling over it."""
    path = tmp_path / "memory.db"
    store = plain_store(path)
    for value in range(200):
        await store.write(insert(value, "x" * 1000), at=None)
    await store.close(within=WAIT)
    with open(path, "r+b") as file:
        file.seek(6 * 4096)
        file.write(b"\xff" * 4096)
    store = plain_store(path)
    found = _by_subject(await store.check())["integrity"]
    assert found.level == "error"
    assert "afterturn restore" in found.remedy
    await store.close(within=WAIT)


async def test_what_a_killed_copy_left_is_a_warning(store: SqliteStore, tmp_path: Path) -> None:
    """M2: leftovers may hold what was forgotten, so they are shown and count as backups."""
    left = tmp_path / ".memory.db.backup-v1.77-00.partial"
    left.touch()
    assert store.backups() == [left]
    assert [item.level for item in await store.check() if item.subject == "backups"] == ["ok", "warning"]


def _by_subject(found: list[Finding]) -> dict[str, Finding]:
    return {item.subject: item for item in found}
