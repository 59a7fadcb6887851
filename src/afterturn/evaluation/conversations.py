"""Conversations with questions about them, as files hold them: what was said, what is asked, and what answers it."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterturn.errors import InvalidFile
from afterturn.evaluation.dates import find_time

# People answer each other within a minute; a file that tells the day alone still has an order.
_PAUSE = 30.0
_BEGINNING = 1_704_067_200.0
_AGENTS = frozenset("assistant agent ai bot model chatbot".split())
_USERS = frozenset("user human".split())


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was said. `at` keeps to the file's order within a day."""

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
        """With the speaker's name before it, if that is one and no role."""
        is_role = self.is_agents or self.speaker.lower() in _USERS
        return self.text if is_role else f"{self.speaker}: {self.text}"


@dataclass(frozen=True, slots=True)
class Question:
    """`evidence` are the items that answer it, or with `by_session` the sessions. It is asked when the first `known`
    items have been said; without evidence nothing answers it."""

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
    """Of a JSON file, compressed or not. InvalidFile when it holds no conversations with questions."""
    try:
        raw = path.read_bytes()
        content = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        talks = tuple(_talk(value) for value in content if value["items"])
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidFile(
            f"{path} holds no conversations with questions: {error!r}. See docs/evaluation.md."
        ) from error
    if not talks:
        raise InvalidFile(f"{path} holds no conversation.")
    return Dataset(stem(path), talks)


def stem(path: Path) -> str:
    """The file's name without what tells its format."""
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
    """Mended as a recorder would: no NUL, no half characters. What has no words was still sent, and keeps its place."""
    text, caption = str(value["text"]), value.get("image_caption")
    whole = f"{text} [image: {caption}]" if caption else text
    return whole.encode("utf-8", "replace").decode().replace("\x00", "\ufffd").strip() or "…"


def _question(value: Mapping[str, Any], items: Sequence[Item]) -> Question:
    by_session = "evidence_sessions" in value
    known = _known(value.get("before_session"), items)
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


def _known(before_session: object, items: Sequence[Item]) -> int:
    """How many items come before that session; all of them where none is named."""
    if before_session is None:
        return len(items)
    return next((at for at, item in enumerate(items) if item.session == str(before_session)), len(items))
