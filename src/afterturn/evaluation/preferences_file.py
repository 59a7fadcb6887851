"""Reads preferences files: pairs of a preference and a request that needs it. See docs/evaluation.md."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterturn.errors import InvalidFile
from afterturn.evaluation.everyday_file import EverydayExchange


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
