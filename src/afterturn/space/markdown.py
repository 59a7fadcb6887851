"""A space's statements as Markdown that a person edits: renders it, reads it back, compares and applies the changes."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import chain, islice
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from afterturn.errors import AfterturnError, Conflict, InvalidInput, NotAllowed, NotFound
from afterturn.guard.statement_writer import StatementWriter
from afterturn.guard.trust import TRUST_MIN, find_entry
from afterturn.ports import Unit
from afterturn.scanners.invisible import clean
from afterturn.space.arguments import SpaceVerbs, parse_target
from afterturn.space.transfer import every_entry
from afterturn.text import is_unspaced, regex, words
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
    Step,
    Target,
    Verb,
    reference,
)
from afterturn.validation import check_name

Section: TypeAlias = tuple[Target, str | None]

_TITLE = regex(r"# Memories of (\S.*)")
_HEADING = regex(r"##[ \t]+(\w+)(?:, project (.+))?")
_BULLET = regex(r"[-*+](?:[ \t](.*))?", re.DOTALL)
_INDENT = regex(r" {2}|\t")
# The comment at the end of a bullet, which identifies its memory.
_MARK = regex(
    r"<!--[ \t]*([0-9a-z]{4,40})[ \t]+v([1-9][0-9]{0,17})"
    r"((?:[ \t]+(?:pinned|firm|quoted|from[ \t]+[a-z_]{1,30},?))*)[ \t]*-->"
)
_PINNED = regex(r"<!--[ \t]*pinned[ \t]*-->")
_REF = regex(r"([0-9a-z]{4,40})(?:\.([1-9][0-9]{0,17}))?")
_SHOWN = "<!-- shown"
PINNED = "<!-- pinned -->"
_SIGNS = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
_REFS_A_LINE = 5
# Editors read settings (modelines) from the first and last five lines of a file. These lines keep memories out of
# there.
TITLE = "# Memories of {space}\n\n<!-- {help} -->\n"
ENDING = "\n<!--\n{help}\n-->\n"
_HELP = """\
Each bullet is one memory. Change its text, delete it, move it below another heading, or add one. Indent further
lines of a memory by two spaces. Keep the comment at the end of a bullet: it identifies the memory. Write `pinned` into
it to pin the memory, or remove that word. A new bullet has no comment. The comment also says who wrote a memory, if
it was not you, and whether it is a firm rule, which cannot be changed here. Whatever you change of a memory that is
quoted, it stays a report of others, and so do its words in another bullet: to make it yours, write a new bullet in
your own words."""
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


class MarkdownText(NamedTuple):
    """A text that was read. `shown` are the ids and versions that it was rendered from; None if not listed."""

    bullets: tuple[Bullet, ...] = ()
    shown: Mapping[str, int] | None = None
    space: str | None = None
    is_blank: bool = True


def render(space: str, entries: Iterable[Entry], sections: Iterable[Section] = ()) -> str:
    """One bullet per memory, oldest first, below headings. `sections` get a heading even if they are empty."""
    by_section: dict[Section, list[Entry]] = {section: [] for section in sections}
    for entry in sorted(entries, key=lambda one: one.id):
        by_section.setdefault((entry.target, entry.project), []).append(entry)
    parts = [TITLE.format(space=space, help=_HELP)]
    for section in sorted(by_section, key=lambda one: (list(Target).index(one[0]), one[1] or "")):
        parts.append(f"\n{render_heading(section)}\n\n")
        parts.extend(render_bullet(entry.text, render_mark(entry)) for entry in by_section[section])
    refs = [entry.ref for found in by_section.values() for entry in found]
    lines = [" ".join(refs[at : at + _REFS_A_LINE]) for at in range(0, len(refs), _REFS_A_LINE)]
    return "".join([*parts, ENDING.format(help=_HELP_BELOW), "\n".join([_SHOWN, *lines, "-->"]), "\n"])


def render_heading(section: Section) -> str:
    """The project is quoted only if an editor that trims lines would change it."""
    target, project = section
    if project is not None and (project != project.strip() or project[0] == '"'):
        project = json.dumps(project, ensure_ascii=False)
    return f"## {target}" if project is None else f"## {target}, project {project}"


def render_mark(entry: Entry) -> str:
    origin = "" if entry.origin is Origin.USER else f" from {entry.origin}"
    quoted = ", quoted" if origin and entry.trust < TRUST_MIN else ""
    marks = f"{' pinned' if entry.pinned else ''}{' firm' if entry.firm else ''}"
    return f"<!-- {entry.id} v{entry.version}{marks}{origin}{quoted} -->"


def render_bullet(text: str, mark: str) -> str:
    shown = show_controls(text)
    first, *others = (f"{shown} {mark}" if mark else shown).split("\n")
    return "\n".join([f"- {first}", *(f"  {line}" if line.strip() else "" for line in others)]) + "\n"


def show_controls(text: str) -> str:
    """Replaces control characters, except line breaks and tabs, by visible signs, and removes other hidden ones: they
    must not control a terminal, and an editor might drop them, which would look like an edit. A text of nothing else
    is shown as an ellipsis."""
    shown = clean(text.replace("\r\n", "\n").translate(_SIGNS))
    return shown if shown.strip() or not text.strip() else "…"


def parse(text: str) -> MarkdownText:
    """Raises InvalidInput with the number of a line that cannot be read."""
    return _MarkdownReader().read(text.replace("\r\n", "\n").split("\n"))


class _MarkdownReader:
    """Reads the lines once. A bullet ends where the next bullet, heading or comment begins."""

    def __init__(self) -> None:
        self._section: Section | None = None
        self._bullets: list[Bullet] = []
        self._lines: dict[str, int] = {}
        self._open_bullet: tuple[int, list[str]] | None = None
        self._blanks = 0
        self._shown: dict[str, int] | None = None
        self._space: str | None = None

    def read(self, lines: Sequence[str]) -> MarkdownText:
        numbered = iter(enumerate(lines, start=1))
        for number, line in numbered:
            if not line.strip():
                self._blanks += 1
            elif _INDENT.match(line):
                if self._open_bullet is None:
                    raise InvalidInput(f"Line {number} is indented, but goes on from no bullet. Begin it with `- `.")
                self._open_bullet[1].extend([""] * self._blanks)
                self._open_bullet[1].append(_INDENT.sub("", line, count=1))
                self._blanks = 0
            else:
                self._finish_bullet()
                self._read_line(number, line, numbered)
        self._finish_bullet()
        is_blank = self._section is None and not self._bullets
        return MarkdownText(tuple(self._bullets), self._shown, self._space, is_blank)

    def _read_line(self, number: int, line: str, following: Iterator[tuple[int, str]]) -> None:
        line = line.rstrip(" \t")
        if line.startswith("<!--"):
            self._read_comment(number, line, following)
        elif line.startswith("#"):
            title, heading = _TITLE.fullmatch(line), _HEADING.fullmatch(line)
            if title is not None:
                self._space = title.group(1)
            elif heading is not None:
                self._section = _section(number, heading.group(1), heading.group(2))
            else:
                raise InvalidInput(f"Line {number} is not a valid heading. Use `## user` or `## environment`.")
        elif (found := _BULLET.fullmatch(line)) is not None:
            self._open_bullet = (number, [found.group(1) or ""])
        else:
            raise InvalidInput(
                f"Line {number} is not a heading, bullet or comment. Begin it with `- `, or indent it by two "
                "spaces if it goes on from the line above."
            )

    def _read_comment(self, number: int, line: str, following: Iterator[tuple[int, str]]) -> None:
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
            self._shown = self._shown or {}
            for word in " ".join(lines).partition("-->")[0].removeprefix(_SHOWN).split():
                if (found := _REF.fullmatch(word)) is None:
                    raise InvalidInput(
                        f"{word[:60]!r} in the comment that begins in line {number} is not an id. Restore the comment."
                    )
                self._shown[found.group(1)] = int(found.group(2) or 1)

    def _finish_bullet(self) -> None:
        opened, self._open_bullet, self._blanks = self._open_bullet, None, 0
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
        return parse_target(target.lower()), None if name is None else check_name(name, "project")
    except ValueError as error:
        raise InvalidInput(f"Line {number}: {error}") from error


def _read_bullet(number: int, text: str, section: Section) -> Bullet:
    body, bar, ending = text.rpartition("<!--")
    comment = (bar + ending).rstrip()
    if (mark := _MARK.fullmatch(comment)) is not None:
        pinned = "pinned" in mark.group(3).split()
        bullet = Bullet(number, body.strip(), *section, pinned, mark.group(1), int(mark.group(2)))
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


_MARK_BEGINS = regex(r"<!--[ \t]*([0-9a-z]{4,40})[ \t]+v[1-9]")
_EXCERPT_CHARS = 500
_EDIT_HELP = """\
These changes were not applied; the reason is above each.
Check them, change them or remove them;
then apply this file with `afterturn edit --file`."""
_EDIT_HELP_BELOW = """\
This file deletes nothing,
whatever is missing from it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change in an edited text. `before` is None for a new memory, `bullet` is None for a deleted one.

    `copied_from` is the report of others whose words a new memory repeats: it becomes a report of the same origin.
    """

    verb: Verb
    before: Entry | None
    bullet: Bullet | None
    copied_from: Entry | None = None


@dataclass(frozen=True, slots=True)
class SkippedEdit:
    """A change that cannot be made, and why. `current` is the memory as it is now, None if it is gone."""

    edit: Edit
    reason: str
    current: Entry | None = None


@dataclass(frozen=True, slots=True)
class Edits:
    """The changes that `compare_markdown` found. `skipped` are those that cannot be made."""

    edits: tuple[Edit, ...] = ()
    skipped: tuple[SkippedEdit, ...] = ()


def compare(
    parsed: MarkdownText, bases: Mapping[str, Entry], current: Mapping[str, Entry], others: Iterable[Entry] = ()
) -> Edits:
    """The changes that a person made to the text.

    `bases` are the versions that it was rendered from, by `Entry.ref`; `current` the active versions, by id. A memory
    that only somebody else changed meanwhile is not among them; one that both changed is skipped. `others` are further
    memories whose words a bullet may repeat.
    """
    bullets = list(_match_unmarked(parsed, bases))
    reports = _Reports(chain(bases.values(), current.values(), others))
    found = [_compare_bullet(bullet, bases, current, reports) for bullet in bullets]
    kept = {bullet.id for bullet in bullets}
    gone = {id: version for id, version in (parsed.shown or {}).items() if id not in kept}
    for now, version in ((current[id], version) for id, version in gone.items() if id in current):
        edit = Edit(Verb.DELETE, now, None)
        found.append(edit if now.version == version else SkippedEdit(edit, _changed_message(now, version), now))
    return Edits(
        tuple(one for one in found if isinstance(one, Edit)),
        tuple(one for one in found if isinstance(one, SkippedEdit)),
    )


def _match_unmarked(parsed: MarkdownText, bases: Mapping[str, Entry]) -> Iterator[Bullet]:
    """Bullets without a comment whose text is that of a missing memory get its id."""
    kept = {bullet.id for bullet in parsed.bullets}
    missing = {}
    for id, version in (parsed.shown or {}).items():
        base = bases.get(reference(id, version))
        if id not in kept and base is not None:
            missing[_normal_text(base.text)] = base
    for bullet in parsed.bullets:
        base = missing.pop(_normal_text(bullet.text), None) if bullet.id is None else None
        if base is not None:
            bullet = replace(bullet, id=base.id, version=base.version, pinned=bullet.pinned or base.pinned)
        yield bullet


def _compare_bullet(
    bullet: Bullet, bases: Mapping[str, Entry], current: Mapping[str, Entry], reports: _Reports
) -> Edit | SkippedEdit | None:
    if bullet.id is None or bullet.version is None:
        _check_no_marks_inside(bullet, None)
        # The words of others in a new bullet do not become the user's.
        report = reports.find([_words_of(bullet)])
        edit = Edit(Verb.ADD, None, bullet, report)
        if report is None or _words_of(report) != _words_of(bullet):
            return edit
        return SkippedEdit(edit, f"{report.id} has the same text, from {report.origin}. Write it in your own words.")
    base, now = bases.get(reference(bullet.id, bullet.version)), current.get(bullet.id)
    if any(entry is not None and _content_of(entry) == _content_of(bullet) for entry in (base, now)):
        return None
    _check_no_marks_inside(bullet, base)
    edit = Edit(Verb.UPDATE, base or now, bullet)
    if now is None:
        what = "deleted" if base is not None else "forgotten"
        return SkippedEdit(edit, f"{bullet.id} was {what} after you began to edit.")
    if now.version != bullet.version:
        return SkippedEdit(edit, _changed_message(now, bullet.version), now)
    old, new = _words_of(now), _words_of(bullet)
    changes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if now.trust >= TRUST_MIN else ()
    added = [new[start:end] for what, _, _, start, end in changes if what in ("insert", "replace")]
    if (report := reports.find(added)) is not None:
        return SkippedEdit(
            edit, f"It repeats words of {report.id}, from {report.origin}. Write them in your own words.", now
        )
    return edit


# So many words in a row are a copy. Fewer are one if they are the whole passage, or the whole report.
_COPIED_WORDS = 6
_COPIED_WORDS_MIN = 4
# An encoded text is one long word. Its pieces count as words.
_WORD_CHARS_MAX, _PIECE_CHARS = 32, 4
# A file with changes that were not applied may be older than a deletion.
_COPIED_STATUSES = (Status.ACTIVE, Status.DELETED, Status.QUARANTINED)


class _Reports:
    """Finds the words of others, in other lines or capitals too. `entries` are read once, when this is first needed."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = entries
        self._words: list[tuple[Entry, list[str]]] | None = None

    def find(self, said: Sequence[Sequence[str]]) -> Entry | None:
        """A report that a passage of words repeats, one with the same words first."""
        if self._words is None:
            self._words = [(entry, _words_of(entry)) for entry in self._entries if entry.trust < TRUST_MIN]
        copied = [
            (report != passage, entry) for passage in said for entry, report in self._words if _repeats(passage, report)
        ]
        return min(copied, key=itemgetter(0))[1] if copied else None


def _repeats(said: Sequence[str], report: Sequence[str]) -> bool:
    length = min(_COPIED_WORDS, len(said), len(report))
    if length < _COPIED_WORDS_MIN:
        return said == report
    return not _runs(said, length).isdisjoint(_runs(report, length))


def _runs(said: Sequence[str], length: int) -> set[tuple[str, ...]]:
    return {tuple(said[at : at + length]) for at in range(len(said) - length + 1)}


def _words_of(one: Entry | Bullet) -> list[str]:
    """The words; single characters in scripts without spaces, and pieces of what is too long for a word."""
    text = _normal_text(one.text)
    return [part for word in words(text) for part in _pieces(word)] or [text]


def _pieces(word: str) -> Sequence[str]:
    if is_unspaced(word):
        return word
    if len(word) <= _WORD_CHARS_MAX:
        return (word,)
    return [word[at : at + _PIECE_CHARS] for at in range(0, len(word), _PIECE_CHARS)]


def _check_no_marks_inside(bullet: Bullet, base: Entry | None) -> None:
    """Raises InvalidInput if text follows a comment or two bullets were joined, which would delete a memory."""
    existing = frozenset() if base is None else frozenset(_MARK_BEGINS.findall(base.text))
    if set(_MARK_BEGINS.findall(bullet.text)) - existing:
        raise InvalidInput(
            f"The bullet in line {bullet.line} has a memory's comment inside its text. Move the text before it, or "
            "remove it."
        )


def _changed_message(now: Entry, version: int) -> str:
    return f"{now.id} was changed meanwhile: it was version {version} and is now version {now.version}."


def _content_of(one: Entry | Bullet) -> tuple[str, Target, str | None, bool]:
    return _normal_text(one.text), one.target, one.project, one.pinned


def _normal_text(text: str) -> str:
    """The text as rendered, without differences that editors make at line ends."""
    lines = unicodedata.normalize("NFC", show_controls(text)).strip().split("\n")
    return "\n".join(line.rstrip() for line in lines)


def render_skipped(space: str, skipped: Iterable[SkippedEdit]) -> str:
    """A text with the skipped changes, to be checked by a person and applied again. It deletes nothing.

    Empty if there is nothing to show; forgotten memories are left out.
    """
    parts = [_render_one_skipped(one) for one in skipped if one.edit.before is not None or one.edit.verb is Verb.ADD]
    if not parts:
        return ""
    return "".join([TITLE.format(space=space, help=_EDIT_HELP), *parts, ENDING.format(help=_EDIT_HELP_BELOW)])


def _render_one_skipped(skipped: SkippedEdit) -> str:
    bullet, before, now = skipped.edit.bullet, skipped.edit.before, skipped.current
    says = "" if now is None else f" Its current text: {_excerpt(now.text)}"
    comment = f"\n<!-- Not applied: {_excerpt(skipped.reason)}{says} -->\n"
    if bullet is None:
        assert before is not None
        return f"{comment}<!-- You deleted it. To delete it now: afterturn delete {before.id} -->\n"
    mark = render_mark(replace(now, pinned=bullet.pinned)) if now is not None else PINNED if bullet.pinned else ""
    return f"{comment}\n{render_heading((bullet.target, bullet.project))}\n\n{render_bullet(bullet.text, mark)}"


def _excerpt(text: str) -> str:
    line = " ".join(text[:_EXCERPT_CHARS].split()).replace("--", "- -")
    return line if len(text) <= _EXCERPT_CHARS else line + "…"


ENTRIES_MAX = 10_000
# Deletions first: they make room, and free texts that may be used again.
_ORDER = (Verb.DELETE, Verb.UPDATE, Verb.ADD)


@dataclass(frozen=True, slots=True)
class Edited:
    """The result of `apply_edits`.

    `group` is what `undo` takes, None if nothing changed. `existing` counts new bullets that were stored already.
    `skipped` are the changes that were not made.
    """

    group: str | None
    changed: tuple[Changed, ...] = ()
    existing: int = 0
    skipped: tuple[SkippedEdit, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    edit: Edit
    operation: Operation
    admitted: Admitted | None


class MarkdownVerbs(SpaceVerbs):
    async def as_markdown(self, *, target: str | None = None, project: str | None = None) -> str:
        """Returns the statements of this space as Markdown for a person to edit: one bullet each, below headings.

        `target` and `project` narrow it. `compare_markdown` reads the edited text.
        """
        chosen = None if target is None else parse_target(target)
        named = None if project is None else check_name(project, "project")
        narrowed = Filter(kind=Kind.STATEMENT, target=chosen, project=named)
        entries = await self._services.store.read(lambda unit: _statements(unit, self._scope, narrowed), at=self._scope)
        return render(self.name, entries, [(one, named) for one in (tuple(Target) if chosen is None else (chosen,))])

    async def compare_markdown(self, text: str) -> Edits:
        """Returns the changes that an edited text asks for, without applying them.

        Raises InvalidInput, with the line, if the text cannot be read.
        """
        parsed = parse(text)
        if parsed.space is not None and parsed.space != self.name:
            raise InvalidInput(f"This is a text of {parsed.space}, not of {self.name}. Name that space to apply it.")
        if parsed.is_blank:
            return Edits()
        return await self._services.store.read(lambda unit: _compare(unit, self._scope, parsed), at=self._scope)

    async def apply_edits(self, edits: Edits) -> Edited:
        """Applies the changes that `compare_markdown` found, with origin "user", as one group for `undo`.

        Changes of memories that others changed meanwhile, or that the guard refuses, are returned in `skipped`.
        """
        services, group = self._services, self._services.ids.new()
        prepared, skipped = [], list(edits.skipped)
        for edit in sorted(edits.edits, key=lambda one: _ORDER.index(one.verb)):
            operation = self._operation(edit.verb, group=group)
            try:
                admitted = None if edit.bullet is None else services.gate.admit(_draft(edit), lineage=_lineage(edit))
            except InvalidInput as error:
                skipped.append(SkippedEdit(edit, str(error), edit.before))
            else:
                prepared.append(_Prepared(edit, operation, admitted))

        def work(unit: Unit) -> tuple[Edited, list[Step]]:
            edited = _apply(unit, services.statement_writer, prepared, group)
            return edited, unit.operations.steps(self._scope, group=group)

        edited, steps = await services.store.write(work, at=self._scope)
        services.wake_jobs()
        services.events.report_changes(steps)
        return replace(edited, skipped=(*skipped, *edited.skipped))


def _statements(unit: Unit, scope: Scope, narrowed: Filter) -> list[Entry]:
    found = list(islice(every_entry(unit, scope, narrowed), ENTRIES_MAX + 1))
    if len(found) > ENTRIES_MAX:
        raise InvalidInput(
            f"There are more than {ENTRIES_MAX} memories, too many to edit at once. Narrow it by target or project."
        )
    return found


def _compare(unit: Unit, scope: Scope, parsed: MarkdownText) -> Edits:
    named = dict(parsed.shown or {})
    refs = set(named.items()) | {(one.id, one.version) for one in parsed.bullets if one.id and one.version}
    bases = {reference(id, version): entry for id, version in refs if (entry := _find(unit, scope, id, version))}
    current = {
        id: entry
        for id in {id for id, _ in refs}
        if (entry := _find(unit, scope, id)) and entry.status is Status.ACTIVE
    }
    everything = every_entry(unit, scope, Filter(kind=Kind.STATEMENT, statuses=_COPIED_STATUSES))
    return compare(parsed, bases, current, islice(everything, ENTRIES_MAX))


def _find(unit: Unit, scope: Scope, entry_id: str, version: int | None = None) -> Entry | None:
    found = find_entry(unit, scope, entry_id, version)
    return found if found is not None and found.kind is Kind.STATEMENT else None


def _apply(unit: Unit, writer: StatementWriter, prepared: Sequence[_Prepared], group: str) -> Edited:
    first, waiting = _write_all(unit, writer, prepared)
    # Again: a memory may take over a text that another one gives up later in the list.
    second, refused = _write_all(unit, writer, list(waiting))
    written = first + second
    changed = tuple(Changed(entry, one.operation.id) for one, entry in written if entry is not None)
    return Edited(group if changed else None, changed, len(written) - len(changed), tuple(_skipped(unit, refused)))


def _write_all(
    unit: Unit, writer: StatementWriter, prepared: Sequence[_Prepared]
) -> tuple[list[tuple[_Prepared, Entry | None]], dict[_Prepared, AfterturnError]]:
    """The edits that were written, and those that were refused."""
    written: list[tuple[_Prepared, Entry | None]] = []
    refused: dict[_Prepared, AfterturnError] = {}
    for one in prepared:
        try:
            written.append((one, _write(unit, writer, one)))
        except (Conflict, NotFound, NotAllowed, InvalidInput) as error:
            refused[one] = error
    return written, refused


def _write(unit: Unit, writer: StatementWriter, prepared: _Prepared) -> Entry | None:
    """The new version; None if the space already says so."""
    before, operation, admitted = prepared.edit.before, prepared.operation, prepared.admitted
    if before is None:
        assert admitted is not None
        added = writer.add(unit, operation, admitted)
        return added.entry if added.operation is not None else None
    if admitted is None:
        trust = Origin.USER.trust
        return writer.delete(unit, operation, before.id, trust=trust, expected_version=before.version)
    return writer.update(unit, operation, before.id, admitted, expected_version=before.version)


def _skipped(unit: Unit, refused: Mapping[_Prepared, AfterturnError]) -> Iterator[SkippedEdit]:
    for one, error in refused.items():
        before, now = one.edit.before, None
        if before is not None:
            now = _find(unit, Scope(one.operation.tenant, (one.operation.space,)), before.id)
        yield SkippedEdit(one.edit, str(error), now if now is not None and now.status is Status.ACTIVE else None)


def _draft(edit: Edit) -> Draft:
    bullet = edit.bullet
    assert bullet is not None
    if edit.before is None:
        origin = Origin.USER if edit.copied_from is None else edit.copied_from.origin
        draft = Draft(bullet.text, origin=origin)
    else:
        origin = edit.before.origin if _lineage(edit) else Origin.USER
        draft = replace(Draft.successor(edit.before, bullet.text), origin=origin)
    return replace(draft, target=bullet.target, project=bullet.project, pinned=bullet.pinned)


def _lineage(edit: Edit) -> tuple[int, ...]:
    """The trust of a report that is changed or copied: this does not turn the words of others into the user's."""
    report = edit.before or edit.copied_from
    return (report.trust,) if report is not None and report.trust < TRUST_MIN else ()
