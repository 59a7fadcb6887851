"""A host of the labs on a server: it runs turns until its input ends, and prints what happened as JSON lines.

`python -m lab.postgres.host URL NAME FOLDER`; turns that cannot be stored wait in FOLDER.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import afterturn
from afterturn.types import Event
from lab.bench.host import timer

CONVERSATION = "shared"
OWNER = "user:ada"
_SETTINGS: dict[str, Any] = {
    "embedder": "none",
    "grace": 0.2,
    "busy_timeout": 1.0,
    "close_timeout": 60.0,
}
_TOLD = ("recorded", "not_recorded", "recording_waits", "recording_recovered", "recall_ended")
_DRAIN_WITHIN = 120.0
# Between two turns of a user.
_PAUSE = 0.05


def tell(what: str, **about: Any) -> None:
    """Writes a line in one system call, so that it is complete or missing."""
    os.write(1, f"{json.dumps({'what': what, **about})}\n".encode())


def _hear(event: Event) -> None:
    if event.name in _TOLD:
        tell(event.name, turn=event.turn, outcome=event.data.get("outcome"), reason=event.data.get("reason"))


async def main(url: str, name: str, folder: str) -> None:
    asked_to_end = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    async with afterturn.open(url, {**_SETTINGS, "spill_folder": folder}, on_event=_hear) as memory:
        number = 0
        while not asked_to_end.done():
            text = f"I met person{name}{number} today."
            messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
            conversation = memory.conversation(CONVERSATION, user="ada")
            async with conversation.turn(messages, id=f"{name}-{number}") as turn:
                await turn.inject(messages)
                messages.append({"role": "assistant", "content": f"I like person{name}{number}."})
            tell("turn", turn=turn.id)
            number += 1
            await timer(_PAUSE)
        tell("drained", all=await memory.drain(within=_DRAIN_WITHIN))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
