"""A space as Markdown files that coding agents read: `MEMORY.md`, an index, and one file per topic.

Only trusted statements are written: such files become part of a system prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from afterturn.config import Config
from afterturn.errors import InvalidFile
from afterturn.guard.output_filter import OutputFilter, neutralise
from afterturn.guard.trust import TRUST_MIN
from afterturn.runtime.files import replace_file
from afterturn.scanners.invisible import clean
from afterturn.types import Entry, Target

INDEX = "MEMORY.md"
# Coding agents read no more of an index.
INDEX_LINES_MAX = 200
INDEX_BYTES_MAX = 25_000
_MARK = "source: afterturn"


@dataclass(frozen=True, slots=True)
class Topic:
    """`kind` is one of the four kinds of notes that coding agents know."""

    file: str
    title: str
    description: str
    kind: str


_TOPICS = {
    "preferences": Topic("preferences.md", "Preferences", "How the user wants the agent to work", "feedback"),
    "user": Topic("user.md", "About the user", "Who the user is", "user"),
    "conventions": Topic("conventions.md", "Conventions", "Rules of the project and its tools", "project"),
    "environment": Topic("environment.md", "Environment", "Facts about projects, tools and systems", "reference"),
}
_BY_KIND = {(Target.USER, "preference"): "preferences", (Target.ENVIRONMENT, "convention"): "conventions"}
_BY_TARGET = {Target.USER: "user", Target.ENVIRONMENT: "environment"}


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    folder: Path
    files: int
    memories: int
    left_out: int


def write_memory_files(
    entries: Iterable[Entry], folder: Path, config: Config, now: float, *, force: bool
) -> WrittenFiles:
    """Replaces files that it wrote before. Raises InvalidFile for others unless `force` is true."""
    screen = OutputFilter(scanning=config.scan_policy)
    topics: dict[str, list[tuple[Entry, str]]] = {}
    left_out = 0
    for entry in entries:
        text = screen.shown(entry) if entry.trust >= TRUST_MIN and entry.holds(now) else None
        if text is None:
            left_out += 1
        else:
            topic = _BY_KIND.get((entry.target, str(entry.metadata.get("kind"))), _BY_TARGET[entry.target])
            topics.setdefault(topic, []).append((entry, " ".join(neutralise(clean(text)).split())))
    for found in topics.values():
        found.sort(key=lambda pair: (not pair[0].pinned, -pair[0].recorded_at))
    named = {key: topics[key] for key in _TOPICS if key in topics}
    files = {_TOPICS[key].file: _topic_file(_TOPICS[key], found) for key, found in named.items()}
    files[INDEX] = _index(named)
    _check(folder, files, force=force)
    for name, content in files.items():
        _write(folder / name, content)
    return WrittenFiles(folder, len(files), sum(map(len, named.values())), left_out)


def _topic_file(topic: Topic, found: Sequence[tuple[Entry, str]]) -> str:
    modified = max(entry.recorded_at for entry, _ in found)
    lines = [
        "---",
        f"name: {topic.title}",
        f"description: {topic.description}",
        f"type: {topic.kind}",
        f"modified: {_day(modified)}",
        _MARK,
        "---",
        "",
        *(f"- {text} ({_day(entry.recorded_at)})" for entry, text in found),
    ]
    return "\n".join(lines) + "\n"


def _index(topics: dict[str, list[tuple[Entry, str]]]) -> str:
    """A line for each topic, then the statements of all topics in turn while there is room."""
    lines = ["# Memory", f"<!-- {_MARK} -->", ""]
    lines += [
        f"- [{_TOPICS[key].title}]({_TOPICS[key].file}): {_TOPICS[key].description} ({len(found)})"
        for key, found in topics.items()
    ]
    size = sum(len(line.encode()) + 1 for line in lines)
    for key, found in topics.items():
        begun = False
        for _, text in found:
            added = [f"- {text}"] if begun else ["", f"## {_TOPICS[key].title}", "", f"- {text}"]
            more = sum(len(line.encode()) + 1 for line in added)
            if len(lines) + len(added) > INDEX_LINES_MAX or size + more > INDEX_BYTES_MAX:
                return "\n".join(lines) + "\n"
            lines, size, begun = [*lines, *added], size + more, True
    return "\n".join(lines) + "\n"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _check(folder: Path, names: Iterable[str], *, force: bool) -> None:
    for file in () if force else (folder / name for name in names):
        try:
            is_ours = not file.exists() or _MARK in file.read_text(encoding="utf-8")[:1_000]
        except (OSError, ValueError):
            is_ours = False
        if file.is_symlink() or not is_ours:
            raise InvalidFile(
                f"{file} was not written by afterturn. Choose another folder, or add --force to replace it."
            )


def _write(file: Path, content: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replace_file(file, mode=0o600) as stream:
            stream.write(content.encode())
    except OSError as error:
        raise InvalidFile(f"{file} cannot be written: {error.strerror}. Choose another folder.") from error
