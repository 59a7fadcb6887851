"""The three changes that a review may make, offered to a model as tools or JSON schema, and read from its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from afterturn.errors import InvalidInput
from afterturn.types import Target

# More than the longest statement as JSON.
ARGUMENTS_CHARS_MAX = 65_536
MESSAGES_MAX = 20
_OBJECTS_TRIED_MAX = 64
_THOUGHT_END = "</think>"


class Action(StrEnum):
    ADD = "add_memory"
    UPDATE = "update_memory"
    DELETE = "delete_memory"


# The kinds of a memory. Trusted preferences and conventions are shown in system prompts.
KINDS = ("preference", "convention", "correction", "fact", "procedure")
_TARGETS = {"user": Target.USER, "environment": Target.ENVIRONMENT, "memory": Target.ENVIRONMENT}


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a reviewer asks for. `messages` are indexes into the snapshot, not yet checked.

    `is_quote`: the text is in the user's own words, so "I" is the user.
    """

    action: Action
    text: str = ""
    target: Target | None = None
    kind: str = ""
    entry_id: str = ""
    messages: tuple[int, ...] = ()
    is_quote: bool = False


_TEXT = {"type": "string", "description": "One short, self-contained statement."}
_ID = {"type": "string", "description": "The id of a known memory."}
_TARGET = {"type": "string", "enum": [Target.USER.value, Target.ENVIRONMENT.value]}
_KIND = {"type": "string", "enum": list(KINDS)}
_MESSAGES = {
    "type": "array",
    "items": {"type": "integer"},
    "description": "The numbers of the messages that support it.",
}


def tools() -> list[dict[str, Any]]:
    """The tools in OpenAI's chat format."""
    return [
        _tool(
            Action.ADD,
            "Remember something new.",
            {"text": _TEXT, "target": _TARGET, "kind": _KIND, "messages": _MESSAGES},
            ("text", "target", "messages"),
        ),
        _tool(
            Action.UPDATE,
            "Replace the text of a known memory that is outdated.",
            {"id": _ID, "text": _TEXT, "messages": _MESSAGES},
            ("id", "text", "messages"),
        ),
        _tool(
            Action.DELETE,
            "Delete a known memory that was said to be wrong.",
            {"id": _ID, "messages": _MESSAGES},
            ("id", "messages"),
        ),
    ]


def schema(entries_max: int) -> dict[str, Any]:
    """The schema of one answer with all changes, for models that cannot call tools."""
    operation = {
        "type": "object",
        "properties": {
            "operation": {"type": "string", "enum": [action.value for action in Action]},
            "id": {"type": "string"},
            "text": {"type": "string"},
            "target": _TARGET,
            "messages": {"type": "array", "items": {"type": "integer"}, "maxItems": MESSAGES_MAX},
        },
        "required": ["operation", "messages"],
        "additionalProperties": False,
    }
    operations = {"type": "array", "items": operation, "maxItems": entries_max}
    return {
        "type": "object",
        "properties": {"operations": operations},
        "required": ["operations"],
        "additionalProperties": False,
    }


def read_call(name: object, arguments: object) -> Change:
    """The change that a tool call asks for. Raises InvalidInput with a message for the model."""
    if not isinstance(name, str) or name not in set(Action):
        raise InvalidInput(f"There is no such tool. The tools are {', '.join(Action)}.")
    action = Action(name)
    given = _mapping(arguments)
    return Change(
        action=action,
        text="" if action is Action.DELETE else _text(given, "text"),
        target=_target(given) if action is Action.ADD else None,
        kind=kind if isinstance(kind := given.get("kind"), str) and kind in KINDS else "",
        entry_id="" if action is Action.ADD else _text(given, "id").strip(),
        messages=_numbers(given.get("messages")),
    )


def read_answer(answer: str) -> list[tuple[object, object]]:
    """The (name, arguments) pairs in a JSON answer, ignoring thoughts and code fences. Raises InvalidInput."""
    found = _find_json(answer.rpartition(_THOUGHT_END)[2][-ARGUMENTS_CHARS_MAX:])
    operations = found if isinstance(found, list) else found.get("operations") if isinstance(found, dict) else None
    if operations is None and isinstance(found, dict) and ("operation" in found or "name" in found):
        operations = [found]
    if not isinstance(operations, list):
        raise InvalidInput('Answer with one JSON object that has a list "operations".')
    if not all(isinstance(operation, dict) for operation in operations):
        raise InvalidInput("Each operation must be a JSON object.")
    # Small models write a call in several ways.
    inner = [one.get("arguments", one.get("parameters")) for one in operations]
    return [
        (one.get("operation", one.get("name")), one if arguments is None else arguments)
        for one, arguments in zip(operations, inner, strict=True)
    ]


def _find_json(text: str) -> Any:
    """The text as JSON, or the first JSON object in it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    # A bounded number of positions, so that an answer full of braces costs little.
    decoder, start = json.JSONDecoder(), -1
    for _ in range(_OBJECTS_TRIED_MAX):
        start = text.find("{", start + 1)
        if start < 0:
            break
        try:
            return decoder.raw_decode(text, start)[0]
        except (ValueError, RecursionError):
            continue
    raise InvalidInput("The answer contains no JSON.")


def _mapping(arguments: object) -> Mapping[str, object]:
    if isinstance(arguments, str):
        if len(arguments) > ARGUMENTS_CHARS_MAX:
            raise InvalidInput(f"The arguments are longer than {ARGUMENTS_CHARS_MAX} characters. Be brief.")
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise InvalidInput("The arguments are not valid JSON. Pass one JSON object.") from None
    if not isinstance(arguments, Mapping):
        raise InvalidInput("The arguments must be one JSON object.")
    return arguments


def _text(given: Mapping[str, object], key: str) -> str:
    value = given.get(key)
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"`{key}` is missing or empty. Pass some text as `{key}`.")
    return value


def _target(given: Mapping[str, object]) -> Target:
    value = given.get("target")
    if not isinstance(value, str) or value not in _TARGETS:
        raise InvalidInput("`target` must be user or environment.")
    return _TARGETS[value]


def _numbers(value: object) -> tuple[int, ...]:
    """Indexes from 0; the model counts from 1."""
    found = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    numbers = [_number(item) for item in found[:MESSAGES_MAX] if item is not None]
    return tuple(dict.fromkeys(number - 1 for number in numbers))


def _number(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 7:
        return int(value)
    raise InvalidInput("`messages` must be a list of message numbers.")


def _tool(action: Action, description: str, properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    form = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {"type": "function", "function": {"name": action.value, "description": description, "parameters": form}}
