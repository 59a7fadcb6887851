"""The interface of a message format (`Dialect`), a cache of what was read, and helpers that read fields safely.

Dialects read the host's messages and never edit them.
"""

from __future__ import annotations

import copy
import hashlib
import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from afterturn.guard.output_filter import CLOSING_START
from afterturn.log import logger
from afterturn.text import content_hash
from afterturn.types import Message

R = TypeVar("R")
# Of `Element.compacted`.
WHOLLY = -1
_PLAIN_ROLES = frozenset(["system", "user", "assistant"])


def field(source: object, name: str) -> object:
    """Returns None if there is no such field, or if reading it fails, which is logged."""
    return _read(source, name, lambda value: value)


def text_field(source: object, name: str) -> str | None:
    return _read(source, name, _as_text)


def list_field(source: object, name: str) -> Sequence[object]:
    """Empty if the field is missing or is not a list."""
    return _read(source, name, lambda value: list(value) if isinstance(value, list | tuple) else ()) or ()


def json_field(source: object, name: str) -> str:
    """A structured value as text: JSON, or the text itself if the value holds one text and nothing else."""
    return _read(source, name, _as_json) or ""


def _read(source: object, name: str, take: Callable[[object], R]) -> R | None:
    try:
        # The first test is fast, and most hosts have dictionaries.
        is_mapping = type(source) is dict or isinstance(source, Mapping)
        return take(source.get(name) if is_mapping else getattr(source, name, None))  # type: ignore[attr-defined]
    except BaseException as error:  # the boundary: a host's object may run any code, and must not end a turn
        # Signal handlers run on the main thread only. On any other thread, the object itself raised the
        # exception.
        if isinstance(error, KeyboardInterrupt | SystemExit) and threading.current_thread() is threading.main_thread():
            raise
        logger.exception("the field %r of a %s could not be read and is ignored", name, type(source).__name__)
        return None


def _as_text(value: object) -> str | None:
    if value is None or type(value) is str:
        return value
    # An exact string: a subclass could run its own code at each later use.
    return str.__str__(value) if isinstance(value, str) else None


def _as_json(value: object) -> str:
    if isinstance(value, Mapping) and len(value) == 1:
        (value,) = value.values()
    if isinstance(value, str):
        return str.__str__(value)
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


Strip: TypeAlias = Callable[[str], str]
"""Removes our own blocks from a text."""


class Utterance(NamedTuple):
    """The text of one speaker. Roles are system, user, assistant and tool. A blank `name` means the role."""

    role: str
    text: str
    name: str = ""


@dataclass(frozen=True)
class Element:
    """One element of a host's list, usually one message. An Anthropic element may contain tool results and a user's
    text, a Gemini element a model's text and its calls. Values derived from it are computed once.

    `calls` are the ids of the calls that it makes, and `answers` the ids of those that it answers, in order. For Gemini
    they are names of tools. A missing id is blank. An assistant's element with calls, reasoning or pictures but no text
    has no `utterances`. `leads`: it belongs to the element after it, as reasoning does.

    Only what the user is known to have typed has the role of the user. The text of a document that is attached to the
    user's message has the role tool and comes before the user's. Responses come before both, one for each of `answers`.
    `outside`: it contains something else that neither the user nor the assistant wrote, such as a picture, a file, or
    what a tool of the provider returned. `compacted`: the provider has compacted what is before it, so that its model
    does not see that any more: `WHOLLY`, or the number of tool uses that it has cleared, which it repeats with every
    answer.
    """

    utterances: tuple[Utterance, ...]
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    leads: bool = False
    outside: bool = False
    compacted: int = 0

    def is_compacted_since(self, cleared: int) -> bool:
        """Whether it reports a compaction after the one that cleared this number of tool uses, 0 for none."""
        return self.compacted == WHOLLY or self.compacted > cleared

    @cached_property
    def derived(self) -> dict[object, Any]:
        """A cache for values that other modules compute from it."""
        return {}

    @cached_property
    def is_untrusted(self) -> bool:
        """Whether anything in it comes from a tool, a file or another source that is not the user or the assistant."""
        return self.outside or any(one.role == "tool" for one in self.utterances)

    @cached_property
    def role(self) -> str:
        """The role of the last speaker in it."""
        return self.utterances[-1].role if self.utterances else "assistant"

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The utterances as they are recorded and compared."""
        return tuple(
            Message(one.role, one.text, one.name or one.role, content_hash(one.text)) for one in self.utterances
        )

    @cached_property
    def may_hold_blocks(self) -> bool:
        """Whether a text has a tag of our blocks, which may be forged."""
        return any(CLOSING_START in one.text for one in self.utterances)

    @cached_property
    def digest(self) -> str:
        """Identifies what was said in it; blank for system instructions and if there are no utterances and calls."""
        names = [*self.calls, *self.answers, *(["compacted"] if self.compacted == WHOLLY else [])]
        spoken = [one for one in self.utterances if one.role != "system"]
        names += [f"{one.role}:{exact_digest(text)}" for one in spoken if (text := one.text.strip())]
        # The last one is for an image, or a blank message: a block may be before or after it.
        return "|".join(names or [f"{one.role}:" for one in spoken[:1]])

    def text_of(self, role: str) -> str:
        """All texts of this role, one per line."""
        return "\n".join(one.text for one in self.utterances if one.role == role and one.text)


NOTHING = Element(())


def exact_digest(text: str) -> str:
    # Not `content_hash`: a host that rebuilds its prompt gives the same bytes, and folding a long text takes a while.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def plain_fields(message: object) -> tuple[str, str] | None:
    """The role and text of a dictionary that has nothing else, as most messages are."""
    if type(message) is not dict or len(message) != 2:
        return None
    role, text = message.get("role"), message.get("content")
    return (role, text) if type(role) is str and type(text) is str and role in _PLAIN_ROLES else None


class ToolDefinition(NamedTuple):
    """A tool as it is described to a model. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class Dialect(Protocol):
    """A message format. Messages may be mappings or a client library's objects. No method raises for any of them."""

    @property
    def name(self) -> str: ...

    @property
    def alternates(self) -> bool:
        """Whether the roles of its messages must alternate, so that a block is always merged into the last one."""

    def recognises(self, message: object) -> bool | None:
        """True for a message that only this format has, False for one of another, None if it may be either."""

    def read(self, message: object) -> Element | None:
        """Returns None for an element of an unknown kind. Parts of unknown kinds are skipped, and so is reasoning.

        An empty message has one blank utterance, and so has a user's message that contains only an image or a file.
        Parts that are skipped set `outside`, except reasoning.
        """

    def make_message(self, role: str, text: str) -> object:
        """A new message, usually a mapping, in the role of the user or the assistant. A block has the user's."""

    def merged(self, message: object, text: str) -> object | None:
        """A copy of a user's element with `text` at its end, or None if it cannot be extended."""

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        """The tool as it is listed in a request of this format."""


# The message, so that its id is not used for another one, the copy of its structure, what was read, and whether it is
# of the format.
_Known: TypeAlias = tuple[object, object, Element | None, bool | None]


class CachedDialect:
    """A format that reads a message again only if it is new or was edited in place. Safe from any thread.

    A message with a role, a text and nothing else is known by these, any other one by its identity, and is compared
    with a copy of its structure. Objects of client libraries are always read: nothing shows that they are unchanged.
    A turn that begins with 1,000 known messages is read in a third of the time, 4 ms.
    """

    _ENTRIES_MAX = 4_000

    def __init__(self, dialect: Dialect) -> None:
        self.original = dialect
        self.name, self.alternates, self.tool = dialect.name, dialect.alternates, dialect.tool
        self.make_message, self.merged = dialect.make_message, dialect.merged
        self._known: dict[object, _Known] = {}
        self._last: list[_Known] = []
        # The result of the last reading of the list.
        self.reading: object = None

    def recognises(self, message: object) -> bool | None:
        known = self._find_known(message)
        return known[3] if known else self.original.recognises(message)

    def read(self, message: object) -> Element | None:
        return (self._find_known(message) or self._learn(message))[2]

    def read_all(self, messages: Sequence[object]) -> list[Element | None]:
        """Reads a list. The messages with which it has begun before cost a comparison each."""
        found: list[_Known] = []
        try:
            for message, known in zip(messages, self._last, strict=False):
                if known[0] is not message or known[1] is None or known[1] != message:
                    break
                found.append(known)
        except Exception:  # noqa: BLE001  a host's object that cannot be compared is read as a new one
            logger.debug("a message cannot be compared")
        for message in messages[len(found) :]:
            # One with the same text may be known, by another object.
            found.append((message, *(self._find_known(message) or self._learn(message))[1:]))
        self._last = found
        return [known[2] for known in found]

    def _learn(self, message: object) -> _Known:
        try:
            copied = _copied(message)
        except (TypeError, RuntimeError):
            copied = None
        # Reads the copy, because the host may edit the message meanwhile.
        source = message if copied is None else copied
        key, element = plain_fields(source) or id(message), self.original.read(source)
        if (known := self._known.get(key)) and known[2] == element:
            element = known[2]  # with everything that was derived from it
        if len(self._known) >= self._ENTRIES_MAX:
            self._known.clear()
        self._known[key] = known = message, copied, element, self.original.recognises(source)
        return known

    def keep(self, messages: Sequence[object]) -> None:
        """Forgets all other messages, if there are more of them than of these. Does nothing for an empty list."""
        if len(self._known) > 2 * len(messages) > 0:
            keys = [plain_fields(message) or id(message) for message in messages]
            self._known = {key: known for key in keys if (known := self._known.get(key)) is not None}

    def _find_known(self, message: object) -> _Known | None:
        known = self._known.get(plain_fields(message) or id(message))
        return known if known is not None and _is_same(known, message) else None


def _is_same(known: _Known, message: object) -> bool:
    try:
        return known[1] is not None and bool(known[1] == message)
    except Exception:  # noqa: BLE001  a host's object that cannot be compared is read as a new one
        return False


class CachedDialects(dict[Dialect, CachedDialect]):
    """The formats of one conversation, each with what it has read."""

    def __missing__(self, dialect: Dialect) -> CachedDialect:
        if isinstance(dialect, CachedDialect):
            return self[dialect.original]
        return self.setdefault(dialect, CachedDialect(dialect))


def _copied(value: object, levels: int = 8) -> object:
    """Raises TypeError for anything but dictionaries, lists and constants."""
    if type(value) in (str, int, float, bool, type(None)):
        return value
    if levels and type(value) is dict:
        return {key: _copied(item, levels - 1) for key, item in value.items()}
    if levels and type(value) is list:
        return [_copied(item, levels - 1) for item in value]
    raise TypeError(type(value).__name__)


# Messages whose content is a list of parts.

_PARTS_READ_MAX = 64


def parts_of(message: object, name: str) -> Sequence[object]:
    """The parts of a message. Several client libraries have strings among them, which are returned as text parts."""
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in list_field(message, name)]


def part_types(message: object) -> set[str]:
    """The types of the first parts of its `content`. Parts without a type, as in Amazon Bedrock, count as blank."""
    parts = (part for part in parts_of(message, "content")[:_PARTS_READ_MAX] if part is not None)
    return {text_field(part, "type") or "" for part in parts}


def is_gemini_content(message: object) -> bool:
    """Whether it has Gemini's `parts`. Some frameworks add their own `parts` to a chat message that has `content`."""
    return field(message, "parts") is not None and field(message, "content") is None


def has_source(message: object) -> bool:
    """Whether it contains an image or a file in Anthropic's format."""
    return any(field(part, "source") is not None for part in parts_of(message, "content")[:_PARTS_READ_MAX])


def join_lines(texts: Iterable[str | None]) -> str:
    return "\n".join(text for text in texts if text)


def join_parts(texts: Iterable[str | None]) -> str:
    """Joins the parts in which a model wrote one text. None is a part of another kind, which ends the line."""
    written = [""]
    for text in texts:
        if text is not None:
            written[-1] += text
        elif written[-1]:
            written.append("")
    return join_lines(written)


def read_user(parts: Iterable[object], typed: Collection[str], *, name: str = "", before: Element = NOTHING) -> Element:
    """The user's element with these parts. `before` has the responses that are in the same element.

    Only parts of a `typed` kind are the user's words. The text of any other part has the role tool.
    """
    words: list[str | None] = []
    attached: list[Utterance] = []
    shows_more = False
    for part in parts:
        text = text_field(part, "text")
        if _is_typed(part, typed):
            words.append(text)
        elif part is not None:
            shows_more = True
            attached += [Utterance("tool", text)] if text else []
    said = join_lines(words)
    spoken = user_utterances(said, name, shows_more=shows_more) if said or shows_more or not before.answers else ()
    return replace(before, utterances=(*before.utterances, *attached, *spoken), outside=before.outside or shows_more)


def _is_typed(part: object, typed: Collection[str]) -> bool:
    kind = text_field(part, "type")
    # Amazon Bedrock's parts have no type. With any other field, it may be a document that has a text.
    return kind in typed if kind is not None else type(part) is dict and part.keys() == {"text"}


def user_utterances(text: str, name: str = "", *, shows_more: bool) -> tuple[Utterance, ...]:
    """One utterance, and a blank one before it if the user `shows_more` than text.

    The blank one marks an image as the user's own, also if the text is only a block of ours.
    """
    utterance = Utterance("user", text, name)
    return (Utterance("user", "", name), utterance) if text and shows_more else (utterance,)


def extended_user(message: object, text: str, part: Mapping[str, Any]) -> object | None:
    """`extended` for the content of a user's message. None for another one."""
    return extended(message, "content", text, part) if text_field(message, "role") == "user" else None


def extended(message: object, name: str, text: str, part: Mapping[str, Any]) -> object | None:
    """A copy whose field `name` ends in `text`: after its string, or as one more `part` of its list.

    None if the field is neither, or is blank, or if the object cannot be copied.
    """
    content = text_field(message, name)
    if content is not None:
        return _with(message, name, f"{content}\n\n{text}") if content.strip() else None
    parts = list_field(message, name)
    return _with(message, name, [*parts, _like(parts[-1], part)]) if parts else None


def convert_like(sample: object, made: object) -> Iterator[object]:
    """A new message as an object of the sample's class, then of each base class, where the class accepts it."""
    for kind in type(sample).__mro__:
        validate = getattr(kind, "model_validate", None)
        # Pydantic's own base class has no fields, and cannot be instantiated.
        if not callable(validate) or not getattr(kind, "model_fields", True):
            continue
        try:
            converted = validate(made)
        except (TypeError, ValueError, LookupError):
            continue  # the class has required fields that the new message lacks
        except Exception:  # the boundary: a host's class may run any code; the mapping is used instead
            logger.exception("a block could not be made into a %s", kind.__name__)
            continue
        yield converted


def _with(message: object, name: str, value: object) -> object | None:
    if isinstance(message, Mapping):
        return {**message, name: value}
    try:
        if callable(model_copy := getattr(message, "model_copy", None)):
            twin: object = model_copy(update={name: value})
        else:
            twin = copy.copy(message)
            setattr(twin, name, value)
    except Exception:  # the boundary: an object that cannot be copied is not extended
        logger.exception("a %s could not be copied to extend its %r", type(message).__name__, name)
        return None
    return twin


def _like(last: object, part: Mapping[str, Any]) -> object:
    """The part as an object of the class of the `last` one if that accepts its fields, as Gemini's class does."""
    if not isinstance(last, str | Mapping):
        try:
            made: object = type(last)(**part)
        except (TypeError, ValueError):
            return dict(part)
        return made
    return dict(part)
