"""`incognito` on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from afterturn import blocking

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine


def test_incognito_is_switched_on_and_off_for_a_conversation(cli: CommandLine) -> None:
    """P2: it is kept in the store, before the conversation has a turn."""
    on = cli("incognito", "on", "talk").out
    status = cli("incognito", "status", "talk", "--json").json
    off = cli("incognito", "off", "talk").out
    assert on == "Incognito is on for talk: nothing of its turns is recorded or learned.\n"
    assert status == {"conversation": "talk", "incognito": True}
    assert off == "Incognito is off for talk.\n"


def test_the_trace_of_an_incognito_turn_has_no_words(cli: CommandLine) -> None:
    """P2: what was recalled is shown, what was asked is not."""
    cli("add", "Ada's sister lives in Bergen")
    with blocking.open(cli.store, {"grace": 5.0}) as memory:
        messages = [{"role": "user", "content": "private: where does my sister live?"}]
        with memory.conversation("talk", user="ada").turn(messages) as turn:
            turn.inject(messages)
            messages.append({"role": "assistant", "content": "In Bergen."})
    shown = cli("trace", "talk").out
    assert "no: it was incognito" in shown
    assert "incognito (" in shown
    assert "lives in Bergen" in shown
    assert "where does" not in shown
