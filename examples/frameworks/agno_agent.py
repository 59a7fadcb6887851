"""Memory for an agent of Agno: pip install '.[agno]' openai. Set OPENAI_API_KEY, or OPENAI_BASE_URL too."""

from agno.agent import Agent
from agno.models.openai import OpenAIChat

from afterturn.frameworks.agno import AfterturnLearning

agent = AfterturnLearning("memory.db").add_to(Agent(model=OpenAIChat(id="gpt-5")))

print(agent.run("My cat Miso is allergic to chicken.", user_id="ada", session_id="monday").content)
print(agent.run("What food is my cat Miso allergic to?", user_id="ada", session_id="tuesday").content)
