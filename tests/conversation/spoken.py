"""A host that speaks OpenAI chat, and ears for memory's events."""

from collections.abc import Callable

import afterturn
from afterturn.testing import EventLog as Told

Message = dict[str, object]
OpenMemory = Callable[..., afterturn.Memory]
__all__ = ["Message", "OpenMemory", "Told", "answer", "assistant", "call", "exchange", "user"]


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
