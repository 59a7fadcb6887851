"""LangGraph's long-term memory in a file: pip install '.[langgraph]'. No key is needed."""

from langgraph.func import entrypoint
from langgraph.store.base import BaseStore

from afterturn.frameworks.langgraph_store import AfterturnStore


@entrypoint(store=AfterturnStore("memory.db"))
def remember(text: str, *, store: BaseStore) -> list[str]:
    known = store.search(("memories", "ada"), query=text, limit=3)
    store.put(("memories", "ada"), text, {"text": text})
    return [item.value["text"] for item in known]


for said in ("My cat Miso is allergic to chicken.", "What food is my cat allergic to?"):
    print(remember.invoke(said))
