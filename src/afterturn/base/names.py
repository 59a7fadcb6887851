"""The rules for names: tenants, spaces, conversations, ids. Checked once, where they come in."""

import json
import re
from collections.abc import Mapping

from afterturn.base.errors import InvalidInput, InvalidName, TooLarge
from afterturn.base.types import Metadata

NAME_CHARS_MAX = 200
METADATA_BYTES_MAX = 4096

_SPACE = re.compile(r"[a-z][a-z0-9_-]{0,31}:\S(?:.*\S)?")
_ID = r"[0-9a-z]{4,40}"
# Persian names and composed emoji hold joiners, Japanese names a wide space; Python calls them unprintable.
_JOINERS = re.compile("[\u200c\u200d\u00a0\u3000]")
_UNSTORABLE = "[\x00\ud800-\udfff]"


def check_name(value: object, what: str) -> str:
    """A tenant, conversation, agent, project, speaker or turn id: printable, not blank, at most 200 characters."""
    if not isinstance(value, str):
        raise InvalidName(f"The {what} must be text, not {type(value).__name__}. Pass a string.")
    if not value.strip() or len(value) > NAME_CHARS_MAX or not _JOINERS.sub("", value).isprintable():
        raise InvalidName(
            f"{value[:60]!r} is no valid {what}. Use 1 to {NAME_CHARS_MAX} printable characters that are not all blank."
        )
    return value


def check_space(value: object) -> str:
    name = check_name(value, "space")
    if not _SPACE.fullmatch(name):
        raise InvalidName(f'{name!r} is no valid space. Write a kind, a colon and a name, such as "user:ada".')
    return name


def check_id(value: object, what: str = "memory id") -> str:
    """An id as `add`, `list` and `search` print it."""
    if not isinstance(value, str) or not re.fullmatch(_ID, value):
        raise InvalidName(
            f"{str(value)[:60]!r} is no valid {what}. Copy one from `afterturn list` or `afterturn search`."
        )
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
            f"Metadata can not be written as JSON: {error}. Use finite numbers and plain text."
        ) from error
    if size > METADATA_BYTES_MAX:
        raise TooLarge(
            f"Metadata is {size} bytes; at most {METADATA_BYTES_MAX} fit. Store the long part as a memory of its own.",
            size_bytes=size,
            limit_bytes=METADATA_BYTES_MAX,
        )
    return value


def check_member(key: object, item: object) -> None:
    """One key of metadata with its value, as it is stored or asked for."""
    if not isinstance(key, str) or not is_storable(key) or not key:
        raise InvalidInput(f"The metadata key {repr(key)[:60]} can not be used. Use non-empty, plain text.")
    if not isinstance(item, str | int | float | bool | None):
        raise InvalidInput(
            f"Metadata {key[:60]!r} is a {type(item).__name__}. Use text, a number, true, false or null."
        )
    if isinstance(item, str) and not is_storable(item):
        raise InvalidInput(f"Metadata {key[:60]!r} holds NUL or half of a surrogate pair. Use plain text.")


def is_storable(text: str) -> bool:
    """Whether every store can hold it: no NUL, no lone surrogates."""
    if text.isascii():
        return "\x00" not in text
    return not re.search(_UNSTORABLE, text)


def mend_name(value: str) -> str | None:
    """The nearest name that `check_name` takes, for what a host's messages bring. None when nothing is left of it."""
    if value.isprintable() and len(value) <= NAME_CHARS_MAX:
        return value if value.strip() else None
    shown = (character if character.isprintable() else "\ufffd" for character in value[:NAME_CHARS_MAX])
    return "".join(shown).strip() or None
