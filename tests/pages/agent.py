"""An agent in the process of the tests, which is another one than the server's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from afterturn import blocking

WITHIN = 20.0


class Agent:
    """Takes turns. `say` returns the id of the turn and the block that the model got."""

    def __init__(self, memory: blocking.Memory) -> None:
        self.memory = memory
        self.ada = memory.space("user:ada")

    def say(self, text: str, *, answer: str = "I see.", conversation: str = "c1", **where: Any) -> tuple[str, str]:
        talk = self.memory.conversation(conversation, owner="user:ada", standing="off", **where)
        messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
        with talk.turn(messages) as turn:
            block = turn.inject(messages, within=WITHIN)
            messages.append({"role": "assistant", "content": answer})
        turn.wait_recorded(WITHIN)
        return turn.id, "" if block is None else str(block["content"])


@contextmanager
def agent_on(store: Path, **settings: Any) -> Iterator[Agent]:
    with blocking.open(store, {"embedder": "none", **settings}) as memory:
        yield Agent(memory)
