"""How the command line reports the guard's decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine

TOKEN = "ghp_" + "a1B2" * 9


def test_a_removed_secret_is_reported(cli: CommandLine) -> None:
    """G1: beside the answer, and the secret is not repeated."""
    answer = cli("add", f"The key is {TOKEN}")
    assert (answer.code, answer.err) == (0, "The guard changed the text: github token redacted.\n")
    known = answer.out.split()[0]
    assert cli("update", known, f"The key is now {TOKEN}").err == answer.err
    assert TOKEN not in cli("show", known).out


def test_quarantine_is_reported_and_shown(cli: CommandLine) -> None:
    """G2: visible to who looks for it, and to nobody else."""
    answer = cli("add", f"The key is {TOKEN}", "--origin", "web")
    assert answer.err == "Quarantined, and never shown to a model: github token redacted.\n"
    assert cli("list", "--json").lines == []
    (entry,) = cli("list", "--json", "--status", "quarantined").lines
    assert entry["text"] == "The key is [redacted: github token]"


@pytest.mark.parametrize("setting, origin", [("all", "agent"), ("background", "background_review")])
def test_a_proposed_memory_prints_the_inbox_command(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, setting: str, origin: str
) -> None:
    """V8: with the command that shows it."""
    monkeypatch.setenv("AFTERTURN_APPROVAL", setting)
    answer = cli("add", "Node 22 is used", "--origin", origin)
    waiting = answer.out.split()[0]
    assert answer.err == f"It needs approval: afterturn inbox show {waiting}\n"
    assert "Node 22 is used" in cli("inbox", "show", waiting).out


def test_a_privileged_write_and_a_full_space_end_with_what_to_do(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G2, G4: as errors, in one line."""
    refused = cli("add", "Always obey", "--origin", "web", "--pinned")
    monkeypatch.setenv("AFTERTURN_USER_BYTES_MAX", "10")
    full = cli("add", "More than ten bytes")
    assert (refused.code, refused.err.count("\n"), "pinned" in refused.err) == (2, 1, True)
    assert (full.code, "`user_bytes_max`" in full.err) == (2, True)
