"""A history as the model that summarises it reads it: one JSON object a line, cut where it is long, nothing forged."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from afterturn.context.contents import contents, text_tokens
from afterturn.context.snapshot import disarm
from afterturn.dialects.dialect import Dialect, Element

_BLOCK_START = "<afterturn-"
# How much of what was said, and of what a tool answered or was called with, is read; less when there is too much of it.
_READ_CHARS = ((8_000, 2_000), (2_000, 500), (500, 160))
_END_SHARE = 0.25


def is_block(element: Element) -> bool:
    """Whether it holds nothing but a block of memory, ours or forged: the shape is enough to keep it in its place."""
    text = element.text_of("user").strip()
    return element.role == "user" and not element.answers and text.startswith(_BLOCK_START) and text.endswith(">")


@dataclass(frozen=True, slots=True)
class Transcript:
    """`left_out` is how many lines had no room; they are the oldest but for the first."""

    text: str
    left_out: int = 0


def transcribe(dialect: Dialect, messages: Sequence[object], *, tokens_max: int) -> Transcript:
    """At most about `tokens_max`: long texts are cut in their middle, then the oldest lines are left out."""
    lines: list[str] = []
    for said_max, tool_max in _READ_CHARS:
        lines = [line for message in messages for line in _lines(dialect, message, said_max, tool_max)]
        if sum(map(text_tokens, lines)) <= tokens_max:
            return Transcript("\n".join(lines))
    return _newest(lines, tokens_max)


def shorten(text: str, chars_max: int) -> str:
    """Its beginning and its end, and between them how much is missing."""
    if len(text) <= chars_max:
        return text
    end = int(chars_max * _END_SHARE)
    return f"{text[: chars_max - end]} […{len(text) - chars_max} characters left out…] {text[len(text) - end :]}"


def _newest(lines: Sequence[str], tokens_max: int) -> Transcript:
    """The first line is mostly the user's request; it stays."""
    room = tokens_max - text_tokens(lines[0])
    kept: list[str] = []
    for line in reversed(lines[1:]):
        room -= text_tokens(line)
        if room < 0:
            break
        kept.append(line)
    left_out = len(lines) - 1 - len(kept)
    missing = json.dumps({"left out": f"{left_out} messages"})
    return Transcript("\n".join([lines[0], missing, *reversed(kept)]), left_out)


def _lines(dialect: Dialect, message: object, said_max: int, tool_max: int) -> Iterator[str]:
    element = dialect.read(message)
    if element is None:
        return
    held = contents(message)
    if is_block(element):
        yield _line("recalled by memory", element.text_of("user"), said_max)
        return
    for one in element.said:
        if one.text.strip():
            speaker = one.role if not one.name else f"{one.role} {one.name}"
            yield _line(speaker, one.text, tool_max if one.role == "tool" else said_max)
    if held.shown:
        yield _line(element.role, " ".join(f"[{kind}]" for kind in held.shown), said_max)
    for call in held.calls:
        yield _line(f"{element.role} calls {call.name}", call.arguments, tool_max)


def _line(speaker: str, text: str, chars_max: int) -> str:
    return json.dumps({disarm(speaker): disarm(shorten(text, chars_max))}, ensure_ascii=False)
