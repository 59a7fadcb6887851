"""Recordings in files: whole or not there, private, found again, erased."""

import fcntl
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afterturn.conversation.recording import Recording
from afterturn.conversation.spill import Spill
from afterturn.types import BlockRow, Message, Selector

TURN = Recording(
    tenant="default",
    space="user:ada",
    conversation="c",
    turn="turn-1",
    owner="user:ada",
    started_at=1.0,
    forgets=0,
    user_hash="hash",
    messages=(
        Message("user", "Grüße \ud800 \U0001f600", "ada", "hash"),
        Message("assistant", "Noted.", "assistant", "h"),
    ),
    blocks=(BlockRow("block", "turn-1", ("m1", "m2"), 10, 2.0),),
    ended_at=3.0,
    metadata={"channel": "mail"},
)


@pytest.fixture
def spill(tmp_path: Path) -> Spill:
    return Spill(tmp_path / "memory.db.waiting")


def test_what_is_put_comes_back_as_it_was(spill: Spill) -> None:
    """C4: every field, in any script, lone surrogates included."""
    spill.put(TURN)
    assert list(spill.waiting()) == [TURN]


def test_what_waits_from_before_an_update_is_read_all_the_same(spill: Spill) -> None:
    """C4: the number of the newest forget had another name then."""
    path = spill.put(replace(TURN, forgets=7))
    path.write_text(path.read_text().replace('"forgets"', '"epoch"'))
    assert [recording.forgets for recording in spill.waiting()] == [7]


def test_a_file_is_its_owners_alone(spill: Spill) -> None:
    """C4: it holds what was said."""
    path = spill.put(TURN)
    assert [stat.S_IMODE(item.stat().st_mode) for item in (spill.folder, path)] == [0o700, 0o600]


def test_the_same_turn_twice_is_one_file(spill: Spill) -> None:
    """C3: a turn's id counts once, inside its conversation."""
    spill.put(TURN)
    spill.put(TURN)
    spill.put(replace(TURN, conversation="d"))
    assert len(spill.files()) == 2


def test_the_oldest_comes_first(spill: Spill) -> None:
    """C4: turns are stored in the order in which they ended, whenever each of them was spilled."""
    for number in (3, 1, 2):
        spill.put(replace(TURN, turn=f"turn-{number}", ended_at=float(number)))
    assert [recording.turn for recording in spill.waiting()] == ["turn-1", "turn-2", "turn-3"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"messages": 3}', b"null"])
def test_a_damaged_file_is_set_aside(spill: Spill, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """C4: it stops nobody and is left for a person to look at."""
    spill.put(TURN).with_name("damaged.json").write_bytes(content)
    assert list(spill.waiting()) == [TURN]
    assert [path.name for path in spill.damaged()] == ["damaged.bad"]
    assert "set aside" in caplog.text


@pytest.mark.parametrize(
    "field, value",
    [
        ("tenant", 5),
        ("turn", ["turn-1"]),
        ("conversation", None),
        ("started_at", "early"),
        ("ended_at", None),
        ("forgets", "many"),
        ("reads", [1]),
        ("messages", [{"role": "user", "text": 5, "speaker": "ada", "hash": "h"}]),
    ],
)
def test_a_file_with_values_of_another_type_is_set_aside(spill: Spill, field: str, value: object) -> None:
    """C4: it would fail when it is stored, and keep all turns behind it waiting."""
    path = spill.put(replace(TURN, turn="turn-0", ended_at=1.0))
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    spill.put(TURN)
    assert list(spill.waiting()) == [TURN]
    assert spill.damaged() == [path.with_suffix(".bad")]


def test_a_file_of_a_later_version_is_set_aside_whole(spill: Spill) -> None:
    """C4: an unknown field is not dropped in silence."""
    path = spill.put(TURN)
    path.write_text(json.dumps({**json.loads(path.read_text()), "novelty": 1}))
    assert list(spill.waiting()) == []
    assert "novelty" in spill.damaged()[0].read_text()


def test_appended_turns_get_files_of_their_own_later(spill: Spill) -> None:
    """C4: one file, its owner's alone, takes all that end at once."""
    turns = [replace(TURN, turn=f"turn-{number}", ended_at=float(number)) for number in (2, 1)]
    for turn in turns:
        spill.append(turn)
    (file,) = spill.folder.iterdir()
    assert (stat.S_IMODE(file.stat().st_mode), spill.count(), spill.files()) == (0o600, 2, [])
    spill.unpack()
    spill.unpack()
    assert list(spill.waiting()) == turns[::-1]
    assert (spill.count(), file.exists()) == (2, False)


def test_a_file_that_another_process_appends_to_is_left_to_it(spill: Spill) -> None:
    """C4: until that process has ended. What it appends afterwards would be lost."""
    other = Spill(spill.folder)
    other.append(TURN)
    spill.unpack()
    assert (spill.files(), len(spill.unreadable())) == ([], 1)
    other.close()
    spill.unpack()
    assert list(spill.waiting()) == [TURN]
    with pytest.raises(OSError, match="closed"):
        other.append(TURN)


def test_a_new_file_that_another_process_takes_for_one_that_was_left_is_not_used(
    spill: Spill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: between its creation and its lock. What is appended to an erased file would be lost."""
    lock, others = fcntl.flock, [Spill(spill.folder)]

    def unpack_first(file: Any, operation: int) -> None:
        if others:
            others.pop().unpack()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", unpack_first)
    spill.append(TURN)
    assert spill.count() == 1


def test_closing_ends_the_unpacking_of_a_file_which_is_unpacked_later(
    spill: Spill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: a turn that is unpacked twice is one file."""
    turns = [replace(TURN, turn=f"turn-{number}", ended_at=float(number)) for number in (1, 2, 3)]
    for turn in turns:
        spill.append(turn)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: spill.close())
        with pytest.raises(OSError, match="closed"):
            spill.unpack()
    assert len(spill.files()) == 1
    other = Spill(spill.folder)
    other.unpack()
    assert list(other.waiting()) == turns


def test_a_file_that_cannot_be_confirmed_is_closed(spill: Spill, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: so that another process may unpack it."""

    def fail(descriptor: int) -> None:
        raise OSError("the disk is broken")

    spill.append(TURN)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="broken"):
            spill.close()
    other = Spill(spill.folder)
    other.unpack()
    assert list(other.waiting()) == [TURN]


def test_a_file_that_another_process_erases_meanwhile_is_not_counted(
    spill: Spill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: the other has unpacked it."""
    read_bytes = Path.read_bytes

    def erase_first(self: Path) -> bytes:
        self.unlink()
        return read_bytes(self)

    spill.append(TURN)
    spill.put(replace(TURN, turn="turn-2"))
    monkeypatch.setattr(Path, "read_bytes", erase_first)
    assert spill.count() == 1


@pytest.mark.parametrize("damage", [b"{", b"\xff\xfe", b'{"tenant": "t", "space": "s", "key": "k", "sealed": "x"}'])
def test_a_damaged_line_is_set_aside_alone(spill: Spill, damage: bytes) -> None:
    """C4: a turn behind it is stored."""
    spill.append(TURN)
    spill.close()
    (file,) = spill.folder.iterdir()
    file.write_bytes(damage + b"\n" + file.read_bytes())
    spill = Spill(spill.folder)
    spill.unpack()
    assert list(spill.waiting()) == [TURN]
    assert len(spill.damaged()) == 1


def test_forgetting_reaches_appended_turns(spill: Spill) -> None:
    """M2: those of this process, and of processes that have ended."""
    ended = Spill(spill.folder)
    ended.append(replace(TURN, turn="turn-2"))
    ended.close()
    spill.append(TURN)
    spill.append(replace(TURN, conversation="d"))
    assert spill.forget("default", "user:ada", Selector(conversation="c")) == 2
    assert [recording.conversation for recording in spill.waiting()] == ["d"]


def test_a_file_that_another_process_erases_is_not_set_aside(spill: Spill, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: the other has stored the turn, and overwrites its file just now."""
    other, sync = Spill(spill.folder), os.fsync
    spill.put(TURN)

    def read_meanwhile(descriptor: int) -> None:
        assert list(other.waiting()) == []
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", read_meanwhile)
        spill.remove(TURN)
    assert spill.damaged() == []
    assert list(spill.folder.iterdir()) == []


def test_a_file_that_was_erased_while_it_was_read_is_not_set_aside(
    spill: Spill, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C4: a reader that has opened the file before reads zeros, and the file is gone."""
    path, read_text = spill.put(TURN), Path.read_text

    def erase_first(self: Path, *args: str, **options: str) -> str:
        with path.open() as opened:
            spill.remove(TURN)
            return opened.read()

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", erase_first)
        assert list(Spill(spill.folder).waiting()) == []
    assert read_text is Path.read_text
    assert (spill.damaged(), caplog.text) == ([], "")


def test_a_removed_file_is_overwritten_first(spill: Spill) -> None:
    """M2: whoever still holds the file open reads zeros."""
    path = spill.put(TURN)
    with path.open("rb") as held:
        spill.remove(TURN)
        assert set(held.read()) == {0}
    assert not path.exists()


def test_removing_what_is_not_there_is_harmless(spill: Spill) -> None:
    """C4: another process may have been quicker."""
    spill.remove(TURN)
    assert list(spill.waiting()) == []


@pytest.mark.parametrize(
    "selector, left",
    [
        (Selector(conversation="c"), 1),
        (Selector(speaker="ada"), 0),
        (Selector(everything=True), 0),
        (Selector(conversation="x"), 2),
        (Selector(memory="m1"), 2),
    ],
)
def test_forgetting_erases_what_a_selector_covers(spill: Spill, selector: Selector, left: int) -> None:
    """M2: by conversation, by speaker, the whole space."""
    spill.put(TURN)
    spill.put(replace(TURN, conversation="d"))
    assert spill.forget("default", "user:ada", selector) == 2 - left
    assert len(spill.files()) == left


@pytest.mark.parametrize("tenant, space", [("other", "user:ada"), ("default", "user:bob")])
def test_forgetting_in_one_space_leaves_the_others(spill: Spill, tenant: str, space: str) -> None:
    """L2: nothing reaches beyond the space that was named."""
    spill.put(TURN)
    assert spill.forget(tenant, space, Selector(everything=True)) == 0
    assert len(spill.files()) == 1


def test_drafts_of_the_dead_are_cleared_and_those_of_the_living_are_not(spill: Spill) -> None:
    """M2: a half-written file holds text too."""
    spill.put(TURN)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    drafts = [spill.folder / f"draft.{number}.tmp" for number in (dead.pid, os.getpid(), os.getppid())]
    for draft in drafts:
        draft.write_text("half a recording")
    spill.clear_drafts()
    assert [draft.exists() for draft in drafts] == [False, False, True]


def test_a_folder_that_is_a_file_cannot_be_put_to(spill: Spill) -> None:
    """C4: it raises OSError, and looking there finds nothing."""
    spill.folder.write_text("in the way")
    with pytest.raises(OSError, match="exists"):
        spill.put(TURN)
    assert (list(spill.waiting()), spill.damaged()) == ([], [])


def test_a_folder_that_is_a_link_is_not_used(spill: Spill, tmp_path: Path) -> None:
    """C4: nothing is written, read or erased where somebody else chose."""
    other = Spill(tmp_path / "elsewhere")
    path = other.put(TURN)
    spill.folder.symlink_to(other.folder, target_is_directory=True)
    with pytest.raises(OSError, match="is a symbolic link"):
        spill.put(TURN)
    assert (spill.files(), list(spill.waiting())) == ([], [])
    assert spill.forget("default", "user:ada", Selector(everything=True)) == 0
    assert [(finding.level, finding.remedy) for finding in spill.findings()] == [("error", "Remove the link.")]
    assert other.files() == [path]


def test_a_file_that_is_a_link_is_removed_without_what_it_leads_to(spill: Spill, tmp_path: Path) -> None:
    """C4: erasing overwrites, and must not overwrite another file."""
    path = spill.put(TURN)
    target = tmp_path / "precious.json"
    path.rename(target)
    path.symlink_to(target)
    content = target.read_bytes()
    spill.remove(TURN)
    assert (target.read_bytes(), list(spill.folder.iterdir())) == (content, [])


def test_nothing_of_a_turn_stays_if_the_disk_is_full(spill: Spill) -> None:
    """C4: half a turn could neither be stored later nor be found by a forget."""
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from afterturn.conversation.recording import Recording\n"
        "from afterturn.conversation.spill import Spill\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    Spill(Path(sys.argv[1])).put(Recording.from_json(sys.argv[2]))\n"
        "except OSError as error:\n"
        "    print(type(error).__name__)\n"
    )
    arguments = [sys.executable, "-c", program, str(spill.folder), TURN.to_json()]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert (ended.stdout, list(spill.folder.iterdir())) == ("OSError\n", [])
