"""Memory for Google's Agent Development Kit: pip install '.[google-adk]'. Set GOOGLE_API_KEY."""

import asyncio

from google.adk.agents import Agent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner

from afterturn.frameworks.google_adk import AfterturnPlugin

helper = Agent(name="helper", model="gemini-2.5-flash")
app = App(name="cats", root_agent=helper, plugins=[AfterturnPlugin("memory.db")])


async def main() -> None:
    for day, text in ("monday", "My cat Miso is allergic to chicken."), ("tuesday", "What is my cat Miso allergic to?"):
        async with InMemoryRunner(app=app) as runner:  # closing it waits until everything is recorded
            await runner.run_debug(text, user_id="ada", session_id=day)


asyncio.run(main())
