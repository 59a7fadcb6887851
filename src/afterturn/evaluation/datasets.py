"""Reads the files that can be evaluated: conversations with questions, and utterances.

Everyday and preferences files are recognised here, and read by everyday_file.py.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from afterturn.errors import InvalidFile
from afterturn.evaluation.everyday_file import (
    Everyday,
    Preferences,
    is_everyday,
    is_preferences,
    read_people,
    read_preferences,
)

_MONTHS = {
    name: number
    for number, name in enumerate(
        "january february march april may june july august september october november december".split(), start=1
    )
}
_CLOCK = re.compile(r"\b(\d{1,2}):(\d{2})(?::\d{2})?\s*([ap])?\.?m?\b", re.IGNORECASE)
_ISO = re.compile(r"\b(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")
_DAY_FIRST = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)?[\s,.-]+([a-z]{3,9})[\s,.-]+(\d{4})\b", re.IGNORECASE)
_MONTH_FIRST = re.compile(r"\b([a-z]{3,9})[\s,.-]+(\d{1,2})(?:st|nd|rd|th)?[\s,.-]+(\d{4})\b", re.IGNORECASE)


def find_time(text: str) -> float | None:
    """Unix seconds of a date in a text, at midnight UTC if there is no time of day. None if there is no date.

    "1:56 pm on 8 May, 2023", "March-15-2024", "2025-12-15 (Monday)".
    """
    day = _day(text)
    if day is None:
        return None
    hour = minute = 0
    if (found := _CLOCK.search(text)) is not None:
        hour, minute = int(found[1]), int(found[2])
        if found[3]:
            hour = hour % 12 + (12 if found[3].lower() == "p" else 0)
    try:
        return datetime(*day, hour, minute, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _day(text: str) -> tuple[int, int, int] | None:
    if found := _ISO.search(text):
        year, month, day = (int(part) for part in found.groups())
        return year, month, day
    for found in _DAY_FIRST.finditer(text):
        if number := _month(found[2]):
            return int(found[3]), number, int(found[1])
    for found in _MONTH_FIRST.finditer(text):
        if number := _month(found[1]):
            return int(found[3]), number, int(found[2])
    return None


def _month(name: str) -> int | None:
    return next((number for month, number in _MONTHS.items() if month.startswith(name.lower())), None)


# Seconds between messages without a time of their own, so that they keep their order.
_PAUSE = 30.0
_BEGINNING = 1_704_067_200.0
_AGENTS = frozenset("assistant agent ai bot model chatbot".split())
_USERS = frozenset("user human".split())


@dataclass(frozen=True, slots=True)
class Item:
    """One message. `at` keeps the order of the file within a day."""

    id: str
    session: str
    speaker: str
    text: str
    at: float

    @property
    def is_agents(self) -> bool:
        return self.speaker.lower() in _AGENTS

    @property
    def signed(self) -> str:
        """The text with the speaker's name before it, unless the speaker is a role."""
        is_role = self.is_agents or self.speaker.lower() in _USERS
        return self.text if is_role else f"{self.speaker}: {self.text}"


@dataclass(frozen=True, slots=True)
class Question:
    """`evidence` names the items (or, if `by_session`, the sessions) that answer it; empty if nothing does. It is asked
    after the first `known` items."""

    id: str
    text: str
    category: str
    answer: str
    evidence: tuple[str, ...]
    known: int
    by_session: bool = False


@dataclass(frozen=True, slots=True)
class Talk:
    id: str
    items: tuple[Item, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Dataset:
    name: str
    talks: tuple[Talk, ...]


def read_dataset(path: Path) -> Dataset:
    """Reads a JSON file, compressed or not. Raises InvalidFile if it has no conversations with questions."""
    return _dataset(path, _document(path))


def _document(path: Path) -> Any:
    try:
        raw = path.read_bytes()
        return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise InvalidFile(f"{path} cannot be read as JSON: {error!r}. See docs/evaluation.md.") from error


def _dataset(path: Path, content: Any) -> Dataset:
    try:
        talks = tuple(_talk(value) for value in content if value["items"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidFile(f"{path} has no conversations with questions: {error!r}. See docs/evaluation.md.") from error
    if not talks:
        raise InvalidFile(f"{path} has no conversation.")
    return Dataset(stem(path), talks)


def stem(path: Path) -> str:
    """The name of the file without its suffixes."""
    return path.name.removesuffix(".gz").rpartition(".")[0] or path.name


def _talk(value: Mapping[str, Any]) -> Talk:
    items = _items(value["items"])
    questions = tuple(_question(asked, items) for asked in value["questions"])
    return Talk(str(value["conv_id"]), items, questions)


def _items(values: Sequence[Mapping[str, Any]]) -> tuple[Item, ...]:
    items: list[Item] = []
    last_date, at = "", _BEGINNING - _PAUSE
    for value in values:
        date = str(value.get("date") or last_date)
        named = find_time(date) if date != last_date else None
        at = at + _PAUSE if named is None else named
        last_date = date
        items.append(Item(str(value["id"]), str(value["session"]), str(value["speaker"]), _text(value), at))
    return tuple(items)


def _text(value: Mapping[str, Any]) -> str:
    """The text as it would be recorded: without NUL and lone surrogates. An empty message becomes "…"."""
    text, caption = str(value["text"]), value.get("image_caption")
    whole = f"{text} [image: {caption}]" if caption else text
    return whole.encode("utf-8", "replace").decode().replace("\x00", "\ufffd").strip() or "…"


def _question(value: Mapping[str, Any], items: Sequence[Item]) -> Question:
    by_session, before = "evidence_sessions" in value, value.get("before_session")
    # All items if no session is named.
    known = next(
        (at for at, item in enumerate(items) if before is not None and item.session == str(before)), len(items)
    )
    reachable = {item.session if by_session else item.id for item in items[:known]}
    evidence = value["evidence_sessions"] if by_session else value["evidence"]
    return Question(
        id=str(value["qid"]),
        text=str(value["question"]),
        category=str(value.get("category") or "all"),
        answer="" if value.get("answer") is None else str(value["answer"]),
        evidence=tuple(name for name in dict.fromkeys(str(name) for name in evidence) if name in reachable),
        known=known,
        by_session=by_session,
    )


_DEPTH = 2
_UTTERANCE = "utterance"


@dataclass(frozen=True, slots=True)
class Utterances:
    """Remarks that do not ask for anything from the past."""

    name: str
    texts: tuple[str, ...]


@dataclass(slots=True)
class Sources:
    """The usable files. `skipped` are those that cannot be evaluated."""

    datasets: list[Dataset] = field(default_factory=list)
    everyday: list[Everyday] = field(default_factory=list)
    preferences: list[Preferences] = field(default_factory=list)
    utterances: list[Utterances] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)


def find_sources(paths: Sequence[Path]) -> Sources:
    """Raises InvalidFile if nothing in these paths can be evaluated, or if a named everyday file has a fault."""
    sources = Sources()
    for path in paths:
        if not path.exists():
            raise InvalidFile(f"There is no file or folder {path}. Give one with conversations and questions.")
        for found in _walk(path) if path.is_dir() else [path]:
            _take(sources, found, named=found == path)
    if not (sources.datasets or sources.everyday or sources.preferences):
        raise InvalidFile(
            f"Nothing in {', '.join(str(path) for path in paths)} can be evaluated. See docs/evaluation.md."
        )
    return sources


def _walk(folder: Path, depth: int = 0) -> Iterator[Path]:
    """The files, sorted by name."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and depth < _DEPTH:
            yield from _walk(path, depth + 1)
        elif path.is_file() and path.suffix in (".json", ".gz", ".jsonl"):
            yield path


def _take(sources: Sources, path: Path, *, named: bool) -> None:
    """Skips a file that cannot be used. Raises InvalidFile for a file with a fault that was named and has patterns."""
    must_be_usable = False
    try:
        if path.suffix == ".jsonl":
            sources.utterances.append(read_utterances(path, named=named))
        else:
            content = _document(path)
            must_be_usable = named and (is_everyday(content) or is_preferences(content))
            name = _unique_name(path, [*sources.datasets, *sources.everyday, *sources.preferences])
            if is_everyday(content):
                sources.everyday.append(Everyday(name, read_people(content, path)))
            elif is_preferences(content):
                sources.preferences.append(read_preferences(content, name, path))
            else:
                sources.datasets.append(replace(_dataset(path, content), name=name))
    except InvalidFile:
        if must_be_usable:
            raise
        sources.skipped.append(path)


def _unique_name(path: Path, others: Sequence[Dataset | Everyday | Preferences]) -> str:
    """The name of the file; if that is taken, with the folder's name, or else with a number."""
    taken = {other.name for other in others}
    spellings = chain(
        (stem(path), f"{path.absolute().parent.name}/{stem(path)}"),
        (f"{stem(path)} {number}" for number in count(2)),
    )
    return next(name for name in spellings if name not in taken)


def read_utterances(path: Path, *, named: bool = True) -> Utterances:
    """Texts labelled 0, from lines such as {"text", "label"}. Raises InvalidFile if there are none.

    From a file that was found in a folder, only texts of the category "utterance": other texts may be about memories.
    """
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        texts = tuple(row["text"] for row in rows if row["label"] == 0 and (named or row.get("category") == _UTTERANCE))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidFile(f"{path} has no utterances: {error!r}. See docs/evaluation.md.") from error
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidFile(f"{path} has no utterances.")
    return Utterances(stem(path), texts)
