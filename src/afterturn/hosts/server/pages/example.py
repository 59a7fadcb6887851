"""An example for a store that is empty: two short conversations of an invented person, played as real turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afterturn.hosts.server.pages.render import turn_link

if TYPE_CHECKING:
    from afterturn.memory import Memory

SPACE = "user:example"
# What the person says and the agent answers, by conversation. The second one needs what the first one taught.
_CONVERSATIONS = {
    "example-planning": (
        ("I'm vegetarian, and my sister Grace is allergic to peanuts.", "Noted, for every restaurant."),
        ("I prefer pnpm over npm for everything.", "Then pnpm it is."),
        ("Our staging database runs on db-2.example.org.", "Good to know."),
    ),
    "example-dinner": (
        ("Where could I go for dinner with Grace on Friday?", "Casa Nova: vegetarian dishes, and no peanuts."),
        ("Which host has the staging database?", "db-2.example.org."),
    ),
}
_WITHIN = 5.0


async def play(memory: Memory) -> str:
    """Returns the address of the last turn."""
    address = "/"
    for id, exchanges in _CONVERSATIONS.items():
        # Its blocks show what was recalled, so the standing block is left out.
        conversation = memory.conversation(id, owner=SPACE, standing="off")
        messages: list[dict[str, Any]] = []
        for said, answer in exchanges:
            messages.append({"role": "user", "content": said})
            async with conversation.turn(messages) as turn:
                await turn.inject(messages, within=_WITHIN)
                messages.append({"role": "assistant", "content": answer})
            await turn.wait_recorded(_WITHIN)
            address = turn_link(SPACE, id, turn.id)
        conversation.reset()
    return address
