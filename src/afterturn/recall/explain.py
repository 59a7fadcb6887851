"""The words for what becomes of memories and of recalls: one name each for programs, one sentence each for people."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from afterturn.errors import NotFound
from afterturn.ports import Unit
from afterturn.recall.block import best_window
from afterturn.recall.duplicates import collapse, stands_for
from afterturn.recall.query import Query, is_learned_from_seen, lane_of, read_query, weigh_terms
from afterturn.recall.scoring import FLOOR_SHARE, RECENT, ScoredRow
from afterturn.recall.store_search import CANDIDATES_MAX, TERMS_READ_MAX, LexicalScorer, Neighbours, indexed_entry
from afterturn.text import is_acknowledgement, read_words, terms
from afterturn.types import (
    Candidate,
    ConversationKey,
    Decision,
    Entry,
    Filter,
    HandoverPoint,
    Hit,
    Kind,
    Lane,
    LaneQuery,
    Origin,
    Outcome,
    RecallCause,
    RecallRow,
    Scope,
    Status,
    reference,
)

_SENTENCES = {
    Decision.SHOWN: "it is in the block",
    Decision.FLOOR: "its score is below recall_score_min ({floor:.2f}), or much lower than the best score",
    Decision.BUDGET: "the block was full (at most {entries} entries, {size} bytes, {tokens} tokens)",
    Decision.VISIBLE: "the model already sees it, or all its sources, in the conversation",
    Decision.STALE: "it was carried, and changed or became visible before it could be delivered",
    Decision.EXCLUDED: "an earlier block shows it, or was about to show it",
    Decision.DELETED: "it was deleted",
    Decision.EXPIRED: "it was not valid at that time: expired, or not valid yet",
    Decision.PROPOSED: "it waited for approval",
    Decision.QUARANTINED: "the guard withheld it",
    Decision.UNDONE: "it was undone",
    Decision.RANK: "others match better, and only the best {weighed} are scored",
    Decision.LATER: "it was stored later",
    Decision.MISSING: "its lane could not be searched",
    Decision.UNRELATED: "it has no word in common with the question",
    Decision.UNFOUND: "it matches now, but was not found at that time",
}
_FATES = {
    (Outcome.EMPTY, "no_relevant_results"): "nothing relevant was found",
    (Outcome.EMPTY, "already_visible"): "the model already sees all of it",
    (Outcome.EMPTY, "budget"): "the block was full",
    (Outcome.SUPERSEDED, "new_query"): "newer input arrived before it could be delivered",
    (Outcome.SUPERSEDED, "compaction"): "the context was compacted, and a new recall was started",
    (Outcome.CANCELLED, "abort"): "the turn was given up",
    (Outcome.CANCELLED, "reset"): "the conversation was reset",
    (Outcome.CANCELLED, "shutdown"): "memory was closed",
    (Outcome.CANCELLED, "forgotten"): "something was forgotten meanwhile",
    (Outcome.UNDELIVERED, "no_safe_point"): "no point was left for it in this turn or the next",
    (Outcome.UNDELIVERED, "compaction"): "the context was compacted before it could be delivered",
    (Outcome.UNDELIVERED, "reset"): "the conversation was reset before it could be delivered",
    (Outcome.UNDELIVERED, "abort"): "the turn was given up",
    (Outcome.UNDELIVERED, "forgotten"): "something was forgotten before it could be delivered",
    (Outcome.UNDELIVERED, "already_visible"): "all of it became visible meanwhile",
    (Outcome.UNDELIVERED, "budget"): "the block was full",
    (Outcome.UNDELIVERED, "stale"): "all of it changed meanwhile",
    (Outcome.UNDELIVERED, "shutdown"): "memory was closed",
    (Outcome.DEGRADED, "no_relevant_results"): "nothing was found, and a part could not be searched",
    (Outcome.DEGRADED, "timeout"): "it took too long",
}
_POINTS = {
    HandoverPoint.USER_MESSAGE: "after the user's message",
    HandoverPoint.TOOL_RESULT: "after a tool's result",
    HandoverPoint.PROMPT: "as text for the host's prompt",
}
_CAUSES = {
    RecallCause.MESSAGE: "the user's message",
    RecallCause.INTERJECTION: "an interjection of the user",
    RecallCause.CUE: "a cue of the host",
    RecallCause.COMPACTION: "asked again after a compaction",
}


def say(why: Decision, row: RecallRow, *, by: str = "") -> str:
    """The sentence, without its full stop. `by` is the reference or the space that it speaks of."""
    if why is Decision.SUPERSEDED:
        return f"a newer version replaced it: {by}" if by else "another version replaced it"
    if why is Decision.RESTATED:
        return f"another entry says the same: {by}" if by else "another entry says the same"
    if why is Decision.SCOPE and not by:
        return "it is a tool result, which is evidence for reviews and is not recalled"
    if why is Decision.SCOPE:
        return f"it is in {by}, which this conversation could not read (only {', '.join(row.reads)})"
    if why is Decision.NOT_HANDED_OVER:
        return f"nothing was delivered: {fate(row)}"
    return _SENTENCES[why].format(
        floor=float(row.settings.get("recall_score_min") or 0.0),
        entries=row.settings.get("recall_entries_max"),
        size=row.settings.get("block_bytes_max"),
        tokens=row.settings.get("block_tokens_max"),
        weighed=len(row.candidates),
    )


def fate(row: RecallRow) -> str:
    """How a recall ended, as the second half of a sentence."""
    if row.outcome is Outcome.DELIVERED:
        return place(row.point)
    return _FATES.get((row.outcome, row.reason), f"{row.outcome} ({row.reason})" if row.reason else str(row.outcome))


def place(point: str) -> str:
    return _POINTS[HandoverPoint(point)] if point in list(HandoverPoint) else point


def occasion(cause: RecallCause) -> str:
    return _CAUSES[cause]


# Why each memory came to a recall, or did not: told from what the recall left behind, and from the store as it is now.
#
# By words alone: what only its meaning would find is not looked for again. It reads, and changes nothing.

# How many of the newest entries that are not recalled any more are looked through, and how many are told of.
SCANNED_MAX = 1000
TOLD_MAX = 50
EXCERPT_BYTES = 512
# A record may hold a megabyte, and there may be thousands of them.
_READ_CHARS = 16_384
# A withdrawal says what the version beside it says, which is told of.
_INACTIVE = tuple(status for status in Status if status not in (Status.ACTIVE, Status.WITHDRAWAL))
_BY_STATUS = {
    Status.SUPERSEDED: Decision.SUPERSEDED,
    Status.DELETED: Decision.DELETED,
    Status.PROPOSED: Decision.PROPOSED,
    Status.WITHDRAWAL: Decision.PROPOSED,
    Status.EXPIRED: Decision.EXPIRED,
    Status.UNDONE: Decision.UNDONE,
    Status.QUARANTINED: Decision.QUARANTINED,
}


@dataclass(frozen=True, slots=True)
class Explained:
    """One memory and what happened to it in one recall. `reason` is a sentence for people.

    `by` is the reference of what replaces it: a newer version, or another memory that says the same. `text` is what a
    block shows of it. Scores that were not stored are computed by words alone.
    """

    ref: str
    space: str
    lane: Lane
    why: Decision
    reason: str
    score: float | None = None
    lexical: float | None = None
    similarity: float | None = None
    terms: tuple[str, ...] = ()
    by: str = ""
    text: str = ""


class Explainer:
    """Of one recall, within one unit. Only spaces that the recall could read are looked into, unless one is named."""

    def __init__(self, unit: Unit, key: ConversationKey, row: RecallRow) -> None:
        self._unit = unit
        self._key = key
        self._row = row
        self._scope = Scope(key.tenant, row.reads or (key.space,))
        self._floor = FLOOR_SHARE * float(row.settings.get("recall_score_min") or 0.0)
        self._excluded = frozenset() if row.settings.get("exhausted") else frozenset(row.excluded)
        self._visible = frozenset(row.visible)
        self._lane_query = LaneQuery(self._scope, now=row.asked_at, conversation=key.id, owner=key.space, evidence=True)

    def weighed(self) -> list[Explained]:
        """What the recall has found, each with what was decided."""
        return [self._decided(candidate, entry) for candidate, entry in self._candidates.values()]

    def passed_over(self) -> list[Explained]:
        """What would have been found, had it not been held back: best first, within bounds."""
        if not self._row.candidates and self._row.outcome not in (Outcome.DELIVERED, Outcome.EMPTY):
            return []
        found: dict[str, Explained] = {}
        for entry in self._held_back():
            self._unit.check()
            told = self._judged(entry)
            if told is not None and told.ref not in found:
                found[told.ref] = told
        return sorted(found.values(), key=lambda one: (-(one.score or 0.0), one.ref))[:TOLD_MAX]

    def about(self, memory: str, look_in: Sequence[str] = ()) -> Explained:
        """Why one memory came or not. NotFound unless the recall could read it, or it is in a space of `look_in`."""
        entry_id = memory.partition(".")[0]
        weighed = [one for one in self.weighed() if one.ref.partition(".")[0] == entry_id]
        told = next((one for one in weighed if one.why is Decision.SHOWN), weighed[-1]) if weighed else None
        if told is not None and told.why is not Decision.FLOOR:
            return told
        try:
            versions = self._unit.memories.history(self._scope, entry_id)
        except NotFound:
            return self._elsewhere(entry_id, look_in)
        if told is None:
            then = [entry for entry in versions if self._status_then(entry) is Status.ACTIVE] or versions
            told = self._placed(then[-1], self._why(then[-1]))
        if told.why not in (Decision.UNRELATED, Decision.FLOOR):
            return told
        # An older version may have matched where the newest does not.
        older = (self._judged(entry) for entry in reversed(versions) if entry.ref != told.ref)
        return next((one for one in older if one is not None), told)

    # What was decided when it was asked.

    @cached_property
    def _candidates(self) -> dict[str, tuple[Candidate, Entry]]:
        """In the order of the row, without those that were forgotten."""
        found = {}
        for candidate in self._row.candidates:
            entry = self._find(candidate.ref)
            if entry is not None:
                found[candidate.ref] = (candidate, entry)
        return found

    def _decided(self, candidate: Candidate, entry: Entry) -> Explained:
        why = candidate.decision or Decision.NOT_HANDED_OVER
        by = self._said_by.get(candidate.ref, "") if why is Decision.RESTATED else ""
        if why is Decision.STALE and entry.status is not Status.ACTIVE:
            why = _BY_STATUS[entry.status]
        told = Explained(
            ref=candidate.ref,
            space=candidate.space,
            lane=candidate.lane,
            why=why,
            reason="",
            score=candidate.score,
            lexical=candidate.lexical,
            similarity=candidate.similarity,
            terms=self._shared(entry),
            by=by,
            text=self._excerpt(entry, self._shared(entry)),
        )
        return replace(told, reason=say(why, self._row, by=by))

    @cached_property
    def _said_by(self) -> dict[str, str]:
        hits = [
            self._hit(candidate, entry)
            for candidate, entry in self._candidates.values()
            if candidate.score >= self._floor
        ]
        ranked = sorted(hits, key=lambda hit: -hit.score)
        return {one.hit.entry.ref: one.by_ref for one in collapse(ranked)[1]}

    # What never came so far.

    def _held_back(self) -> Iterator[Entry]:
        yield from (entry for ref in sorted(self._excluded) if (entry := self._find(ref)) is not None)
        # As now: whether it was to be had when it was asked is judged one by one.
        query = self._lane_query
        index = self._unit.index
        found = index.matches(query, self._asked.terms, limit=CANDIDATES_MAX, terms_max=TERMS_READ_MAX)
        entries = index.resolve(query, [one.key for one in found])
        yield from (entries[one.key] for one in found)
        pages = self._unit.memories.page
        yield from pages(self._scope, Filter(statuses=_INACTIVE), limit=SCANNED_MAX)
        yield from pages(self._scope, Filter(kind=Kind.STATEMENT), limit=SCANNED_MAX)

    def _judged(self, entry: Entry) -> Explained | None:
        """None when it was weighed, is of no relevance, or was not known yet."""
        if entry.ref in self._candidates or entry.recorded_at > self._row.asked_at or entry.turn == self._row.turn:
            return None
        if self._status_then(entry) is Status.WITHDRAWAL:
            return None
        weighed = self._weighed(entry)
        if not weighed.share or weighed.score < self._floor:
            return None
        why = self._why(entry)
        return None if why in (Decision.UNRELATED, Decision.FLOOR, Decision.UNFOUND) else self._placed(entry, why)

    def _why(self, entry: Entry) -> Decision:
        status = self._status_then(entry)
        if status is None:
            return Decision.LATER
        if status is not Status.ACTIVE:
            return _BY_STATUS[status]
        held = self._held(entry)
        if held is not None:
            return held
        if not self._row.candidates and self._row.outcome not in (Outcome.DELIVERED, Outcome.EMPTY):
            return Decision.NOT_HANDED_OVER
        if self._lane(entry) in self._row.missing:
            return Decision.MISSING
        weighed = self._weighed(entry)
        if not weighed.terms:
            return Decision.UNRELATED
        if weighed.score < self._floor:
            return Decision.FLOOR
        return Decision.RANK if self._is_crowded else Decision.UNFOUND

    def _held(self, entry: Entry) -> Decision | None:
        """What kept it out of the query itself."""
        if not entry.is_valid(self._row.asked_at):
            return Decision.EXPIRED
        if entry.kind is Kind.RECORD and entry.origin is Origin.TOOL:
            return Decision.SCOPE
        if entry.ref in self._excluded:
            return Decision.EXCLUDED
        if self._is_seen(entry) or is_learned_from_seen(self._unit, self._key.tenant, entry, self._is_seen):
            return Decision.VISIBLE
        return Decision.RESTATED if self._rests_on(entry) else None

    def _is_seen(self, entry: Entry) -> bool:
        return entry.content_hash in self._visible or self._is_in_sight(entry)

    def _is_in_sight(self, entry: Entry) -> bool:
        """A host that hides its messages still shows its model what was said since the last compaction."""
        since = self._row.settings.get("seen_since")
        return since is not None and self._lane(entry) is Lane.SHORT_TERM and entry.recorded_at > float(since)

    def _rests_on(self, entry: Entry) -> str:
        """The memory that was found in place of a record that it rests on, and that says as much."""
        if entry.kind is not Kind.RECORD:
            return ""
        record = self._as_hit(entry)
        resting = (self._hit(*one) for one in self._candidates.values() if entry.id in one[1].sources)
        return next((hit.entry.ref for hit in resting if stands_for(hit, record)), "")

    def _hit(self, candidate: Candidate, entry: Entry) -> Hit:
        scores = (candidate.score, candidate.lexical, candidate.similarity)
        return Hit(entry, candidate.lane, *scores, self._shared(entry))

    def _as_hit(self, entry: Entry) -> Hit:
        """As it would have been found, by words alone."""
        weighed = self._weighed(entry)
        return Hit(entry, self._lane(entry), weighed.score, weighed.share, None, self._shared(entry))

    @property
    def _is_crowded(self) -> bool:
        """A recall weighs so many; with fewer, there was room."""
        weighed = self._row.settings.get("candidates_max")
        return weighed is not None and len(self._row.candidates) >= int(weighed)

    def _placed(self, entry: Entry, why: Decision) -> Explained:
        weighed = self._weighed(entry)
        by = (
            self._rests_on(entry)
            if why is Decision.RESTATED
            else self._newer(entry)
            if why is Decision.SUPERSEDED
            else ""
        )
        return Explained(
            ref=entry.ref,
            space=entry.space,
            lane=self._lane(entry),
            why=why,
            reason=say(why, self._row, by=by),
            score=weighed.score,
            lexical=weighed.share,
            terms=weighed.terms,
            by=by,
            text=self._excerpt(entry, weighed.terms),
        )

    def _elsewhere(self, entry_id: str, look_in: Sequence[str]) -> Explained:
        named = tuple(space for space in look_in if space not in self._scope.spaces)
        searched = ", ".join((*self._scope.spaces, *named))
        try:
            entry = self._unit.memories.get(Scope(self._key.tenant, named), entry_id) if named else None
        except NotFound:
            entry = None
        if entry is None:
            raise NotFound(
                f"There is no memory {entry_id} in {searched}. If it is in another space, name that in `look_in=`."
            )
        reason = say(Decision.SCOPE, self._row, by=entry.space)
        return Explained(entry.ref, entry.space, self._lane(entry), Decision.SCOPE, reason)

    # Reading.

    @cached_property
    def _asked(self) -> Query:
        question = "" if is_acknowledgement(self._row.question) else self._row.question
        return read_query(self._unit.index, self._scope, *read_words(question))

    def _weighed(self, entry: Entry) -> ScoredRow:
        asked = self._asked
        if entry.space not in asked.spaces:
            # Nothing there is recalled any more, so nothing tells which words are rare in it.
            asked = Query(asked.terms, asked.names, {entry.space: weigh_terms(asked.terms, {}, 1)})
        scorer = LexicalScorer(self._lane_query, asked, {0: self._newer_then(entry)})
        return scorer.score(indexed_entry(0, entry, terms(entry.text[:_READ_CHARS])), Neighbours())

    def _newer_then(self, entry: Entry) -> int:
        """How many entries of the space were newer when it was asked."""
        recorded = self._recorded.get(entry.space, [])
        return len(recorded) - bisect_right(recorded, entry.recorded_at)

    @cached_property
    def _recorded(self) -> dict[str, list[float]]:
        """When the newest entries of each space that were there were recorded, in ascending order."""
        pages = {
            space: self._unit.memories.page(Scope(self._key.tenant, (space,)), Filter(), limit=RECENT)
            for space in self._scope.spaces
        }
        asked_at = self._row.asked_at
        return {
            space: sorted(entry.recorded_at for entry in page if entry.recorded_at <= asked_at)
            for space, page in pages.items()
        }

    def _shared(self, entry: Entry) -> tuple[str, ...]:
        return tuple(sorted(frozenset(self._row.terms).intersection(terms(entry.text))))

    def _excerpt(self, entry: Entry, wanted: tuple[str, ...]) -> str:
        return best_window(entry.text, wanted, int(self._row.settings.get("entry_bytes_max") or EXCERPT_BYTES))

    def _lane(self, entry: Entry) -> Lane:
        return lane_of(entry, self._lane_query)

    def _find(self, ref: str) -> Entry | None:
        entry_id, _, version = ref.partition(".")
        try:
            return self._unit.memories.get(self._scope, entry_id, version=int(version or 1))
        except NotFound:
            return None

    def _status_then(self, entry: Entry) -> Status | None:
        """None when it was not there yet."""
        steps = self._unit.operations.steps(Scope(self._key.tenant, (entry.space,)), entry_id=entry.id)
        taken = [step for step in steps if step.version == entry.version and step.operation.at <= self._row.asked_at]
        return taken[-1].after if taken else None

    def _newer(self, entry: Entry) -> str:
        newest = self._unit.memories.get(Scope(self._key.tenant, (entry.space,)), entry.id)
        return reference(newest.id, newest.version) if newest.version > entry.version else ""


def shown_first(explained: Iterable[Explained]) -> tuple[list[Explained], list[Explained]]:
    """What was shown, and what was not."""
    told = list(explained)
    return [one for one in told if one.why is Decision.SHOWN], [one for one in told if one.why is not Decision.SHOWN]
