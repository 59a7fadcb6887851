"""How a memory of mem0 is written as an entry and read back: ids, metadata, messages, dates."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

from afterturn.compat.mem0.filters import ENTITY_KEYS, ValidationError
from afterturn.errors import InvalidInput
from afterturn.log import logger
from afterturn.types import PASTED, QUOTES, Entry, Kind, Origin, Scalar
from afterturn.validation import is_storable

Item: TypeAlias = dict[str, Any]

# The conversation of messages that were added without a run. Ids of runs have no spaces.
NO_RUN = "without run"
KINDS = {"user": "user_id", "agent": "agent_id", "run": "run_id"}
# Keys of metadata that are ours. A caller's value under one of them is in the JSON text.
NESTED = "mem0"
REPLACES = "mem0_replaces"
OWN_KEYS = frozenset([NESTED, REPLACES, "role", "kind", "review", QUOTES, PASTED])
_IDENTITY_KEYS = {*ENTITY_KEYS, "actor_id"}
_ROLES = {Origin.USER: "user", Origin.AGENT: "assistant", Origin.TOOL: "tool"}
_ORIGINS = {"user": Origin.USER, "assistant": Origin.AGENT}


def make_id(entry: Entry) -> str:
    """The id that callers get: that of the entry and its space, since `get` and the like take nothing else."""
    space = base64.urlsafe_b64encode(entry.space.encode()).decode().rstrip("=")
    return f"{entry.metadata.get(REPLACES, entry.id)}-{space}"


def read_id(memory_id: object) -> tuple[str, str] | None:
    """The ids of the space and of the entry, or None for what is not an id of ours."""
    entry_id, _, encoded = str(memory_id).partition("-")
    try:
        space = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode()
    except ValueError:
        return None
    return (space, entry_id) if space.partition(":")[0] in KINDS else None


@dataclass(frozen=True, slots=True)
class SaidMessage:
    """One message of a caller's list."""

    role: str
    text: str
    name: str | None

    @property
    def origin(self) -> Origin:
        return _ORIGINS.get(self.role, Origin.TOOL)


def read_messages(messages: object) -> list[SaidMessage]:
    """Takes a text, a message or a list of messages. Those of the system, and those without text, are left out."""
    text = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    listed = [text] if isinstance(text, dict) else text
    if not isinstance(listed, list):
        raise ValidationError(
            "messages must be str, dict, or list[dict]",
            "VALIDATION_003",
            {"provided_type": type(messages).__name__, "valid_types": ["str", "dict", "list[dict]"]},
            "Convert your input to a string, dictionary, or list of dictionaries.",
        )
    return [said for message in listed if (said := _read_message(message)) is not None]


def _read_message(message: object) -> SaidMessage | None:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(role, str):
        logger.warning("a message of type %s is left out: it has no role", type(message).__name__)
        return None
    content = message.get("content")
    if isinstance(content, dict):
        content = [content]
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "\n".join(part for part in parts if isinstance(part, str))
    if role in ("system", "developer") or not isinstance(content, str) or not content.strip():
        return None
    name = message.get("name")
    return SaidMessage(role, content, name if isinstance(name, str) and name.strip() else None)


def flatten(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as entries have it: texts, numbers and truth values as they are, everything else in one JSON text."""
    flat = {
        key: value
        for key, value in metadata.items()
        if isinstance(key, str) and key and key not in OWN_KEYS and is_storable(key)
        if isinstance(value, str | int | float | bool | None)
    }
    nested = {key: value for key, value in metadata.items() if key not in flat}
    if nested:
        try:
            flat[NESTED] = json.dumps(nested, ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"metadata cannot be written as JSON: {error}. Pass a flatter dict of texts.") from error
    return flat


def unflatten(metadata: Mapping[str, Scalar]) -> dict[str, Any]:
    found: dict[str, Any] = {key: value for key, value in metadata.items() if key not in OWN_KEYS}
    text = metadata.get(NESTED)
    if isinstance(text, str):
        try:
            found.update(json.loads(text))
        except (ValueError, TypeError):  # a secret was taken out of it, or another interface has written it
            found[NESTED] = text
    return found


def check_metadata(metadata: object, held: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without the keys that say whose memory it is. Warns of one that differs from what is `held`."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f'metadata is a {type(metadata).__name__}. Pass a dict such as {{"category": "food"}}.')
    for key in _IDENTITY_KEYS & set(metadata):
        if metadata[key] != held.get(key):
            logger.warning("metadata[%r] is ignored: whose memory it is cannot be set through metadata", key)
    return {key: value for key, value in metadata.items() if key not in _IDENTITY_KEYS}


def make_item(entry: Entry, first: Entry, source: Entry | None) -> Item:
    """A memory as mem0 returns it. `first` is its first version, `source` the message that it was learned from."""
    found = {**(unflatten(source.metadata) if source is not None else {}), **unflatten(entry.metadata)}
    expiration = found.pop("expiration_date", None)
    item: Item = {
        "id": make_id(entry),
        "memory": entry.text,
        "hash": entry.content_hash,
        "metadata": found or None,
        "created_at": iso(first.occurred_at),
        "updated_at": iso(entry.occurred_at if entry.ref == first.ref else entry.recorded_at),
    }
    kind, _, name = entry.space.partition(":")
    run = None if entry.conversation == NO_RUN else entry.conversation
    ids = {"agent_id": entry.agent, "run_id": run, KINDS[kind]: name}
    role = _ROLES.get(entry.origin) if entry.kind is Kind.RECORD else entry.metadata.get("role")
    actor = entry.speaker if entry.speaker != role else None
    named = {**ids, "actor_id": actor, "role": role, "expiration_date": expiration}
    item.update({key: named[key] for key in _PROMOTED if named.get(key) is not None})
    return item


_PROMOTED = ("user_id", "agent_id", "run_id", "actor_id", "role", "expiration_date")


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def read_expiration(value: object) -> str | None:
    """A day as YYYY-MM-DD. A memory expires when the day is over, in UTC."""
    if value is None:
        return None
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()[:10]
    try:
        return date.fromisoformat(value if isinstance(value, str) else "").isoformat()
    except ValueError as error:
        raise InvalidInput("expiration_date must be a valid date in YYYY-MM-DD format.") from error


def end_of_day(day: object) -> float | None:
    """None for the last day of the calendar, and for what is not a day: a caller's metadata may have anything here."""
    try:
        midnight = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC) if isinstance(day, str) else None
        return None if midnight is None else (midnight + timedelta(days=1)).timestamp()
    except (ValueError, OverflowError):
        return None
