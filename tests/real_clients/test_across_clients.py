"""One memory for every agent: told to one client, known by another."""

import pytest

from lab.clients.machine import Machine, blocks_in

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

RING = ["claude-code", "codex", "gemini-cli", "qwen-code", "opencode"]
FACTS = {
    "claude-code": ("My rabbit is called Wanda.", "What is the name of my rabbit?", "Wanda"),
    "codex": ("Our database backups are kept in Lisbon.", "Where are our database backups kept?", "Lisbon"),
    "gemini-cli": ("My dentist is Doctor Okafor.", "Who is my dentist?", "Okafor"),
    "qwen-code": ("The invoices are written in Swedish.", "In which language are the invoices written?", "Swedish"),
    "opencode": ("My favourite cheese is Comté.", "Which cheese is my favourite?", "Comté"),
}


@pytest.fixture(scope="module")
def machine():
    with Machine() as opened:
        for name in RING:
            opened.client(name)
            opened.command("install", name)
        for name in RING:
            opened.tell(opened.client(name), FACTS[name][0])
        yield opened


@pytest.mark.parametrize("client_name", RING)
@pytest.mark.shows("knows what another client was told")
def test_what_was_told_to_one_client_is_known_by_the_next(machine, client_name):
    """The client before it in the ring was told."""
    _, question, fact = FACTS[RING[RING.index(client_name) - 1]]
    asked = machine.ask(machine.client(client_name), question)
    assert fact in "".join(blocks_in(asked.requests[0]))
