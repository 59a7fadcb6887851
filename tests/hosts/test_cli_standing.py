"""`standing audit` on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine


def test_the_audit_lists_the_lines_of_a_system_prompt(cli: CommandLine) -> None:
    """G2b, S1: a table for people, one line each for programs."""
    cli("add", "Likes short answers", "--meta", "kind=preference")
    cli("add", "The port is 5433")
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
    cli("add", "The port is 5433")
    assert cli("standing", "audit").out == "No memory is in the system prompt.\n"
