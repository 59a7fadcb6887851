"""Checks of what callers pass: names, ids, metadata, limits, times and texts. Each raises InvalidInput."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime

from afterturn.errors import EmptyText, InvalidInput, InvalidName, InvalidText, TooLarge
from afterturn.scanners.detection import UNSPECIFIC, Scanning
from afterturn.scanners.secrets import redact
from afterturn.text import regex
from afterturn.types import Metadata

NAME_CHARS_MAX = 200
METADATA_BYTES_MAX = 4096

_SPACE = regex(r"[a-z][a-z0-9_-]{0,31}:\S(?:.*\S)?")
_ID = r"[0-9a-z]{4,40}"
# Persian names and emoji contain joiners, and Japanese names a wide space; Python calls them unprintable.
_JOINERS = regex("[\u200c\u200d\u00a0\u3000]")
_UNSTORABLE = "[\x00\ud800-\udfff]"


def check_name(value: object, what: str) -> str:
    """Checks a tenant, conversation, agent, project, speaker or turn id: 1 to 200 printable characters, not blank."""
    if not isinstance(value, str):
        raise InvalidName(f"The {what} must be text, not {type(value).__name__}. Pass a string.")
    if not value.strip() or len(value) > NAME_CHARS_MAX or not _JOINERS.sub("", value).isprintable():
        raise InvalidName(
            f"{value[:60]!r} is not a valid {what}. Use 1 to {NAME_CHARS_MAX} printable characters, not all blank."
        )
    return value


def check_no_secret(name: str, what: str, *, scanning: Scanning) -> str:
    """Refuses a name with a secret in it: names are stored, logged and shown as they are."""
    kinds = [kind for kind in redact(name).kinds if kind != UNSPECIFIC] if scanning else ()
    if kinds:
        raise InvalidName(f"The {what} contains a secret ({kinds[0]}), and names are stored as they are. Use another.")
    return name


def check_space(value: object) -> str:
    name = check_name(value, "space")
    if not _SPACE.fullmatch(name):
        raise InvalidName(f"{name!r} is not a valid space name. Use kind:name, for example user:ada.")
    return name


def check_id(value: object, what: str = "memory id") -> str:
    """An id as `add`, `list` and `search` print it."""
    if not isinstance(value, str) or not re.fullmatch(_ID, value):
        source = "`afterturn review log`" if what == "review id" else "`afterturn list` or `afterturn search`"
        raise InvalidName(f"{str(value)[:60]!r} is not a valid {what}. Copy one from {source}.")
    return value


def check_metadata(value: object) -> Metadata:
    """Flat, with scalar values, at most 4 KiB as JSON."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f'Metadata must be a mapping such as {{"team": "a"}}, not {type(value).__name__}.')
    if not value:
        return value
    for key, item in value.items():
        check_member(key, item)
    try:
        size = len(json.dumps(dict(value), ensure_ascii=False, allow_nan=False).encode())
    except ValueError as error:
        raise InvalidInput(
            f"Metadata cannot be written as JSON: {error}. Use finite numbers and plain text."
        ) from error
    if size > METADATA_BYTES_MAX:
        raise TooLarge(
            f"Metadata is {size} bytes; at most {METADATA_BYTES_MAX} fit. Store the long part as a separate memory.",
            size_bytes=size,
            limit_bytes=METADATA_BYTES_MAX,
        )
    return value


def check_member(key: object, item: object) -> None:
    """Checks one key of metadata with its value."""
    if not isinstance(key, str) or not is_storable(key) or not key:
        raise InvalidInput(f"The metadata key {repr(key)[:60]} is not valid. Use non-empty, plain text.")
    if not isinstance(item, str | int | float | bool | None):
        raise InvalidInput(
            f"Metadata {key[:60]!r} is a {type(item).__name__}. Use text, a number, true, false or null."
        )
    if isinstance(item, str) and not is_storable(item):
        raise InvalidInput(f"Metadata {key[:60]!r} holds NUL or half of a surrogate pair. Use plain text.")


def is_storable(text: str) -> bool:
    """Whether every store can hold the text: no NUL, no lone surrogates."""
    if text.isascii():
        return "\x00" not in text
    return not re.search(_UNSTORABLE, text)


def mend_name(value: str) -> str | None:
    """Returns the nearest name that `check_name` accepts, for names in messages. None if nothing is left."""
    if value.isprintable() and len(value) <= NAME_CHARS_MAX:
        return value if value.strip() else None
    shown = (character if character.isprintable() else "\ufffd" for character in value[:NAME_CHARS_MAX])
    return "".join(shown).strip() or None


def is_whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def check_limit(limit: object, most: int) -> int:
    if not is_whole(limit, most):
        raise InvalidInput(f"The limit is {repr(limit)[:60]}. Use a whole number from 1 to {most}.")
    assert isinstance(limit, int)
    return limit


# About three thousand years either way. Later times cannot be shown.
SECONDS_MAX = 1e11
_FORMS = "Pass Unix seconds, a datetime with a time zone, or a text such as 2026-11-15T09:30:00Z."


def moment(value: float | datetime | str | None) -> float | None:
    return None if value is None else seconds(value)


def seconds(value: float | datetime | str) -> float:
    """Returns Unix seconds for a datetime or an ISO-8601 text. Both need a time zone."""
    if isinstance(value, str):
        text = value.strip()
        try:
            value = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidInput(f"{text[:60]!r} is not a time. {_FORMS}") from None
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InvalidInput(f"{value.isoformat()} has no time zone. Add one, for example +00:00 or timezone.utc.")
        try:
            value = value.timestamp()
        except (OverflowError, ValueError, OSError):
            raise InvalidInput(f"{value} is outside the calendar. {_FORMS}") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < SECONDS_MAX:
        raise InvalidInput(f"{value!r} is not a time. {_FORMS}")
    return float(value)


def check_text(text: object, what: str) -> str:
    """Checks that a text can be stored and searched: not blank, no NUL, no lone surrogates."""
    if not isinstance(text, str):
        raise InvalidInput(f"The {what} must be text, not {type(text).__name__}. Pass a string.")
    if not text.strip():
        raise EmptyText(f"The {what} is empty. Pass some text.")
    if "\x00" in text:
        raise InvalidText(f"The {what} contains a NUL character at position {text.index(chr(0))}. Remove it.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidText(
            f"The {what} contains half of a surrogate pair at position {error.start}: it was decoded wrongly. "
            'Decode the bytes as UTF-8, or pass text.encode("utf-8", "replace").decode().'
        ) from error
    return text
