"""Memory for Strands Agents: pip install '.[strands]' 'strands-agents[openai]'."""

from strands import Agent
from strands.models.openai import OpenAIModel

from afterturn.frameworks.strands import AfterturnStrandsPlugin

memory = AfterturnStrandsPlugin("memory.db", user="ada")
for text in ("My cat Miso is allergic to chicken.", "What food is my cat Miso allergic to?"):
    agent = Agent(OpenAIModel(model_id="gpt-5"), plugins=[memory], callback_handler=None)  # a new conversation
    print(agent(text))
