"""Memory for an agent of LangChain: pip install '.[langchain]' langchain-openai. Set OPENAI_API_KEY."""

from langchain.agents import create_agent

from afterturn.frameworks.langchain import AfterturnMiddleware

agent = create_agent("openai:gpt-5", middleware=[AfterturnMiddleware("memory.db", user="ada")])

for text in ("My cat Miso is allergic to chicken.", "What food is my cat Miso allergic to?"):
    answer = agent.invoke({"messages": [{"role": "user", "content": text}]})
    print(answer["messages"][-1].content)
