"""Lists the lines of a system prompt that come from memory: whose words they are, since when, and how they came in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from afterturn.errors import NotFound
from afterturn.guard.trust import find_entry
from afterturn.ports import Unit
from afterturn.prompt.standing_block import shown_paths
from afterturn.prompt.standing_memories import StandingReader, find_standing_memories
from afterturn.recall.block import describe_author
from afterturn.space.arguments import check_conversation
from afterturn.types import ConversationKey, Entry, Origin, ReviewKind, Scope, Status, Target, Verb
from afterturn.validation import check_name

if TYPE_CHECKING:
    from afterturn.services import Services

_MADE = {Verb.ADD: "added", Verb.UPDATE: "changed", Verb.PROMOTE: "said again", Verb.IMPORT: "imported"}


@dataclass(frozen=True, slots=True)
class StandingLine:
    """One line of a system prompt. `part` is firm, convention, pinned, preference or file.

    `author` wrote the words at `at` (Unix seconds; None for a file): the user whose message it was learned from, or
    the origin of the memory. `through` is how it came into memory, first to last. `entry` is the memory, None for a
    file.
    """

    part: str
    text: str
    author: str
    at: float | None
    through: tuple[str, ...]
    entry: Entry | None = None


async def audit_standing(
    services: Services, space: str, *, conversation: str | None, agent: str | None, project: str | None
) -> list[StandingLine]:
    """The lines as they are now, or those that a conversation was given. Raises NotFound if it was given none."""
    named = check_conversation(conversation)
    scope, now = Scope(services.tenant, (space,)), services.clock.now()
    reader = StandingReader(
        scope,
        now,
        None if agent is None else check_name(agent, "agent"),
        None if project is None else check_name(project, "project"),
        space,
    )
    if named is None:
        return await services.store.read(lambda unit: list(_current(unit, reader)), at=scope)
    key = ConversationKey(services.tenant, space, named)
    return await services.store.read(lambda unit: list(_given(unit, scope, key)), at=scope)


def _current(unit: Unit, reader: StandingReader) -> Iterator[StandingLine]:
    found = find_standing_memories(unit, reader)
    for entry in (*found.conventions, *found.pinned, *found.preferences):
        yield _line(unit, reader.scope, entry)


def _given(unit: Unit, scope: Scope, key: ConversationKey) -> Iterator[StandingLine]:
    row = unit.conversations.find_standing(key)
    if row is None:
        raise NotFound(
            f"Conversation {key.id!r} of {key.space} was given no standing block. Leave it out, or check it."
        )
    for path in sorted(shown_paths(row.text)):
        yield StandingLine("file", path, "file", None, ("read from a trusted folder",))
    for ref in row.refs:
        entry_id, _, version = ref.partition(".")
        entry = find_entry(unit, scope, entry_id, int(version or 1))
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
    return "convention" if entry.target is Target.ENVIRONMENT and kind == "convention" else "pinned"


def _sources(unit: Unit, scope: Scope, entry: Entry) -> list[Entry]:
    spaces = scope.spaces if entry.owner is None else tuple(dict.fromkeys((*scope.spaces, entry.owner)))
    found = (find_entry(unit, Scope(scope.tenant, spaces), source) for source in entry.sources)
    return [source for source in found if source is not None]


def _through(unit: Unit, scope: Scope, entry: Entry) -> Iterator[str]:
    """How this version was made and became active. Of earlier versions, only their number."""
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
