"""A tool loop in which the model searches memory and proposes something to remember.

    python examples/tools.py

`conversation.tools()` adds two tools to your own: `search_memory` and `remember_this`. A proposal is not used until a
person approves it; this program approves it at the end. No key and no server are needed: the model's replies are
scripted.
"""

import argparse
import asyncio
import json
from typing import Any

import afterturn
from afterturn.testing import ScriptedModel, call_tools

CLOCK = {
    "type": "function",
    "function": {"name": "current_time", "description": "The time now.", "parameters": {"type": "object"}},
}


def scripted_model() -> ScriptedModel:
    """Put your provider's client here. This one asks for two tools, then for one, then answers."""
    return ScriptedModel(
        call_tools(("search_memory", {"query": "staging port"}), ("current_time", {})),
        call_tools(("remember_this", {"text": "Staging is updated at noon", "target": "environment"})),
        "Staging listens on port 5433.",
    )


async def run(store: str) -> None:
    model = scripted_model()
    async with afterturn.open(store) as memory:
        ada = memory.space("user:ada")
        await ada.add("The staging database listens on port 5433", target="environment")
        conversation = memory.conversation("ticket-7", user="ada")
        memory_tools = conversation.tools(remember=True)

        async def run_tool(name: str, arguments: str) -> str:
            if name == "current_time":
                return "12:00"
            return await memory_tools.dispatch(name, arguments)

        messages: list[dict[str, Any]] = [{"role": "user", "content": "Which port does staging use?"}]
        async with conversation.turn(messages) as turn:
            while True:
                await turn.inject(messages)
                reply = await model.complete(messages, [CLOCK, *memory_tools.definitions("openai_chat")])
                messages.append(reply)
                if not reply.get("tool_calls"):
                    break
                for call in reply["tool_calls"]:
                    function = call["function"]
                    result = await run_tool(function["name"], function["arguments"])
                    print(f"{function['name']}({json.loads(function['arguments'])})\n  {result}")
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        print(f"assistant: {messages[-1]['content']}")

        for proposal in await ada.proposals():
            await ada.approve(proposal.id)
            print(f"approved: {proposal.text}")


def main() -> None:
    parser = argparse.ArgumentParser(description="A tool loop in which the model searches memory.")
    parser.add_argument("--store", default="tools.db", help="the file of the store (default: %(default)s)")
    asyncio.run(run(parser.parse_args().store))


if __name__ == "__main__":
    main()
