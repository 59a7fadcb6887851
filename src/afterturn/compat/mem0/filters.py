"""mem0's arguments: which user, agent and run they name, filters, and whether a memory meets their conditions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from afterturn.errors import InvalidInput
from afterturn.log import logger
from afterturn.space.arguments import LIMIT_MAX
from afterturn.types import ANYTHING, Filter

Conditions: TypeAlias = Mapping[str, Any]
Payload: TypeAlias = Mapping[str, Any]

ENTITY_KEYS = ("user_id", "agent_id", "run_id")
ANY_VALUE = "*"
PROCEDURAL = "procedural_memory"
_OLDER_ARGUMENTS = {*ENTITY_KEYS, "limit"}
_LOGICAL = ("AND", "OR", "NOT")
OLDER_NAMES = {"$and": "AND", "$or": "OR", "$not": "NOT"}
_NEEDS_ENTITY = "filters must contain at least one of: user_id, agent_id, run_id. Example: filters={'user_id': 'u1'}"


class ValidationError(InvalidInput):
    """An argument that mem0 refuses too. It has the attributes of mem0's error of this name."""

    def __init__(self, message: str, error_code: str, details: dict[str, Any], suggestion: str) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = error_code
        self.details = details
        self.suggestion = suggestion
        self.debug_info: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Entities:
    """Whose memories are meant. Not all three are None."""

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None

    @property
    def space(self) -> str:
        """Memories of a user's agents and runs belong to the user; a run belongs to its agent if there is no user."""
        if self.user_id is not None:
            return f"user:{self.user_id}"
        return f"agent:{self.agent_id}" if self.agent_id is not None else f"run:{self.run_id}"

    @property
    def filter(self) -> Filter:
        agent = self.agent_id if self.user_id is not None else None
        run = self.run_id if self.user_id is not None or self.agent_id is not None else None
        return ANYTHING if agent is None and run is None else Filter(agent=agent, conversation=run)


def read_entities(given: Mapping[str, Any]) -> Entities:
    """Checks the ids as mem0 does: numbers become text, and ids have no spaces. Raises InvalidInput."""
    return Entities(**{key: _entity_id(given[key], key) for key in ENTITY_KEYS if given.get(key) is not None})


def _entity_id(value: object, key: str) -> str:
    if isinstance(value, Collection) and not isinstance(value, str):
        raise InvalidInput(f"Invalid {key}: {value!r} is not one identifier. Provide one, such as 'alice'.")
    text = str(value).strip()
    if not text:
        raise InvalidInput(f"Invalid {key}: cannot be empty or whitespace-only. Provide a valid identifier.")
    if any(character.isspace() for character in text):
        raise InvalidInput(f"Invalid {key}: cannot contain whitespace. Provide a valid identifier without spaces.")
    if text == ANY_VALUE:
        raise InvalidInput(f"{key} is '*', but a memory belongs to somebody. Ask for each {key} of yours in turn.")
    return text


def read_filters(filters: object, top_level: Mapping[str, Any]) -> tuple[Entities, list[Conditions]]:
    """Splits filters into the ids, which may also be given at the `top_level` or in AND, and all other conditions."""
    if filters is not None and not isinstance(filters, Mapping):
        raise InvalidInput(f"filters must be a dict, not {type(filters).__name__}. Example: {{'user_id': 'u1'}}")
    ids: dict[str, Any] = {key: value for key, value in top_level.items() if value is not None}
    rest: list[Conditions] = []
    try:
        for condition in _conjunction(filters or {}):
            ((key, value),) = condition.items()
            if key not in ENTITY_KEYS:
                is_met({}, condition)  # so that a wrong operator is refused even if there is no memory
                rest.append(condition)
            elif value is not None:
                wanted = value.get("eq") if isinstance(value, Mapping) and set(value) == {"eq"} else value
                if isinstance(wanted, Mapping | list):
                    raise InvalidInput(f"{key} is {wanted!r}, but a search reads the memories of one {key}. Name one.")
                if ids.setdefault(key, wanted) != wanted:
                    raise InvalidInput(f"There are two values for {key}: {ids[key]!r} and {wanted!r}. Name one.")
    except RecursionError as error:
        raise InvalidInput("The filters are nested too deeply. Write them flatter.") from error
    if not ids:
        raise InvalidInput(_NEEDS_ENTITY)
    return read_entities(ids), rest


def _conjunction(filters: Conditions) -> Iterator[Conditions]:
    """The conditions one by one, those inside AND too."""
    for key, value in filters.items():
        if OLDER_NAMES.get(key, key) == "AND":
            for part in _parts("AND", value):
                yield from _conjunction(part)
        else:
            yield {key: value}


def _parts(key: str, value: object) -> Sequence[Conditions]:
    if not isinstance(value, list) or not all(isinstance(part, Mapping) for part in value):
        raise InvalidInput(f"{key} operator requires a list of conditions, such as [{{'category': 'food'}}].")
    if key != "AND" and not value:
        raise InvalidInput(f"{key} operator requires a non-empty list of conditions.")
    return value


def is_met(payload: Payload, conditions: Conditions) -> bool:
    """Whether a memory meets all the conditions. Raises InvalidInput for an operator that mem0 does not have."""
    # All of them are looked at, so that every wrong operator is found.
    met = [_meets(payload, OLDER_NAMES.get(key, key), value) for key, value in conditions.items()]
    return all(met)


def _meets(payload: Payload, key: str, wanted: Any) -> bool:
    if key in _LOGICAL:
        found = [is_met(payload, part) for part in _parts(key, wanted)]
        return all(found) if key == "AND" else any(found) if key == "OR" else not any(found)
    found = [payload[key]] if key in payload else _at_path(payload, key)
    if isinstance(wanted, Mapping):
        tests = [(_operator(name, value), value) for name, value in wanted.items()]
    else:
        tests = [] if wanted == ANY_VALUE else [(_is_in if isinstance(wanted, list) else operator.eq, wanted)]
    return bool(found) and all(_holds(test, found, value) for test, value in tests)


def _at_path(value: object, path: str) -> list[Any]:
    """The values at a path such as "address.city", or "pets[].name" for every element of a list."""
    key, _, rest = path.partition(".")
    name, every, _ = key.partition("[]")
    if not isinstance(value, Mapping) or name not in value:
        return []
    found = value[name] if every and isinstance(value[name], list) else [value[name]]
    return [one for each in found for one in _at_path(each, rest)] if rest else list(found)


Test: TypeAlias = Callable[[Any, Any], bool]


def _holds(test: Test, value: object, wanted: object) -> bool:
    """A list holds what one of its elements holds."""
    if isinstance(value, list):
        return any(_holds(test, each, wanted) for each in value)
    return test(value, wanted)


def _compared(compare: Test) -> Test:
    def test(value: object, bound: object) -> bool:
        left, right = _as_time(value), _as_time(bound)
        if isinstance(left, datetime) and isinstance(right, datetime):
            return compare(left, right)
        return _is_number(value) and _is_number(bound) and compare(value, bound)

    return test


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_time(value: object) -> datetime | None:
    """A date or time in ISO 8601, in UTC if it does not say."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _is_in(value: object, options: Sequence[object]) -> bool:
    return value in options


def _has_text(value: object, text: object) -> bool:
    return isinstance(value, str) and str(text) in value


_OPERATORS: dict[str, Test] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "in": _is_in,
    "nin": lambda value, options: value not in options,
    "gt": _compared(operator.gt),
    "gte": _compared(operator.ge),
    "lt": _compared(operator.lt),
    "lte": _compared(operator.le),
    "contains": _has_text,
    "icontains": lambda value, text: _has_text(str(value).casefold(), str(text).casefold()),
}


def _operator(name: str, wanted: object) -> Test:
    if name not in _OPERATORS:
        raise InvalidInput(f"Unsupported metadata filter operator: {name}. Use one of: {', '.join(_OPERATORS)}.")
    if name in ("in", "nin") and not isinstance(wanted, list | tuple | set | frozenset):
        raise InvalidInput(f"The operator {name} needs a list of values, such as ['food'], not {wanted!r}.")
    return _OPERATORS[name]


def check_scope(given: Mapping[str, str | None], memory_type: str | None) -> Entities:
    entities = read_entities(given)
    if entities == Entities():
        raise ValidationError(
            "At least one of 'user_id', 'agent_id', or 'run_id' must be provided.",
            "VALIDATION_001",
            {"provided_ids": given},
            "Please provide at least one identifier to scope the memory operation.",
        )
    if memory_type not in (None, PROCEDURAL):
        raise ValidationError(
            f"Invalid 'memory_type'. Please pass {PROCEDURAL} to create procedural memories.",
            "VALIDATION_002",
            {"provided_type": memory_type, "valid_type": PROCEDURAL},
            f"Use '{PROCEDURAL}' to create procedural memories.",
        )
    return entities


def check_arguments(kwargs: Mapping[str, Any], verb: str) -> Mapping[str, Any]:
    if unknown := sorted(set(kwargs) - _OLDER_ARGUMENTS):
        logger.warning("%s() ignores %s", verb, ", ".join(unknown))
    return kwargs


def top_level_ids(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: kwargs[key] for key in ENTITY_KEYS if key in kwargs}


def check_limits(top_k: object, threshold: object) -> int:
    if threshold is not None:
        if not isinstance(threshold, int | float):
            raise InvalidInput("threshold must be a valid number")
        if not 0 <= threshold <= 1:
            raise InvalidInput(f"Invalid threshold: {threshold}. Must be between 0 and 1 (inclusive).")
    if not isinstance(top_k, int) or isinstance(top_k, bool):
        raise InvalidInput("top_k must be a valid integer")
    if top_k < 0:
        raise InvalidInput(f"Invalid top_k: {top_k}. Must be a non-negative integer.")
    return min(top_k, LIMIT_MAX)
