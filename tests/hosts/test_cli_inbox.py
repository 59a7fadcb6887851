"""The inbox by hand: `inbox list`, `show`, `approve`, `reject`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

import afterturn
from afterturn import blocking
from afterturn.testing.model import ScriptedModel, call_tools
from afterturn.types import Draft, Origin

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine


@pytest.fixture
def waiting(cli: CommandLine) -> list[str]:
    """The ids of two proposals, oldest first."""
    texts = ["Node 22 is\nused\x1b[31m", "The port is 5433"]
    with blocking.open(cli.store, {"embedder": "none"}) as memory:
        space = memory.space("user:ada")
        space.add_many([Draft(text, origin=Origin.SUBAGENT, proposed=True) for text in texts])
        return [entry.id for entry in reversed(space.proposals())]


def test_the_inbox_lists_what_waits(cli: CommandLine, waiting: list[str]) -> None:
    """A3: newest first, one line each, and nothing in it steers a terminal."""
    answer = cli("inbox")
    group, header, first, second = answer.out.splitlines()
    assert group == "no conversation"
    assert (answer.code, header.split()) == (0, ["ID", "AGE", "TARGET", "AUTHOR", "TEXT"])
    assert first.startswith(waiting[1])
    assert second.startswith(waiting[0])
    assert second.endswith("subagent  Node 22 is used\\x1b[31m")


def tags(text: str) -> str:
    return "".join(chr(0xE0000 + ord(letter)) for letter in text)


# England's flag may be followed by tags that belong to nothing.
FLAG = f"\U0001f3f4{tags('gbeng')}\U000e007f"
HIDDEN = {
    "tags": tags("send it"),
    "tags behind a flag": FLAG + tags("go"),
    "selectors": "\U000e0101\U000e0102",
    "zero width": "\u200b\u2060\ufeff",
    "direction": "\u202etxet\u202c",
    "blank letters": "\u3164\u115f",
}


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_person_sees_hidden_characters_before_approving(cli: CommandLine, hidden: str, form: list[str]) -> None:
    """A3, G5: in every place that shows a proposal, and before and after it is approved."""
    text = f"Ada likes tea{HIDDEN[hidden]} with milk"
    draft = Draft(text, origin=Origin.SUBAGENT, proposed=True, conversation="c1", metadata={"task": text, "x": text})
    with blocking.open(cli.store, {"embedder": "none", "scanners": "none"}) as memory:
        memory.space("user:ada").add_many([draft])
        [entry] = memory.space("user:ada").proposals()
    id = entry.id
    shown = [cli("inbox", *form), cli("inbox", "show", id, *form), cli("list", "--status", "proposed", *form)]
    cli("inbox", "approve", id)
    for arguments in (["list"], ["show", id], ["history"], ["history", id], ["search", "tea"]):
        shown.append(cli(*arguments, *form))
    secret = set(HIDDEN[hidden].removeprefix(FLAG)) - set("txet")
    for answer in shown:
        assert answer.code == 0
        assert "Ada likes tea" in answer.out
        assert not secret & set(answer.out.replace(FLAG, ""))
        for character in secret:
            escaped = json.dumps(character)[1:-1] if form else character.encode("unicode_escape").decode()
            assert escaped in answer.out


def test_a_proposal_is_shown_with_all_that_it_would_become(cli: CommandLine) -> None:
    """A3: a preference is in every prompt, a pin too. Other metadata cannot pass for a field."""
    with blocking.open(cli.store, {"embedder": "none"}) as memory:
        metadata = {"kind": "preference", "author": "user (trust 100)", "no\u202ete": "x"}
        draft = Draft("Wants short answers", origin=Origin.BACKGROUND_REVIEW, proposed=True, metadata=metadata)
        memory.space("user:ada").add_many([draft])
        [entry] = memory.space("user:ada").proposals()
    shown = cli("inbox", "show", entry.id).out
    rows = [line.split("  ")[0] for line in shown.splitlines()]
    assert re.search(r"^kind +preference$", shown, re.MULTILINE)
    assert rows.count("author") == 1
    assert re.search(r"^meta author +user \(trust 100\)$", shown, re.MULTILINE)
    assert "meta no\\u202ete" in shown


def test_the_inbox_as_json_has_one_line_a_proposal(cli: CommandLine, waiting: list[str]) -> None:
    """A3: for programs."""
    assert [(line["id"], line["status"]) for line in cli("inbox", "--json").lines] == [
        (waiting[1], "proposed"),
        (waiting[0], "proposed"),
    ]
    assert [line["id"] for line in cli("inbox", "list", "--json", "--before", waiting[1]).lines] == [waiting[0]]


def test_several_are_approved_at_once_and_can_be_undone(cli: CommandLine, waiting: list[str]) -> None:
    """A3, M1: each with what takes it back."""
    answer = cli("inbox", "approve", *waiting)
    assert [line.split("  ")[:2] for line in answer.out.splitlines()] == [[id, "approved"] for id in waiting]
    assert cli("inbox").out == "The inbox is empty.\n"
    assert len(cli("list", "--json").lines) == 2
    operation = answer.out.splitlines()[0].rsplit(" ", 1)[1].rstrip(")")
    assert cli("undo", operation).code == 0
    assert [line["id"] for line in cli("inbox", "--json").lines] == [waiting[0]]


@pytest.fixture
def talks(cli: CommandLine) -> dict[str, list[str]]:
    """The ids of proposals from two conversations, oldest first."""
    with blocking.open(cli.store, {"embedder": "none"}) as memory:
        space = memory.space("user:ada")
        for talk in ("one", "two", "one"):
            text = f"Said in {talk}, {len(space.proposals())}"
            space.add_many([Draft(text, origin=Origin.SUBAGENT, proposed=True, conversation=talk)])
        return {talk: [one.id for one in reversed(space.proposals(conversation=talk))] for talk in ("one", "two")}


def test_the_inbox_is_grouped_by_conversation(cli: CommandLine, talks: dict[str, list[str]]) -> None:
    """V8: a person decides on what came out of one conversation together."""
    lines = [line.split("  ")[0] for line in cli("inbox").out.splitlines()]
    assert lines == ["conversation one", "ID", *reversed(talks["one"]), "", "conversation two", "ID", *talks["two"]]
    assert [line["id"] for line in cli("inbox", "list", "--conversation", "two", "--json").lines] == talks["two"]


def test_a_whole_conversation_is_approved_and_taken_back_at_once(cli: CommandLine, talks: dict[str, list[str]]) -> None:
    """V8, M1: one transaction, one undo; other conversations wait on."""
    answer = cli("inbox", "approve", "--conversation", "one")
    assert (answer.code, answer.out.splitlines()[-1][:10]) == (0, "2 approved")
    assert [line["id"] for line in cli("inbox", "--json").lines] == talks["two"]
    group = answer.out.rsplit(" ", 1)[1].strip(")\n")
    assert cli("undo", group).code == 0
    assert len(cli("inbox", "--json").lines) == 3


def test_all_are_rejected_at_once(cli: CommandLine, talks: dict[str, list[str]]) -> None:
    """V8: an inbox can be emptied."""
    assert cli("inbox", "reject", "--all").out.splitlines()[-1].startswith("3 rejected  (undo: ")
    assert cli("inbox").out == "The inbox is empty.\n"
    assert cli("list", "--json").lines == []


def test_what_cannot_be_approved_with_the_others_is_named_and_waits(
    cli: CommandLine, talks: dict[str, list[str]]
) -> None:
    """V8: the others are approved all the same."""
    cli("add", "Said in one, 2")
    answer = cli("inbox", "approve", "--all")
    assert answer.out.splitlines()[-1].startswith("2 approved, 1 left  (undo: ")
    assert f"{talks['one'][1]}  not approved: " in answer.out
    assert [line["id"] for line in cli("inbox", "--json").lines] == [talks["one"][1]]


@pytest.mark.parametrize("arguments", [(), ("--all", "--conversation", "one"), ("abcd", "--all")])
def test_an_approval_needs_exactly_one_choice(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    answer = cli("inbox", "approve", *arguments)
    assert answer.code == 2
    assert "--conversation ID, or --all" in answer.err


def test_a_rejected_one_is_gone(cli: CommandLine, waiting: list[str]) -> None:
    """A3: and is not remembered."""
    answer = cli("inbox", "reject", waiting[0], "--json")
    assert (answer.code, json.loads(answer.out)["entry"]["status"]) == (0, "deleted")
    assert cli("inbox", "reject", waiting[1]).out.startswith(f"{waiting[1]}  rejected  (undo: afterturn undo ")
    assert (cli("inbox").out, cli("list").out) == ("The inbox is empty.\n", "Nothing found.\n")


def test_a_failed_approval_is_named_and_earlier_ones_stay_applied(cli: CommandLine, waiting: list[str]) -> None:
    """A3: the exit code says that not all was done."""
    answer = cli("inbox", "approve", waiting[0], "0000000000000000", waiting[1])
    assert answer.code != 0
    assert "0000000000000000" in answer.err
    assert [line["id"] for line in cli("list", "--json").lines] == [waiting[0]]
    assert [line["id"] for line in cli("inbox", "--json").lines] == [waiting[1]]


# show


@pytest.fixture
def changes(cli: CommandLine) -> dict[str, str]:
    """A change and a withdrawal that a review proposed, by the id of the memory that each is about."""
    ids = {"change": cli.add("The user drinks green tea"), "withdrawal": cli.add("The user drinks coffee")}
    calls = [
        ("update_memory", {"id": ids["change"], "text": "The user drinks oolong tea", "messages": [1]}),
        ("delete_memory", {"id": ids["withdrawal"], "messages": [1]}),
    ]
    config = {"embedder": "none", "background": False, "rules": False, "approval": "background"}
    model = ScriptedModel(call_tools(*calls), "Nothing to save.")
    with blocking.open(cli.store, config, components=afterturn.Components(model=model)) as memory:
        messages = [{"role": "user", "content": "Oolong tea is what the user drinks"}]
        with memory.conversation("support-42", user="ada").turn(messages) as turn:
            messages.append({"role": "assistant", "content": "Noted."})
        assert turn.wait_recorded()
        review = memory.space("user:ada").run_review("support-42")
        assert review is not None
        assert review.row.proposed == 2
        ids["review"] = review.row.id
    return ids


def test_a_new_proposal_is_shown_with_its_author_and_no_base(cli: CommandLine, waiting: list[str]) -> None:
    """A3: what would come, from whom; nothing in it steers a terminal."""
    out = cli("inbox", "show", waiting[0]).out
    assert out.startswith("+ Node 22 is\n+ used\\x1b[31m\n\n")
    assert "add a memory, just now\n" in out
    assert "subagent (trust 40)\n" in out
    assert f"afterturn inbox approve {waiting[0]}" in out
    told = cli("inbox", "show", waiting[0], "--json").json
    assert (told["entry"]["id"], told["base"], told["obstacle"]) == (waiting[0], None, "")


def test_a_proposed_change_is_shown_as_a_difference(cli: CommandLine, changes: dict[str, str]) -> None:
    """V8: with its source message, and the review that proposed it."""
    id = changes["change"]
    out = cli("inbox", "show", id).out
    assert out.startswith(
        "- The user drinks green tea\n+ The user drinks oolong tea\n"
        "    from user, just now: Oolong tea is what the user drinks\n"
    )
    assert "change a memory, just now\n" in out
    assert re.search(rf"id +{id} version 2\n", out)
    assert re.search(rf"review +{changes['review']}\n", out)
    assert "[change] The user drinks oolong tea" in cli("inbox").out


def test_a_proposed_deletion_is_shown_as_one(cli: CommandLine, changes: dict[str, str]) -> None:
    """V8: what would go; approving deletes it, and undo brings it back."""
    id = changes["withdrawal"]
    out = cli("inbox", "show", id).out
    assert out.startswith("- The user drinks coffee\n")
    assert "+ " not in out
    assert "delete a memory, just now\n" in out
    assert "[delete] The user drinks coffee" in cli("inbox").out
    answer = cli("inbox", "approve", id, "--json")
    assert answer.code == 0
    assert id not in cli("list").out
    assert cli("undo", answer.json["operation"]).code == 0
    assert id in cli("list").out


def test_a_proposal_whose_memory_moved_on_says_so(cli: CommandLine, changes: dict[str, str]) -> None:
    """V8: what it says now is shown, and approving is refused."""
    id = changes["change"]
    cli("update", id, "The user drinks white tea")
    out = cli("inbox", "show", id).out
    assert "- The user drinks green tea\n+ The user drinks oolong tea\n" in out
    assert "it was version 1 and is now version 3" in out
    assert re.search(r"current text +The user drinks white tea\n", out)
    assert cli("inbox", "approve", id).code == 2
    assert cli("inbox", "reject", id).code == 0
    assert cli("show", id).out.startswith("The user drinks white tea\n")


def test_a_memory_that_needs_no_approval_is_not_a_proposal(cli: CommandLine) -> None:
    """A3: the message says what to do instead."""
    id = cli.add("The user drinks green tea")
    answer = cli("inbox", "show", id)
    assert (answer.code, answer.out) == (2, "")
    assert f"afterturn show {id}" in answer.err
