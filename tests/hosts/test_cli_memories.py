"""Memories by hand: add, search, list, show, update, delete, history, undo, forget, in text and as JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine

ID = r"[0-9a-z]{16}"


def test_add_prints_the_id_first_and_where_it_went(cli: CommandLine) -> None:
    answer = cli("add", "Ada prefers oolong tea")
    assert answer.code == 0
    assert re.fullmatch(rf"{ID}  added to user:ada  \(undo: afterturn undo {ID}\)\n", answer.out)


def test_add_takes_everything_that_can_be_said_about_a_memory(cli: CommandLine) -> None:
    times = ["--occurred-at", "1970-01-02T00:00Z", "--valid-from", "2026-01-01", "--valid-to", "2027-01-01"]
    names = ["--agent", "desk", "--project", "api", "--speaker", "bob", "--source", "letter-1"]
    answer = cli(
        "add",
        "tea",
        "--target",
        "environment",
        "--origin",
        "agent",
        "--pinned",
        "--meta",
        "n=3",
        *times,
        *names,
        "--json",
    )
    entry = answer.json["entry"]
    assert (entry["target"], entry["origin"], entry["pinned"]) == ("environment", "agent", True)
    assert (entry["agent"], entry["project"], entry["speaker"]) == ("desk", "api", "bob")
    assert (entry["occurred_at"], entry["sources"]) == ("1970-01-02T00:00:00.000Z", ["letter-1"])
    assert entry["metadata"] == {"n": 3}


def test_a_statement_from_a_tool_cannot_be_pinned(cli: CommandLine) -> None:
    """G2: the message says what to do."""
    answer = cli("add", "tea", "--origin", "tool", "--pinned")
    assert (answer.code, answer.out) == (2, "")
    assert "not trusted enough to be pinned" in answer.err


def test_a_statement_that_is_known_is_not_stored_twice(cli: CommandLine) -> None:
    """G6: a duplicate add returns the existing memory."""
    known = cli.add("Ada prefers oolong tea")
    again = cli("add", "ada prefers  OOLONG tea")
    assert again.out == f"{known}  already in user:ada\n"


def test_add_reads_stdin(cli: CommandLine) -> None:
    answer = cli("add", "-", "--json", stdin="Ada trinkt 茶\n".encode())
    assert answer.json["entry"]["text"] == "Ada trinkt 茶"


@pytest.mark.parametrize(
    "stdin, kind",
    [(b"", "empty"), (b" \n", "empty"), (b"a\x00b", "NUL"), (b"\xff\xfe", "not UTF-8"), (b"x" * 10_000_000, "bytes")],
)
def test_text_that_cannot_be_stored_is_bad_input(cli: CommandLine, stdin: bytes, kind: str) -> None:
    answer = cli("add", "-", stdin=stdin)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert kind in answer.err
    assert len(answer.err) < 400


def test_an_argument_that_is_not_utf8_is_bad_input(cli: CommandLine) -> None:
    answer = cli("add", "tea \udcff")
    assert (answer.code, "surrogate" in answer.err) == (2, True)


def test_shared_options_stand_before_or_after_the_command(cli: CommandLine) -> None:
    before = cli("--space", "user:bob", "--json", "add", "tea", space=None)
    after = cli("add", "coffee", "--json", "--space", "user:bob", space=None)
    assert [before.json["entry"]["space"], after.json["entry"]["space"]] == ["user:bob", "user:bob"]


def test_the_space_may_come_from_the_environment(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_SPACE", "user:eve")
    assert cli("add", "tea", "--json", space=None).json["entry"]["space"] == "user:eve"


def test_tenants_do_not_see_one_another(cli: CommandLine) -> None:
    """L2: every query carries tenant and space."""
    cli.add("tea", "--tenant", "north")
    assert cli("list", "--tenant", "south").out == "Nothing found.\n"


def test_list_is_a_table_with_the_newest_first(cli: CommandLine) -> None:
    older, newer = cli.add("Ada prefers tea"), cli.add("two\nlines", "--pinned")
    header, *rows = cli("list").out.splitlines()
    assert header.split() == ["ID", "AGE", "TARGET", "AUTHOR", "TEXT"]
    assert rows == [
        f"{newer}  just now  user    user    [pinned] two lines",
        f"{older}  just now  user    user    Ada prefers tea",
    ]


def test_list_goes_by_the_time_that_a_memory_holds(cli: CommandLine) -> None:
    """After an import, which stores old memories late, and page after page."""
    now = cli.add("today")
    lines = [{"text": f"tea in {year}", "occurred_at": f"{year}-06-01T00:00:00Z"} for year in (2003, 2001, 2002)]
    cli("import", "-", stdin="\n".join(json.dumps(line) for line in lines).encode())
    listed = cli("list", "--json").lines
    assert [entry["text"] for entry in listed] == ["today", "tea in 2003", "tea in 2002", "tea in 2001"]
    rest = cli("list", "--json", "--limit", "2", "--before", listed[1]["id"]).lines
    assert [entry["text"] for entry in rest] == ["tea in 2002", "tea in 2001"]
    bounds = ("--since", "2002-01-01", "--until", "2003-06-01T00:00:00Z", "--json")
    assert [entry["text"] for entry in cli("list", *bounds).lines] == ["tea in 2002"]
    found = cli("search", "tea", "--floor", "0", *bounds[:4], "--json").json["hits"]
    assert [hit["entry"]["text"] for hit in found] == ["tea in 2002"]
    assert cli("search", "today", "--exclude", now).out.startswith("Nothing found.")


def test_times_may_be_written_in_words(cli: CommandLine) -> None:
    """L14: for `list` and `search`, and for when something happened."""
    cli.add("tea with Bob", "--occurred-at", "3 days ago")
    cli.add("tea with Eve", "--occurred-at", "2025-10-07")
    cli.add("tea with Ada")
    listed = {
        ("--during", "today"): ["tea with Ada"],
        ("--during", "2025-10"): ["tea with Eve"],
        ("--during", "the last 2 weeks"): ["tea with Ada", "tea with Bob"],
        ("--since", "vor 4 Tagen", "--until", "yesterday"): ["tea with Bob"],
    }
    for bounds, texts in listed.items():
        assert [entry["text"] for entry in cli("list", *bounds, "--json").lines] == texts
    found = cli("search", "tea", "--floor", "0", "--during", "October 2025", "--json").json["hits"]
    assert [hit["entry"]["text"] for hit in found] == ["tea with Eve"]


@pytest.mark.parametrize(
    "options, said",
    [
        (("--since", "soon"), "'soon' is not a time. Write it like 2026-11-15"),
        (("--until", "tea last week"), '"last week", "3 days ago"'),
        (("--during", "2026-11-15T09:30"), "is not a day, a month or a year. Write it like 2026-11-15, 2026-10"),
        (("--during", "2026", "--since", "2026-11-15"), "--during cannot be used with --since or --until"),
    ],
)
def test_a_time_that_cannot_be_read_is_refused_with_examples(cli: CommandLine, options: tuple[str], said: str) -> None:
    """L14: in `list` and `search`."""
    for command in (("list",), ("search", "tea")):
        answer = cli(*command, *options)
        assert answer.code != 0
        assert said in " ".join(answer.err.split())


def test_a_target_is_one_of_those_that_help_names(cli: CommandLine) -> None:
    answer = cli("add", "tea", "--target", "memory")
    assert (answer.code, "'user', 'environment'" in answer.err) == (2, True)


def test_spaces_are_listed_with_what_they_hold(cli: CommandLine) -> None:
    cli.add("Ada prefers tea", "--occurred-at", "2001-01-01")
    cli("add", "The API speaks JSON", space="project:api")
    header, first, second = cli("spaces", space=None).out.splitlines()
    assert header.split() == ["SPACE", "STATEMENTS", "RECORDS", "NEWEST"]
    assert first.split()[:3] == ["project:api", "1", "0"]
    assert second.split()[:3] == ["user:ada", "1", "0"]
    assert [one["name"] for one in cli("spaces", "--json").lines] == ["project:api", "user:ada"]
    assert "There are no spaces" in cli("spaces", "--tenant", "another").out


def test_history_names_the_memory_and_its_text(cli: CommandLine) -> None:
    """M3: so that one can choose what to undo."""
    known = cli.add("Ada prefers tea")
    cli("delete", known)
    header, deleted, added = cli("history").out.splitlines()
    assert header.split() == ["OPERATION", "AGE", "VERB", "ACTOR", "GROUP", "MEMORY", "TEXT"]
    for row, verb in ((deleted, "delete"), (added, "add")):
        assert (verb in row, row.endswith(f"{known}  Ada prefers tea")) == (True, True)
    cli("undo", deleted.split()[0])
    assert [entry["id"] for entry in cli("list", "--json").lines] == [known]
    cli("import", "-", stdin=b'{"text": "one"}\n{"text": "two"}')
    assert cli("history").out.splitlines()[1].endswith("(and 1 more) two")


def test_list_gives_json_lines_and_pages(cli: CommandLine) -> None:
    ids = [cli.add(text) for text in ("one", "two", "three")]
    first = cli("list", "--json", "--limit", "2").lines
    rest = cli("list", "--json", "--before", first[-1]["id"]).lines
    assert [entry["id"] for entry in first + rest] == ids[::-1]


def test_list_narrows_by_what_was_said(cli: CommandLine) -> None:
    wanted = cli.add("one", "--meta", "team=a", "--target", "environment", "--pinned")
    cli.add("two", "--meta", "team=b")
    options = [
        ["--meta", "team=a"],
        ["--target", "environment"],
        ["--pinned"],
        ["--meta", "team=a", "--meta", "team=c"],
    ]
    found = [[entry["id"] for entry in cli("list", "--json", *option).lines] for option in options]
    assert found == [[wanted]] * 4


def test_deleted_memories_are_listed_when_asked_for(cli: CommandLine) -> None:
    gone = cli.add("tea")
    cli("delete", gone)
    assert cli("list").out == "Nothing found.\n"
    assert "[deleted] tea" in cli("list", "--status", "deleted").out
    assert "[deleted] tea" in cli("list", "--status", "any").out


def test_text_that_would_steer_the_terminal_is_shown_harmless(cli: CommandLine) -> None:
    known = cli.add("tea \x1b[2Jgone")
    assert "tea \\x1b[2Jgone" in cli("list").out
    assert "tea \\x1b[2Jgone" in cli("show", known).out


def test_search_says_why_each_hit_was_found(cli: CommandLine) -> None:
    known = cli.add("Ada prefers oolong tea to coffee")
    first, why = cli("search", "which tea does she drink").out.splitlines()
    assert first == f"{known}  Ada prefers oolong tea to coffee"
    parts = r"score 0\.\d\d · lexical 0\.\d\d \(tea\) · similarity 0\.\d\d · long_term · just now · from user"
    assert re.fullmatch(parts, why.strip())


def test_search_as_json_has_the_parts_of_the_score(cli: CommandLine) -> None:
    known = cli.add("Ada prefers oolong tea to coffee")
    found = cli("search", "tea", "--json").json
    (hit,) = found["hits"]
    assert (hit["entry"]["id"], hit["lane"], hit["terms"]) == (known, "long_term", ["tea"])
    assert (found["query"], found["missing"]) == ("tea", [])
    assert hit["similarity"] > 0


def test_search_without_results_says_so_and_succeeds(cli: CommandLine) -> None:
    """L5: recalling nothing is a good answer."""
    cli.add("Ada prefers oolong tea")
    answer = cli("search", "quarterly tax forms")
    assert (answer.code, answer.out.splitlines()[0]) == (0, "Nothing found.")


def test_search_that_finds_nothing_says_how_near_it_was_and_looks_below_the_floor(cli: CommandLine) -> None:
    """L5: the floor can be seen and lowered; programs read what they always did."""
    cli.add("Ada prefers oolong tea from the market in the old town")
    asked = ["search", "which market sells quarterly tax forms and stamps"]
    out = cli(*asked, "--floor", "0.99").out.splitlines()
    assert out[0] == "Nothing found."
    assert re.fullmatch(
        r"Nothing reaches the minimum score of 0\.99\. The best has 0\.\d\d: Ada prefers .* town", out[1]
    )
    assert cli(*asked, "--floor", "0.99", "--json").json["hits"] == []
    assert len(cli(*asked, "--floor", "0", "--json").json["hits"]) == 1


def test_search_without_an_embedder_says_what_is_missing(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_EMBEDDER", "none")
    cli.add("Ada prefers oolong tea")
    out = cli("search", "tea").out
    assert "similarity none" in out
    assert "Searched without: vectors." in out
    assert "afterturn doctor" in cli.on_a_terminal("search", "tea")[1]


def test_search_asks_what_was_known_at_a_time(cli: CommandLine) -> None:
    """L7: `as_of` asks what was known at a time."""
    cli.add("Ada prefers oolong tea")
    assert cli("search", "tea", "--as-of", "2001-01-01").out.startswith("Nothing found.")
    assert "oolong" in cli("search", "tea", "--as-of", "2200-01-01").out


def test_show_prints_the_text_and_then_what_is_known_about_it(cli: CommandLine) -> None:
    known = cli.add("line one\nline two", "--meta", "team=a", "--expires-at", "2200-01-01")
    out = cli("show", known).out
    assert out.startswith("line one\nline two\n\n")
    assert re.search(rf"^id +{known}$", out, re.MULTILINE)
    assert re.search(r"^meta team +a$", out, re.MULTILINE)
    assert re.search(r"^expires +2\d\d\d-\d\d-\d\d .* \(in \d+ days\)$", out, re.MULTILINE)


def test_show_gives_an_older_version(cli: CommandLine) -> None:
    known = cli.add("Ada prefers tea")
    cli("update", known, "Ada prefers coffee")
    assert cli("show", known, "--json").json["text"] == "Ada prefers coffee"
    assert cli("show", known, "--version", "1", "--json").json["text"] == "Ada prefers tea"


@pytest.mark.parametrize("arguments", [["show"], ["delete"], ["history"], ["forget", "--yes"]])
def test_an_id_that_the_space_does_not_have_is_bad_input(cli: CommandLine, arguments: list[str]) -> None:
    cli.add("tea")
    answer = cli(*arguments, "0000000000000000")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)


def test_another_spaces_memory_is_not_found(cli: CommandLine) -> None:
    """L2: nothing reads across spaces that were not named."""
    known = cli.add("tea")
    assert cli("show", known, space="user:bob").code == 2


def test_update_keeps_the_older_version_and_says_how_to_go_back(cli: CommandLine) -> None:
    """M1: an update supersedes; history is complete and undoable."""
    known = cli.add("Ada prefers tea")
    answer = cli("update", known, "Ada prefers coffee")
    operation = re.fullmatch(rf"{known}  updated to version 2  \(undo: afterturn undo ({ID})\)\n", answer.out)
    assert operation
    assert cli("undo", operation[1]).code == 0
    assert cli("show", known, "--version", "1", "--json").json["status"] == "active"


def test_update_of_another_version_than_expected_is_refused(cli: CommandLine) -> None:
    known = cli.add("Ada prefers tea")
    cli("update", known, "Ada prefers coffee")
    answer = cli("update", known, "Ada prefers milk", "--expected-version", "1")
    assert (answer.code, answer.err.count("\n")) == (2, 1)


def test_update_and_delete_give_json(cli: CommandLine) -> None:
    known = cli.add("Ada prefers tea")
    updated = cli("update", known, "-", "--json", stdin=b"Ada prefers coffee").json
    deleted = cli("delete", known, "--json").json
    assert (updated["entry"]["version"], deleted["entry"]["status"]) == (2, "deleted")
    assert updated["operation"] != deleted["operation"]


def test_a_deleted_memory_comes_back_with_undo(cli: CommandLine) -> None:
    """M2: `delete` hides and can be undone."""
    known = cli.add("tea")
    operation = cli("delete", known, "--json").json["operation"]
    answer = cli("undo", operation)
    assert f"{known}  version 1: deleted -> active" in answer.out
    assert "Undid 1 change" in answer.out
    assert known in cli("list").out


def test_undo_gives_json(cli: CommandLine) -> None:
    known = cli.add("tea")
    operation = cli("delete", known, "--json").json["operation"]
    undone = cli("undo", operation, "--json").json
    assert [step["entry_id"] for step in undone["steps"]] == [known]


def test_undo_of_what_never_was_is_bad_input(cli: CommandLine) -> None:
    cli.add("tea")
    answer = cli("undo", "0000000000000000")
    assert (answer.code, answer.err.count("\n")) == (2, 1)


def test_history_shows_versions_and_steps(cli: CommandLine) -> None:
    known = cli.add("Ada prefers tea")
    cli("update", known, "Ada prefers coffee")
    out = cli("history", known).out
    assert re.search(r"^1 +just now +superseded +user +Ada prefers tea$", out, re.MULTILINE)
    assert re.search(rf"^{ID} +just now +update +user +version 1: active -> superseded$", out, re.MULTILINE)
    found = cli("history", known, "--json").json
    assert ([entry["version"] for entry in found["versions"]], len(found["steps"])) == ([1, 2], 3)


def test_history_without_an_id_lists_operations_newest_first(cli: CommandLine) -> None:
    known = cli.add("tea")
    cli("delete", known)
    assert [operation["verb"] for operation in cli("history", "--json").lines] == ["delete", "add"]
    assert [row.split()[3] for row in cli("history").out.splitlines()[1:]] == ["delete", "add"]


def test_forget_needs_yes_where_nobody_can_be_asked(cli: CommandLine) -> None:
    known = cli.add("tea")
    answer = cli("forget", known)
    assert (answer.code, known in cli("list").out) == (2, True)
    assert "would erase 1 entry of user:ada permanently" in answer.err
    assert "--yes" in answer.err


def test_forget_erases_every_version_for_good(cli: CommandLine) -> None:
    """M2: `forget` can't be undone."""
    known = cli.add("Ada prefers xylophones")
    cli("update", known, "Ada prefers zithers")
    answer = cli("forget", known, "--yes")
    assert (answer.code, answer.out.splitlines()[0]) == (0, "1 entry erased.")
    assert cli("list", "--status", "any").out == "Nothing found.\n"
    assert b"xylophone" not in b"".join(path.read_bytes() for path in cli.folder.iterdir())


def test_forget_counts_before_it_erases(cli: CommandLine) -> None:
    for text in ("one", "two", "three"):
        cli.add(text, "--speaker", "bob")
    cli.add("four", "--source", "letter-1")
    counts = [["--everything"], ["--speaker", "bob"], ["--source", "letter-1"], ["--conversation", "none"]]
    found = [cli("forget", "--dry-run", "--json", *choice).json["matching"] for choice in counts]
    assert found == [4, 3, 1, 0]
    assert cli("forget", "--dry-run", "--everything").out.startswith("4 entries would be erased")


def test_forget_by_speaker_leaves_the_others(cli: CommandLine) -> None:
    cli.add("one", "--speaker", "bob")
    kept = cli.add("two", "--speaker", "eve")
    assert cli("forget", "--speaker", "bob", "--yes", "--json").json["erased"] == 1
    assert [entry["id"] for entry in cli("list", "--json").lines] == [kept]


def test_forget_everything_empties_one_space_only(cli: CommandLine) -> None:
    cli.add("one")
    cli("--space", "user:bob", "add", "two", space=None)
    forgotten = cli("forget", "--everything", "--yes", "--json").json
    assert (forgotten["state"], forgotten["erased"]) == ("erased", 1)
    assert "two" in cli("list", space="user:bob").out


def test_profile_shows_what_is_known_by_subject(cli: CommandLine) -> None:
    """L14: in text and as one document."""
    ruth, job = cli.add("My sister Ruth is coeliac"), cli.add("Ada works at the library")
    nothing = cli("profile", space="user:bob")
    leeds = cli.add("Ruth lives in Leeds")
    shown, found = cli("profile"), cli("profile", "--json").json
    assert (nothing.code, nothing.out) == (0, "Nothing is known in user:bob yet.\n")
    lines = shown.out.splitlines()
    assert [lines[0], lines[3]] == ["Ruth", "user"]
    assert [lines[at].split()[0] for at in (1, 2, 4)] == [leeds, ruth, job]
    assert [subject["name"] for subject in found["subjects"]] == ["Ruth", "user"]
    assert [entry["id"] for entry in found["subjects"][0]["entries"]] == [leeds, ruth]
    assert len(cli("profile", "--limit", "1", "--json").json["subjects"][0]["entries"]) == 1
