"""A host that speaks OpenAI chat, and ears for memory's events."""

import threading
from collections.abc import Callable

import afterturn
from afterturn.base.types import Event

Message = dict[str, object]
OpenMemory = Callable[..., afterturn.Memory]


class Told:
    """Collects events on memory's thread; `wait` blocks a test's thread until one has come."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def named(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    def wait(self, name: str, count: int = 1, within: float = 10.0) -> Event:
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.named(name)) >= count, within)
        assert came, f"no {name} within {within} s; came: {[event.name for event in self.events]}"
        return self.named(name)[count - 1]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def call(*ids: str) -> Message:
    calls = [{"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answer(id: str, text: str = "42") -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}


async def exchange(memory: afterturn.Memory, conversation: str, said: str, answered: str = "Noted.") -> None:
    """One recorded turn of Ada's."""
    messages = [user(said)]
    async with memory.conversation(conversation, user="ada").turn(messages) as turn:
        messages.append(assistant(answered))
    assert await turn.wait_recorded()
