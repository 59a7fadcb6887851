"""Memory for an agent of LlamaIndex: pip install '.[llama-index]' llama-index-llms-openai. Set OPENAI_API_KEY."""

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI

from afterturn.frameworks.llama_index import AfterturnChatMemory


async def main() -> None:
    agent = FunctionAgent(llm=OpenAI(model="gpt-4.1"), tools=[])
    for text in ("My cat Miso is allergic to chicken.", "What food is my cat Miso allergic to?"):
        print(await agent.run(text, memory=AfterturnChatMemory.open("memory.db", user="ada")))


asyncio.run(main())
