"""A person's edits of a space as Markdown: the text, what it changes, and that done as one group that `undo` takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from afterturn.base.drafts import successor
from afterturn.base.errors import AfterturnError, Conflict, InvalidInput, NotAllowed, NotFound
from afterturn.base.names import check_name
from afterturn.base.ports import Unit
from afterturn.base.types import (
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
from afterturn.guard.writing import Writing
from afterturn.space.editing import Edit, Edits, Left, compare
from afterturn.space.fields import target_of
from afterturn.space.markdown import Section, Sheet, parse, render
from afterturn.space.parts import SpaceParts

ENTRIES_MAX = 10_000
_PAGE = 1000
# What goes makes room for what comes, and sets words free.
_ORDER = (Verb.DELETE, Verb.UPDATE, Verb.ADD)


@dataclass(frozen=True, slots=True)
class Edited:
    """`group` is what `undo` takes, None when nothing changed. `known`: so many new ones were remembered already."""

    group: str | None
    changed: tuple[Changed, ...] = ()
    known: int = 0
    left: tuple[Left, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    edit: Edit
    operation: Operation
    admitted: Admitted | None


async def as_markdown(parts: SpaceParts, space: str, *, target: str | None, project: str | None) -> str:
    """The active statements. InvalidInput when there are too many for one text."""
    chosen = None if target is None else target_of(target)
    narrowed = Filter(
        kind=Kind.STATEMENT,
        target=chosen,
        project=None if project is None else check_name(project, "project"),
    )
    scope = Scope(parts.tenant, (space,))
    entries = await parts.store.read(lambda unit: _statements(unit, scope, narrowed))
    targets = tuple(Target) if chosen is None else (chosen,)
    sections: list[Section] = [(one, narrowed.project) for one in targets]
    return render(space, entries, sections)


async def compare_markdown(parts: SpaceParts, space: str, text: str) -> Edits:
    """What applying the text would change. InvalidInput names the line that can not be read."""
    sheet = parse(text)
    if sheet.space is not None and sheet.space != space:
        raise InvalidInput(f"This is a text of {sheet.space}, not of {space}. Name that space to apply it.")
    if sheet.is_blank:
        return Edits()
    scope = Scope(parts.tenant, (space,))
    return await parts.store.read(lambda unit: _compare(unit, scope, sheet))


async def apply_edits(parts: SpaceParts, space: str, edits: Edits) -> Edited:
    """In one transaction; what can not be done is left, and the rest stands. The words are a person's own."""
    group, at = parts.ids.new(), parts.clock.now()
    prepared, left = [], list(edits.left)
    for edit in sorted(edits.edits, key=lambda one: _ORDER.index(one.verb)):
        operation = Operation(parts.ids.new(), parts.tenant, space, edit.verb, Origin.USER, at, group)
        try:
            admitted = None if edit.bullet is None else parts.gate.admit(_draft(edit))
        except InvalidInput as error:
            left.append(Left(edit, str(error), edit.before))
        else:
            prepared.append(_Prepared(edit, operation, admitted))
    edited = await parts.store.write(lambda unit: _apply(unit, Writing(parts.config), prepared, group))
    parts.on_write()
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


def _apply(unit: Unit, writing: Writing, prepared: Sequence[_Prepared], group: str) -> Edited:
    first, waiting = _write_all(unit, writing, prepared)
    # Again: one memory may take the words that another gives up only after it.
    second, refused = _write_all(unit, writing, list(waiting))
    written = first + second
    changed = tuple(Changed(entry, one.operation.id) for one, entry in written if entry is not None)
    return Edited(group if changed else None, changed, len(written) - len(changed), tuple(_left(unit, refused)))


def _write_all(
    unit: Unit, writing: Writing, prepared: Sequence[_Prepared]
) -> tuple[list[tuple[_Prepared, Entry | None]], dict[_Prepared, AfterturnError]]:
    """What was done, and what was not."""
    written: list[tuple[_Prepared, Entry | None]] = []
    refused: dict[_Prepared, AfterturnError] = {}
    for one in prepared:
        try:
            written.append((one, _write(unit, writing, one)))
        except (Conflict, NotFound, NotAllowed, InvalidInput) as error:
            refused[one] = error
    return written, refused


def _write(unit: Unit, writing: Writing, prepared: _Prepared) -> Entry | None:
    """The entry as it is now; None when the space says so already."""
    before, operation, admitted = prepared.edit.before, prepared.operation, prepared.admitted
    if before is None:
        assert admitted is not None
        added = writing.add(unit, operation, admitted)
        return added.entry if added.operation is not None else None
    if admitted is None:
        trust = Origin.USER.trust
        return writing.delete(unit, operation, before.id, trust=trust, expected_version=before.version)
    return writing.update(unit, operation, before.id, admitted, expected_version=before.version)


def _left(unit: Unit, refused: Mapping[_Prepared, AfterturnError]) -> Iterator[Left]:
    for one, error in refused.items():
        before, now = one.edit.before, None
        if before is not None:
            now = _find(unit, Scope(one.operation.tenant, (one.operation.space,)), before.id)
        yield Left(one.edit, str(error), now if now is not None and now.status is Status.ACTIVE else None)


def _draft(edit: Edit) -> Draft:
    bullet = edit.bullet
    assert bullet is not None
    if edit.before is None:
        draft = Draft(bullet.text)
    else:
        draft = replace(successor(edit.before, bullet.text), origin=Origin.USER)
    return replace(draft, target=bullet.target, project=bullet.project, pinned=bullet.pinned)
