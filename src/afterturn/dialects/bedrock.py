"""Amazon Bedrock's Converse format: content blocks are dictionaries whose single key says what they are."""

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
    json_field,
    list_field,
    text_field,
    user_utterances,
)

_ROLES = frozenset(["user", "assistant"])
_BLOCKS = frozenset(
    "text toolUse toolResult image document video audio guardContent cachePoint reasoningContent citationsContent "
    "searchResult".split()
)
_ASSISTANTS_BLOCKS = frozenset(["text", "toolUse", "reasoningContent", "cachePoint"])
_BLOCKS_READ_MAX = 64


class Bedrock:
    name = "bedrock"
    # The API refuses two messages of the same role in a row, so a block becomes part of the last one.
    alternates = True

    def recognises(self, message: object) -> bool | None:
        if text_field(message, "role") not in _ROLES:
            return False if field(message, "role") or text_field(message, "type") else None
        blocks = list_field(message, "content")[:_BLOCKS_READ_MAX]
        if not blocks or any(text_field(block, "type") is not None for block in blocks):
            return False
        return all(isinstance(block, Mapping) and bool(_BLOCKS & block.keys()) for block in blocks)

    def read(self, message: object) -> Element | None:
        role = text_field(message, "role")
        if role not in _ROLES or not isinstance(field(message, "content"), list | tuple):
            return None
        blocks = list_field(message, "content")
        return _user(blocks) if role == "user" else _assistant(blocks)

    def make_message(self, role: str, text: str) -> object:
        return {"role": role, "content": [{"text": text}]}

    def merged(self, message: object, text: str) -> object | None:
        if text_field(message, "role") != "user":
            return None
        return extended(message, "content", text, {"text": text})

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        return {
            "toolSpec": {
                "name": definition.name,
                "description": definition.description,
                "inputSchema": {"json": dict(definition.parameters)},
            }
        }


def _user(blocks: Sequence[object]) -> Element:
    results = [result for block in blocks if (result := field(block, "toolResult")) is not None]
    answered = tuple(Utterance("tool", _result(result)) for result in results)
    typed = join_lines(text_field(block, "text") for block in blocks)
    shows_more = any(_keys(block) - {"text", "toolResult", "cachePoint"} for block in blocks)
    spoken = user_utterances(typed, shows_more=shows_more) if typed or shows_more or not results else ()
    return Element(
        (*answered, *spoken),
        answers=tuple(text_field(result, "toolUseId") or "" for result in results),
        outside=shows_more,
    )


def _assistant(blocks: Sequence[object]) -> Element:
    calls = [call for block in blocks if (call := field(block, "toolUse")) is not None]
    text = join_parts(text_field(block, "text") for block in blocks)
    kinds = frozenset[str]().union(*map(_keys, blocks))
    outside = bool(kinds - _ASSISTANTS_BLOCKS)
    is_silent = not text and bool(kinds - {"text", "reasoningContent", "cachePoint"})
    return Element(
        () if is_silent else (Utterance("assistant", text),),
        calls=tuple(text_field(call, "toolUseId") or "" for call in calls),
        outside=outside,
    )


def _result(result: object) -> str:
    parts = list_field(result, "content")
    return join_lines(text_field(part, "text") or json_field(part, "json") for part in parts)


def _keys(block: object) -> frozenset[str]:
    return frozenset(str(key) for key in block) if isinstance(block, Mapping) else frozenset(["unknown"])
