"""Lists the lines of a standing block that come from memory: whose words they are, how they came in, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from afterturn.errors import NotFound
from afterturn.guard.trust import find_entry
from afterturn.ports import Unit
from afterturn.recall.block import describe_author
from afterturn.standing.block import shown_paths
from afterturn.standing.memories import BINDING, StandingReader, find_standing
from afterturn.types import ConversationKey, Entry, Kind, Origin, ReviewKind, Scope, Status, Target, Verb
from afterturn.validation import check_name

if TYPE_CHECKING:
    from afterturn.services import Services

_MADE = {Verb.ADD: "added", Verb.UPDATE: "changed", Verb.PROMOTE: "said again", Verb.IMPORT: "imported"}


@dataclass(frozen=True, slots=True)
class StandingLine:
    """One line of a standing block. `part` is firm, convention, pinned, preference, fact or file.

    `author` wrote the words at `at` (Unix seconds; None for a file): the user whose message it was learned from, or
    the origin of the memory. `through` is how it came into memory, first to last. `entry` is the memory or the recorded
    message, None for a file. Of what was rated, `kind` says what it states and `chance`, from 0 to 1, how likely that
    still matters in weeks; `left_out` says why it is not in the block, and is blank if it is.
    """

    part: str
    text: str
    author: str
    at: float | None
    through: tuple[str, ...]
    entry: Entry | None = None
    kind: str = ""
    chance: float | None = None
    left_out: str = ""


async def audit_standing(
    services: Services,
    space: str,
    *,
    conversation: str | None,
    agent: str | None,
    project: str | None,
    left_out: bool,
) -> list[StandingLine]:
    """The lines as they are now, or those that a conversation was given. Raises NotFound if it was given none."""
    config = services.config
    name = None if project is None else check_name(project, "project")
    # The conventions of a project are in its own space.
    scope = Scope(services.tenant, (space,) if name is None else tuple(dict.fromkeys((space, f"project:{name}"))))
    who = None if agent is None else check_name(agent, "agent")
    where = (scope, services.clock.now(), who, name, space)
    reader = StandingReader(*where, config.standing_chars_max, config.rules, config.scan_policy)
    if conversation is None:
        return await services.store.read(lambda unit: list(_current(unit, reader, left_out=left_out)), at=scope)
    key = ConversationKey(services.tenant, space, conversation)
    return await services.store.read(lambda unit: list(_given(unit, scope, key)), at=scope)


def _current(unit: Unit, reader: StandingReader, *, left_out: bool) -> Iterator[StandingLine]:
    found = find_standing(unit, reader)
    facts = [fact for fact in found.facts if left_out or not fact.left_out]
    learned = [fact.entry for fact in facts]
    for entry in (*found.conventions, *found.pinned):
        if entry not in learned:
            yield _line(unit, reader.scope, entry)
    for fact in facts:
        line = _line(unit, reader.scope, fact.entry)
        text, chance = fact.text or fact.entry.text, round(fact.chance, 2)
        part = "preference" if line.part == "fact" and fact.kind in BINDING else line.part
        yield replace(line, part=part, text=text, kind=str(fact.kind), chance=chance, left_out=fact.left_out)


def _given(unit: Unit, scope: Scope, key: ConversationKey) -> Iterator[StandingLine]:
    row = unit.conversations.find_standing(key)
    if row is None:
        raise NotFound(
            f"Conversation {key.id!r} of {key.space} was given no standing block. Leave it out, or check it."
        )
    for path in sorted(shown_paths(row.text)):
        yield StandingLine("file", path, "file", None, ("read from a trusted folder",))
    found, shown = unit.memories.versions(scope, row.refs), set[str]()
    for ref in row.refs:
        entry = found.get(ref)
        family = {ref} if entry is None else {entry.id, *entry.sources}
        # After a line comes what it was learned from, or what was learned from it.
        if not shown.isdisjoint(family):
            continue
        shown |= family
        gone = StandingLine("memory", ref, "unknown", None, ("of another space, or forgotten since",))
        yield gone if entry is None else _line(unit, scope, entry)


def _line(unit: Unit, scope: Scope, entry: Entry) -> StandingLine:
    typed = [source for source in _sources(unit, scope, entry) if source.origin is Origin.USER]
    said = typed[-1] if typed else entry
    return StandingLine(
        _part(entry), entry.text, describe_author(said), said.occurred_at, tuple(_through(unit, scope, entry)), entry
    )


def _part(entry: Entry) -> str:
    kind = entry.metadata.get("kind")
    if entry.firm:
        return "firm"
    if entry.target is Target.USER and kind == "preference":
        return "preference"
    if entry.target is Target.ENVIRONMENT and kind == "convention":
        return "convention"
    return "pinned" if entry.pinned else "fact"


def _sources(unit: Unit, scope: Scope, entry: Entry) -> list[Entry]:
    spaces = scope.spaces if entry.owner is None else tuple(dict.fromkeys((*scope.spaces, entry.owner)))
    found = (find_entry(unit, Scope(scope.tenant, spaces), source) for source in entry.sources)
    return [source for source in found if source is not None]


def _through(unit: Unit, scope: Scope, entry: Entry) -> Iterator[str]:
    """How this version was made and became active. Of earlier versions, only their number."""
    if entry.kind is Kind.RECORD:
        yield f"said in conversation {entry.conversation}" if entry.conversation else "recorded"
        return
    if entry.version > 1:
        yield f"version {entry.version}"
    for step in unit.operations.steps(scope, entry_id=entry.id):
        operation = step.operation
        if step.version != entry.version:
            continue
        if step.before is None:
            learned = _learned(unit, scope, entry)
            yield learned or f"{_MADE.get(operation.verb, str(operation.verb))} by {_who(operation.actor)}"
        if operation.verb is Verb.APPROVE and step.after is Status.ACTIVE:
            yield "approved by a person"


def _learned(unit: Unit, scope: Scope, entry: Entry) -> str:
    review = entry.metadata.get("review")
    if entry.origin is not Origin.BACKGROUND_REVIEW or not isinstance(review, str):
        return ""
    try:
        by = "rules" if unit.reviews.get(scope.tenant, review).kind is ReviewKind.RULES else "a model"
    except NotFound:
        by = "a review"
    return f"learned by {by}" + (f" from conversation {entry.conversation}" if entry.conversation else "")


def _who(actor: Origin) -> str:
    return "the user" if actor is Origin.USER else actor.replace("_", " ")
