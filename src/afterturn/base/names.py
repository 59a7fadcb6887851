"""The rules for names: tenants, spaces, conversations, ids. Checked once, where they come in."""

import json
import re

from afterturn.base.errors import InvalidInput, InvalidName, TooLarge
from afterturn.base.types import Metadata

NAME_CHARS_MAX = 200
METADATA_BYTES_MAX = 4096

_SPACE = re.compile(r"[a-z][a-z0-9_-]{0,31}:\S(?:.*\S)?")
_ID = re.compile(r"[0-9a-z]{4,40}")


def check_name(value: object, what: str) -> str:
    """A tenant, conversation, agent, project, speaker or turn id: printable, not blank, at most 200 characters."""
    if not isinstance(value, str):
        raise InvalidName(f"The {what} must be text, not {type(value).__name__}. Pass a string.")
    if not value.strip() or len(value) > NAME_CHARS_MAX or not value.isprintable():
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
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise InvalidName(
            f"{str(value)[:60]!r} is no valid {what}. Copy one from `afterturn list` or `afterturn search`."
        )
    return value


def check_metadata(value: Metadata) -> Metadata:
    """Flat, with scalar values, at most 4 KiB as JSON."""
    if not value:
        return value
    for key, item in value.items():
        if not isinstance(key, str) or not key:
            raise InvalidInput(f"Metadata keys must be non-empty text, not {key!r}.")
        if not isinstance(item, str | int | float | bool | None):
            raise InvalidInput(f"Metadata {key!r} is a {type(item).__name__}. Use text, a number, true, false or null.")
    try:
        size = len(json.dumps(dict(value), allow_nan=False).encode())
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
