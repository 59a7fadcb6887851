"""What an element of a host's list holds besides its text: calls with their arguments, pictures, files. In any dialect.

It also says what an element costs a model.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from afterturn.base.tokens import estimate_tokens
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.fields import field, json_field, list_field, text_field

_ELEMENT_TOKENS = 4
_CALL_TOKENS = 8
# What providers charge for a picture of ordinary size; a page of a file comes to about as much.
_SHOWN_TOKENS = 1_000
# Reasoning that is kept encrypted, and elements of kinds that nobody has told us of.
_UNREAD_TOKENS = 200
_SAMPLED_CHARS_MIN = 4_096
_SAMPLE_CHARS = 1_024

_LISTS = ("content", "parts", "tool_calls", "output")
_CALLS = ("function", "function_call", "functionCall")
_ARGUMENTS = ("arguments", "input", "args")
_DATA = ("inline_data", "inlineData", "file_data", "fileData")
_TYPES = {
    **dict.fromkeys(("image_url", "input_image", "computer_screenshot"), "image"),
    **dict.fromkeys(("input_audio", "audio_url"), "audio"),
    **dict.fromkeys(("input_file",), "file"),
    **dict.fromkeys(("video_url",), "video"),
}
_SHOWN_TYPES = frozenset([*_TYPES, "image", "audio", "file", "document", "video", "search_result", "container_upload"])
_KIND_CHARS_MAX = 40
_NOT_KIND = re.compile(r"[^\w/.+-]+")
_NODES_MAX = 512


@dataclass(frozen=True, slots=True)
class Call:
    """`arguments` as JSON, or as the only value there is."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Contents:
    """`shown` names what is no text: "image", "application/pdf"."""

    calls: tuple[Call, ...]
    shown: tuple[str, ...]
    reasoning: str


_NOTHING = Contents((), (), "")
_PLAIN_FIELDS = frozenset(["role", "content", "name", "tool_call_id"])


def contents(message: object) -> Contents:
    # Most messages are plain, and a history may have thousands.
    if type(message) is dict and isinstance(message.get("content"), str) and message.keys() <= _PLAIN_FIELDS:
        return _NOTHING
    nodes = [node for node, _ in zip(_nodes(message, depth=2), range(_NODES_MAX), strict=False)]
    return Contents(
        calls=tuple(call for node in nodes if (call := _call(node)) is not None),
        shown=tuple(kind for node in nodes if (kind := _kind(node)) is not None),
        reasoning="\n".join(text for node in nodes if (text := text_field(node, "thinking")) is not None),
    )


def element_tokens(dialect: Dialect, message: object) -> int:
    """Estimated, a little high. Of long texts a sample is read."""
    element = dialect.read(message)
    if element is None:
        return _UNREAD_TOKENS
    held = contents(message)
    texts = [*(one.text for one in element.said), *(call.arguments for call in held.calls), held.reasoning]
    fixed = _ELEMENT_TOKENS + _CALL_TOKENS * len(held.calls) + _SHOWN_TOKENS * len(held.shown)
    return fixed + (_UNREAD_TOKENS if element.leads else 0) + sum(map(text_tokens, texts))


def text_tokens(text: str) -> int:
    """A megabyte would take half a second to read; its beginning, middle and end tell how dense it is."""
    if len(text) <= _SAMPLED_CHARS_MIN:
        return estimate_tokens(text)
    starts = (0, (len(text) - _SAMPLE_CHARS) // 2, len(text) - _SAMPLE_CHARS)
    sampled = sum(estimate_tokens(text[start : start + _SAMPLE_CHARS]) for start in starts)
    return sampled * len(text) // (len(starts) * _SAMPLE_CHARS)


def _nodes(node: object, *, depth: int) -> Iterator[object]:
    """The element, its parts, and the parts of a result among them."""
    yield node
    for name in _CALLS:
        call = field(node, name)
        if call is not None and not isinstance(call, str):
            yield call
    for name in _LISTS if depth else ():
        for part in list_field(node, name):
            if not isinstance(part, str):
                yield from _nodes(part, depth=depth - 1)


def _call(node: object) -> Call | None:
    name = text_field(node, "name")
    if not name:
        return None
    for key in _ARGUMENTS:
        if field(node, key) is not None:
            return Call(name, json_field(node, key))
    return None


def _kind(node: object) -> str | None:
    for name in _DATA:
        data = field(node, name)
        if data is not None and not isinstance(data, str):
            return _plain(text_field(data, "mime_type") or text_field(data, "mimeType") or "file")
    kind = text_field(node, "type")
    return _plain(_TYPES.get(kind, kind)) if kind in _SHOWN_TYPES else None


def _plain(kind: str) -> str:
    return _NOT_KIND.sub("", kind)[:_KIND_CHARS_MAX] or "file"
