"""Reads a field of a mapping or of a client library's object, whatever that object does when it is touched."""

import logging
from collections.abc import Mapping, Sequence

logger = logging.getLogger(__name__)


def field(source: object, name: str) -> object:
    """None when there is no such field, or when reading it fails (which is logged)."""
    try:
        if isinstance(source, Mapping):
            return source.get(name)
        return getattr(source, name, None)
    except Exception:  # the boundary: a host's object may run any code, and a turn must survive it
        logger.exception("A %s could not be read for %r; it is treated as unknown", type(source).__name__, name)
        return None


def text_field(source: object, name: str) -> str | None:
    value = field(source, name)
    return value if isinstance(value, str) else None


def list_field(source: object, name: str) -> Sequence[object]:
    """Empty when the field is missing or no list."""
    value = field(source, name)
    return value if isinstance(value, list | tuple) else ()
