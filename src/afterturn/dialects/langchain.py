"""LangChain's messages: objects of `langchain_core.messages`, dictionaries with their `type` and `content`, and the
dictionaries of OpenAI's chat that LangChain accepts among them."""

from collections.abc import Iterator, Mapping, Sequence
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

_CHAT = OpenAIChat()
_TYPES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    # A command to remove a message, which a model is never sent.
    "remove": "system",
}
_CHUNK = "MessageChunk"
# The roles of a `ChatMessage`. Any other is somebody of whom nothing is known.
_CHAT_ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "system": "system",
    "developer": "system",
}
_TYPED = frozenset(["text", "input_text"])
_WORDS = frozenset(["text", "output_text"])
_REASONING = frozenset(["reasoning", "reasoning_content", "thinking", "redacted_thinking"])
# Blocks of an assistant's message that are its own words, its reasoning or its calls. Any other is a provider's.
_ASSISTANTS_BLOCKS = (
    _WORDS
    | _REASONING
    | frozenset("refusal tool_use tool_call tool_call_chunk function_call input_json_delta invalid_tool_call".split())
)
_CALLS = {"tool_call": "id", "tool_use": "id", "function_call": "call_id"}
# The fields in which LangChain keeps what a provider found or ran itself, apart from the content.
_FOUND_BY_PROVIDER = {
    "additional_kwargs": ("annotations", "citations", "search_results", "executed_tools", "tool_outputs"),
    "response_metadata": ("citations", "search_results", "grounding_metadata"),
}
# A framework that adds a human message of its own, such as a summary, says so in this key.
_SOURCE = "lc_source"


class LangChain:
    name = "langchain"
    alternates = False

    def recognises(self, message: object) -> bool | None:
        if _is_own(message):
            return True
        if not isinstance(message, Mapping):
            return False if field(message, "role") or text_field(message, "type") else None
        return False if _CHAT.recognises(message) is False else None

    def read(self, message: object) -> Element | None:
        if not _is_own(message) and not _is_added(message):
            return _CHAT.read(message) if isinstance(message, Mapping) else None
        role = _role(message)
        if role is None:
            return None
        text, parts = text_field(message, "content"), parts_of(message, "content")
        if role == "user":
            return _user(message, text, parts)
        if role == "assistant":
            return _assistant(message, text, parts)
        said = _all_text(text, parts)
        if role == "system":
            return Element((Utterance("system", said),))
        answered = text_field(message, "tool_call_id") or text_field(message, "name") or ""
        return Element((Utterance("tool", said),), answers=(answered,))

    def make_message(self, role: str, text: str) -> Mapping[str, Any]:
        return {"type": {"user": "human", "assistant": "ai"}[role], "content": text}

    def merged(self, message: object, text: str) -> object | None:
        if _is_added(message):
            return None
        if not _is_own(message):
            return _CHAT.merged(message, text) if isinstance(message, Mapping) else None
        if _role(message) != "user":
            return None
        return extended(message, "content", text, {"type": "text", "text": text})

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        """LangChain's `bind_tools` takes OpenAI's form for every provider."""
        return _CHAT.tool(definition)


def _kind(message: object) -> str:
    """The type of a message, and of one that was put together from the chunks of a stream."""
    kind = text_field(message, "type") or ""
    return kind.removesuffix(_CHUNK).lower() if kind.endswith(_CHUNK) else kind


def _is_own(message: object) -> bool:
    """Only messages of LangChain have one of these types without a role, or as their role, or the type "chat"."""
    # LangChain's own functions refuse an object of the base class.
    if field(message, "content") is None or type(message).__name__ == "BaseMessage":
        return False
    kind, role = _kind(message), field(message, "role")
    return (
        kind in _TYPES
        if role is None
        else kind == "chat" or (not kind and text_field(message, "role") in ("human", "ai"))
    )


def _role(message: object) -> str | None:
    kind = _kind(message)
    return _TYPES[kind] if kind in _TYPES else _CHAT_ROLES.get(text_field(message, "role") or "")


def _all_text(text: str | None, parts: Sequence[object]) -> str:
    return text if text is not None else join_lines(text_field(part, "text") for part in parts)


def _is_added(message: object) -> bool:
    return field(field(message, "additional_kwargs"), _SOURCE) is not None


def _user(message: object, text: str | None, parts: Sequence[object]) -> Element:
    if _is_added(message):
        # A summary, or the report of a task: it may quote what tools said.
        return Element((Utterance("system", _all_text(text, parts)),), outside=True)
    name = text_field(message, "name") or ""
    if text is not None:
        return Element((Utterance("user", text, name),))
    return read_user((part for part in parts if not _is_cache_point(part)), _TYPED, name=name)


def _is_cache_point(part: object) -> bool:
    # Asks the dictionary itself, because a subclass could run its own code.
    return isinstance(part, dict) and dict.keys(part) == {"cachePoint"}


def _assistant(message: object, text: str | None, parts: Sequence[object]) -> Element:
    calls = tuple(_calls(message, parts))
    kinds = {_block_kind(part) for part in parts if not _is_cache_point(part)}
    said = text if text is not None else join_parts(map(_words, parts))
    besides = field(message, "additional_kwargs")
    said = said or text_field(besides, "refusal") or text_field(field(besides, "audio"), "transcript") or ""
    is_silent = not said and (bool(calls) or bool(kinds - _WORDS - _REASONING))
    return Element(
        () if is_silent else (Utterance("assistant", said),),
        calls=calls,
        outside=bool(kinds - _ASSISTANTS_BLOCKS) or _quotes(message, parts),
    )


def _calls(message: object, parts: Sequence[object]) -> Iterator[str]:
    """Calls that LangChain could not parse are sent to the provider too, and so are those that are only blocks."""
    named = [*list_field(message, "tool_calls"), *list_field(message, "invalid_tool_calls")]
    if not named:
        besides = field(message, "additional_kwargs")
        named = [*list_field(besides, "tool_calls")]
        if not named and (older := field(besides, "function_call")) is not None:
            yield text_field(older, "name") or ""
    ids = [text_field(call, "id") or "" for call in named]
    yield from ids
    for part in parts:
        name = _CALLS.get(text_field(part, "type") or "")
        if name is not None and (id := text_field(part, name)) and id not in ids:
            yield id


def _block_kind(part: object) -> str:
    """LangChain wraps blocks that it does not know."""
    kind = text_field(part, "type") or ""
    return text_field(field(part, "value"), "type") or "" if kind == "non_standard" else kind


def _words(part: object) -> str | None:
    kind = text_field(part, "type")
    return text_field(part, "text") if kind in _WORDS else text_field(part, "refusal") if kind == "refusal" else None


def _quotes(message: object, parts: Sequence[object]) -> bool:
    """Whether a document or a page is cited, or a tool of the provider was used."""
    if any(field(part, "annotations") or field(part, "citations") for part in parts):
        return True
    return any(field(field(message, place), name) for place, names in _FOUND_BY_PROVIDER.items() for name in names)
