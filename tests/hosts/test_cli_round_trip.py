"""Export and import of a person's own space: with --keep-origin an empty store gets back what the other one had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from afterturn import blocking
from afterturn.types import Kind

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine

KINDS_OF_STATUS = ("active", "superseded", "proposed")
# What a new store decides itself.
OWN = ("space", "recorded_at", "content_hash")


def fill(cli: CommandLine) -> None:
    """A space with every kind of memory."""
    talk: list[dict[str, Any]] = []
    with blocking.open(cli.store, {"embedder": "none"}) as memory:
        ada = memory.space("user:ada")
        conversation = memory.conversation("talk", user="ada")
        for said, answer in (
            ("My sister Ruth is coeliac.", "Noted."),
            ("Call me Max.", "Hello Max."),
            ("I prefer short answers.", "All right."),
            ("My cat Miso is allergic to chicken.", "Poor Miso."),
        ):
            talk.append({"role": "user", "content": said})
            with conversation.turn(talk) as turn:
                talk.append({"role": "assistant", "content": answer})
            assert turn.wait_recorded()
        call = {"id": "1", "type": "function", "function": {"name": "fetch", "arguments": "{}"}}
        talk.append({"role": "user", "content": "What does the page say?"})
        with conversation.turn(talk) as turn:
            talk.append({"role": "assistant", "content": "", "tool_calls": [call]})
            talk.append({"role": "tool", "tool_call_id": "1", "content": "The shop opens at nine."})
            talk.append({"role": "assistant", "content": "It opens at nine."})
        assert turn.wait_recorded()
        assert memory.drain()
        ada.add("The build runs on Debian 12", target="environment", project="api", metadata={"team": "a", "size": 3})
        ada.add("Ada is on leave", valid_from="2020-01-01T00:00Z", valid_to="2099-01-01T00:00Z", expires_at=4e9)
        ada.add("Never mention the merger", pinned=True)
        ada.add("Never push to main", target="environment", firm=True)
        ada.add("Use tabs", target="environment", metadata={"kind": "convention"})
        ada.add("The office is in Lyon", origin="web")
        ada.add("The deploy takes nine minutes", target="environment", origin="agent")
        approved = ada.add("Answer in French", origin="agent", metadata={"kind": "preference"}, clean=True)
        ada.approve(approved.entry.id)
        ada.add("Answer in rhymes", origin="agent", metadata={"kind": "preference"}, clean=True)
        changed = ada.add("Ada drinks tea").entry.id
        ada.update(changed, "Ada drinks coffee")
        ada.set_firm(ada.add("Never delete a branch", target="environment").entry.id)
        ada.delete(ada.add("Ada owns a boat").entry.id)
        taught = next(one for one in ada.list() if one.kind is Kind.STATEMENT and "Miso" in one.text)
        ada.forget(memory=taught.id)


def held(cli: CommandLine) -> dict[tuple[str, int], dict[str, Any]]:
    """All current versions of entries and what they replaced, by id and version."""
    entries = [line["entry"] for line in cli("export").lines if "entry" in line]
    return {
        (one["id"], one["version"]): {name: value for name, value in one.items() if name not in OWN}
        for one in entries
        if one["status"] in KINDS_OF_STATUS
    }


def standing(cli: CommandLine, *options: str) -> list[str]:
    return [line["text"] for line in cli("standing", "show", "--json", *options).lines]


def exported(cli: CommandLine, folder: Path) -> str:
    file = folder / "ada.jsonl"
    assert cli("export", str(file)).code == 0
    return str(file)


def test_an_empty_store_gets_back_everything_from_the_persons_own_export(cli: CommandLine) -> None:
    """G2, M4: texts, trust, origins, kinds, pins, firm rules, older versions, approvals, and what is hidden."""
    fill(cli)
    before, stood, file = held(cli), standing(cli, "--project", "api"), exported(cli, cli.folder)
    assert {row["origin"] for row in before.values()} == {"user", "agent", "background_review", "web", "tool"}
    assert {row["status"] for row in before.values()} == set(KINDS_OF_STATUS)
    assert {"Answer in French", "Never mention the merger", "Never push to main"} <= set(stood)
    assert "My cat Miso is allergic to chicken." not in stood
    cli.store = cli.folder / "empty.db"
    assert cli("import", "--keep-origin", file).code == 0
    assert held(cli) == before
    assert standing(cli, "--project", "api") == stood


def test_a_second_import_of_the_persons_own_export_adds_nothing(cli: CommandLine) -> None:
    """G6: also into the space that it came from."""
    fill(cli)
    before, file = held(cli), exported(cli, cli.folder)
    for store in (cli.store, cli.folder / "empty.db"):
        cli.store = store
        cli("import", "--keep-origin", file)
        assert cli("import", "--keep-origin", file, "--json").json["imported"]["created"] == 0
        assert held(cli) == before


def test_an_import_of_the_persons_own_export_is_taken_back_with_one_undo(cli: CommandLine) -> None:
    """M1: with its approvals."""
    fill(cli)
    file = exported(cli, cli.folder)
    cli.store = cli.folder / "empty.db"
    group = cli("import", "--keep-origin", file, "--json").json["imported"]["group"]
    assert cli("undo", group).code == 0
    assert (held(cli), standing(cli)) == ({}, [])


def test_without_consent_the_same_file_is_a_report(cli: CommandLine) -> None:
    """G2: nothing stands, and nothing is pinned or firm."""
    fill(cli)
    file = exported(cli, cli.folder)
    cli.store = cli.folder / "empty.db"
    assert cli("import", file).code == 0
    assert {(row["origin"], row["pinned"], row["firm"]) for row in held(cli).values()} == {("import", False, False)}
    assert standing(cli) == []


@pytest.mark.parametrize("trust", [1_000, "high", True, None])
def test_a_file_cannot_raise_the_trust_above_that_of_the_origin(cli: CommandLine, trust: object) -> None:
    """G2: also with consent."""
    entry = {"id": "0k3v8r2c4d5e6f7g", "version": 1, "kind": "statement", "status": "active", "text": "tea"}
    lines = [{"afterturn_export": 1}, {"entry": {**entry, "origin": "web", "trust": trust, "pinned": True}}]
    answer = cli("import", "--keep-origin", "-", stdin="\n".join(map(json.dumps, lines)).encode())
    if trust != 1_000:
        assert (answer.code, '"trust" is' in answer.err) == (2, True)
        return
    (found,) = cli("list", "--json").lines
    assert (found["origin"], found["trust"], found["pinned"]) == ("web", 40, False)


@pytest.mark.parametrize("has_earlier", [True, False])
def test_a_change_that_was_taken_back_is_still_taken_back_after_an_import(cli: CommandLine, has_earlier: bool) -> None:
    """M4: the last version counts, also if it is equal to an older one. Importing again adds nothing."""
    copy = cli.folder / "copy.db"
    id = cli.add("Ada lives in Berlin")
    cli("update", id, "Ada lives in Paris")
    if has_earlier:
        file, cli.store = exported(cli, cli.folder), copy
        cli("import", "--keep-origin", file)
        cli.store = cli.folder / "memory.db"
        Path(file).unlink()
    cli("update", id, "Ada lives in Berlin")
    before, file, cli.store = held(cli), exported(cli, cli.folder), copy
    for created in (1 if has_earlier else 3, 0):
        assert cli("import", "--keep-origin", file, "--json").json["imported"]["created"] == created
        assert held(cli) == before
    assert [entry["text"] for entry in cli("list", "--json").lines] == ["Ada lives in Berlin"]
