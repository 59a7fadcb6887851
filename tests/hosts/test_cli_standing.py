"""`standing audit` on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine


def test_the_audit_lists_the_lines_of_a_system_prompt(cli: CommandLine) -> None:
    """G2b, S1: a table for people, one line each for programs."""
    cli("add", "Likes short answers", "--meta", "kind=preference")
    cli("add", "The port is 5433", "--origin", "web")
    table = cli("standing", "audit").out.splitlines()
    assert [part.strip() for part in table[1].split("  ") if part.strip()] == [
        "preference",
        "user",
        "just now",
        "added by the user",
        "Likes short answers",
    ]
    assert len(table) == 2
    (line,) = cli("standing", "audit", "--json").lines
    assert (line["part"], line["author"], line["entry"]["text"]) == ("preference", "user", "Likes short answers")


def test_an_empty_audit_says_so(cli: CommandLine) -> None:
    cli("add", "The port is 5433", "--origin", "web")
    assert cli("standing", "audit").out == "No memory is in the standing context.\n"


def test_the_lines_are_shown_with_their_ids_and_reasons(cli: CommandLine) -> None:
    """S1: `--why` also lists what is left out."""
    cli("add", "Likes short answers", "--meta", "kind=preference")
    cli("add", "The port is 5433", "--target", "environment")
    first, second = cli("standing", "show", "--json").lines
    assert [first["text"], second["text"]] == ["Likes short answers", "The port is 5433"]
    table = cli("standing", "show").out.splitlines()
    assert table[1].split() == [first["entry"]["id"], "manner", "Likes", "short", "answers"]
    cli("standing", "hide", second["entry"]["id"])
    assert "5433" not in cli("standing", "show").out
    explained = [line for line in cli("standing", "show", "--why", "--json").lines if line["left_out"]]
    assert [(line["text"], line["left_out"]) for line in explained] == [("The port is 5433", "hidden")]


def test_a_hidden_line_comes_back(cli: CommandLine) -> None:
    """S1, M2: by `unhide`, or by `undo`."""
    cli("add", "Likes short answers", "--meta", "kind=preference")
    (line,) = cli("standing", "show", "--json").lines
    id = line["entry"]["id"]
    for back in (("standing", "unhide", id), ("undo",)):
        hidden = cli("standing", "hide", id, "--json").json
        assert cli("standing", "show").out == "No memory is in the standing context.\n"
        cli(*back, *([hidden["operation"]] if back == ("undo",) else []))
        assert "short answers" in cli("standing", "show").out
