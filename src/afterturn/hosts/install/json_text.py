"""Edits a JSON text in place: everything that an edit does not concern keeps its bytes.

Comments and trailing commas are read and kept, as most clients do. Line breaks and indentation follow the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Path: TypeAlias = Sequence[str | int]
"""The way to a value: keys of objects and indexes of arrays."""

_GAP = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?\d[\d.eE+-]*|true|false|null")
_DEPTH_MAX = 200


@dataclass(slots=True)
class _Node:
    """A value and its place in the text. An object has keys and children, an array has children only."""

    start: int
    end: int = 0
    value: Any = None
    keys: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    children: list[_Node] = field(default_factory=list)

    @property
    def is_object(self) -> bool:
        return isinstance(self.value, dict)


def parse(text: str) -> Any:
    """The value of the text. Raises ValueError with the line of the first fault."""
    return _parse(text).value


def set_value(text: str, path: Path, value: Any) -> str:
    """Replaces the value at `path`, or adds it. Objects on the way are created; arrays must be there."""
    node = _parse(text)
    for depth, step in enumerate(path):
        at = _position(node, step)
        if at is None:
            missing = path[depth + 1 :]
            for key in reversed(missing):
                value = {key: value}
            return _insert(text, node, str(step), value)
        node = node.children[at]
    wide = _is_wide(text, _parse(text))
    shown = _dump(value, text, _indent(text, node.start) if wide else "", wide=wide)
    return text[: node.start] + shown + text[node.end :]


def append(text: str, path: Path, value: Any) -> str:
    """Adds an item to the array at `path`, which is created if it is missing."""
    node = _parse(text)
    for step in path:
        at = _position(node, step)
        if at is None:
            return set_value(text, path, [value])
        node = node.children[at]
    if not isinstance(node.value, list):
        raise ValueError(f"{'.'.join(map(str, path))} is not a list")
    return _insert(text, node, None, value)


def remove(text: str, path: Path) -> str:
    """Removes the value at `path`, and its key."""
    node = _parse(text)
    for step in path[:-1]:
        at = _position(node, step)
        assert at is not None
        node = node.children[at]
    at = _position(node, path[-1])
    assert at is not None
    start, end = node.starts[at], node.children[at].end
    previous = node.children[at - 1].end if at else node.start + 1
    gap = _skip(text, end)
    followed = text[gap] == ","
    rest = text[gap + 1 :] if followed else text[end:]
    # The white space before the value goes with it, unless it ends a comment that would swallow what follows.
    swallows = "//" in text[previous:start] and not rest.lstrip(" \t").startswith(("\n", "\r\n"))
    before = start if swallows else len(text[:start].rstrip(" \t\r\n"))
    if followed or at == 0:
        return text[:before] + rest
    comma = _skip(text, previous)
    return text[:comma] + text[comma + 1 : before] + rest


def _position(node: _Node, step: str | int) -> int | None:
    """The index of a child. Of a key that is there twice, the last one counts, as for every parser."""
    if isinstance(step, int):
        return step if isinstance(node.value, list) and step < len(node.children) else None
    if not node.is_object:
        raise ValueError(f"the value that should have {step!r} is not an object")
    return next((at for at in reversed(range(len(node.keys))) if node.keys[at] == step), None)


def _insert(text: str, node: _Node, key: str | None, value: Any) -> str:
    """Adds a member or an item at the end of an object or array."""
    close = node.end - 1
    last = node.children[-1].end if node.children else node.start + 1
    wide = _is_wide(text, node if node.children else _parse(text)) or "//" in text[last:close]
    at = node.starts[0] if node.children else None
    indent = (_indent(text, at) if at is not None else _indent(text, node.start) + _unit(text)) if wide else ""
    line = _newline(text) + indent if wide else ""
    label = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
    shown = label + _dump(value, text, indent, wide=wide)
    if not node.children:
        inner = text[node.start + 1 : close].rstrip()
        ending = _newline(text) + _indent(text, node.start) if wide else ""
        return text[: node.start + 1] + inner + line + shown + ending + text[close:]
    gap = _skip(text, last)
    tail = len(text[:close].rstrip())
    if text[gap] == ",":
        return text[:tail] + (line or " ") + shown + "," + text[tail:]
    # A comment behind the last value stays with it.
    return text[:last] + "," + text[last:tail] + (line or " ") + shown + text[tail:]


def _dump(value: Any, text: str, indent: str, *, wide: bool) -> str:
    if not wide:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return (_newline(text) + indent).join(lines)


def _is_wide(text: str, node: _Node) -> bool:
    """Whether the children have lines of their own. An empty text gets them too."""
    return not node.children or "\n" in text[node.start : node.starts[0]]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    root = _parse(text)
    found = _indent(text, root.starts[0]) if root.starts and _is_wide(text, root) else ""
    return found or "  "


def _indent(text: str, at: int) -> str:
    """The white space at the beginning of the line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _skip(text: str, at: int) -> int:
    found = _GAP.match(text, at)
    assert found is not None
    return found.end()


def _parse(text: str) -> _Node:
    start = _skip(text, 1 if text.startswith("\ufeff") else 0)
    node = _read(text, start, 0)
    end = _skip(text, node.end)
    if end != len(text):
        raise _fault(text, end)
    return node


def _read(text: str, at: int, depth: int) -> _Node:
    if depth > _DEPTH_MAX:
        raise ValueError(f"line {_line(text, at)}: values are nested too deeply")
    opening = text[at : at + 1]
    if opening in ("{", "["):
        return _read_container(text, at, depth)
    pattern = _STRING if opening == '"' else _SCALAR
    found = pattern.match(text, at)
    if found is None:
        raise _fault(text, at)
    try:
        return _Node(at, found.end(), json.loads(found[0]))
    except ValueError as error:
        raise _fault(text, at) from error


def _read_container(text: str, at: int, depth: int) -> _Node:
    node = _Node(at)
    closing = "}" if text[at] == "{" else "]"
    at = _skip(text, at + 1)
    while text[at : at + 1] != closing:
        node.starts.append(at)
        if closing == "}":
            key = _STRING.match(text, at)
            if key is None:
                raise _fault(text, at)
            node.keys.append(json.loads(key[0]))
            at = _skip(text, key.end())
            if text[at : at + 1] != ":":
                raise _fault(text, at)
            at = _skip(text, at + 1)
        child = _read(text, at, depth + 1)
        node.children.append(child)
        at = _skip(text, child.end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _fault(text, at)
    node.end = at + 1
    values = [child.value for child in node.children]
    node.value = dict(zip(node.keys, values, strict=True)) if closing == "}" else values
    return node


def _fault(text: str, at: int) -> ValueError:
    if at >= len(text):
        return ValueError(f"line {_line(text, at)}: the text ends too early")
    return ValueError(f"line {_line(text, at)}: {text[at]!r} is not expected here")


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
