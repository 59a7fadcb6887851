"""Anthropic's messages format: calls are blocks of the assistant's message, their results blocks of the user's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from afterturn.dialects.dialect import (
    WHOLLY,
    Element,
    ToolDefinition,
    Utterance,
    extended_user,
    field,
    has_source,
    is_gemini_content,
    join_lines,
    join_parts,
    list_field,
    part_types,
    parts_of,
    read_user,
    text_field,
)
from afterturn.dialects.openai_chat import has_chat_calls

_ROLES = frozenset(["system", "user", "assistant"])
_OWN_BLOCKS = frozenset(
    "tool_use tool_result thinking redacted_thinking server_tool_use search_result container_upload "
    "mcp_tool_use mcp_tool_result compaction".split()
)
_ASSISTANTS_BLOCKS = frozenset(["text", "thinking", "redacted_thinking", "tool_use", "fallback"])
_FOREIGN_PARTS = frozenset(
    [
        "",
        *"image_url input_audio file video_url audio_url input_text input_image input_file output_text refusal".split(),
    ]
)


class Anthropic:
    name = "anthropic"
    alternates = False

    def recognises(self, message: object) -> bool | None:
        role, kind = text_field(message, "role"), text_field(message, "type")
        if role not in _ROLES:
            return False if role or kind or is_gemini_content(message) else None
        kinds = part_types(message)
        if kinds & _FOREIGN_PARTS or has_chat_calls(message) or is_gemini_content(message):
            return False
        # The client's own objects have the type "message", like items of Responses, but contain text blocks.
        is_own = kinds & _OWN_BLOCKS or (kind == "message" and "text" in kinds)
        return True if is_own or has_source(message) else None

    def read(self, message: object) -> Element | None:
        role = text_field(message, "role")
        if role not in _ROLES:
            return None
        blocks = parts_of(message, "content")
        text = text_field(message, "content")
        if text is not None or role == "system":
            return Element((Utterance(role or "", text if text is not None else join_lines(map(_text, blocks))),))
        return _user(blocks) if role == "user" else replace(_assistant(blocks), compacted=_compacted(message, blocks))

    def make_message(self, role: str, text: str) -> Mapping[str, Any]:
        return {"role": role, "content": [{"type": "text", "text": text}]}

    def merged(self, message: object, text: str) -> object | None:
        """The text is added after tool results, as the format requires."""
        return extended_user(message, text, {"type": "text", "text": text})

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        return {
            "name": definition.name,
            "description": definition.description,
            "input_schema": dict(definition.parameters),
        }


def _user(blocks: Sequence[object]) -> Element:
    results = [block for block in blocks if text_field(block, "type") == "tool_result"]
    responses = Element(
        tuple(Utterance("tool", _result(block)) for block in results),
        answers=tuple(text_field(block, "tool_use_id") or "" for block in results),
    )
    return read_user(
        (block for block in blocks if text_field(block, "type") != "tool_result"), ("text",), before=responses
    )


def _assistant(blocks: Sequence[object]) -> Element:
    """Calls that the provider makes and answers itself are in the same message, and are not the host's calls."""
    calls = tuple(text_field(block, "id") or "" for block in blocks if text_field(block, "type") == "tool_use")
    text = join_parts(_text(block) for block in blocks)
    kinds = {text_field(block, "type") or "" for block in blocks}
    # Thinking alone is an answer that was cut off, and the API refuses it in a request.
    holds_more = kinds - {"text", "thinking", "redacted_thinking", ""}
    # An assistant's own blocks; any other is the provider's, or unknown. Citations quote a document or a page.
    outside = bool(kinds - _ASSISTANTS_BLOCKS) or any(field(block, "citations") for block in blocks)
    return Element(() if not text and holds_more else (Utterance("assistant", text),), calls=calls, outside=outside)


def _compacted(message: object, blocks: Sequence[object]) -> int:
    """A block with the summary of all before it; without one, compaction has failed and changed nothing. A host that
    keeps the API's answer as it is also has the edits that were applied to its request."""
    if any(text_field(block, "type") == "compaction" and text_field(block, "content") for block in blocks):
        return WHOLLY
    edits = list_field(field(message, "context_management"), "applied_edits")
    cleared = [field(edit, "cleared_tool_uses") for edit in edits]
    return sum(max(0, number) for number in cleared if isinstance(number, int) and not isinstance(number, bool))


def _text(block: object) -> str | None:
    return text_field(block, "text") if text_field(block, "type") == "text" else None


def _result(block: object) -> str:
    content = text_field(block, "content")
    return content if content is not None else join_lines(map(_text, parts_of(block, "content")))
