"""Anthropic's memory tool, with its files in a store of afterturn: pip install '.[anthropic]'."""

from anthropic import Anthropic

from afterturn.frameworks.anthropic_tool import AfterturnMemoryTool

runner = Anthropic().beta.messages.tool_runner(
    model="claude-sonnet-5",
    max_tokens=1000,
    messages=[{"role": "user", "content": "My cat Miso is allergic to chicken. Remember it."}],
    tools=[AfterturnMemoryTool("memory.db", user="ada")],
)
print("".join(block.text for block in runner.until_done().content if block.type == "text"))
