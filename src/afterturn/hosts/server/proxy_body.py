"""The JSON body of a request to a model: new messages are added to its list, and all other bytes stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from afterturn.errors import InvalidInput

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
# Real requests have fewer. The server reads them on its loop, so that others wait meanwhile.
FIELDS_MAX, ELEMENTS_MAX, BRACKETS_MAX = 1000, 20_000, 300_000


@dataclass(frozen=True, slots=True)
class RequestBody:
    """`raw` is what the client sent. `elements` are those of the list of messages in `text`, and `ends` the places
    where each of them ends. A text in place of the list is one message of the user."""

    raw: bytes
    text: str
    fields: dict[str, Any]
    elements: list[Any]
    ends: list[int]

    def with_added(self, elements: Sequence[object]) -> bytes:
        """The body with `elements` as its list: its own, and new ones after the first. Raises InvalidInput for others.

        The same messages with the same additions have the same bytes, so the provider's prompt cache stays valid.
        """
        written, known, done = list[str](), 0, 0
        for element in elements:
            if known < len(self.elements) and element is self.elements[known]:
                known += 1
                continue
            if known == 0:
                break
            written += [self.text[done : self.ends[known - 1]], ",", json.dumps(element, separators=(",", ":"))]
            done = self.ends[known - 1]
        if known < len(self.elements):
            raise InvalidInput("A message of the request was changed, and only new ones may be added.")
        return "".join([*written, self.text[done:]]).encode()


def read_body(raw: bytes, name: str) -> RequestBody:
    """`name` is the field that has the messages. Raises InvalidInput for a body without it."""
    try:
        return _read_object(raw, name)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        what = f"The request is not a JSON object in UTF-8 with a list {name!r} of at most {ELEMENTS_MAX:,}."
        raise InvalidInput(what) from error


def _read_object(raw: bytes, name: str) -> RequestBody:
    """Of two fields with the same name the last one counts, as it does for providers."""
    if raw.count(b"[") + raw.count(b"{") > BRACKETS_MAX:
        raise ValueError("too many lists and objects")
    text, count, found = raw.decode(), 0, (0, 0)
    fields, elements, ends = dict[str, Any](), list[Any](), list[int]()
    at = _skip(text, _expect(text, _skip(text, 0), "{"))
    while text[at] != "}":
        count += 1
        key, end = _DECODER.raw_decode(text, at)
        start = at = _skip(text, _expect(text, _skip(text, end), ":"))
        if key == name and text[at] != '"':
            elements, ends, end = _read_list(text, at)
            fields[key] = elements
        else:
            fields[key], end = _DECODER.raw_decode(text, at)
        if key == name:
            found = start, end
        at = _skip(text, end)
        if text[at] != "}":
            at = _skip(text, _expect(text, at, ","))
        if count > FIELDS_MAX:
            raise ValueError("too many fields")
    if _skip(text, at + 1) < len(text) or name not in fields:
        raise ValueError("not an object with this field")
    if isinstance(fields[name], str):
        start, end = found
        text = f'{text[:start]}[{{"role":"user","content":{text[start:end]}}}]{text[end:]}'
        elements, ends, _ = _read_list(text, start)
        fields[name] = elements
    return RequestBody(raw, text, fields, elements, ends)


def _read_list(text: str, at: int) -> tuple[list[Any], list[int], int]:
    """Its elements, where each ends, and where the list ends."""
    elements, ends = list[Any](), list[int]()
    at = _skip(text, _expect(text, at, "["))
    while text[at] != "]":
        element, end = _DECODER.raw_decode(text, at)
        elements.append(element)
        ends.append(end)
        if len(ends) > ELEMENTS_MAX:
            raise ValueError("too many elements")
        at = _skip(text, end)
        if text[at] != "]":
            at = _skip(text, _expect(text, at, ","))
    return elements, ends, at + 1


def _expect(text: str, at: int, character: str) -> int:
    if text[at] != character:
        raise ValueError(f"{character} is missing")
    return at + 1


def _skip(text: str, at: int) -> int:
    """The next position that is not white space."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()
