"""Firm rules on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine


def test_a_firm_rule_is_added_listed_and_ended(cli: CommandLine) -> None:
    """T1: by a person; the standing audit, the list and the Markdown text show it."""
    added = cli("add", "--firm", "Never push to main", "--json").json
    cli("add", "The port is 5433")
    assert [line["text"] for line in cli("list", "--firm", "--json").lines] == ["Never push to main"]
    assert "[firm] Never push to main" in cli("list").out
    assert cli("standing", "audit", "--json").lines[0]["part"] == "firm"
    ended = cli("firm", added["entry"]["id"], "--off").out
    assert "no longer firm  (undo: afterturn undo " in ended
    assert cli("list", "--firm").out == "Nothing found.\n"


def test_an_import_makes_nothing_firm_without_consent(cli: CommandLine) -> None:
    """T1, G2: only with --keep-origin."""
    line = json.dumps({"text": "Never push to main", "origin": "user", "firm": True}).encode()
    cli("import", "-", stdin=line)
    assert cli("list", "--firm").out == "Nothing found.\n"
    other = json.dumps({"text": "Never push to trunk", "origin": "user", "firm": True}).encode()
    cli("import", "-", "--keep-origin", stdin=other)
    assert [one["text"] for one in cli("list", "--firm", "--json").lines] == ["Never push to trunk"]
