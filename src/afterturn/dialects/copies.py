"""Extends a user's element by a text, in a copy. The host's own object is never edited."""

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from afterturn.dialects.fields import field, list_field, text_field

logger = logging.getLogger(__name__)


def extended(message: object, name: str, text: str, part: Mapping[str, Any]) -> object | None:
    """A copy whose field `name` ends in `text`: after its string, or as one more `part` of its list.

    None when the field holds neither, is blank, or the object can not be copied.
    """
    content = text_field(message, name)
    if content is not None:
        return _with(message, name, f"{content}\n\n{text}") if content.strip() else None
    parts = list_field(message, name)
    return _with(message, name, [*parts, _like(parts, part)]) if parts else None


def _with(message: object, name: str, value: object) -> object | None:
    if isinstance(message, Mapping):
        return {**message, name: value}
    try:
        if callable(model_copy := getattr(message, "model_copy", None)):
            validated: object = model_copy(update={name: value})
            return validated
        twin = copy.copy(message)
        setattr(twin, name, value)
    except Exception:  # the boundary: a host's object may refuse to be copied, and then no block goes into it
        logger.exception("A %s could not be copied with %r extended", type(message).__name__, name)
        return None
    return twin


def _like(parts: Sequence[object], part: Mapping[str, Any]) -> object:
    """The new part as an object of the class that the list's own text parts have, where they are objects."""
    for known in reversed(parts):
        if not isinstance(known, Mapping) and field(known, "text") is not None:
            try:
                made: object = type(known)(**part)
                return made
            except Exception:  # the boundary: client libraries take plain mappings too
                logger.exception("No %s could be made for a block; a mapping takes its place", type(known).__name__)
    return dict(part)
