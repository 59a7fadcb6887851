"""`undo` without an id, and `forget` of what was learned: what can be undone, and which messages still say it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from afterturn import blocking

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine

SAID = "My sister Ruth is coeliac."


def taught(cli: CommandLine) -> tuple[str, str]:
    """The ids of a memory that rules learned, and of the message that says it."""
    messages: list[dict[str, object]] = [{"role": "user", "content": SAID}]
    with blocking.open(cli.store, {"embedder": "none"}) as memory:
        with memory.conversation("support-42", user="ada").turn(messages) as turn:
            messages.append({"role": "assistant", "content": "Noted."})
        assert turn.wait_recorded()
        assert memory.drain()
    (learned,) = cli("list", "--kind", "statement", "--json").lines
    return learned["id"], learned["sources"][0]


def test_forget_shows_the_message_that_still_says_it(cli: CommandLine) -> None:
    """M2: with the line that erases the message."""
    learned, message = taught(cli)
    answer = cli("forget", learned, "--yes")
    assert "It was learned from 1 message, which still says it:" in answer.out
    assert re.search(rf"{message}  {SAID}", answer.out)
    *_, last = answer.out.splitlines()
    assert last == f"Erase a message: afterturn forget --space user:ada {message}"
    assert cli(*last.partition("afterturn ")[2].split(), "--yes", space=None).code == 0
    assert SAID not in cli("export").out


def test_forget_with_sources_erases_the_message_too(cli: CommandLine) -> None:
    """M2: and the answer lists it."""
    learned, message = taught(cli)
    asked = cli("forget", learned, "--dry-run", "--with-sources", "--json").json
    assert asked == {"matching": 2, "sources": [message]}
    answer = cli("forget", learned, "--with-sources", "--yes", "--json").json
    assert (answer["erased"], answer["sources"]) == (2, [message])
    assert SAID not in cli("export").out


@pytest.mark.parametrize("keys, erased, is_left", [(b"y\ny\n", "2 entries", False), (b"n\ny\n", "1 entry", True)])
def test_on_a_terminal_forget_offers_to_erase_the_message_too(
    cli: CommandLine, keys: bytes, erased: str, is_left: bool
) -> None:
    learned, _ = taught(cli)
    code, shown = cli.on_a_terminal("forget", learned, keys=keys)
    assert (code, "Erase this message, too?" in shown) == (0, True)
    assert f"This will erase {erased} of user:ada permanently." in shown
    assert (SAID in cli("export").out) is is_left


def test_sources_need_the_id_of_a_memory(cli: CommandLine) -> None:
    answer = cli("forget", "--everything", "--with-sources", "--yes")
    assert (answer.code, "--with-sources is for one memory" in answer.err) == (2, True)


def test_undo_without_an_id_lists_what_can_be_undone(cli: CommandLine) -> None:
    """M1: newest first; an import is one line, and what was changed since is not listed."""
    changed = cli.add("coffee")
    cli.add("tea")
    cli("update", changed, "cocoa")
    cli("import", "-", stdin=b'{"text": "one"}\n{"text": "two"}\n')
    answer = cli("undo")
    assert answer.code == 0
    assert [line.split()[3] for line in answer.out.splitlines()[1:]] == ["import", "update", "add"]
    assert "(and 1 more) " in answer.out
    assert re.search(r"\w{16}  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  update  user    cocoa", answer.out)
    listed = [line.split()[0] for line in answer.out.splitlines()[1:]]
    assert [cli("undo", id).code for id in listed] == [0, 0, 0]
    assert {entry["text"] for entry in cli("list", "--json").lines} == {"coffee"}


def test_undo_lists_rows_as_json(cli: CommandLine) -> None:
    cli.add("tea")
    (row,) = cli("undo", "--json").lines
    assert (row["verb"], row["actor"], row["changed"]) == ("add", "user", "tea")
    assert cli("undo", row["undo"]).code == 0


def test_an_undone_operation_is_not_listed(cli: CommandLine) -> None:
    cli.add("tea")
    cli("undo", cli("undo", "--json").lines[0]["undo"])
    assert [row["verb"] for row in cli("undo", "--json").lines] == ["undo"]


def test_an_empty_space_has_nothing_to_undo(cli: CommandLine) -> None:
    cli("add", "tea", space="user:bob")
    assert cli("undo").out == "There is nothing to undo.\n"


def test_an_operation_of_another_space_says_how_to_name_that(cli: CommandLine) -> None:
    cli("add", "tea", space="user:bob")
    (row,) = cli("undo", "--json", space="user:bob").lines
    refused = cli("undo", row["undo"])
    assert refused.err.endswith("Is it of another space? `afterturn history` lists the ids of a space.\n")
    assert refused.code != 0
    assert cli("undo", row["undo"], space="user:bob").code == 0


def test_what_rules_learned_is_listed_as_learned_from_you(cli: CommandLine) -> None:
    """V11: also what is not in the user's own words."""
    messages: list[dict[str, object]] = [{"role": "user", "content": "Call me Max."}]
    taught(cli)
    with blocking.open(cli.store, {"embedder": "none"}) as memory:
        with memory.conversation("support-43", user="ada").turn(messages) as turn:
            messages.append({"role": "assistant", "content": "Noted."})
        assert turn.wait_recorded()
        assert memory.drain()
    rows = cli("list", "--kind", "statement").out
    assert re.search(r"  learned from you  Call the user Max\n", rows)
    assert re.search(rf"  learned from you  {SAID}\n", rows)


def test_an_empty_space_names_the_spaces_that_have_something(cli: CommandLine) -> None:
    cli.add("tea")
    cli("add", "coffee", space="user:bob")
    expected = (
        "There is nothing in user:eve. Spaces that have something: user:ada, user:bob. Choose one with --space.\n"
    )
    assert cli("list", space="user:eve").out == expected
    assert cli("list", "--json", space="user:eve").out == ""
    assert cli("list", "--pinned", space="user:bob").out == "Nothing found.\n"
