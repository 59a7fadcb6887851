"""Memory for agents of CrewAI: pip install '.[crewai]'. Set OPENAI_API_KEY, or OPENAI_BASE_URL too."""

from crewai import Agent

from afterturn.frameworks.crewai import AfterturnCrewHooks

AfterturnCrewHooks("memory.db", user="ada").install()

agent = Agent(role="helper", goal="to help", backstory="You are kind.", llm="openai/gpt-4.1")
print(agent.kickoff("My cat Miso is allergic to chicken.").raw)
print(agent.kickoff("What food is my cat Miso allergic to?").raw)
