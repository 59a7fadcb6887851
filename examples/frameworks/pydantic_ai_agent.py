"""Memory for an agent of Pydantic AI: pip install '.[pydantic-ai]' 'pydantic-ai-slim[openai]'. Set OPENAI_API_KEY."""

from pydantic_ai import Agent

from afterturn.frameworks.pydantic_ai import AfterturnCapability

agent = Agent("openai-chat:gpt-5", capabilities=[AfterturnCapability("memory.db", user="ada")])

print(agent.run_sync("My cat Miso is allergic to chicken.").output)
print(agent.run_sync("What food is my cat Miso allergic to?").output)  # another conversation
