"""Hosts' lists in the formats: what a raw loop appends, and what must be true of a list at any time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from controlled_store import references

from afterturn.dialects.dialect import Element
from afterturn.dialects.history import get_dialect
from afterturn.recall.block import find_blocks

Listed = list[dict[str, Any]]


@dataclass(frozen=True)
class Format:
    """How a host writes one format. `calls` and `answers` give all elements of one step."""

    name: str
    user: Callable[[str], dict[str, Any]]
    assistant: Callable[[str], dict[str, Any]]
    calls: Callable[[Sequence[str]], Listed]
    answers: Callable[[Sequence[str]], Listed]

    def read(self, message: object) -> Element:
        element = get_dialect(self.name).read(message)
        assert element is not None
        return element


def _function(id: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}}


CHAT = Format(
    "openai_chat",
    lambda text: {"role": "user", "content": text},
    lambda text: {"role": "assistant", "content": text},
    lambda ids: [{"role": "assistant", "content": None, "tool_calls": [_function(id) for id in ids]}],
    lambda ids: [{"role": "tool", "tool_call_id": id, "content": f"result of {id}"} for id in ids],
)
RESPONSES = Format(
    "openai_responses",
    lambda text: {"role": "user", "content": text},
    lambda text: {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]},
    lambda ids: [{"type": "function_call", "call_id": id, "name": "look", "arguments": "{}"} for id in ids],
    lambda ids: [{"type": "function_call_output", "call_id": id, "output": f"result of {id}"} for id in ids],
)
ANTHROPIC = Format(
    "anthropic",
    lambda text: {"role": "user", "content": [{"type": "text", "text": text}]},
    lambda text: {"role": "assistant", "content": [{"type": "text", "text": text}]},
    lambda ids: [
        {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "look", "input": {}} for id in ids]}
    ],
    lambda ids: [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": id, "content": f"result of {id}"} for id in ids],
        }
    ],
)
GEMINI = Format(
    "gemini",
    lambda text: {"role": "user", "parts": [{"text": text}]},
    lambda text: {"role": "model", "parts": [{"text": text}]},
    lambda ids: [{"role": "model", "parts": [{"function_call": {"id": id, "name": id, "args": {}}} for id in ids]}],
    lambda ids: [
        {
            "role": "user",
            "parts": [{"function_response": {"id": id, "name": id, "response": {"result": id}}} for id in ids],
        }
    ],
)
LANGCHAIN = Format(
    "langchain",
    lambda text: {"type": "human", "content": text},
    lambda text: {"type": "ai", "content": text},
    lambda ids: [
        {"type": "ai", "content": "", "tool_calls": [{"id": id, "name": "look", "args": {}} for id in ids]},
    ],
    lambda ids: [{"type": "tool", "tool_call_id": id, "content": f"result of {id}"} for id in ids],
)
# Not Bedrock's: its blocks are parts of other elements, see tests/dialects/test_bedrock.py.
FORMATS = (CHAT, RESPONSES, ANTHROPIC, GEMINI, LANGCHAIN)


def written(messages: Sequence[object]) -> list[str]:
    """Each element's bytes."""
    return [json.dumps(message, sort_keys=True) for message in messages]


def texts_of(messages: Sequence[object], form: Format) -> list[str]:
    return [one.text for message in messages for one in form.read(message).utterances]


def blocks_in(messages: Sequence[object], form: Format) -> list[str]:
    """The texts of what looks like our blocks; the hosts of these tests forge none."""
    return [text[found.start : found.end] for text in texts_of(messages, form) for found in find_blocks(text)]


def is_block(message: object, form: Format) -> bool:
    """An element that is nothing but a block of ours."""
    said = form.read(message).utterances
    return bool(said) and all(one.role == "user" and one.text.startswith("<afterturn-memory>") for one in said)


def seen_twice(messages: Sequence[object], form: Format) -> list[str]:
    """References that are in sight more than once."""
    shown = Counter(reference for block in blocks_in(messages, form) for reference in references(block))
    return [reference for reference, count in shown.items() if count > 1]


def check_pairs(messages: Sequence[object], form: Format) -> None:
    """Between a step's calls and the last of their responses stands nothing else."""
    waiting: set[str] = set()
    for message in messages:
        element = form.read(message)
        if waiting:
            assert element.answers or element.calls, f"{message} stands between calls and their responses"
        waiting |= set(element.calls)
        waiting -= set(element.answers)
