"""Anthropic's memory tool, with its files in a store of afterturn: pip install 'afterturn[anthropic]'."""

from anthropic import Anthropic

from afterturn.frameworks.anthropic_tool import AfterturnMemoryTool

answer = Anthropic().beta.messages.tool_runner(
    model="claude-sonnet-5",
    max_tokens=1000,
    messages=[{"role": "user", "content": "My cat Miso is allergic to chicken. Remember it."}],
    tools=[AfterturnMemoryTool("memory.db", user="ada")],
)
print(answer.until_done().content[0].text)
