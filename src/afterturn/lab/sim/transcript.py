"""What a simulated host keeps of a conversation, and what must be true of its list after each call of memory's."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from afterturn.context.block import find_blocks

Message: TypeAlias = dict[str, Any]

_REFERENCE = re.compile(r"^- \[([^\]]+)\]", re.MULTILINE)


class Broken(AssertionError):
    """A promise was not kept."""


@dataclass(slots=True)
class Told:
    """One turn as its host knows it. `said` are the texts that a record of it must hold, in order.

    `promised`: the host left it complete while its memory was open. `acknowledged`: memory said that it is stored.
    `refused`: the host gave it up, so that nothing of it may be stored. `messages` had the list when it was over.
    """

    id: str
    process: str
    messages: int = 0
    said: list[str] = field(default_factory=list)
    promised: bool = False
    acknowledged: bool = False
    refused: bool = False


@dataclass(slots=True)
class Transcript:
    """One conversation: its list of messages, and its turns. The host keeps both whatever becomes of its process."""

    id: str
    owner: str
    messages: list[Message] = field(default_factory=list)
    turns: list[Told] = field(default_factory=list)

    def recover(self, process: str) -> None:
        """After the death of a process: of its turns only those count of which memory said that they are stored."""
        kept = 0
        for told in self.turns:
            if told.process == process:
                told.promised = told.promised and told.acknowledged
            kept = told.messages if told.acknowledged else kept
        del self.messages[kept:]


class Watch:
    """Looks at a list before a call of memory's and after it (H1, H3): `check` raises Broken."""

    def __init__(self, messages: list[Message]) -> None:
        self._before = [json.dumps(message) for message in messages]
        self._messages = messages

    def check(self, added: Message | None) -> None:
        after = [json.dumps(message) for message in self._messages]
        if after[: len(self._before)] != self._before:
            raise Broken("H3: earlier messages were changed")
        more = self._messages[len(self._before) :]
        if (added is None and more) or (added is not None and (len(more) != 1 or more[0] is not added)):
            raise Broken(f"H3: {len(more)} messages were added, and {added!r} was returned")
        check_pairs(self._messages)
        check_references(self._messages)


def check_pairs(messages: list[Message]) -> None:
    """H1: between a call and its responses stands nothing."""
    waiting: set[str] = set()
    for message in messages:
        if waiting and (message["role"] != "tool" or message["tool_call_id"] not in waiting):
            raise Broken(f"H1: {message!r} stands between calls and their responses")
        if message["role"] == "tool":
            waiting.discard(message["tool_call_id"])
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}


def check_references(messages: list[Message]) -> None:
    """H5: what the model can see already is not shown again."""
    shown = Counter(reference for text in _blocks(messages) for reference in _REFERENCE.findall(text))
    twice = [reference for reference, count in shown.items() if count > 1]
    if twice:
        raise Broken(f"H5: {', '.join(twice)} can be seen twice")


def is_block(message: Message) -> bool:
    text = message.get("content") or ""
    return message["role"] == "user" and any(found.start == 0 for found in find_blocks(text))


def _blocks(messages: list[Message]) -> Iterator[str]:
    for message in messages:
        text = message.get("content") or ""
        if message["role"] == "user":
            yield from (text[found.start : found.end] for found in find_blocks(text))
