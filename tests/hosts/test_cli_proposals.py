"""The inbox by hand: `inbox`, `approve`, `reject`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from afterturn import blocking
from afterturn.base.types import Draft, Origin

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
    header, first, second = answer.out.splitlines()
    assert (answer.code, header.split()) == (0, ["ID", "AGE", "ABOUT", "FROM", "TEXT"])
    assert first.startswith(waiting[1])
    assert second.startswith(waiting[0])
    assert second.endswith("subagent  Node 22 is used\\x1b[31m")


def test_the_inbox_as_json_has_one_line_a_proposal(cli: CommandLine, waiting: list[str]) -> None:
    """A3: for programs."""
    assert [(line["id"], line["status"]) for line in cli("inbox", "--json").lines] == [
        (waiting[1], "proposed"),
        (waiting[0], "proposed"),
    ]
    assert [line["id"] for line in cli("inbox", "--json", "--before", waiting[1]).lines] == [waiting[0]]


def test_several_are_approved_at_once_and_can_be_undone(cli: CommandLine, waiting: list[str]) -> None:
    """A3, M1: each with what takes it back."""
    answer = cli("approve", *waiting)
    assert [line.split("  ")[:2] for line in answer.out.splitlines()] == [[id, "approved"] for id in waiting]
    assert cli("inbox").out == "Nothing waits.\n"
    assert len(cli("list", "--json").lines) == 2
    operation = answer.out.splitlines()[0].rsplit(" ", 1)[1].rstrip(")")
    assert cli("undo", operation).code == 0
    assert [line["id"] for line in cli("inbox", "--json").lines] == [waiting[0]]


def test_a_rejected_one_is_gone(cli: CommandLine, waiting: list[str]) -> None:
    """A3: and is not remembered."""
    answer = cli("reject", waiting[0], "--json")
    assert (answer.code, json.loads(answer.out)["entry"]["status"]) == (0, "deleted")
    assert cli("reject", waiting[1]).out.startswith(f"{waiting[1]}  rejected  (back: afterturn undo ")
    assert (cli("inbox").out, cli("list").out) == ("Nothing waits.\n", "Nothing here.\n")


def test_one_that_can_not_be_approved_is_named_and_those_before_it_stand(cli: CommandLine, waiting: list[str]) -> None:
    """A3: the exit code says that not all was done."""
    answer = cli("approve", waiting[0], "0000000000000000", waiting[1])
    assert answer.code != 0
    assert "0000000000000000" in answer.err
    assert [line["id"] for line in cli("list", "--json").lines] == [waiting[0]]
    assert [line["id"] for line in cli("inbox", "--json").lines] == [waiting[1]]
