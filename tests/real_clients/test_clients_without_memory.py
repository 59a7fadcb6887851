"""A client works as without afterturn when afterturn is broken, slow, removed or uninstalled."""

import os
import signal

import pytest

from lab.clients.drivers import CLIENTS
from lab.clients.machine import blocks_in
from lab.clients.model_server import Rule, Say

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

PROMPT = "Please make the file."


@pytest.fixture(params=list(CLIENTS))
def client_name(request):
    return request.param


@pytest.fixture
def client(machine, client_name):
    made = machine.client(client_name)
    machine.rules.append(Rule(PROMPT, (made.shell("echo made > made.txt"), Say("The file is there."))))
    return made


def works(machine, client, *, resume=False) -> bool:
    """Runs a turn with a tool, and checks everything that the user sees of it."""
    target = client.project / "made.txt"
    target.unlink(missing_ok=True)
    done = machine.ask(client, PROMPT, resume=resume)
    assert (done.reply.code, done.reply.text) == (0, "The file is there."), done.reply
    assert len(done.requests) == 2
    assert target.read_text() == "made\n"
    return True


@pytest.mark.shows("works when the store cannot be read")
def test_a_store_that_cannot_be_read_does_not_disturb_the_client(machine, client, client_name):
    machine.command("install", client_name)
    store = machine.home / ".local" / "share" / "afterturn" / "memory.db"
    store.parent.mkdir(parents=True)
    store.write_bytes(b"this is not a database" * 1000)
    assert works(machine, client)
    assert "store" in machine.run("doctor").stdout
    assert store.read_bytes() == b"this is not a database" * 1000


@pytest.mark.shows("works when the helper is killed, and remembers")
def test_a_killed_helper_is_replaced(machine, client, client_name):
    machine.command("install", client_name)
    machine.tell(client, "My bicycle is vermilion.")
    # By words alone, nothing is found in a store of one message.
    for number in range(4):
        machine.command("add", f"The garden has an old tree of kind {number}")
    for helper in machine.helpers():
        os.kill(helper, signal.SIGKILL)
    asked = machine.ask(client, "Which colour has my bicycle?")
    assert asked.reply.code == 0
    assert "vermilion" in "".join(blocks_in(asked.requests[0]))


@pytest.mark.shows("works when the helper does not answer")
def test_a_helper_that_hangs_does_not_hang_the_client(machine, client, client_name):
    machine.command("install", client_name)
    assert works(machine, client)
    (helper,) = machine.helpers()
    os.kill(helper, signal.SIGSTOP)
    try:
        assert works(machine, client, resume=True)
    finally:
        os.kill(helper, signal.SIGCONT)


@pytest.mark.shows("works when the package is removed without `uninstall`")
def test_a_removed_package_does_not_disturb_the_client(machine, client, client_name):
    machine.command("install", client_name)
    for path in [path for path in machine.home.rglob("*") if path.is_file() and not path.name.endswith(".txt")]:
        text = path.read_text(errors="replace")
        if "hosts/hooks/client.py" in text:
            path.write_text(text.replace("hosts/hooks/client.py", "hosts/hooks/removed.py"))
    assert works(machine, client)


@pytest.mark.shows("works when it is uninstalled, and nothing is left behind")
def test_an_uninstalled_client_is_as_before(machine, client, client_name):
    before = {path: path.read_bytes() for path in machine.home.rglob("*") if path.is_file()}
    machine.command("install", client_name)
    assert machine.command("uninstall", client_name)
    assert {path: path.read_bytes() for path in machine.home.rglob("*") if path.is_file()} == before
    machine.command("install", client_name)
    machine.tell(client, "My bicycle is vermilion.")
    machine.command("uninstall", client_name)
    assert machine.helpers() == []
    asked = machine.ask(client, "Which colour has my bicycle?")
    assert asked.reply.code == 0
    assert "vermilion" not in asked.last.text
    assert "afterturn" not in str(asked.last.body)


def test_codex_skips_hooks_that_are_not_trusted(machine):
    codex = machine.client("codex")
    machine.command("install", "codex")
    codex.hooks_trusted = False
    machine.ask(codex, "My bicycle is vermilion.")
    assert machine.records() == []
