"""Memory for agents of the OpenAI Agents SDK: pip install '.[openai-agents]'. Set OPENAI_API_KEY."""

from agents import Agent, SQLiteSession

from afterturn.frameworks.openai_agents import AfterturnRunner

runner = AfterturnRunner("memory.db", user="ada")
agent = Agent(name="helper", instructions="Be brief.")

for day, text in (("monday", "My cat Miso is allergic to chicken."), ("tuesday", "What food is Miso allergic to?")):
    print(runner.run_sync(agent, text, session=SQLiteSession(day)).final_output)
