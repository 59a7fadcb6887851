"""Errors of the command line for stores that are locked, newer, damaged or in use."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import apsw
import pytest

from afterturn import Components, blocking
from afterturn.hosts.cli.commands.history import print_forgotten
from afterturn.testing.hashing import HashingEmbedder
from afterturn.types import Forgotten

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine


def test_a_store_that_another_process_writes_to_is_named_as_locked(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.add("tea")
    monkeypatch.setenv("AFTERTURN_BUSY_TIMEOUT", "0")
    with closing(apsw.Connection(str(cli.store))) as other:
        other.set_busy_timeout(10_000)
        other.execute("BEGIN IMMEDIATE")
        answer = cli("add", "coffee", "--json")
    assert (answer.code, '"StoreLocked"' in answer.err) == (2, True)


def test_a_store_of_a_newer_afterturn_is_left_alone(cli: CommandLine) -> None:
    cli.add("tea")
    with closing(apsw.Connection(str(cli.store))) as other:
        other.execute("PRAGMA user_version = 9999")
    answer = cli("list", "--json")
    assert (answer.code, '"StoreTooNew"' in answer.err) == (2, True)


def test_a_damaged_store_is_reported_by_doctor_and_by_others_in_one_line(cli: CommandLine) -> None:
    cli.add("tea")
    content = bytearray(cli.store.read_bytes())
    content[200:] = b"\xa5" * (len(content) - 200)
    cli.store.write_bytes(content)
    listed = cli("list")
    assert (listed.code, listed.err.count("\n")) == (2, 1)
    assert cli("doctor").code == 1


def test_restore_puts_a_damaged_store_aside_and_brings_the_backup_back(cli: CommandLine) -> None:
    """M4: a store that cannot be opened any more is replaced by its backup, and not thrown away."""
    cli.add("tea")
    copy = cli.store.with_name("copy.db")
    assert cli("backup", str(copy)).code == 0
    content = bytearray(cli.store.read_bytes())
    content[200:] = b"\xa5" * (len(content) - 200)
    cli.store.write_bytes(content)
    answer = cli("restore", str(copy), "--yes")
    assert answer.code == 0, answer.err
    assert "The damaged store was renamed to" in answer.out
    assert "tea" in cli("list").out
    assert [path.read_bytes()[200:] for path in cli.store.parent.glob("*.damaged-*") if path.stat().st_size > 0]


def test_looking_at_a_store_with_vectors_of_another_embedder_changes_none(cli: CommandLine) -> None:
    """M3: `search`, `stats` and `doctor` with another setting do not make other processes embed everything again."""
    with blocking.open(cli.store, background=False, components=Components(embedder=HashingEmbedder())) as memory:
        memory.space("user:ada").add("Ada drinks oolong tea")
        assert memory.drain()
    found, stats, findings = (cli(*command, "--json").json for command in (["search", "oolong"], ["stats"], ["doctor"]))
    told = next(finding for finding in findings["findings"] if finding["subject"] == "embedder")
    assert (len(found["hits"]), found["missing"]) == (1, ["vectors"])
    assert (stats["store"]["vectors"], stats["store"]["jobs"]) == (False, {})
    assert (told["level"], "of hashing, and this process is set to static;" in told["message"]) == ("warning", True)
    assert "recall uses words alone. Give this process the setting" in " ".join(cli("doctor").out.split())
    with closing(apsw.Connection(str(cli.store))) as store:
        assert store.execute("SELECT r.name FROM embedding JOIN embedder AS r ON r.key = embedder_key").fetchall() == [
            ("hashing",)
        ]


def test_forget_says_when_a_reader_still_holds_the_old_bytes(cli: CommandLine) -> None:
    """M2: `forget` answers `erased` or `pending`."""
    known = cli.add("tea")
    with closing(apsw.Connection(str(cli.store))) as reader:
        reader.execute("BEGIN; SELECT * FROM sqlite_master").fetchall()
        answer = cli("forget", known, "--yes")
    assert answer.code == 0
    assert f"old pages of {cli.store} and its log, until every process that reads it now has finished" in answer.out


def test_forget_names_what_is_out_of_reach(capsys: pytest.CaptureFixture[str]) -> None:
    """M2: `forget` says what is out of reach."""
    print_forgotten(Forgotten("erased", 2, ("memory.db.backup-1",)))
    assert capsys.readouterr().out.splitlines() == [
        "2 entries erased.",
        "The text may still be in these places. Delete these files, and forget it in these spaces:",
        "  memory.db.backup-1",
    ]
