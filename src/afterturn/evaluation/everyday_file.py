"""Reads everyday files: months of a person's conversations, and questions with patterns for the lines that help.

Reads preferences files too, and makes lives more like real ones: long answers, and small talk, the same each time. The
formats are described in docs/evaluation.md. An error names the place in the file and what is missing there.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from afterturn.errors import InvalidFile

V = TypeVar("V")
_SEE = " See docs/evaluation.md."
_KINDS: Mapping[type, str] = {str: "a text", list: "a list", dict: "an object"}


@dataclass(frozen=True, slots=True)
class EverydayExchange:
    """A user's message, the calls of tools, and the answer. A call is its name, its arguments as JSON, its result."""

    user: str
    assistant: str
    calls: tuple[tuple[str, str, str], ...] = ()

    def messages(self) -> list[dict[str, Any]]:
        """The exchange in OpenAI's chat format."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": self.user}]
        for number, (name, arguments, result) in enumerate(self.calls):
            call = {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": result})
        return [*messages, {"role": "assistant", "content": self.assistant}]


@dataclass(frozen=True, slots=True)
class EverydaySession:
    """One conversation of the past. `at` is when it began, in Unix seconds."""

    id: str
    at: float
    exchanges: tuple[EverydayExchange, ...]


@dataclass(frozen=True, slots=True)
class EverydayQuestion:
    """The last of `turns` is scored. Without `right` patterns, no block is the right answer.

    Each `right` pattern must match a line; `stale` matches lines that are out of date; `bears` matches useful lines.
    """

    id: str
    kind: str
    at: float
    turns: tuple[str, ...]
    right: tuple[re.Pattern[str], ...]
    stale: re.Pattern[str] | None
    bears: re.Pattern[str] | None


@dataclass(frozen=True, slots=True)
class Person:
    """A user of an everyday file, with everything that was said before the questions.

    `asked_before` are other questions of theirs, which are not scored.
    """

    name: str
    language: str
    sessions: tuple[EverydaySession, ...]
    questions: tuple[EverydayQuestion, ...]
    asked_before: tuple[EverydayQuestion, ...] = ()


@dataclass(frozen=True, slots=True)
class Everyday:
    """The content of an everyday file."""

    name: str
    people: tuple[Person, ...]


def is_everyday(content: object) -> bool:
    """Whether a JSON document has the everyday format, complete or not."""
    return isinstance(content, dict) and "users" in content


def read_people(content: object, path: Path) -> tuple[Person, ...]:
    """The people of a JSON document. Raises InvalidFile with the place of the first fault."""
    people = _each(content, "users", _person, f"{path}:")
    if not people:
        raise InvalidFile(f'{path}: "users" is empty.{_SEE}')
    names = [person.name for person in people]
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise InvalidFile(f'{path}: two users are called "{twice}".{_SEE}')
    return people


def _person(value: object, where: str) -> Person:
    name = _get(value, "user", str, where)
    where = f"{where} ({name})"
    if not _get(value, "sessions", list, where):
        raise InvalidFile(f'{where}: "sessions" is empty.{_SEE}')
    return Person(
        name,
        _get(value, "language", str, where, default="unknown"),
        _each(value, "sessions", _session, f"{where},"),
        _each(value, "questions", _question, f"{where},"),
    )


def _session(value: object, where: str) -> EverydaySession:
    exchanges = _each(value, "exchanges", _exchange, f"{where},")
    return EverydaySession(_get(value, "id", str, where), _time(value, where), exchanges)


def _exchange(value: object, where: str) -> EverydayExchange:
    calls = _each(value, "tools", _call, f"{where},", default=[])
    return EverydayExchange(_get(value, "user", str, where), _get(value, "assistant", str, where), calls)


def _call(value: object, where: str) -> tuple[str, str, str]:
    name = _get(value, "name", str, where)
    arguments = _get(value, "arguments", dict, where, default={})
    result = value.get("result", "") if isinstance(value, dict) else ""
    return name, json.dumps(arguments, ensure_ascii=False), str(result)


def _question(value: object, where: str) -> EverydayQuestion:
    turns = _get(value, "turns", list, where)
    if not turns or not all(isinstance(turn, str) for turn in turns):
        raise InvalidFile(f'{where}: "turns" must be a list of one or more texts.{_SEE}')
    right = [_pattern(one, f'{where}, "right"') for one in _get(value, "right", list, where)]
    if not all(right):
        raise InvalidFile(f'{where}: a pattern of "right" is empty.{_SEE}')
    return EverydayQuestion(
        id=_get(value, "id", str, where),
        kind=_get(value, "kind", str, where),
        at=_time(value, where),
        turns=tuple(turns),
        right=tuple(one for one in right if one),
        stale=_pattern(_get(value, "stale", str, where, default=""), f'{where}, "stale"'),
        bears=_pattern(_get(value, "bears", str, where, default=""), f'{where}, "bears"'),
    )


def _pattern(value: object, where: str) -> re.Pattern[str] | None:
    """None if the pattern is empty: it would match every line."""
    if not isinstance(value, str):
        raise InvalidFile(f"{where}: a pattern must be a text.{_SEE}")
    try:
        return re.compile(value, re.IGNORECASE) if value else None
    except re.error as error:
        raise InvalidFile(f"{where}: {value!r} is not a regular expression: {error}.{_SEE}") from error


def _time(value: object, where: str) -> float:
    text = _get(value, "at", str, where)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise InvalidFile(f'{where}: "at" is not a time such as 2026-08-31T18:30:00+00:00: {text!r}.{_SEE}') from error


def _each(
    value: object, name: str, read: Callable[[object, str], V], where: str, default: list[object] | None = None
) -> tuple[V, ...]:
    """The items of a list, each read with its place in the file."""
    items = _get(value, name, list, where.rstrip(",:"), default)
    return tuple(read(item, f"{where} {name}[{at}]") for at, item in enumerate(items))


def _get(value: object, name: str, kind: type[V], where: str, default: V | None = None) -> V:
    """A field of an object. With a `default`, it may be missing or null."""
    if not isinstance(value, dict):
        raise InvalidFile(f"{where} is not an object.{_SEE}")
    found = value.get(name)
    if found is None and default is not None:
        return default
    if name not in value:
        raise InvalidFile(f'{where} has no "{name}".{_SEE}')
    if not isinstance(found, kind):
        raise InvalidFile(f'{where}: "{name}" is not {_KINDS[kind]}.{_SEE}')
    return found


@dataclass(frozen=True, slots=True)
class Preferences:
    """The content of a file: pairs of a preference and a request by topic, and exchanges of other people."""

    name: str
    topics: dict[str, tuple[tuple[str, str], ...]]
    filler: tuple[EverydayExchange, ...]


def is_preferences(content: object) -> bool:
    return isinstance(content, dict) and "topics" in content


def read_preferences(content: Any, name: str, path: Path) -> Preferences:
    """Raises InvalidFile if something is missing."""
    try:
        topics = {
            str(topic): tuple((str(pair["preference"]), str(pair["question"])) for pair in pairs)
            for topic, pairs in content["topics"].items()
            if pairs
        }
        filler = tuple(EverydayExchange(str(asked), str(answer)) for asked, answer in content.get("filler", ()))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidFile(f"{path} has no topics with preferences: {error!r}. See docs/evaluation.md.") from error
    if not topics:
        raise InvalidFile(f'{path}: "topics" is empty. See docs/evaluation.md.')
    return Preferences(name, topics, filler)


_FILLER: dict[str, Any] = json.loads(Path(__file__).with_name("filler.json").read_text(encoding="utf-8"))
_PARAGRAPHS_ADDED = 3
_PAUSE_SECONDS = 3 * 3600.0


def make_filler(count: int, seed: int) -> list[EverydayExchange]:
    """`count` exchanges that nobody asks about later."""
    pick = random.Random(seed)
    said = []
    for _ in range(count):
        remark = pick.choice(_FILLER["remarks"])
        said.append(remark.format(**{name: pick.choice(some) for name, some in _FILLER["words"].items()}))
    return [EverydayExchange(text[0].upper() + text[1:], pick.choice(_FILLER["replies"])) for text in said]


def add_filler(person: Person, count: int) -> Person:
    """The person with small talk as sessions of its own, spread between the others."""
    filler = make_filler(count, len(person.name) + count)
    share = -(-count // len(person.sessions))
    sessions: list[EverydaySession] = []
    for at, session in enumerate(person.sessions):
        sessions.append(session)
        if part := tuple(filler[at * share : (at + 1) * share]):
            sessions.append(EverydaySession(f"{session.id} small talk", session.at + _PAUSE_SECONDS, part))
    return replace(person, sessions=tuple(sessions))


def lengthen_answers(person: Person) -> Person:
    """The person with answers of several paragraphs. Each begins with the answer as it was."""
    count, sessions, paragraphs = 0, [], _FILLER["paragraphs"]
    for session in person.sessions:
        exchanges = []
        for exchange in session.exchanges:
            added = [paragraphs[(count + at) % len(paragraphs)] for at in range(_PARAGRAPHS_ADDED)]
            exchanges.append(replace(exchange, assistant="\n\n".join([exchange.assistant, *added])))
            count += 1
        sessions.append(replace(session, exchanges=tuple(exchanges)))
    return replace(person, sessions=tuple(sessions))
