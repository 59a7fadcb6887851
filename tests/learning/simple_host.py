"""A host that talks to a memory in the simplest way, for tests of what is learned from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import afterturn
from afterturn.testing import EventLog
from afterturn.testing.clock import ManualClock
from afterturn.testing.model import ScriptedModel
from afterturn.types import Entry, Filter, Kind

STATEMENTS = Filter(kind=Kind.STATEMENT)
CONFIG: dict[str, object] = {"embedder": "none", "rules": False, "grace": 0.0, "synchronous": "normal"}


def open_memory(
    path: Path, model: ScriptedModel | None = None, events_seen: EventLog | None = None, **config: Any
) -> afterturn.Memory:
    parts = afterturn.Components(clock=ManualClock(), model=model)
    return afterturn.open(path / "memory.db", {**CONFIG, **config}, components=parts, on_event=events_seen)


async def say(
    conversation: afterturn.Conversation,
    text: str,
    answer: str = "Noted.",
    *,
    tool: str | None = None,
    speaker: str | None = None,
    id: str | None = None,
) -> None:
    """One turn, recorded when this returns; with `tool`, one in which a tool was called and answered that."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
    async with conversation.turn(messages, speaker=speaker, id=id) as turn:
        await turn.inject(messages)
        if tool is not None:
            call = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": "t1", "content": tool})
        messages.append({"role": "assistant", "content": answer})
    assert await turn.wait_recorded()


async def statements(space: afterturn.Space) -> Sequence[Entry]:
    return await space.list(filter=STATEMENTS, limit=1000)


async def texts(space: afterturn.Space) -> list[str]:
    return sorted(entry.text for entry in await statements(space))
