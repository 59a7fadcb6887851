"""A space's statements as Markdown, written for a person and read back: one bullet a memory, below headings."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from afterturn.drafts import successor
from afterturn.errors import AfterturnError, Conflict, InvalidInput, NotAllowed, NotFound
from afterturn.guard.statement_writer import StatementWriter
from afterturn.ports import Unit
from afterturn.space.arguments import target_of
from afterturn.types import (
    Admitted,
    Changed,
    Draft,
    Entry,
    Filter,
    Kind,
    Operation,
    Origin,
    Scope,
    Status,
    Target,
    Verb,
    reference,
)
from afterturn.validation import check_name

if TYPE_CHECKING:
    from afterturn.services import Services

Section: TypeAlias = tuple[Target, str | None]

_TITLE = re.compile(r"# Memories of (\S.*)")
_HEADING = re.compile(r"##[ \t]+(\w+)(?:, project (.+))?")
_BULLET = re.compile(r"[-*+](?:[ \t](.*))?", re.DOTALL)
_INDENT = re.compile(r" {2}|\t")
# The comment at the end of a bullet, which identifies its memory.
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
Each bullet is one memory. Change its text, delete it, move it below another heading, or add one. Indent further
lines of a memory by two spaces. Keep the comment at the end of a bullet: it identifies the memory. Write `pinned` into
it to pin the memory, or remove that word. A new bullet has no comment."""
_HELP_BELOW = """\
The lines below list the memories in this text. A memory that is listed there and
has no bullet is deleted, so do not change these lines."""


@dataclass(frozen=True, slots=True)
class Bullet:
    """One memory in an edited text, with its first line, counted from 1. A new one has neither id nor version."""

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
    """Raises InvalidInput with the number of a line that cannot be read."""
    return _MarkdownReader().read(text.replace("\r\n", "\n").split("\n"))


class _MarkdownReader:
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
                f"Line {number} is not a heading, bullet or comment. Begin it with `- `, or indent it by two "
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
            raise InvalidInput(f"Line {number} is not a valid heading. Use `## user` or `## environment`.")

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
            raise InvalidInput(
                f"There is text after the comment that begins in line {number}. Put it on a line of its own."
            )
        if line.startswith(_SHOWN):
            words = " ".join(lines).partition("-->")[0].removeprefix(_SHOWN).split()
            self._shown = {**(self._shown or {}), **dict(_ref(number, word) for word in words)}

    def _finish(self) -> None:
        opened, self._open, self._blanks = self._open, None, 0
        if opened is None:
            return
        number, lines = opened
        if self._section is None:
            raise InvalidInput(f"Line {number} is not below a heading. Put it below `## user` or `## environment`.")
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
        raise InvalidInput(
            f"{word[:60]!r} in the comment that begins in line {number} is not an id. Restore the comment."
        )
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


# What a person changed in a text that was made of their memories, told apart from what others changed meanwhile.

_MARK_BEGINS = re.compile(r"<!--[ \t]*([0-9a-z]{4,40})[ \t]+v[1-9]")
_TOLD_CHARS = 500
_EDIT_HELP = """\
These changes were not applied; the reason is above each.
Check them, change them or remove them;
then apply this file with `afterturn edit --file`."""
_EDIT_HELP_BELOW = """\
This file deletes nothing,
whatever is missing from it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change in an edited text. `before` is None for a new memory, `bullet` is None for a deleted one."""

    verb: Verb
    before: Entry | None
    bullet: Bullet | None


@dataclass(frozen=True, slots=True)
class SkippedEdit:
    """A change that cannot be made, and why. `current` is the memory as it is now, None if it is gone."""

    edit: Edit
    reason: str
    current: Entry | None = None


@dataclass(frozen=True, slots=True)
class Edits:
    """The changes that `compare_markdown` found. `left` are those that cannot be made."""

    edits: tuple[Edit, ...] = ()
    left: tuple[SkippedEdit, ...] = ()


def compare(sheet: Sheet, bases: Mapping[str, Entry], current: Mapping[str, Entry]) -> Edits:
    """What a person has changed. `bases` are the versions that the text was made of, by `Entry.ref`; `current` the
    active ones, by id. What somebody else changed meanwhile is no change of this person's, unless both did."""
    bullets = list(_recognised(sheet, bases))
    found = [_compare_bullet(bullet, bases, current) for bullet in bullets]
    kept = {bullet.id for bullet in bullets}
    gone = {id: version for id, version in (sheet.shown or {}).items() if id not in kept}
    found += [_compare_gone(id, version, current) for id, version in gone.items()]
    return Edits(
        tuple(one for one in found if isinstance(one, Edit)),
        tuple(one for one in found if isinstance(one, SkippedEdit)),
    )


def _recognised(sheet: Sheet, bases: Mapping[str, Entry]) -> Iterator[Bullet]:
    """A bullet that lost its comment, but not its words, is still that memory."""
    kept = {bullet.id for bullet in sheet.bullets}
    missing = {}
    for id, version in (sheet.shown or {}).items():
        base = bases.get(reference(id, version))
        if id not in kept and base is not None:
            missing[_plain(base.text)] = base
    for bullet in sheet.bullets:
        base = missing.pop(_plain(bullet.text), None) if bullet.id is None else None
        if base is not None:
            bullet = replace(bullet, id=base.id, version=base.version, pinned=bullet.pinned or base.pinned)
        yield bullet


def _compare_bullet(
    bullet: Bullet, bases: Mapping[str, Entry], current: Mapping[str, Entry]
) -> Edit | SkippedEdit | None:
    if bullet.id is None or bullet.version is None:
        _check_marks(bullet, None)
        return Edit(Verb.ADD, None, bullet)
    base, now = bases.get(reference(bullet.id, bullet.version)), current.get(bullet.id)
    if any(entry is not None and _says(entry) == _says(bullet) for entry in (base, now)):
        return None
    _check_marks(bullet, base)
    edit = Edit(Verb.UPDATE, base or now, bullet)
    if now is None:
        what = "deleted" if base is not None else "forgotten"
        return SkippedEdit(edit, f"{bullet.id} was {what} meanwhile.")
    if now.version != bullet.version:
        return SkippedEdit(edit, _moved_on(now, bullet.version), now)
    return edit


def _check_marks(bullet: Bullet, base: Entry | None) -> None:
    """InvalidInput when words stand behind a comment, or two bullets were joined: one would be deleted unawares."""
    known = frozenset() if base is None else frozenset(_MARK_BEGINS.findall(base.text))
    if set(_MARK_BEGINS.findall(bullet.text)) - known:
        raise InvalidInput(
            f"The bullet in line {bullet.line} has a memory's comment inside its text. Move the text before it, or "
            "remove it."
        )


def _compare_gone(id: str, version: int, current: Mapping[str, Entry]) -> Edit | SkippedEdit | None:
    now = current.get(id)
    if now is None:
        return None
    edit = Edit(Verb.DELETE, now, None)
    return edit if now.version == version else SkippedEdit(edit, _moved_on(now, version), now)


def _moved_on(now: Entry, version: int) -> str:
    return f"{now.id} was changed meanwhile: it was version {version} and is now version {now.version}."


def _says(one: Entry | Bullet) -> tuple[str, Target, str | None, bool]:
    return _plain(one.text), one.target, one.project, one.pinned


def _plain(text: str) -> str:
    """As it is written for a person, without what editors do to lines' ends."""
    lines = drawn(unicodedata.normalize("NFC", text)).strip().split("\n")
    return "\n".join(line.rstrip() for line in lines)


def render_left(space: str, left: Iterable[SkippedEdit]) -> str:
    """What could not be done, in a text that does it once somebody has looked at it. It deletes nothing.

    Blank when there is nothing to keep: the words of what was forgotten are not.
    """
    parts = [_render_left(one) for one in left if one.edit.before is not None or one.edit.verb is Verb.ADD]
    return (
        "".join([TITLE.format(space=space, told=_EDIT_HELP), *parts, ENDING.format(told=_EDIT_HELP_BELOW)])
        if parts
        else ""
    )


def _render_left(left: SkippedEdit) -> str:
    bullet, before, now = left.edit.bullet, left.edit.before, left.current
    says = "" if now is None else f" Its current text: {_commented(now.text)}"
    told = f"\n<!-- Not applied: {_commented(left.reason)}{says} -->\n"
    if bullet is None:
        assert before is not None
        return f"{told}<!-- You deleted it. To delete it now: afterturn delete {before.id} -->\n"
    mark = mark_of(replace(now, pinned=bullet.pinned)) if now is not None else PINNED if bullet.pinned else ""
    return f"{told}\n{heading_of((bullet.target, bullet.project))}\n\n{bullet_of(bullet.text, mark)}"


def _commented(text: str) -> str:
    line = " ".join(text[:_TOLD_CHARS].split()).replace("--", "- -")
    return line if len(text) <= _TOLD_CHARS else line + "…"


# A person's edits of a space as Markdown: the text, what it changes, and that done as one group that `undo` takes.

ENTRIES_MAX = 10_000
_PAGE = 1000
# What goes makes room for what comes, and sets words free.
_ORDER = (Verb.DELETE, Verb.UPDATE, Verb.ADD)


@dataclass(frozen=True, slots=True)
class Edited:
    """The result of `apply_edits`.

    `group` is what `undo` takes, None if nothing changed. `known` counts new bullets that were stored already. `left`
    are the changes that were not made.
    """

    group: str | None
    changed: tuple[Changed, ...] = ()
    known: int = 0
    left: tuple[SkippedEdit, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    edit: Edit
    operation: Operation
    admitted: Admitted | None


async def as_markdown(services: Services, space: str, *, target: str | None, project: str | None) -> str:
    """The active statements. InvalidInput when there are too many for one text."""
    chosen = None if target is None else target_of(target)
    narrowed = Filter(
        kind=Kind.STATEMENT,
        target=chosen,
        project=None if project is None else check_name(project, "project"),
    )
    scope = Scope(services.tenant, (space,))
    entries = await services.store.read(lambda unit: _statements(unit, scope, narrowed))
    targets = tuple(Target) if chosen is None else (chosen,)
    sections: list[Section] = [(one, narrowed.project) for one in targets]
    return render(space, entries, sections)


async def compare_markdown(services: Services, space: str, text: str) -> Edits:
    """Returns what applying the text would change. Raises InvalidInput with the number of an unreadable line."""
    sheet = parse(text)
    if sheet.space is not None and sheet.space != space:
        raise InvalidInput(f"This is a text of {sheet.space}, not of {space}. Name that space to apply it.")
    if sheet.is_blank:
        return Edits()
    scope = Scope(services.tenant, (space,))
    return await services.store.read(lambda unit: _compare(unit, scope, sheet))


async def apply_edits(services: Services, space: str, edits: Edits) -> Edited:
    """Applies the edits in one transaction, as the user's own words. Those that cannot be applied are in `left`."""
    group, at = services.ids.new(), services.clock.now()
    prepared, left = [], list(edits.left)
    for edit in sorted(edits.edits, key=lambda one: _ORDER.index(one.verb)):
        operation = Operation(services.ids.new(), services.tenant, space, edit.verb, Origin.USER, at, group)
        try:
            admitted = None if edit.bullet is None else services.gate.admit(_draft(edit))
        except InvalidInput as error:
            left.append(SkippedEdit(edit, str(error), edit.before))
        else:
            prepared.append(_Prepared(edit, operation, admitted))
    edited = await services.store.write(lambda unit: _apply(unit, services.statement_writer, prepared, group))
    services.wake_jobs()
    return replace(edited, left=(*left, *edited.left))


def _statements(unit: Unit, scope: Scope, narrowed: Filter) -> list[Entry]:
    found: list[Entry] = []
    before: str | None = None
    while page := unit.memories.page(scope, narrowed, limit=_PAGE, before=before):
        found += page
        before = page[-1].id
        if len(found) > ENTRIES_MAX:
            raise InvalidInput(
                f"There are more than {ENTRIES_MAX} memories, too many to edit at once. Narrow it by target or project."
            )
    return found


def _compare(unit: Unit, scope: Scope, sheet: Sheet) -> Edits:
    named = dict(sheet.shown or {})
    refs = set(named.items()) | {(one.id, one.version) for one in sheet.bullets if one.id and one.version}
    bases = {reference(id, version): entry for id, version in refs if (entry := _find(unit, scope, id, version))}
    current = {
        id: entry
        for id in {id for id, _ in refs}
        if (entry := _find(unit, scope, id)) and entry.status is Status.ACTIVE
    }
    return compare(sheet, bases, current)


def _find(unit: Unit, scope: Scope, entry_id: str, version: int | None = None) -> Entry | None:
    try:
        found = unit.memories.get(scope, entry_id, version=version)
    except NotFound:
        return None
    return found if found.kind is Kind.STATEMENT else None


def _apply(unit: Unit, writer: StatementWriter, prepared: Sequence[_Prepared], group: str) -> Edited:
    first, waiting = _write_all(unit, writer, prepared)
    # Again: one memory may take the words that another gives up only after it.
    second, refused = _write_all(unit, writer, list(waiting))
    written = first + second
    changed = tuple(Changed(entry, one.operation.id) for one, entry in written if entry is not None)
    return Edited(group if changed else None, changed, len(written) - len(changed), tuple(_left(unit, refused)))


def _write_all(
    unit: Unit, writer: StatementWriter, prepared: Sequence[_Prepared]
) -> tuple[list[tuple[_Prepared, Entry | None]], dict[_Prepared, AfterturnError]]:
    """What was done, and what was not."""
    written: list[tuple[_Prepared, Entry | None]] = []
    refused: dict[_Prepared, AfterturnError] = {}
    for one in prepared:
        try:
            written.append((one, _write(unit, writer, one)))
        except (Conflict, NotFound, NotAllowed, InvalidInput) as error:
            refused[one] = error
    return written, refused


def _write(unit: Unit, writer: StatementWriter, prepared: _Prepared) -> Entry | None:
    """The entry as it is now; None when the space says so already."""
    before, operation, admitted = prepared.edit.before, prepared.operation, prepared.admitted
    if before is None:
        assert admitted is not None
        added = writer.add(unit, operation, admitted)
        return added.entry if added.operation is not None else None
    if admitted is None:
        trust = Origin.USER.trust
        return writer.delete(unit, operation, before.id, trust=trust, expected_version=before.version)
    return writer.update(unit, operation, before.id, admitted, expected_version=before.version)


def _left(unit: Unit, refused: Mapping[_Prepared, AfterturnError]) -> Iterator[SkippedEdit]:
    for one, error in refused.items():
        before, now = one.edit.before, None
        if before is not None:
            now = _find(unit, Scope(one.operation.tenant, (one.operation.space,)), before.id)
        yield SkippedEdit(one.edit, str(error), now if now is not None and now.status is Status.ACTIVE else None)


def _draft(edit: Edit) -> Draft:
    bullet = edit.bullet
    assert bullet is not None
    if edit.before is None:
        draft = Draft(bullet.text)
    else:
        draft = replace(successor(edit.before, bullet.text), origin=Origin.USER)
    return replace(draft, target=bullet.target, project=bullet.project, pinned=bullet.pinned)
