"""What a person changed in a text that was made of their memories, told apart from what others changed meanwhile."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from afterturn.base.errors import InvalidInput
from afterturn.base.types import Entry, Target, Verb, reference
from afterturn.space.markdown import ENDING, PINNED, TITLE, Bullet, Sheet, bullet_of, drawn, heading_of, mark_of

_MARK_BEGINS = re.compile(r"<!--[ \t]*([0-9a-z]{4,40})[ \t]+v[1-9]")
_TOLD_CHARS = 500
_HELP = """\
None of this was done, and above each stands why.
Look at it, change it or take it out;
then apply this file with `afterturn edit --file`."""
_HELP_BELOW = """\
Nothing is deleted by this file,
whatever is missing from it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change. `before` is None for a new memory, `bullet` for one that goes."""

    verb: Verb
    before: Entry | None
    bullet: Bullet | None


@dataclass(frozen=True, slots=True)
class Left:
    """A change that can not be made, and why; `current` is what the memory says now, None when it is gone."""

    edit: Edit
    reason: str
    current: Entry | None = None


@dataclass(frozen=True, slots=True)
class Edits:
    edits: tuple[Edit, ...] = ()
    left: tuple[Left, ...] = ()


def compare(sheet: Sheet, bases: Mapping[str, Entry], current: Mapping[str, Entry]) -> Edits:
    """What a person has changed. `bases` are the versions that the text was made of, by `Entry.ref`; `current` the
    active ones, by id. What somebody else changed meanwhile is no change of this person's, unless both did."""
    bullets = list(_recognised(sheet, bases))
    found = [_compare_bullet(bullet, bases, current) for bullet in bullets]
    kept = {bullet.id for bullet in bullets}
    gone = {id: version for id, version in (sheet.shown or {}).items() if id not in kept}
    found += [_compare_gone(id, version, current) for id, version in gone.items()]
    return Edits(
        tuple(one for one in found if isinstance(one, Edit)), tuple(one for one in found if isinstance(one, Left))
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


def _compare_bullet(bullet: Bullet, bases: Mapping[str, Entry], current: Mapping[str, Entry]) -> Edit | Left | None:
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
        return Left(edit, f"{bullet.id} was {what} meanwhile.")
    if now.version != bullet.version:
        return Left(edit, _moved_on(now, bullet.version), now)
    return edit


def _check_marks(bullet: Bullet, base: Entry | None) -> None:
    """InvalidInput when words stand behind a comment, or two bullets were joined: one would be deleted unawares."""
    known = frozenset() if base is None else frozenset(_MARK_BEGINS.findall(base.text))
    if set(_MARK_BEGINS.findall(bullet.text)) - known:
        raise InvalidInput(
            f"The bullet in line {bullet.line} has a memory's comment amid its words. Put the words before it, or take "
            "it out."
        )


def _compare_gone(id: str, version: int, current: Mapping[str, Entry]) -> Edit | Left | None:
    now = current.get(id)
    if now is None:
        return None
    edit = Edit(Verb.DELETE, now, None)
    return edit if now.version == version else Left(edit, _moved_on(now, version), now)


def _moved_on(now: Entry, version: int) -> str:
    return f"{now.id} was changed meanwhile: it was version {version} and is version {now.version} now."


def _says(one: Entry | Bullet) -> tuple[str, Target, str | None, bool]:
    return _plain(one.text), one.target, one.project, one.pinned


def _plain(text: str) -> str:
    """As it is written for a person, without what editors do to lines' ends."""
    lines = drawn(unicodedata.normalize("NFC", text)).strip().split("\n")
    return "\n".join(line.rstrip() for line in lines)


def render_left(space: str, left: Iterable[Left]) -> str:
    """What could not be done, in a text that does it once somebody has looked at it. It deletes nothing.

    Blank when there is nothing to keep: the words of what was forgotten are not.
    """
    parts = [_render_left(one) for one in left if one.edit.before is not None or one.edit.verb is Verb.ADD]
    return "".join([TITLE.format(space=space, told=_HELP), *parts, ENDING.format(told=_HELP_BELOW)]) if parts else ""


def _render_left(left: Left) -> str:
    bullet, before, now = left.edit.bullet, left.edit.before, left.current
    says = "" if now is None else f" It says now: {_commented(now.text)}"
    told = f"\n<!-- Not done: {_commented(left.reason)}{says} -->\n"
    if bullet is None:
        assert before is not None
        return f"{told}<!-- You had deleted it: afterturn delete {before.id} -->\n"
    mark = mark_of(replace(now, pinned=bullet.pinned)) if now is not None else PINNED if bullet.pinned else ""
    return f"{told}\n{heading_of((bullet.target, bullet.project))}\n\n{bullet_of(bullet.text, mark)}"


def _commented(text: str) -> str:
    line = " ".join(text[:_TOLD_CHARS].split()).replace("--", "- -")
    return line if len(text) <= _TOLD_CHARS else line + "…"
