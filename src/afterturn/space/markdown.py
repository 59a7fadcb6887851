"""A space's statements as Markdown, written for a person and read back: one bullet a memory, below headings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from afterturn.base.errors import InvalidInput
from afterturn.base.names import check_name
from afterturn.base.types import Entry, Target
from afterturn.space.fields import target_of

Section: TypeAlias = tuple[Target, str | None]

_TITLE = re.compile(r"# Memories of (\S.*)")
_HEADING = re.compile(r"##[ \t]+(\w+)(?:, project (.+))?")
_BULLET = re.compile(r"[-*+](?:[ \t](.*))?", re.DOTALL)
_INDENT = re.compile(r" {2}|\t")
# What ties a bullet to its memory stands at the end of its last line.
_MARK = re.compile(r"<!--[ \t]*([0-9a-z]{4,40})[ \t]+v([1-9][0-9]{0,17})((?:[ \t]+pinned)?)[ \t]*-->")
_PINNED = re.compile(r"<!--[ \t]*pinned[ \t]*-->")
_REF = re.compile(r"([0-9a-z]{4,40})(?:\.([1-9][0-9]{0,17}))?")
_SHOWN = "<!-- shown"
PINNED = "<!-- pinned -->"
_SIGNS = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
_REFS_A_LINE = 5
# Editors read settings from the first and last lines of a file, and a memory must give them none: there are at least
# five lines of ours before and after.
TITLE = "# Memories of {space}\n\n<!-- {told} -->\n"
ENDING = "\n<!--\n{told}\n-->\n"
_HELP = """\
One bullet is one memory. Change its words, delete it, move it below another heading, or add one; further lines
of a memory are indented by two spaces. The comment at a bullet's end says which memory it is: leave it there, and
write `pinned` into it or take that out. A new bullet has none."""
_HELP_BELOW = """\
The lines below name the memories that this text was made of. What is named there
and has no bullet any more is deleted, so leave them as they are."""


@dataclass(frozen=True, slots=True)
class Bullet:
    """One memory as a text has it, from line `line` on, counted from 1. A new one has neither id nor version."""

    line: int
    text: str
    target: Target
    project: str | None = None
    pinned: bool = False
    id: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a text says. `shown` are the ids that it was made of, with their versions; None when it does not say."""

    bullets: tuple[Bullet, ...] = ()
    shown: Mapping[str, int] | None = None
    space: str | None = None
    is_blank: bool = True


# Writing.


def render(space: str, entries: Iterable[Entry], sections: Iterable[Section] = ()) -> str:
    """One bullet a memory, oldest first, below headings; `sections` have one though nothing stands there."""
    by_section: dict[Section, list[Entry]] = {section: [] for section in sections}
    for entry in sorted(entries, key=lambda one: one.id):
        by_section.setdefault((entry.target, entry.project), []).append(entry)
    parts = [TITLE.format(space=space, told=_HELP)]
    for section in sorted(by_section, key=_order):
        parts.append(f"\n{heading_of(section)}\n\n")
        parts.extend(bullet_of(entry.text, mark_of(entry)) for entry in by_section[section])
    refs = [entry.ref for found in by_section.values() for entry in found]
    lines = [" ".join(refs[at : at + _REFS_A_LINE]) for at in range(0, len(refs), _REFS_A_LINE)]
    return "".join([*parts, ENDING.format(told=_HELP_BELOW), "\n".join([_SHOWN, *lines, "-->"]), "\n"])


def _order(section: Section) -> tuple[int, str]:
    return list(Target).index(section[0]), section[1] or ""


def heading_of(section: Section) -> str:
    target, project = section
    return f"## {target}" if project is None else f"## {target}, project {_quoted(project)}"


def _quoted(project: str) -> str:
    """As it is, where an editor that trims lines does it no harm."""
    return json.dumps(project, ensure_ascii=False) if project != project.strip() or project[0] == '"' else project


def mark_of(entry: Entry) -> str:
    return f"<!-- {entry.id} v{entry.version}{' pinned' if entry.pinned else ''} -->"


def bullet_of(text: str, mark: str) -> str:
    shown = drawn(text)
    first, *others = (f"{shown} {mark}" if mark else shown).split("\n")
    return "\n".join([f"- {first}", *(f"  {line}" if line.strip() else "" for line in others)]) + "\n"


def drawn(text: str) -> str:
    """With a sign for each control character but line breaks and tabs: it must neither steer a terminal nor be lost on
    its way through one, so that a text which nobody edited comes back as it was."""
    return text.replace("\r\n", "\n").translate(_SIGNS)


# Reading.


def parse(text: str) -> Sheet:
    """InvalidInput names the line that can not be read."""
    return _Reader().read(text.replace("\r\n", "\n").split("\n"))


class _Reader:
    """Goes through the lines once; a bullet is finished when the next thing begins."""

    def __init__(self) -> None:
        self._section: Section | None = None
        self._bullets: list[Bullet] = []
        self._lines: dict[str, int] = {}
        self._open: tuple[int, list[str]] | None = None
        self._blanks = 0
        self._shown: dict[str, int] | None = None
        self._space: str | None = None

    def read(self, lines: Sequence[str]) -> Sheet:
        numbered = iter(enumerate(lines, start=1))
        for number, line in numbered:
            if not line.strip():
                self._blanks += 1
            elif _INDENT.match(line):
                self._go_on(number, line)
            else:
                self._finish()
                self._begin(number, line, numbered)
        self._finish()
        is_blank = self._section is None and not self._bullets
        return Sheet(tuple(self._bullets), self._shown, self._space, is_blank)

    def _begin(self, number: int, line: str, following: Iterator[tuple[int, str]]) -> None:
        line = line.rstrip(" \t")
        if line.startswith("<!--"):
            self._comment(number, line, following)
        elif line.startswith("#"):
            self._title(number, line)
        elif (found := _BULLET.fullmatch(line)) is not None:
            self._open = (number, [found.group(1) or ""])
        else:
            raise InvalidInput(
                f"Line {number} is no heading, no bullet and no comment. Begin it with `- `, or indent it by two "
                "spaces if it goes on from the line above."
            )

    def _go_on(self, number: int, line: str) -> None:
        if self._open is None:
            raise InvalidInput(f"Line {number} is indented, but goes on from no bullet. Begin it with `- `.")
        self._open[1].extend([""] * self._blanks)
        self._open[1].append(_INDENT.sub("", line, count=1))
        self._blanks = 0

    def _title(self, number: int, line: str) -> None:
        title, heading = _TITLE.fullmatch(line), _HEADING.fullmatch(line)
        if title is not None:
            self._space = title.group(1)
        elif heading is not None:
            self._section = _section(number, heading.group(1), heading.group(2))
        else:
            raise InvalidInput(f"Line {number} is no heading of this file. Use `## user` or `## environment`.")

    def _comment(self, number: int, line: str, following: Iterator[tuple[int, str]]) -> None:
        if _MARK.fullmatch(line) is not None:
            raise InvalidInput(f"The comment in line {number} belongs to no bullet. Put it behind the bullet's words.")
        lines = [line]
        while "-->" not in lines[-1]:
            _, after = next(following, (0, None))
            if after is None:
                raise InvalidInput(f"The comment that begins in line {number} does not end. Close it with `-->`.")
            lines.append(after)
        if lines[-1].partition("-->")[2].strip():
            raise InvalidInput(f"Something stands behind the comment that begins in line {number}. Give it a line.")
        if line.startswith(_SHOWN):
            words = " ".join(lines).partition("-->")[0].removeprefix(_SHOWN).split()
            self._shown = {**(self._shown or {}), **dict(_ref(number, word) for word in words)}

    def _finish(self) -> None:
        opened, self._open, self._blanks = self._open, None, 0
        if opened is None:
            return
        number, lines = opened
        if self._section is None:
            raise InvalidInput(f"Line {number} stands below no heading. Put it below `## user` or `## environment`.")
        bullet = _read_bullet(number, "\n".join(lines), self._section)
        if bullet.id is not None and self._lines.setdefault(bullet.id, number) != number:
            raise InvalidInput(
                f"Line {number} names {bullet.id}, and so does line {self._lines[bullet.id]}. Take the comment off the "
                "new one."
            )
        self._bullets.append(bullet)


def _section(number: int, target: str, project: str | None) -> Section:
    try:
        name = json.loads(project) if project is not None and project.startswith('"') else project
        return target_of(target.lower()), None if name is None else check_name(name, "project")
    except ValueError as error:
        raise InvalidInput(f"Line {number}: {error}") from error


def _ref(number: int, word: str) -> tuple[str, int]:
    found = _REF.fullmatch(word)
    if found is None:
        raise InvalidInput(f"{word[:60]!r} in the comment that begins in line {number} is no id. Leave it as it was.")
    return found.group(1), int(found.group(2) or 1)


def _read_bullet(number: int, text: str, section: Section) -> Bullet:
    body, bar, ending = text.rpartition("<!--")
    comment = (bar + ending).rstrip()
    if (mark := _MARK.fullmatch(comment)) is not None:
        bullet = Bullet(number, body.strip(), *section, bool(mark.group(3)), mark.group(1), int(mark.group(2)))
    elif bar and _PINNED.fullmatch(comment) is not None:
        bullet = Bullet(number, body.strip(), *section, True)
    elif comment.endswith("-->") or (bar and "-->" not in comment):
        raise InvalidInput(
            f"The comment at the end of the bullet in line {number} is not whole. Restore it, or take it out."
        )
    else:
        bullet = Bullet(number, text.strip(), *section)
    if not bullet.text:
        raise InvalidInput(f"The bullet in line {number} says nothing. To delete a memory, delete its bullet.")
    return bullet
