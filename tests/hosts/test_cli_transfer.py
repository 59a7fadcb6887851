"""Whole spaces and stores in and out: export, import, backup, restore."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, NoReturn

import pytest

from afterturn import blocking
from afterturn.errors import DeadlineExceeded
from afterturn.runtime.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hosts.conftest import CommandLine


def write_lines(path: Path, *lines: object) -> str:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


def texts(cli: CommandLine, space: str = "user:ada") -> set[str]:
    return {entry["text"] for entry in cli("list", "--json", space=space).lines}


def test_export_writes_everything_held_to_stdout(cli: CommandLine) -> None:
    """M4: `export` gives everything stored in a space, older versions too."""
    known = cli.add("Ada prefers tea")
    cli("update", known, "Ada prefers 茶")
    header, *lines = cli("export").lines
    assert (header["afterturn_export"], header["space"]) == (1, "user:ada")
    assert {line["entry"]["text"] for line in lines if "entry" in line} == {"Ada prefers tea", "Ada prefers 茶"}


def test_export_to_a_file_says_how_much_and_is_private(cli: CommandLine) -> None:
    cli.add("tea")
    target = cli.folder / "ada.jsonl"
    answer = cli("export", str(target))
    assert answer.out == f"{target}  {len(target.read_text().splitlines())} lines\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_export_to_a_file_gives_json(cli: CommandLine) -> None:
    cli.add("tea")
    target = cli.folder / "ada.jsonl"
    assert cli("export", str(target), "--json").json == {"file": str(target), "lines": 4}


def test_export_replaces_a_file_only_with_force(cli: CommandLine) -> None:
    cli.add("tea")
    target = cli.folder / "ada.jsonl"
    target.write_text("mine")
    assert (cli("export", str(target)).code, target.read_text()) == (2, "mine")
    assert cli("export", str(target), "--force").code == 0
    assert "afterturn_export" in target.read_text()


@pytest.mark.parametrize("place", [".", "nowhere/ada.jsonl"])
def test_export_to_a_place_that_cannot_be_written_is_bad_input(cli: CommandLine, place: str) -> None:
    cli.add("tea")
    answer = cli("export", str(cli.folder / place))
    assert (answer.code, answer.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("options", [("export",), ("export", "--force"), ("backup",), ("export", "--markdown")])
@pytest.mark.parametrize("place", ["link", "folder/ada", "folder/inner/ada", "dangling"])
@pytest.mark.parametrize("way", ["relative", "absolute", "into a repository"])
def test_nothing_is_written_through_a_link(
    cli: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    place: str,
    way: str,
) -> None:
    """P1: a repository may bring links. Otherwise an absolute path may lead through linked folders."""
    cli.add("Ada prefers tea")
    here, away = cli.folder / "repository", cli.folder / "away"
    here.mkdir()
    (away / "inner").mkdir(parents=True)
    (away / "mine").write_text("mine")
    (here / "folder").symlink_to("../away")
    (here / "link").symlink_to("../away" if "--markdown" in options else "../away/mine")
    (here / "dangling").symlink_to("../away/new")
    if way == "relative":
        monkeypatch.chdir(here)
    elif way == "into a repository":
        (here / ".git").mkdir()
        (away / ".git").mkdir()
    before = sorted(away.rglob("*"))
    answer = cli(*options, place if way == "relative" else str(here / place))
    if way == "absolute" and "/" in place:
        assert answer.code == 0, answer.err
        assert (here / place).exists()
        return
    assert answer.code == 2
    assert "symbolic link" in answer.err
    assert sorted(away.rglob("*")) == before
    assert (away / "mine").read_text() == "mine"


def test_export_replaces_a_link_between_the_check_and_the_end(cli: CommandLine) -> None:
    """P1: a link is never followed, whenever it appears."""
    target, mine = cli.folder / "ada.jsonl", cli.folder / "mine"
    mine.write_text("mine")
    with replace_file(target) as stream:
        target.symlink_to(mine)
        stream.write(b"new")
    assert (target.is_symlink(), target.read_text(), mine.read_text()) == (False, "new", "mine")
    assert [path.name for path in cli.folder.glob(".*")] == []


def test_a_failed_export_leaves_no_file_behind(cli: CommandLine) -> None:
    cli.add("tea")
    cli("export", "--tenant", " ", str(cli.folder / "ada.jsonl"))
    assert [path.name for path in cli.folder.glob("*ada*")] == []


def test_an_export_that_takes_too_long_says_so(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is an OSError, and has nothing to do with the file."""

    def export(space: blocking.Space) -> NoReturn:
        raise DeadlineExceeded("The store did not answer within 30 seconds.")

    cli.add("tea")
    monkeypatch.setattr(blocking.Space, "export", export)
    answer = cli("export", str(cli.folder / "ada.jsonl"))
    assert "The store did not answer within 30 seconds." in answer.err
    assert "cannot be written" not in answer.err
    assert [path.name for path in cli.folder.glob("*ada*")] == []


def test_an_export_that_nobody_reads_to_the_end_is_quiet(cli: CommandLine) -> None:
    long = ({"text": f"number {number} " + "x" * 7_000} for number in range(50))
    cli("import", write_lines(cli.folder / "long.jsonl", *long))
    reading, writing = os.pipe()
    with cli.child("export", stdout=writing) as child:
        os.close(writing)
        os.read(reading, 100)
        os.close(reading)
        _, shown = child.communicate()
    assert (child.returncode, shown) == (141, b"")


def test_an_export_can_be_imported_into_another_space(cli: CommandLine) -> None:
    known = cli.add("Ada prefers tea", "--meta", "team=a", "--occurred-at", "2020-01-01T00:00Z")
    cli.add("Ada works in Lyon")
    cli("update", known, "Ada prefers coffee")
    exported = cli("export").out.encode()
    answer = cli("import", "-", stdin=exported, space="user:copy")
    assert answer.out.splitlines()[0] == "2 memories imported into user:copy"
    assert texts(cli, "user:copy") == {"Ada prefers coffee", "Ada works in Lyon"}


def test_an_import_says_what_was_there_already(cli: CommandLine) -> None:
    cli.add("tea")
    file = write_lines(cli.folder / "notes.jsonl", {"text": "tea"}, {"text": "coffee"})
    imported = cli("import", file, "--json").json["imported"]
    assert (imported["created"], imported["existing"]) == (1, 1)


def test_an_import_is_taken_back_with_one_undo(cli: CommandLine) -> None:
    """M1: history is undoable by group."""
    cli.add("kept")
    file = write_lines(cli.folder / "notes.jsonl", *({"text": f"note {number}"} for number in range(1_200)))
    *_, last = cli("import", file).out.splitlines()
    assert last.startswith("Undo: afterturn undo ")
    assert cli(*last.removeprefix("Undo: afterturn ").split()).code == 0
    assert texts(cli) == {"kept"}


def test_imported_memories_have_the_origin_import_unless_it_may_be_kept(cli: CommandLine) -> None:
    """G2: an import keeps the exported origin only with the person's consent."""
    cli("import", "-", stdin=b'{"text": "tea", "origin": "agent"}')
    cli("import", "--keep-origin", "-", stdin=b'{"text": "coffee", "origin": "agent"}')
    origins = {entry["text"]: entry["origin"] for entry in cli("list", "--json").lines}
    assert origins == {"tea": "import", "coffee": "agent"}


def test_one_bad_line_stops_the_whole_import(cli: CommandLine) -> None:
    file = write_lines(cli.folder / "notes.jsonl", {"text": "tea"}, "{oops", {"text": ""})
    answer = cli("import", file)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert f"{file}, line 2: It is not JSON" in answer.err
    assert "1 other line also invalid" in answer.err
    assert not cli.store.exists()


def test_with_skip_bad_the_rest_is_imported_and_the_bad_lines_listed(cli: CommandLine) -> None:
    file = write_lines(cli.folder / "notes.jsonl", {"text": "tea"}, "{oops", {"text": "coffee"})
    answer = cli("import", "--skip-bad", file)
    assert (answer.code, texts(cli)) == (0, {"tea", "coffee"})
    assert answer.err.startswith("line 2 skipped: It is not JSON")


def test_with_skip_bad_json_lists_the_bad_lines(cli: CommandLine) -> None:
    found = cli("import", "--skip-bad", "--json", "-", stdin=b'{"text": "tea"}\n[]\n').json
    assert ([bad["line"] for bad in found["bad"]], found["imported"]["created"]) == ([2], 1)


def test_an_empty_file_imports_nothing(cli: CommandLine) -> None:
    answer = cli("import", "-", stdin=b"")
    assert (answer.code, answer.out) == (0, "0 memories imported into user:ada\n")


def test_a_backup_can_be_restored(cli: CommandLine) -> None:
    """M4: `backup` and `restore` are online."""
    cli.add("tea")
    copy = cli.folder / "copy.db"
    made = cli("backup", str(copy))
    assert made.out == f"{copy}  {copy.stat().st_size:,} bytes\n"
    cli.add("coffee")
    restored = cli("restore", "--yes", str(copy))
    assert (restored.code, restored.out, texts(cli)) == (0, f"Restored from {copy}\n", {"tea"})


def test_a_backup_can_be_restored_into_a_new_store(cli: CommandLine) -> None:
    cli.add("tea")
    copy = cli.folder / "copy.db"
    assert cli("backup", str(copy), "--json").json == {"file": str(copy), "size_bytes": copy.stat().st_size}
    cli.store = cli.folder / "fresh.db"
    restored = {"file": str(copy), "restored": True, "damaged": None}
    assert cli("restore", "--yes", str(copy), "--json").json == restored
    assert texts(cli) == {"tea"}


def test_a_backup_replaces_no_file(cli: CommandLine) -> None:
    cli.add("tea")
    copy = cli.folder / "copy.db"
    copy.write_text("mine")
    assert (cli("backup", str(copy)).code, copy.read_text()) == (2, "mine")


def test_restoring_needs_yes_where_nobody_can_be_asked(cli: CommandLine) -> None:
    cli.add("tea")
    copy = cli.folder / "copy.db"
    cli("backup", str(copy))
    cli.add("coffee")
    answer = cli("restore", str(copy))
    assert (answer.code, texts(cli)) == (2, {"tea", "coffee"})
    assert "Add --yes" in answer.err


def test_a_file_that_is_not_a_backup_is_refused_and_the_store_is_unchanged(cli: CommandLine) -> None:
    cli.add("tea")
    wrong = cli.folder / "wrong.db"
    wrong.write_text("a shopping list\n" * 1_000)
    answer = cli("restore", "--yes", str(wrong))
    assert (answer.code, answer.err.count("\n"), texts(cli)) == (2, 1, {"tea"})


def test_a_dry_run_shows_what_a_file_would_bring_and_changes_nothing(cli: CommandLine) -> None:
    lines = [{"text": f"note {number}"} for number in range(25)]
    answer = cli("import", "--dry-run", write_lines(cli.folder / "notes.jsonl", *lines, "{oops"))
    rows = answer.out.splitlines()
    assert rows[1] == "statement  user    import  note 0"
    assert rows[-2:] == [
        "and 5 more",
        "25 statements would be imported into user:ada. Nothing was changed.",
    ]
    assert (answer.code, answer.err.startswith("line 26 skipped: It is not JSON")) == (0, True)
    assert not cli.store.exists()


def test_a_dry_run_of_an_export_gives_json(cli: CommandLine) -> None:
    """M4: with the origins that --keep-origin would keep."""
    cli("update", cli.add("tea"), "coffee")
    exported = cli("export").out.encode()
    plan = cli("import", "--dry-run", "--json", "-", stdin=exported).json
    assert [(one["begins"], one["origin"]) for one in plan["entries"]] == [("coffee", "import")]
    plan = cli("import", "--dry-run", "--json", "--keep-origin", "-", stdin=exported).json
    assert [(one["begins"], one["origin"]) for one in plan["entries"]] == [("tea", "user"), ("coffee", "user")]


@pytest.mark.parametrize("options", [("--dry-run",), ()])
def test_markdown_of_another_space_is_imported_as_reports(cli: CommandLine, options: tuple[str, ...]) -> None:
    """G2: a text does not say who wrote it."""
    cli.add("Ada prefers tea", "--pinned")
    cli.add("The build runs on Debian", "--target", "environment")
    file = cli.folder / "memories.md"
    file.write_text(cli("edit", "--print").out)
    answer = cli("import", str(file), *options, space="user:copy")
    assert answer.code == 0
    entries = cli("list", "--json", space="user:copy").lines
    found = {(entry["text"], entry["target"], entry["origin"], entry["pinned"]) for entry in entries}
    expected = {
        ("Ada prefers tea", "user", "import", False),
        ("The build runs on Debian", "environment", "import", False),
    }
    assert found == (set() if options else expected)
    assert cli("import", str(file), "--keep-origin").code == 2


def test_other_markdown_is_refused_with_the_way_to_import_it(cli: CommandLine) -> None:
    file = cli.folder / "README.md"
    file.write_text("# A heading\n\nText\n")
    answer = cli("import", str(file))
    assert (answer.code, "Line 1 is not a valid heading" in answer.err) == (2, True)
    assert "add --from claude-code" in answer.err


def test_only_versions_of_memories_count_as_skipped(cli: CommandLine) -> None:
    """The operations of an export are not memories."""
    cli("update", cli.add("tea"), "coffee")
    exported = cli("export").out.encode()
    assert "1 version skipped: not current\n" in cli("import", "-", stdin=exported, space="user:copy").out
    assert "skipped" not in cli("import", "-", "--keep-origin", stdin=exported, space="user:other").out


def test_an_export_on_a_terminal_is_not_mixed_with_a_progress_bar(cli: CommandLine) -> None:
    cli.add("tea")
    code, shown = cli.on_a_terminal("export")
    assert (code, "Exporting" in shown) == (0, False)
    assert len([json.loads(line) for line in shown.splitlines()]) == 4


def test_a_memory_whose_source_is_not_an_id_is_listed(cli: CommandLine) -> None:
    """An import takes any words as a source, and nothing shows that they were the user's."""
    line = b'{"text": "Ada likes tea", "origin": "background_review", "sources": ["ticket 5"]}'
    assert cli("import", "--keep-origin", "-", stdin=line).code == 0
    answer = cli("list")
    assert (answer.code, "Ada likes tea" in answer.out, "learned from you" in answer.out) == (0, True, False)
