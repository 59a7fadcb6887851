"""OpenAI's Responses format: messages, calls, their outputs and reasoning are items of their own in one list."""

from collections.abc import Mapping
from typing import Any

from afterturn.dialects.dialect import (
    WHOLLY,
    Element,
    ToolDefinition,
    Utterance,
    extended_user,
    field,
    is_gemini_content,
    join_lines,
    list_field,
    part_types,
    parts_of,
    read_user,
    text_field,
)
from afterturn.dialects.openai_chat import has_chat_calls

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_PARTS = frozenset("input_text input_image input_file input_audio output_text".split())
_TYPED = frozenset(["input_text", "text"])
_FOREIGN_PARTS = frozenset(
    ["", *"text image_url file image document tool_use tool_result thinking redacted_thinking server_tool_use".split()]
)
# By type of item: the field that identifies a call, and the field of an output that refers to it.
_CALLS = {
    "function_call": "call_id",
    "custom_tool_call": "call_id",
    "computer_call": "call_id",
    "shell_call": "call_id",
    "apply_patch_call": "call_id",
    "mcp_approval_request": "id",
    # Its output has one id, and the documentation contradicts itself on which, so these calls are counted.
    "local_shell_call": "",
}
_OUTPUTS = {
    "function_call_output": "call_id",
    "custom_tool_call_output": "call_id",
    "computer_call_output": "call_id",
    "shell_call_output": "call_id",
    "apply_patch_call_output": "call_id",
    "mcp_approval_response": "approval_request_id",
    "local_shell_call_output": "",
}
# The provider answers these in the same response, and what they return is in them or hidden.
_HOSTED = frozenset(
    "web_search_call file_search_call code_interpreter_call image_generation_call mcp_call mcp_list_tools "
    "program program_output compaction".split()
)
_SETTINGS = frozenset(["additional_tools", "configuration_update", "compaction_trigger"])
_TOOL_SEARCH = frozenset(["tool_search_call", "tool_search_output"])
_ITEMS = frozenset([*_CALLS, *_OUTPUTS, *_HOSTED, *_SETTINGS, *_TOOL_SEARCH, "reasoning", "item_reference"])


class OpenAIResponses:
    name = "openai_responses"
    alternates = False

    def recognises(self, message: object) -> bool | None:
        kind, role = text_field(message, "type"), text_field(message, "role")
        if kind in _ITEMS:
            return True
        if role not in _ROLES:
            return False if kind or role or is_gemini_content(message) else None
        kinds = part_types(message)
        if kinds & _FOREIGN_PARTS or has_chat_calls(message) or is_gemini_content(message):
            return False
        is_typed = kind == "message" and text_field(message, "content") is not None
        return True if is_typed or kinds & _PARTS else None

    def read(self, message: object) -> Element | None:
        kind = text_field(message, "type")
        if kind is None or kind == "message":
            return _message(message)
        if kind in _CALLS:
            return Element((), calls=(text_field(message, _CALLS[kind]) or "",))
        if kind in _OUTPUTS:
            return Element((Utterance("tool", _output(message)),), answers=(text_field(message, _OUTPUTS[kind]) or "",))
        if kind in _TOOL_SEARCH:
            return _tool_search(message, kind)
        if kind in _SETTINGS:
            return Element((Utterance("system", ""),))
        if kind == "reasoning":
            return Element((), leads=True)
        compacted = WHOLLY if kind == "compaction" else 0
        return Element((), outside=True, compacted=compacted) if kind in _HOSTED else None

    def make_message(self, role: str, text: str) -> Mapping[str, Any]:
        # The API refuses input parts in an assistant's message, and output parts need an id. A string is accepted.
        content = [{"type": "input_text", "text": text}] if role == "user" else text
        return {"type": "message", "role": role, "content": content}

    def merged(self, message: object, text: str) -> object | None:
        return extended_user(message, text, {"type": "input_text", "text": text})

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        return {
            "type": "function",
            "name": definition.name,
            "description": definition.description,
            "parameters": dict(definition.parameters),
            "strict": False,
        }


def _message(message: object) -> Element | None:
    role = _ROLES.get(text_field(message, "role") or "")
    if role is None:
        return None
    if (text := text_field(message, "content")) is not None:
        return Element((Utterance(role, text),))
    parts = parts_of(message, "content")
    if role == "user":
        return read_user(parts, _TYPED)
    own = [part for part in parts if text_field(part, "type") in (*_TYPED, "output_text", "refusal", None)]
    text = join_lines(text_field(part, "text") or text_field(part, "refusal") for part in own)
    # Annotations cite pages and files that the provider has read.
    outside = len(own) < len(parts) or any(field(part, "annotations") for part in own)
    return Element((Utterance(role, text),), outside=outside and role == "assistant")


def _output(message: object) -> str:
    text = text_field(message, "output")
    if text is not None:
        return text
    parts = list_field(message, "output")
    return join_lines(text_field(part, name) for part in parts for name in ("text", "stdout", "stderr"))


def _tool_search(message: object, kind: str) -> Element:
    """The server runs it unless it is marked for the client."""
    if text_field(message, "execution") != "client":
        return Element((), outside=True)
    named = (text_field(message, "call_id") or "",)
    return Element((), calls=named) if kind == "tool_search_call" else Element((Utterance("tool", ""),), answers=named)
