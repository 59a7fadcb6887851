"""The three things a review may do (V3), as tools of a model, as one JSON schema, and as what a call of them means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from afterturn.errors import InvalidInput
from afterturn.types import Target

# The longest statement as JSON, and then some.
ARGUMENTS_CHARS_MAX = 65_536
MESSAGES_MAX = 20
_OBJECTS_TRIED_MAX = 64
_THOUGHT_END = "</think>"


class Action(StrEnum):
    ADD = "add_memory"
    UPDATE = "update_memory"
    DELETE = "delete_memory"


# What a memory may be called besides its target; the first two stand in system prompts, if they are trusted (S1).
KINDS = ("preference", "convention", "correction", "fact", "procedure")
_TARGETS = {"user": Target.USER, "environment": Target.ENVIRONMENT, "memory": Target.ENVIRONMENT}


@dataclass(frozen=True, slots=True)
class Change:
    """What was asked for. `messages` are indexes into the snapshot, which nobody has checked yet."""

    action: Action
    text: str = ""
    target: Target | None = None
    kind: str = ""
    entry_id: str = ""
    messages: tuple[int, ...] = ()


_TEXT = {"type": "string", "description": "One short, self-contained statement."}
_ID = {"type": "string", "description": "The id of a known memory."}
_TARGET = {"type": "string", "enum": [Target.USER.value, Target.ENVIRONMENT.value]}
_KIND = {"type": "string", "enum": list(KINDS)}
_RESTS_ON = {
    "type": "array",
    "items": {"type": "integer"},
    "description": "The numbers of the messages that it rests on.",
}


def tools() -> list[dict[str, Any]]:
    """In OpenAI's chat format."""
    return [
        _tool(
            Action.ADD,
            "Remember something new.",
            {"text": _TEXT, "target": _TARGET, "kind": _KIND, "messages": _RESTS_ON},
            ("text", "target", "messages"),
        ),
        _tool(
            Action.UPDATE,
            "Replace the text of a known memory that is outdated.",
            {"id": _ID, "text": _TEXT, "messages": _RESTS_ON},
            ("id", "text", "messages"),
        ),
        _tool(
            Action.DELETE,
            "Delete a known memory that was said to be wrong.",
            {"id": _ID, "messages": _RESTS_ON},
            ("id", "messages"),
        ),
    ]


def schema(entries_max: int) -> dict[str, Any]:
    """One answer with all of them, for models that call no tools."""
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
    """InvalidInput, worded for the model, for what is no call of the three or can not be read."""
    if not isinstance(name, str) or name not in set(Action):
        raise InvalidInput(f"There is no such tool. Only {', '.join(Action)} can be called.")
    action = Action(name)
    given = _mapping(arguments)
    return Change(
        action=action,
        text="" if action is Action.DELETE else _text(given, "text"),
        target=_target(given) if action is Action.ADD else None,
        kind=_kind(given),
        entry_id="" if action is Action.ADD else _text(given, "id").strip(),
        messages=_numbers(given.get("messages")),
    )


def read_answer(answer: str) -> list[tuple[object, object]]:
    """(name, arguments) of the operations in a JSON answer, thoughts and code fences left out. InvalidInput."""
    found = _object(answer.rpartition(_THOUGHT_END)[2][-ARGUMENTS_CHARS_MAX:])
    operations = found if isinstance(found, list) else found.get("operations") if isinstance(found, dict) else None
    if operations is None and isinstance(found, dict) and ("operation" in found or "name" in found):
        operations = [found]
    if not isinstance(operations, list):
        raise InvalidInput('There must be one JSON object with "operations", a list.')
    return [_named(operation) for operation in operations]


def _named(operation: object) -> tuple[object, object]:
    """Small models write a call in more than one way."""
    if not isinstance(operation, dict):
        raise InvalidInput("Each operation must be a JSON object.")
    name = operation.get("operation", operation.get("name"))
    inner = operation.get("arguments", operation.get("parameters"))
    return name, inner if inner is not None else operation


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    for found in _objects(text):
        return found
    raise InvalidInput("There was no JSON in the answer.")


def _objects(text: str) -> Iterator[Any]:
    """Few places are tried, so that an answer full of braces costs little."""
    decoder, start = json.JSONDecoder(), -1
    for _ in range(_OBJECTS_TRIED_MAX):
        start = text.find("{", start + 1)
        if start < 0:
            return
        try:
            yield decoder.raw_decode(text, start)[0]
        except (ValueError, RecursionError):
            continue


def _mapping(arguments: object) -> Mapping[str, object]:
    if isinstance(arguments, str):
        if len(arguments) > ARGUMENTS_CHARS_MAX:
            raise InvalidInput(f"The arguments are longer than {ARGUMENTS_CHARS_MAX} characters. Be brief.")
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise InvalidInput("The arguments are no valid JSON. Pass one JSON object.") from None
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


def _kind(given: Mapping[str, object]) -> str:
    value = given.get("kind")
    return value if isinstance(value, str) and value in KINDS else ""


def _numbers(value: object) -> tuple[int, ...]:
    """Counted from 1 by the model, from 0 here."""
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
