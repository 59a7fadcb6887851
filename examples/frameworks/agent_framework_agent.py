"""Memory for agents of Microsoft Agent Framework: pip install '.[agent-framework]' agent-framework-openai.

Set OPENAI_API_KEY.
"""

import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient

from afterturn.frameworks.agent_framework import AfterturnContextProvider

memory = AfterturnContextProvider("memory.db", user="ada")
agent = Agent(OpenAIChatClient("gpt-5"), "Be brief.", context_providers=[memory])


async def main() -> None:
    for text in ("My cat Miso is allergic to chicken.", "What food is my cat Miso allergic to?"):
        print(await agent.run(text, session=agent.create_session()))


asyncio.run(main())
