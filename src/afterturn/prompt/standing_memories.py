"""Selects the memories for the system prompt: firm and pinned ones, conventions, preferences. Only those that the user
typed or a person approved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from afterturn.guard.pasted import typed_text
from afterturn.guard.scanning import is_suspected
from afterturn.guard.trust import TRUST_MIN, find_entry, is_privileged
from afterturn.ports import Unit
from afterturn.recall.relevance import find_replaced
from afterturn.types import Entry, Filter, Kind, Origin, Scope, Status, Target, Verb

ENTRIES_MAX = 200
_PAGE = 200
_PAGES_MAX = 10
# Longer or wider lineages are not followed to their end, and are then not trusted.
_GENERATIONS_MAX = 8
_ANCESTORS_MAX = 2_000

_FIRM = Filter(kind=Kind.STATEMENT, firm=True)
_PINNED = Filter(kind=Kind.STATEMENT, pinned=True)
_CONVENTIONS = Filter(kind=Kind.STATEMENT, target=Target.ENVIRONMENT, metadata={"kind": "convention"})
_PREFERENCES = Filter(kind=Kind.STATEMENT, target=Target.USER, metadata={"kind": "preference"})


@dataclass(frozen=True, slots=True)
class StandingReader:
    """The reader of the memories: the spaces that a conversation can read, its agent and project, and the time.

    Only preferences in the space `owner` are shown; if it is None, those of all spaces.
    """

    scope: Scope
    now: float
    agent: str | None = None
    project: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class StandingMemories:
    """Each entry once, the most important first: firm, pinned, then more trusted, then newer ones.

    `earlier` are the references of those that a newer one replaces.
    """

    conventions: tuple[Entry, ...] = ()
    pinned: tuple[Entry, ...] = ()
    preferences: tuple[Entry, ...] = ()
    earlier: frozenset[str] = frozenset()


NO_STANDING_MEMORIES = StandingMemories()


def find_standing_memories(unit: Unit, reader: StandingReader) -> StandingMemories:
    """Memories that are active and valid now, for this reader's agent and project or for all."""
    lineage = StandingLineage(unit, reader.scope)
    found: dict[str, Entry] = {}
    for wanted in (_FIRM, _PINNED, _CONVENTIONS, _PREFERENCES):
        found.update((entry.ref, entry) for entry in _trusted(unit, reader, wanted, lineage))
    entries = _stated_once(found.values())
    conventions = tuple(entry for entry in entries if entry.target is Target.ENVIRONMENT)
    preferences = tuple(entry for entry in entries if _is_preference(entry))
    others = tuple(entry for entry in entries if entry.target is Target.USER and not _is_preference(entry))
    return StandingMemories(conventions, others, preferences, frozenset(find_replaced(entries)))


def find_agent_memories(unit: Unit, reader: StandingReader, agent: str) -> tuple[Entry, ...]:
    """Statements for this agent that the user typed or a person approved, the most important first."""
    wanted = Filter(kind=Kind.STATEMENT, agent=agent)
    return _stated_once(_trusted(unit, replace(reader, agent=agent), wanted, StandingLineage(unit, reader.scope)))


def _trusted(unit: Unit, reader: StandingReader, wanted: Filter, lineage: StandingLineage) -> list[Entry]:
    found: list[Entry] = []
    before: str | None = None
    for _ in range(_PAGES_MAX):
        page = unit.memories.page(reader.scope, wanted, limit=_PAGE, before=before)
        found.extend(entry for entry in page if _is_for_reader(entry, reader) and lineage.is_trusted(entry))
        if len(page) < _PAGE or len(found) >= ENTRIES_MAX:
            break
        before = page[-1].id
        unit.check()
    return found[:ENTRIES_MAX]


def _is_for_reader(entry: Entry, reader: StandingReader) -> bool:
    mine = entry.agent in (None, reader.agent) and entry.project in (None, reader.project)
    mine = mine and not (_is_preference(entry) and reader.owner not in (None, entry.space))
    return entry.holds(reader.now) and mine


def _is_preference(entry: Entry) -> bool:
    return entry.target is Target.USER and entry.metadata.get("kind") == "preference"


def _stated_once(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    ordered = sorted(entries, key=lambda entry: (entry.id, entry.version, entry.space), reverse=True)
    ordered.sort(key=lambda entry: (not entry.firm, not entry.pinned, -entry.trust))
    chosen: dict[str, Entry] = {}
    for entry in ordered:
        chosen.setdefault(entry.content_hash, entry)
    return tuple(chosen.values())


class StandingLineage:
    """Follows the sources of entries. Caches entries for one unit of work."""

    def __init__(self, unit: Unit, scope: Scope) -> None:
        self._unit = unit
        self._scope = scope
        self._cache: dict[str, Entry | None] = {}

    def is_trusted(self, entry: Entry) -> bool:
        """Whether the entry is trusted, and a person has approved it, or the user typed it and all its visible sources
        are trusted too.

        A source that is not visible is accepted from a user or an agent, who may name a ticket or a page. Sources of a
        review are always records, so it is not trusted if one of them is not visible.
        """
        is_typed = self._has_trusted_sources(entry) and self._is_typed(entry)
        return is_typed or (_is_trusted_itself(entry) and self._is_approved(entry))

    def _is_typed(self, entry: Entry) -> bool:
        """Whether the user states it by the host's call, or a review learned it from what its speaker typed."""
        if entry.origin is not Origin.BACKGROUND_REVIEW or is_suspected(entry.text, entry.reason):
            return entry.origin is Origin.USER
        owner = entry.space.removeprefix("user:").casefold()
        speakers = {"user", owner, (entry.speaker or owner).casefold()}
        return any(
            source.origin is Origin.USER
            and (source.speaker or "user").casefold() in speakers
            and bool(typed_text(source.text).strip())
            for source in map(self._find, entry.sources)
            if source is not None
        )

    def _is_approved(self, entry: Entry) -> bool:
        """Whether a person approved this version, or an earlier one with the same text that was as privileged."""
        scope = Scope(self._scope.tenant, (entry.space,))
        approved = {
            step.version
            for step in self._unit.operations.steps(scope, entry_id=entry.id)
            if step.after is Status.ACTIVE
            and (step.operation.verb, step.operation.actor) == (Verb.APPROVE, Origin.USER)
        }
        versions = self._unit.memories.history(scope, entry.id) if approved else ()
        same = (entry.content_hash, is_privileged(entry))
        return any(one.version in approved and (one.content_hash, is_privileged(one)) == same for one in versions)

    def _has_trusted_sources(self, entry: Entry) -> bool:
        generation: list[Entry] | None = [entry]
        seen: set[str] = set()
        for _ in range(_GENERATIONS_MAX):
            if generation is None or not all(map(_is_trusted_itself, generation)):
                return False
            if not generation:
                return True
            generation = self._older(generation, seen)
        return False

    def _older(self, generation: Sequence[Entry], seen: set[str]) -> list[Entry] | None:
        """The sources that were not `seen` yet; None if one of them cannot be trusted."""
        older: list[Entry] = []
        for child in generation:
            for source in dict.fromkeys(child.sources):
                if source not in self._cache and len(self._cache) >= _ANCESTORS_MAX:
                    return None
                found = self._find(source)
                if found is None and child.trust < Origin.AGENT.trust:
                    return None
                if found is not None and source not in seen:
                    older.append(found)
                seen.add(source)
        return older

    def _find(self, source: str) -> Entry | None:
        if source not in self._cache:
            self._cache[source] = find_entry(self._unit, self._scope, source.partition(".")[0])
        return self._cache[source]


def _is_trusted_itself(entry: Entry) -> bool:
    return entry.trust >= TRUST_MIN and entry.status not in (Status.QUARANTINED, Status.PROPOSED)
