"""Whose words an entry is in: follows its sources, approvals, and whether a person took it out of the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from afterturn.guard.pasted import typed_text
from afterturn.guard.scanning import is_suspected
from afterturn.guard.trust import TRUST_MIN, find_entry, is_privileged
from afterturn.ports import Unit
from afterturn.types import Entry, Origin, Scope, Status, Verb

# Longer or wider lineages are not followed to their end, and are then not trusted.
_GENERATIONS_MAX = 8
_ANCESTORS_MAX = 2_000


def is_hidden(unit: Unit, scope: Scope, entry_id: str) -> bool:
    """Whether a person took it out of the standing context: by steps that leave the status as it was, of which every
    second one, of an undo for example, puts it back."""
    steps = unit.operations.steps(scope, entry_id=entry_id)
    return sum(step.before is step.after for step in steps) % 2 == 1


class StandingLineage:
    """Follows the sources of entries. Caches entries for one unit of work."""

    def __init__(self, unit: Unit, scope: Scope) -> None:
        self._unit = unit
        self._scope = scope
        self._cache: dict[str, Entry | None] = {}
        self._approved: dict[str, set[int]] = {}

    def is_trusted(self, entry: Entry) -> bool:
        """Whether the entry is trusted, and a person has approved it, or the user typed it and all its visible sources
        are trusted too.

        A source that is not visible is accepted from a user or an agent, who may name a ticket or a page. Sources of a
        review are always records, so it is not trusted if one of them is not visible.
        """
        is_typed = self._has_trusted_sources(entry) and self._is_typed(entry)
        return is_typed or (_is_trusted_itself(entry) and self.is_approved(entry))

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
            for source in map(self.find, entry.sources)
            if source is not None
        )

    def is_approved(self, entry: Entry) -> bool:
        """Whether a person approved this version, or an earlier one with the same text that was as privileged."""
        scope = Scope(self._scope.tenant, (entry.space,))
        if entry.id not in self._approved:
            self._approved[entry.id] = {
                step.version
                for step in self._unit.operations.steps(scope, entry_id=entry.id)
                if step.after is Status.ACTIVE
                and (step.operation.verb, step.operation.actor) == (Verb.APPROVE, Origin.USER)
            }
        approved = self._approved[entry.id]
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
                if source not in seen and len(seen) >= _ANCESTORS_MAX:
                    return None
                found = self.find(source)
                if found is None and child.trust < Origin.AGENT.trust:
                    return None
                if found is not None and source not in seen:
                    older.append(found)
                seen.add(source)
        return older

    def find(self, source: str) -> Entry | None:
        if source not in self._cache:
            self._cache[source] = find_entry(self._unit, self._scope, source.partition(".")[0])
        return self._cache[source]


def _is_trusted_itself(entry: Entry) -> bool:
    return entry.trust >= TRUST_MIN and entry.status not in (Status.QUARANTINED, Status.PROPOSED)
