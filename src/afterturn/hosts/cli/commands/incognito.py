"""`incognito`: whether the turns of a conversation are kept."""

from __future__ import annotations

import click

from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import one_line

_WORDS = {
    True: "Incognito is on for {name}: nothing of its turns is recorded or learned.",
    False: "Incognito is off for {name}.",
}


@command("incognito")
@click.argument("action", type=click.Choice(["on", "off", "status"]))
@click.argument("name", metavar="CONVERSATION")
def incognito(invocation: Invocation, action: str, name: str) -> None:
    """Switch incognito on or off for a conversation of the space, or show it.

    While it is on, nothing of the conversation's turns is recorded or learned, in any process. What was recorded before
    stays. For one turn, begin your message with "private:" instead.
    """
    with invocation.memory(create=action == "on") as memory:
        conversation = memory.conversation(name, owner=invocation.space_name())
        if action != "status":
            conversation.set_incognito(action == "on")
        is_on = conversation.is_incognito()
    invocation.answer({"conversation": name, "incognito": is_on}, _WORDS[is_on].format(name=one_line(name)))
