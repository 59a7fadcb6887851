"""What a message format implements (`Dialect`), and helpers that read the fields of a host's messages safely.

Dialects read the host's messages and never edit them.
"""

from __future__ import annotations

import copy
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from afterturn.text import content_hash
from afterturn.types import Message

logger = logging.getLogger(__name__)
R = TypeVar("R")


def field(source: object, name: str) -> object:
    """None when there is no such field, or when reading it fails (which is logged)."""
    return _read(source, name, _as_it_is)


def text_field(source: object, name: str) -> str | None:
    return _read(source, name, _as_text)


def list_field(source: object, name: str) -> Sequence[object]:
    """Empty when the field is missing or no list."""
    return _read(source, name, _as_list) or ()


def json_field(source: object, name: str) -> str:
    """A structured value as a person would read it: JSON, or its only text when it holds nothing else."""
    return _read(source, name, _as_json) or ""


def _read(source: object, name: str, take: Callable[[object], R]) -> R | None:
    try:
        # Asked first, since it answers at once for what most hosts have.
        is_mapping = type(source) is dict or isinstance(source, Mapping)
        return take(source.get(name) if is_mapping else getattr(source, name, None))  # type: ignore[attr-defined]
    except BaseException as error:  # the boundary: a host's object may run any code, and a turn must survive it
        if isinstance(error, KeyboardInterrupt | SystemExit) and _may_be_a_signal():
            raise
        logger.exception("A %s could not be read for %r; it is treated as unknown", type(source).__name__, name)
        return None


def _may_be_a_signal() -> bool:
    """Handlers of signals run on the main thread only; on memory's own thread it is the object that raises these."""
    return threading.current_thread() is threading.main_thread()


def _as_it_is(value: object) -> object:
    return value


def _as_text(value: object) -> str | None:
    if value is None or type(value) is str:
        return value
    # An exact string: a subclass could run its own code at each later use.
    return str.__str__(value) if isinstance(value, str) else None


def _as_list(value: object) -> list[object] | None:
    return list(value) if isinstance(value, list | tuple) else None


def _as_json(value: object) -> str:
    if isinstance(value, Mapping) and len(value) == 1:
        (value,) = value.values()
    if isinstance(value, str):
        return str.__str__(value)
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


Strip: TypeAlias = Callable[[str], str]
"""Removes our own blocks from a text."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """What one speaker says in an element. Roles are system, user, assistant and tool; a blank `name` is the role's."""

    role: str
    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a host's list: mostly one message. Anthropic puts tool results and what the user adds into one,
    Gemini a model's words and its calls.

    `calls` are the ids of the calls it makes and `answers` those it responds to, in order. Gemini's are named by their
    tool; one that nothing names is blank. What an assistant's element holds besides text says nothing: an element of
    calls, reasoning or pictures alone has no `said`. `leads`: it belongs to the element after it, as reasoning does.
    """

    said: tuple[Utterance, ...]
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    leads: bool = False

    @property
    def role(self) -> str:
        """Of who spoke last in it."""
        return self.said[-1].role if self.said else "assistant"

    @property
    def messages(self) -> tuple[Message, ...]:
        """As they are recorded and compared. The hashes are computed at each call: most callers need none."""
        return tuple(Message(one.role, one.text, one.name or one.role, content_hash(one.text)) for one in self.said)

    def text_of(self, role: str) -> str:
        """All that this role says in it, one text a line."""
        return "\n".join(one.text for one in self.said if one.role == role and one.text)


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a model is told of it. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class Dialect(Protocol):
    """Messages may be mappings or a client library's objects. No method raises for what a host puts in its list."""

    @property
    def name(self) -> str: ...

    def speaks(self, message: object) -> bool | None:
        """True for a message that only this format has, False for one of another's, None when it could be this one."""

    def read(self, message: object) -> Element | None:
        """None for an element that this dialect does not know. Parts that it does not know are skipped.

        Reasoning is no text. A message with nothing in it says one blank text, and so does what a user shows that is
        no text.
        """

    def said(self, role: str, text: str) -> Mapping[str, Any]:
        """A new message of the user's or the assistant's; a block goes in as the user's."""

    def merged(self, message: object, text: str) -> object | None:
        """A copy of a user's element with `text` after what it holds; None when it cannot be extended."""

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        """As this format's requests list tools."""


# Messages whose content is a list of parts: what their text is, and a copy with one part more.
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
    """Models write one text in several parts; None marks something else between them, and ends the line."""
    written = [""]
    for text in texts:
        if text is not None:
            written[-1] += text
        elif written[-1]:
            written.append("")
    return lines(written)


def said_by_user(text: str, name: str = "", *, shows_more: bool) -> tuple[Utterance, ...]:
    """What a user shows beside the text stays theirs, though our block be all the text there is."""
    said = Utterance("user", text, name)
    return (Utterance("user", "", name), said) if text and shows_more else (said,)


def extended(message: object, name: str, text: str, part: Mapping[str, Any]) -> object | None:
    """A copy whose field `name` ends in `text`: after its string, or as one more `part` of its list.

    None when the field holds neither, is blank, or the object cannot be copied.
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
