"""A program for mem0 with another import. It needs no key: python examples/frameworks/mem0_app.py"""

from afterturn.compat.mem0 import Memory

memory = Memory.from_config({"afterturn": {"store": "memory.db"}})


def chat(text: str) -> str:
    found = memory.search(text, filters={"user_id": "ada"}, top_k=1)["results"]
    answer = f"I remember: {found[0]['memory']}" if found else "Noted."
    memory.add([{"role": "user", "content": text}, {"role": "assistant", "content": answer}], user_id="ada")
    return answer


print(chat("My cat Miso is allergic to chicken."), chat("What food is my cat allergic to?"), sep="\n")
