"""Gemini's format: contents with parts, and a part is a text, a call, a response or a file."""

from collections.abc import Mapping, Sequence
from typing import Any

from afterturn.dialects.dialect import (
    Element,
    ToolDefinition,
    Utterance,
    extended,
    field,
    is_gemini_content,
    join_lines,
    join_parts,
    json_field,
    parts_of,
    text_field,
    user_utterances,
)

# The roles that older clients give to responses of tools. All text in them is the tools'.
_TOOL_ROLES = frozenset(["function", "tool"])
_ROLES = frozenset(["user", "model", *_TOOL_ROLES])
# The names in the client library, and those in JSON.
_CALL = ("function_call", "functionCall")
_RESPONSE = ("function_response", "functionResponse")
_SHOWN = (
    *("inline_data", "inlineData", "file_data", "fileData", "executable_code", "executableCode"),
    *("code_execution_result", "codeExecutionResult", "tool_call", "toolCall", "tool_response", "toolResponse"),
    *("audio_transcription", "audioTranscription"),
)
# Fields that a part with nothing but a text may have.
_OF_TEXT = frozenset(
    "text thought thought_signature thoughtSignature video_metadata videoMetadata media_resolution mediaResolution "
    "part_metadata partMetadata media_processing mediaProcessing speech_metadata speechMetadata type".split()
)


class Gemini:
    name = "gemini"
    alternates = False

    def recognises(self, message: object) -> bool | None:
        role = text_field(message, "role")
        if role == "model" or (role in (None, *_ROLES) and is_gemini_content(message)):
            return True
        return False if role or text_field(message, "type") or field(message, "content") is not None else None

    def read(self, message: object) -> Element | None:
        role = text_field(message, "role")
        if role == "model":
            return _model(parts_of(message, "parts"))
        if role not in (None, *_ROLES) or field(message, "parts") is None:
            return None
        return _user(parts_of(message, "parts"), is_tool=role in _TOOL_ROLES)

    def make_message(self, role: str, text: str) -> Mapping[str, Any]:
        return {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}

    def merged(self, message: object, text: str) -> object | None:
        if text_field(message, "role") not in (None, *(_ROLES - {"model"})) or text_field(message, "parts") is not None:
            return None
        return extended(message, "parts", text, {"text": text})

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        return {
            "function_declarations": [
                {
                    "name": definition.name,
                    "description": definition.description,
                    "parameters_json_schema": dict(definition.parameters),
                }
            ]
        }


def _user(parts: Sequence[object], *, is_tool: bool) -> Element:
    responses = [response for part in parts if (response := _one_of(part, _RESPONSE)) is not None]
    answered = tuple(Utterance("tool", json_field(response, "response")) for response in responses)
    texts = [(text, is_tool or _has_more(part)) for part in parts if (text := _text(part))]
    attached = join_lines(text for text, is_attached in texts if is_attached)
    typed = join_lines(text for text, is_attached in texts if not is_attached)
    shows_more = any(_has_more(part) and _one_of(part, _RESPONSE) is None for part in parts)
    own: tuple[Utterance, ...] = (Utterance("tool", attached),) if attached or (is_tool and not responses) else ()
    if not is_tool and (typed or shows_more or not responses):
        own += user_utterances(typed, shows_more=shows_more)
    return Element(
        (*answered, *own),
        answers=tuple(text_field(response, "name") or "" for response in responses),
        outside=shows_more,
    )


def _model(parts: Sequence[object]) -> Element:
    """Calls are identified by the name of their tool: ids are optional, and hosts leave them out of responses."""
    calls = [call for part in parts if (call := _one_of(part, _CALL)) is not None]
    text = join_parts(map(_text, parts))
    outside = any(_has_more(part) and _one_of(part, _CALL) is None for part in parts)
    return Element(
        () if not text and (calls or outside) else (Utterance("assistant", text),),
        calls=tuple(text_field(call, "name") or "" for call in calls),
        outside=outside,
    )


def _has_more(part: object) -> bool:
    """Whether it contains anything besides a text: a call, a response, a file, or a field of an unknown kind."""
    if type(part) is dict:
        return any(name not in _OF_TEXT and value is not None for name, value in part.items())
    return _one_of(part, (*_CALL, *_RESPONSE, *_SHOWN)) is not None


def _text(part: object) -> str | None:
    return None if field(part, "thought") is True else text_field(part, "text")


def _one_of(part: object, names: Sequence[str]) -> object | None:
    """The first of these fields that is set. Only mappings have names with capitals."""
    is_written = isinstance(part, Mapping)
    for name in names:
        if (is_written or name.islower()) and (found := field(part, name)) is not None:
            return found
    return None
