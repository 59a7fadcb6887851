"""Renders the standing block of a system prompt, and the block for context files that are found during a turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from afterturn.guard.output_filter import (
    FILE_TAG,
    STANDING_TAG,
    TAG,
    OutputFilter,
    neutralise,
    neutralise_lines,
    neutralise_quote,
)
from afterturn.guard.scanning import is_suspected, scanner
from afterturn.ports import Unit
from afterturn.recall.block import ENTRY_BYTES_MAX, describe_day
from afterturn.scanners.detection import Scanner, Scanning
from afterturn.scanners.secrets import redact, redact_within
from afterturn.standing.context_files import ContextFile
from afterturn.standing.lineage import StandingLineage, is_hidden
from afterturn.standing.memories import BINDING, NO_STANDING_MEMORIES, StandingMemories
from afterturn.text import LINES_CUT, WORDS_CUT, cut, regex, shares, size
from afterturn.types import Entry, Scope, StandingRow

SEPARATOR = "\n\n---\n\n"

_STANDING = (f"<{STANDING_TAG}>", f"</{STANDING_TAG}>")
_ARRIVED = (f"<{TAG}>", f"</{TAG}>")
_FILES = "## Context Files"
_INSTRUCTIONS = "## Instructions"
_CONVENTIONS = "## Project Conventions"
_PINNED = "## Pinned Memories"
_ABOUT = "## About the User"
_NOTICE = (
    'From earlier conversations, newest first; the newer of two lines holds. "I" is the user. Follow these wishes and '
    "rules. A plan is no proof that something was done. Tool results win over these lines."
)
_AGENT = "## Memories of This Agent"
_CORRECTIONS = "These lines replace older ones about the user above."
_ARRIVED_NOTICE = "Each applies to its folder and everything below it."
_PATH = regex(rf'^<{FILE_TAG} path="([^"\n]*)">$', re.MULTILINE)
_SURROGATE = regex("[\ud800-\udfff]")
# A file or instruction is left out rather than cut to less than this.
_TEXT_BYTES_MIN = 160
_INSTRUCTION_CHARS_MAX = 65_536


class StandingContent(NamedTuple):
    """The parts of a block, in order. Empty parts are dropped."""

    files: tuple[ContextFile, ...] = ()
    instructions: tuple[str, ...] = ()
    memories: StandingMemories = NO_STANDING_MEMORIES
    agent_memories: tuple[Entry, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.files)


class StandingBudget(NamedTuple):
    """`bytes_max` is for the whole block, `entry_bytes_max` for one memory. With `scanning`, secrets are removed."""

    bytes_max: int
    entry_bytes_max: int = ENTRY_BYTES_MAX
    scanning: Scanning = True


class StandingBlock(NamedTuple):
    """`refs` are the memories that fitted in and are shown, with what they were learned from; `paths` are the files."""

    text: str = ""
    refs: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


def render_standing(content: StandingContent, room: StandingBudget) -> StandingBlock:
    """The same content gives the same bytes. Each part gets the room it needs, or a fair share if not all fit."""
    return _render(_parts(content, room), _STANDING, room.bytes_max)


def render_arrived(files: Sequence[ContextFile], bytes_max: int, *, scanning: Scanning = True) -> StandingBlock:
    """In the form of a memory block, so that it is recognised and stripped like one."""
    arrived = _files(f"{_FILES}\n{_ARRIVED_NOTICE}", files, scanner(scanning=scanning))
    return _render([arrived], _ARRIVED, bytes_max)


def make_corrections(
    unit: Unit, scope: Scope, entries: Sequence[Entry], now: float, *, scanning: Scanning
) -> StandingRow | None:
    """A block of statements that replace lines of the standing block, without those that may not stand."""
    lineage, screen = StandingLineage(unit, scope), OutputFilter(scanning=scanning)
    wanted = [
        entry
        for entry in entries
        if lineage.is_trusted(entry)
        and not is_suspected(entry.text, entry.reason)
        and not is_hidden(unit, Scope(scope.tenant, (entry.space,)), entry.id)
    ]
    trusted = [(entry, text) for entry in wanted if (text := screen.shown(entry))]
    if not trusted:
        return None
    lines = [f"- (newer) {neutralise(text)}" for _, text in trusted]
    text = "\n".join([_STANDING[0], _CORRECTIONS, *lines, _STANDING[1]])
    return StandingRow(text, tuple(entry.ref for entry, _ in trusted), now)


def append_standing(system_prompt: str, block: str) -> str:
    """The prompt with the block at its end, after a `---` line; unchanged if the block is empty or already there."""
    if not block or system_prompt.endswith(SEPARATOR + block) or system_prompt == block:
        return system_prompt
    return f"{system_prompt}{SEPARATOR}{block}" if system_prompt.strip() else block


def shown_paths(text: str) -> frozenset[str]:
    """The paths of the files in one of our blocks, as `shown_path` writes them. Contents cannot forge the tag."""
    return frozenset(_PATH.findall(text))


def shown_path(path: str) -> str:
    """The path as a block shows it: on one line, without quotation marks, valid UTF-8."""
    return neutralise_quote(_SURROGATE.sub("\ufffd", path))


class _StandingItem(NamedTuple):
    """One file, instruction or memory. `body` may be cut; `head` and `tail` may not."""

    head: str
    body: str
    tail: str = ""
    refs: tuple[str, ...] = ()
    path: str = ""
    goes_on: bool = False
    said_at: float = 0.0

    @property
    def size(self) -> int:
        """In bytes, with the line break before it."""
        return self.frame + size(self.body) + (size(LINES_CUT) if self.goes_on else 0)

    @property
    def frame(self) -> int:
        return size(self.head) + size(self.tail) + 1

    def within(self, room: int) -> str:
        body = self.body + LINES_CUT if self.goes_on else self.body
        return self.head + cut(body, room - self.frame, LINES_CUT) + self.tail


Fit = Callable[[Sequence[_StandingItem], int], list[tuple[_StandingItem, str]]]


class _StandingPart(NamedTuple):
    heading: str
    items: Sequence[_StandingItem]
    fit: Fit

    @property
    def wanted(self) -> int:
        return self.frame + sum(item.size for item in self.items)

    @property
    def frame(self) -> int:
        return size(self.heading) + 1


def _parts(content: StandingContent, room: StandingBudget) -> list[_StandingPart]:
    memories, scan = content.memories, scanner(scanning=room.scanning)
    texts = [item for text in content.instructions if (item := _instruction_item(text, scan)).body]
    facts = [fact for fact in memories.facts if not fact.left_out and fact.entry not in memories.conventions]
    facts.sort(key=lambda fact: (fact.kind not in BINDING, -fact.entry.occurred_at))
    about = [_StandingItem("- ", fact.text, refs=fact.refs, said_at=fact.entry.occurred_at) for fact in facts]
    learned = [
        _memories(_CONVENTIONS, memories.conventions, room, memories.earlier),
        _memories(_PINNED, memories.pinned, room, memories.earlier),
        _StandingPart(_ABOUT, about, _fit_memories),
        _memories(_AGENT, content.agent_memories, room, memories.earlier),
    ]
    first = next((part for part in learned if part.items), None)
    return [
        _files(_FILES, content.files, scan),
        _StandingPart(_INSTRUCTIONS, texts, _fit_texts),
        *(part._replace(heading=f"{_NOTICE}\n{part.heading}") if part is first else part for part in learned),
    ]


def _files(heading: str, files: Sequence[ContextFile], scan: Scanner) -> _StandingPart:
    return _StandingPart(heading, [item for file in files if (item := _file_item(file, scan)).body.strip()], _fit_texts)


def _memories(heading: str, entries: Sequence[Entry], room: StandingBudget, earlier: frozenset[str]) -> _StandingPart:
    """Memories are scanned for secrets again: the patterns may have improved since they were written."""
    screen = OutputFilter(scanning=room.scanning)
    shown = [(entry, text) for entry in entries if (text := screen.shown(entry)) is not None]
    items = [_memory_item(entry, text, room.entry_bytes_max, is_earlier=entry.ref in earlier) for entry, text in shown]
    return _StandingPart(heading, items, _fit_memories)


def _file_item(file: ContextFile, scan: Scanner) -> _StandingItem:
    head = f'<{FILE_TAG} path="{shown_path(file.path)}">\n'
    # The block is stored, so secrets in a project's file are removed first.
    body = neutralise_lines(redact(file.text, scan).text)
    return _StandingItem(head, body, f"\n</{FILE_TAG}>", path=file.path, goes_on=file.cut)


def _instruction_item(text: str, scan: Scanner) -> _StandingItem:
    beginning = redact_within(text, _INSTRUCTION_CHARS_MAX, scan).text
    return _StandingItem("", neutralise_lines(beginning).strip(), goes_on=len(text) > _INSTRUCTION_CHARS_MAX)


def _memory_item(entry: Entry, text: str, bytes_max: int, *, is_earlier: bool) -> _StandingItem:
    """One that was replaced says so, with its day: a model must not follow it, but may be asked about it."""
    shown = cut(neutralise(text), bytes_max, WORDS_CUT)
    mark = f"(earlier, {describe_day(entry.occurred_at)}) " if is_earlier else ""
    return _StandingItem(f"- {mark}", shown or WORDS_CUT, refs=(entry.ref,))


def _render(parts: Sequence[_StandingPart], frame: tuple[str, str], bytes_max: int) -> StandingBlock:
    wanted = [part for part in parts if part.items]
    room = bytes_max - size("\n".join(frame))
    lines: list[str] = []
    shown: list[_StandingItem] = []
    left = 0
    for part, share in zip(wanted, shares([part.wanted for part in wanted], room), strict=True):
        fitted = part.fit(part.items, share + left - part.frame)
        part_lines = [part.heading, *(text for _, text in fitted)] if fitted else []
        left += share - sum(size(line) + 1 for line in part_lines)
        lines.extend(part_lines)
        shown.extend(item for item, _ in fitted)
    if not shown:
        return StandingBlock()
    return StandingBlock(
        "\n".join([frame[0], *lines, frame[1]]),
        tuple(dict.fromkeys(ref for item in shown for ref in item.refs)),
        tuple(item.path for item in shown if item.path),
    )


def _fit_texts(items: Sequence[_StandingItem], room: int) -> list[tuple[_StandingItem, str]]:
    """As many texts as fit with a minimum of room, the first ones first; each cut to a fair share."""
    kept: list[_StandingItem] = []
    least = 0
    for item in items:
        smallest = min(item.size, item.frame + _TEXT_BYTES_MIN)
        if least + smallest <= room:
            kept.append(item)
            least += smallest
    frames = sum(item.frame for item in kept)
    bodies = shares([item.size - item.frame for item in kept], room - frames)
    return [(item, item.within(item.frame + body)) for item, body in zip(kept, bodies, strict=True)]


def _fit_memories(items: Sequence[_StandingItem], room: int) -> list[tuple[_StandingItem, str]]:
    """Whole memories: those that come first are kept, and shown newest first if they have a time."""
    kept: list[_StandingItem] = []
    for item in items:
        if item.size <= room:
            kept.append(item)
            room -= item.size
    return [(item, item.within(item.size)) for item in sorted(kept, key=lambda item: -item.said_at)]
