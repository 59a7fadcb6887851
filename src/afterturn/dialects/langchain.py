"""LangChain's messages: objects of `langchain_core.messages`, or dictionaries with their `type` and `content`."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from afterturn.dialects.dialect import (
    Element,
    ToolDefinition,
    Utterance,
    extended,
    field,
    join_lines,
    join_parts,
    list_field,
    parts_of,
    read_user,
    text_field,
)
from afterturn.dialects.openai_chat import OpenAIChat

_TYPES = {
    "human": "user",
    "HumanMessageChunk": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "SystemMessageChunk": "system",
    "tool": "tool",
    "ToolMessageChunk": "tool",
    "function": "tool",
    "FunctionMessageChunk": "tool",
}
_CLASSES = {"user": "HumanMessage", "assistant": "AIMessage"}
# Blocks of an assistant's message that are its own words, its reasoning or its calls. Any other is a provider's.
_ASSISTANTS_BLOCKS = frozenset(
    "text text-plain reasoning reasoning_content thinking redacted_thinking tool_use tool_call tool_call_chunk "
    "function_call input_json_delta invalid_tool_call non_standard refusal".split()
)
_WORDS = frozenset(["text", "output_text"])
# Middleware that summarizes an agent's history says so in this key, and writes the summary as a human message.
_SOURCE = "lc_source"


class LangChain:
    name = "langchain"
    alternates = False

    def recognises(self, message: object) -> bool | None:
        if _role(message) is not None:
            return True
        return False if field(message, "role") is not None or text_field(message, "type") else None

    def read(self, message: object) -> Element | None:
        role, text = _role(message), text_field(message, "content")
        if role is None:
            return None
        parts = parts_of(message, "content")
        if role == "user":
            return _user(message, text, parts)
        if role == "assistant":
            return _assistant(message, text, parts)
        said = text if text is not None else join_lines(text_field(part, "text") for part in parts)
        if role == "system":
            return Element((Utterance("system", said),))
        answered = text_field(message, "tool_call_id") or text_field(message, "name") or ""
        return Element((Utterance("tool", said),), answers=(answered,))

    def make_message(self, role: str, text: str) -> object:
        """An object where LangChain is loaded, since its tools look at the classes of messages."""
        kind = {"user": "human", "assistant": "ai"}[role]
        made = getattr(sys.modules.get("langchain_core.messages"), _CLASSES[role], None)
        return {"type": kind, "content": text} if made is None else made(content=text)

    def merged(self, message: object, text: str) -> object | None:
        if _role(message) != "user":
            return None
        return extended(message, "content", text, {"type": "text", "text": text})

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        """LangChain's `bind_tools` takes OpenAI's form for every provider."""
        return OpenAIChat().tool(definition)


def _role(message: object) -> str | None:
    """Only messages of LangChain have one of these types without a role."""
    kind = text_field(message, "type")
    if kind is None or field(message, "content") is None or field(message, "role") is not None:
        return None
    return _TYPES.get(kind)


def _user(message: object, text: str | None, parts: Sequence[object]) -> Element:
    if text_field(field(message, "additional_kwargs"), _SOURCE) is not None:
        # Written by a middleware, not by the user: a summary may quote what tools said.
        said = text if text is not None else join_lines(text_field(part, "text") for part in parts)
        return Element((Utterance("system", said),), outside=True)
    name = text_field(message, "name") or ""
    if text is not None:
        return Element((Utterance("user", text, name),))
    return read_user(parts, ("text",), name=name)


def _assistant(message: object, text: str | None, parts: Sequence[object]) -> Element:
    calls = tuple(text_field(call, "id") or "" for call in list_field(message, "tool_calls"))
    kinds = {text_field(part, "type") or "" for part in parts}
    if text is None:
        text = join_parts(text_field(part, "text") if text_field(part, "type") in _WORDS else None for part in parts)
    cites = any(field(part, "annotations") or field(part, "citations") for part in parts)
    outside = bool(kinds - _ASSISTANTS_BLOCKS - _WORDS) or cites
    is_silent = not text and (bool(calls) or bool(kinds - _WORDS))
    return Element(() if is_silent else (Utterance("assistant", text),), calls=calls, outside=outside)
