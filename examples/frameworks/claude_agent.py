"""Memory for the Claude Agent SDK: pip install '.[claude-agent-sdk]'. The second session knows the first."""

import asyncio

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from afterturn.frameworks.claude_agent import with_memory

options = with_memory(ClaudeAgentOptions(tools=[]), "memory.db", user="ada")


async def main() -> None:
    for prompt in ("My cat Miso is allergic to chicken.", "What food is my cat Miso allergic to?"):
        async for message in query(prompt=prompt, options=options):
            if isinstance(message, ResultMessage):
                print(message.result)


asyncio.run(main())
