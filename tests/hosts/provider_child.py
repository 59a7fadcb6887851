"""A host in its own process: it runs turns with a provider's client, records them, learns from them, and ends."""

import asyncio
import json
import sys

from provider_loops import connected, get_loop, run_tool

import afterturn


async def play(name: str, origin: str, store: str, said: list[str]) -> None:
    """Each text is said in a conversation of its own."""
    loop = get_loop(name)
    async with afterturn.open(store, {"embedder": "none"}) as memory, connected(name, origin) as client:
        for number, text in enumerate(said):
            messages = [loop.wire.user(text)]
            await loop.ask(client, memory.conversation(f"said-{number}", user="ada"), messages, loop.tools, run_tool)
        assert await memory.drain(within=60)


if __name__ == "__main__":
    for arguments in json.load(sys.stdin):
        asyncio.run(play(*arguments))
