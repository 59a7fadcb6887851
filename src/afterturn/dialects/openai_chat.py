"""OpenAI's chat completions format, which many providers and frameworks share."""

from collections.abc import Mapping, Sequence
from typing import Any

from afterturn.dialects.dialect import (
    Element,
    ToolDefinition,
    Utterance,
    extended_user,
    field,
    has_source,
    is_gemini_content,
    join_lines,
    list_field,
    part_types,
    parts_of,
    plain_fields,
    read_user,
    text_field,
    user_utterances,
)

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_OWN_PARTS = frozenset(["image_url", "input_audio", "file", "video_url", "audio_url"])
# "input_text" is the same in Responses, and some hosts mix the two.
_TYPED = frozenset(["text", "input_text"])
# Fields that providers add to an assistant's message if they searched the web or ran tools themselves.
_FOUND_BY_PROVIDER = ("annotations", "citations", "search_results", "executed_tools")
# Providers add types of their own to chat, so only types of other known formats rule it out.
_FOREIGN_PARTS = frozenset(
    ["", *"tool_use tool_result server_tool_use input_text input_image input_file output_text".split()]
)


class OpenAIChat:
    name = "openai_chat"
    alternates = False

    def recognises(self, message: object) -> bool | None:
        role = _ROLES.get(text_field(message, "role") or "")
        if is_gemini_content(message):
            return False
        if role is None:
            return None if text_field(message, "type") is None else False
        kinds = part_types(message)
        if kinds & _FOREIGN_PARTS or has_source(message):
            return False
        return True if role == "tool" or has_chat_calls(message) or kinds & _OWN_PARTS else None

    def read(self, message: object) -> Element | None:
        # A fifth of the time, for most messages.
        if plain := plain_fields(message):
            return Element((Utterance(*plain),))
        role = _ROLES.get(text_field(message, "role") or "")
        if role is None:
            return None
        text, parts = _text(message), parts_of(message, "content")
        if role == "tool":
            answered = text_field(message, "tool_call_id") or text_field(message, "name") or ""
            return Element((Utterance(role, text),), answers=(answered,))
        if role == "assistant":
            return _assistant(message, text, parts)
        if role == "system":
            return Element((Utterance(role, text),))
        name = text_field(message, "name") or ""
        if text_field(message, "content") is not None:
            return Element(user_utterances(text, name, shows_more=False))
        return read_user(parts, _TYPED, name=name)

    def make_message(self, role: str, text: str) -> Mapping[str, Any]:
        return {"role": role, "content": text}

    def merged(self, message: object, text: str) -> object | None:
        return extended_user(message, text, {"type": "text", "text": text})

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        return {
            "type": "function",
            "function": {
                "name": definition.name,
                "description": definition.description,
                "parameters": dict(definition.parameters),
            },
        }


def has_chat_calls(message: object) -> bool:
    return bool(list_field(message, "tool_calls")) or field(message, "function_call") is not None


def _assistant(message: object, text: str, parts: Sequence[object]) -> Element:
    calls = tuple(text_field(call, "id") or "" for call in list_field(message, "tool_calls"))
    if not calls and (older := field(message, "function_call")) is not None:
        calls = (text_field(older, "name") or "",)
    holds_more = any(not _is_own(part) for part in parts)
    is_silent = not text and (holds_more or bool(calls) or field(message, "audio") is not None)
    outside = holds_more or any(field(message, name) for name in _FOUND_BY_PROVIDER)
    return Element(() if is_silent else (Utterance("assistant", text),), calls=calls, outside=outside)


def _is_own(part: object) -> bool:
    return part is None or text_field(part, "type") in ("text", "refusal", None)


def _text(message: object) -> str:
    """The text parts, one per line. Without any, the refusal or the transcript of the audio.

    In a tool's message, the text of every part is the tool's.
    """
    content = text_field(message, "content")
    if content is not None:
        return content
    is_tool = _ROLES.get(text_field(message, "role") or "") == "tool"
    parts = [part for part in parts_of(message, "content") if is_tool or _is_own(part)]
    written = join_lines(text_field(part, "text") or text_field(part, "refusal") for part in parts)
    spoken = text_field(field(message, "audio"), "transcript")
    return written or text_field(message, "refusal") or spoken or ""
