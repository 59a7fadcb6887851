"""Memory for Google's Agent Development Kit. Set GOOGLE_API_KEY, or GOOGLE_GEMINI_BASE_URL to a server of your own."""

import asyncio

from google.adk.agents import Agent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner

from afterturn.frameworks.google_adk import AfterturnPlugin

app = App(
    name="cats", root_agent=Agent(name="helper", model="gemini-2.5-flash"), plugins=[AfterturnPlugin("memory.db")]
)


async def main() -> None:
    for day, text in ("monday", "My cat Miso is allergic to chicken."), ("tuesday", "What is my cat Miso allergic to?"):
        async with InMemoryRunner(app=app) as runner:  # closing it waits until everything is recorded
            for event in await runner.run_debug(text, user_id="ada", session_id=day, quiet=True):
                print(event.content.parts[0].text)


asyncio.run(main())
