"""Commands on a sealed store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import afterturn

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine


@pytest.fixture(autouse=True)
def _keys(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_KEYS", str(cli.folder / "keys"))


def test_forget_says_that_the_key_is_destroyed(cli: CommandLine) -> None:
    cli.add("The boat is red.")
    assert "The boat is red." in cli("search", "boat").out
    assert "The store is sealed" in cli("doctor").out
    done = cli("forget", "--everything", "--yes")
    assert (done.code, done.out) == (
        0,
        "1 entry erased.\n"
        "The key of the space is destroyed. Nobody can read its text in copies of its rows any more.\n",
    )
    cli.add("The boat is green.")
    assert cli("forget", "--everything", "--yes", "--json").json["key_destroyed"] is True


def test_a_space_without_its_key_can_be_forgotten_and_used_again(cli: CommandLine) -> None:
    cli.add("The boat is red.")
    for path in (cli.folder / "keys").iterdir():
        if json.loads(path.read_text())["space"] == "user:ada":
            path.unlink()
    failed = cli("list")
    assert (failed.code, "The key of user:ada is gone" in failed.err) == (2, True)
    assert cli("forget", "--everything", "--yes").code == 0
    cli.add("The boat is white.")
    assert "The boat is white." in cli("list").out


def test_an_exported_space_can_be_imported_into_a_sealed_store(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed, cli.store = cli.store, cli.folder / "plain.db"
    with monkeypatch.context() as patch:
        patch.delenv("AFTERTURN_KEYS")
        cli.add("The boat is in the harbour.")
        (cli.folder / "ada.jsonl").write_text(cli("export").out)
    cli.store = sealed
    assert cli("import", str(cli.folder / "ada.jsonl")).code == 0
    assert "The boat is in the harbour." in cli("list").out
    assert b"harbour" not in sealed.read_bytes()
    found = afterturn.recall_once("boat", user="ada", store=sealed)
    assert [hit.entry.text for hit in found.hits] == ["The boat is in the harbour."]
