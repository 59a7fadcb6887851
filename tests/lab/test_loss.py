"""Crashes, power cuts and errors of the disk lose nothing that was acknowledged; and the lab finds faults."""

from pathlib import Path
from random import Random

import apsw
import pytest

from lab.loss.__main__ import Size, run_seed
from lab.loss.judge import look_at
from lab.loss.migrated import ROWS, SPACE, migrate, write_store
from lab.loss.recording_vfs import Call, after_kill, after_power_cut
from lab.slices import SqliteTarget


def test_nothing_acknowledged_is_lost_at_any_call_or_by_a_power_cut() -> None:
    """C2, V4, C8, M4: kills and power cuts in turns, jobs, reviews, consolidation, forgetting and migrations."""
    size = Size(kills=30, cuts=30, migrations=10)
    outcome = run_seed(7, SqliteTarget(), size, ("replay", "migration"))
    assert outcome.broken == []
    assert outcome.counts["acknowledged"] >= 50
    assert (outcome.counts["kills"], outcome.counts["power cuts"]) == (40, 33)
    assert outcome.counts["stores whose jobs were run"] > 0
    assert min(outcome.counts["unacknowledged kept"], outcome.counts["unacknowledged absent"]) > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_when_processes_are_killed_or_the_disk_fails() -> None:
    """C2, C4: real processes killed with SIGKILL, a full disk and I/O errors."""
    outcome = run_seed(7, SqliteTarget(), Size(processes=4, errors=3), ("kill", "errors"))
    assert outcome.broken == []
    assert outcome.counts["of them real processes"] > 0
    assert outcome.counts["disk full"] + outcome.counts["I/O errors"] > 0
    assert outcome.counts["acknowledged"] > 50


def test_a_job_that_runs_twice_has_its_effect_once() -> None:
    """C8, V4: its lease ended while its process was at work, or it is in the store several times."""
    outcome = run_seed(7, SqliteTarget(), Size(leases=2), ("leases",))
    assert outcome.broken == []
    assert outcome.counts["jobs that ran twice"] == 4


def test_no_turn_is_lost_when_there_are_more_than_memory_takes() -> None:
    """C4: closing, and SIGTERM of a worker and of a helper of hooks; real processes."""
    size = Size(overload_seconds=0.5, conversations=40, recording_queue=20)
    outcome = run_seed(7, SqliteTarget(), size, ("overload",))
    assert outcome.broken == []
    assert outcome.counts["of them in files after closing"] > 0
    assert outcome.counts["processes ended by SIGTERM"] == 2


def test_a_power_cut_would_be_noticed_without_full_synchronisation() -> None:
    """C2: the lab really drops writes. With `synchronous=normal`, the last commits may be lost."""
    outcome = run_seed(7, SqliteTarget(), Size(kills=0, cuts=60, synchronous="normal"), ("replay",))
    assert any("power cut" in what and "differs" in what for what in outcome.broken)


LOG = [
    Call("write", "a", 0, b"1111"),
    Call("sync", "a"),
    Call("write", "a", 4, b"2222"),
    Call("truncate", "a", 6),
    Call("write", "b", 2, b"3"),
    Call("delete", "a"),
    Call("sync", "b"),
]


def test_a_killed_process_leaves_its_writes_and_half_of_the_last_one() -> None:
    left = dict(after_kill(LOG, {}, [0, 2, 3, 4, 5, 6]))
    assert left == {
        0: {"a": b"11"},
        2: {"a": b"111122"},
        3: {"a": b"11112222"},
        4: {"a": b"111122", "b": b"\0\0"},
        5: {"a": b"111122", "b": b"\0\x003"},
        6: {"b": b"\0\x003"},
    }


def test_a_power_cut_keeps_what_was_synced_and_any_of_the_rest() -> None:
    outcomes = [dict(after_power_cut(LOG, {}, [2, 3, 7], Random(seed))) for seed in range(40)]
    assert {left[2]["a"] for left in outcomes} == {b"1111"}
    assert {left[3]["a"] for left in outcomes} == {b"1111", b"11112222"}
    # The first sync of a new file makes the delete before it durable.
    assert {tuple(left[7].items()) for left in outcomes} == {(("b", b"\0\x003"),)}


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM entry_terms WHERE rowid = 3",
        "DELETE FROM change WHERE entry_key = 3",
        "DELETE FROM entry WHERE key = 3",
        "UPDATE entry SET status = 'deleted' WHERE key = 3",
        "UPDATE frequency SET documents = documents + 1 WHERE term = 'tea'",
        "DELETE FROM step WHERE entry_key = 3",
        "UPDATE space SET seq = seq + 1",
        "DELETE FROM entry_terms_data WHERE id > 10",
        "UPDATE conversation SET turns = turns + 1",
        "DELETE FROM block",
        "DELETE FROM conversation",
        "INSERT INTO standing (conversation_key, made_at, text) VALUES (99, 1, '')",
    ],
)
def test_half_an_operation_would_be_noticed(tmp_path: Path, harm: str) -> None:
    """C2: the judge of the lab sees each table that does not agree with the others."""
    path = tmp_path / "memory.db"
    write_store(path)
    assert look_at(path)[1] == []
    connection = apsw.Connection(str(path))
    connection.execute(harm).fetchall()
    connection.close()
    assert look_at(path)[1] != []


def test_the_made_up_migration_changes_every_row(tmp_path: Path) -> None:
    """M4: what is killed in the lab is a migration that adds, fills, indexes and drops."""
    path = tmp_path / "memory.db"
    write_store(path)
    migrate(path)
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT count(*) FROM copied JOIN entry USING (key, text)").fetchall() == [(ROWS,)]
    connection.close()
    states, found = look_at(path)
    assert (len(states[SPACE]), found) == (ROWS, [])
