"""Messages whose content is a list of parts: what their text is, and a copy with one part more."""

import copy
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from afterturn.dialects.dialect import Said
from afterturn.dialects.fields import field, list_field, text_field

logger = logging.getLogger(__name__)
_PARTS_LOOKED_AT = 64


def parts_of(message: object, name: str) -> Sequence[object]:
    """A string among the parts is a text part, as several client libraries have it."""
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in list_field(message, name)]


def kinds_of(message: object) -> set[str]:
    """The types of the first parts of its `content`; blank for a part that has none, as Amazon Bedrock's."""
    parts = (part for part in parts_of(message, "content")[:_PARTS_LOOKED_AT] if part is not None)
    return {text_field(part, "type") or "" for part in parts}


def is_content(message: object) -> bool:
    """Whether it is of Gemini's kind. Some frameworks keep `parts` of their own beside a chat message's `content`."""
    return field(message, "parts") is not None and field(message, "content") is None


def has_source(message: object) -> bool:
    """Whether it shows an image or a file as Anthropic's messages do."""
    return any(field(part, "source") is not None for part in parts_of(message, "content")[:_PARTS_LOOKED_AT])


def lines(texts: Iterable[str | None]) -> str:
    return "\n".join(text for text in texts if text)


def runs(texts: Iterable[str | None]) -> str:
    """Models write one text in several parts; where None stands for something else between them, a line ends."""
    written = [""]
    for text in texts:
        if text is not None:
            written[-1] += text
        elif written[-1]:
            written.append("")
    return lines(written)


def said_by_user(text: str, name: str = "", *, shows_more: bool) -> tuple[Said, ...]:
    """What a user shows beside the text stays theirs, though our block be all the text there is."""
    said = Said("user", text, name)
    return (Said("user", "", name), said) if text and shows_more else (said,)


def extended(message: object, name: str, text: str, part: Mapping[str, Any]) -> object | None:
    """A copy whose field `name` ends in `text`: after its string, or as one more `part` of its list.

    None when the field holds neither, is blank, or the object can not be copied.
    """
    content = text_field(message, name)
    if content is not None:
        return _with(message, name, f"{content}\n\n{text}") if content.strip() else None
    parts = list_field(message, name)
    return _with(message, name, [*parts, _like(parts[-1], part)]) if parts else None


def made_like(sample: object, mapping: Mapping[str, Any]) -> Iterator[object]:
    """The mapping as an object of the sample's class, and of those that it derives from, where they validate it."""
    for kind in type(sample).__mro__:
        validate = getattr(kind, "model_validate", None)
        if not callable(validate):
            continue
        try:
            made = validate(mapping)
        except (TypeError, ValueError):
            continue  # it wants more than a message has
        except Exception:  # the boundary: a host's class may run any code, and a mapping takes the object's place
            logger.exception("A %s could not be made of a block", kind.__name__)
            continue
        yield made


def _with(message: object, name: str, value: object) -> object | None:
    if isinstance(message, Mapping):
        return {**message, name: value}
    try:
        if callable(model_copy := getattr(message, "model_copy", None)):
            twin: object = model_copy(update={name: value})
        else:
            twin = copy.copy(message)
            setattr(twin, name, value)
    except Exception:  # the boundary: a host's object may refuse to be copied, and then no block goes into it
        logger.exception("A %s could not be copied with %r extended", type(message).__name__, name)
        return None
    return twin


def _like(last: object, part: Mapping[str, Any]) -> object:
    """Of the class of the part before it, if that takes these fields: Gemini's parts are all of one."""
    if not isinstance(last, str | Mapping):
        try:
            made: object = type(last)(**part)
        except (TypeError, ValueError):
            return dict(part)
        return made
    return dict(part)
