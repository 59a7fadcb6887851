"""Amazon Bedrock's Converse format: content blocks are dictionaries whose single key says what they are."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from afterturn.dialects.dialect import (
    Element,
    ToolDefinition,
    Utterance,
    extended_user,
    field,
    join_lines,
    join_parts,
    json_field,
    list_field,
    text_field,
    user_utterances,
)

_ROLES = frozenset(["user", "assistant", "system"])
_BLOCKS = frozenset(
    "text toolUse toolResult image document video audio guardContent cachePoint reasoningContent citationsContent "
    # boto3 gives the last one for a block that it does not know.
    "searchResult toolAddition toolRemoval SDK_UNKNOWN_MEMBER".split()
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
        if not isinstance(field(message, "content"), list | tuple) or field(message, "tool_calls"):
            return False
        blocks = list_field(message, "content")[:_BLOCKS_READ_MAX]
        if not all(_BLOCKS & _keys(block) for block in blocks):
            return False
        if any(text_field(block, "type") is not None for block in blocks):
            return False
        return True if blocks else None

    def read(self, message: object) -> Element | None:
        role = text_field(message, "role")
        if role not in _ROLES or not isinstance(field(message, "content"), list | tuple):
            return None
        blocks = list_field(message, "content")
        if role == "system":
            return Element((Utterance("system", join_lines(text_field(block, "text") for block in blocks)),))
        return _user(blocks) if role == "user" else _assistant(blocks)

    def make_message(self, role: str, text: str) -> Mapping[str, Any]:
        return {"role": role, "content": [{"text": text}]}

    def merged(self, message: object, text: str) -> object | None:
        return extended_user(message, text, {"text": text})

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
    typed = join_lines(_typed(block) for block in blocks)
    attached = join_lines(_attached(block) for block in blocks)
    shows_more = any(_typed(block) is None and not _keys(block) <= {"toolResult", "cachePoint"} for block in blocks)
    spoken = user_utterances(typed, shows_more=shows_more) if typed or shows_more or not results else ()
    return Element(
        (*answered, *([Utterance("tool", attached)] if attached else []), *spoken),
        answers=tuple(text_field(result, "toolUseId") or "" for result in results),
        outside=shows_more,
    )


def _typed(block: object) -> str | None:
    """The text of a block that has nothing else, or that the host has marked as the user's question."""
    if _keys(block) == {"text"}:
        return text_field(block, "text")
    guarded = field(field(block, "guardContent"), "text")
    is_question = list(list_field(guarded, "qualifiers")) == ["query"]
    return text_field(guarded, "text") if is_question else None


def _attached(block: object) -> str | None:
    """Text of which nothing says that the user typed it. Hosts guard retrieved documents as they guard questions."""
    if _typed(block) is not None:
        return None
    return text_field(block, "text") or text_field(field(field(block, "guardContent"), "text"), "text")


def _assistant(blocks: Sequence[object]) -> Element:
    """Calls that the provider makes and answers itself are in the same message, and are not the host's calls."""
    used = [call for block in blocks if (call := field(block, "toolUse")) is not None]
    calls = [call for call in used if text_field(call, "type") is None]
    text = join_parts(said for block in blocks for said in _said(block))
    kinds = frozenset[str]().union(*map(_keys, blocks))
    return Element(
        () if not text and kinds - {"text", "reasoningContent", "cachePoint"} else (Utterance("assistant", text),),
        calls=tuple(text_field(call, "toolUseId") or "" for call in calls),
        outside=bool(kinds - _ASSISTANTS_BLOCKS) or len(calls) < len(used),
    )


def _said(block: object) -> Iterator[str | None]:
    """The assistant's words, with citations or without."""
    cited = field(block, "citationsContent")
    if cited is None:
        yield text_field(block, "text")
    for part in list_field(cited, "content"):
        yield text_field(part, "text")


def _result(result: object) -> str:
    parts = list_field(result, "content")
    return join_lines(text_field(part, "text") or json_field(part, "json") for part in parts)


def _keys(block: object) -> frozenset[str]:
    """Asks the dictionary itself, because a subclass could run its own code."""
    if not isinstance(block, dict):
        return frozenset(["unknown"])
    return frozenset(str.__str__(key) if isinstance(key, str) else "unknown" for key in dict.keys(block))
