"""Explains a recall afterwards: why each memory was included or not, from the stored recall and the store of today.

It searches by words alone, so it does not find again what only its vector would find. It only reads.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from afterturn.errors import NotFound
from afterturn.guard.trust import find_entry
from afterturn.ports import Unit
from afterturn.recall.block import BLOCK_TOKENS_MAX, ENTRY_BYTES_MAX, best_window
from afterturn.recall.duplicates import can_replace, collapse
from afterturn.recall.query import Query, is_learned_from_seen, lane_of, read_query, weigh_terms
from afterturn.recall.scoring import RECENT, ScoredRow, ScoreKind, score_kind_of
from afterturn.recall.store_search import CANDIDATES_MAX, TERMS_READ_MAX, LexicalScorer, Neighbours, indexed_entry
from afterturn.text import is_acknowledgement, read_words, terms
from afterturn.types.conversations import HandoverPoint, Outcome, RecallCause
from afterturn.types.entries import ConversationKey, Entry, Kind, Origin, Scope, Status
from afterturn.types.rows import Candidate, Decision, RecallRow
from afterturn.types.searches import Filter, Hit, Lane, LaneQuery

_TEXTS = json.loads(Path(__file__).with_suffix(".json").read_bytes())
_REASONS: dict[Decision, str] = {Decision(name): text for name, text in _TEXTS["decisions"].items()}
_OUTCOMES: dict[Outcome, dict[str, str]] = {Outcome(name): rows for name, rows in _TEXTS["outcomes"].items()}
_POINTS: dict[HandoverPoint, str] = {HandoverPoint(name): text for name, text in _TEXTS["points"].items()}
CAUSES: dict[RecallCause, str] = {RecallCause(name): text for name, text in _TEXTS["causes"].items()}


def describe_decision(why: Decision, row: RecallRow, *, score: float | None = None, by: str = "") -> str:
    """The reason as a clause without a full stop. `score` is that of a candidate; `by` is the reference or the space
    that it names."""
    if why is Decision.UNRELATED and row.settings.get("incognito"):
        return "the turn was incognito, so its question is not stored"
    if why is Decision.FLOOR:
        if score is None:
            return "it matches the question too little"
        score_min = float(row.settings.get("recall_score_min") or 0.0)
        best = max((candidate.score for candidate in row.candidates), default=0.0)
        is_far = score >= score_min and best > score
        below = f"far below the best ({best:.2f})" if is_far else f"below recall_score_min ({score_min:.2f})"
        return f"{describe_score(score, score_kind_of(row))} is {below}"
    if why is Decision.SUPERSEDED:
        return f"a newer version replaced it: {by}" if by else "another version replaced it"
    if why is Decision.RESTATED:
        return f"another entry says the same: {by}" if by else "another entry says the same"
    if why is Decision.SHOWN and by:
        return f"it is in the block, as the answer in the line of {by}"
    if why is Decision.SCOPE and not by:
        return "it is a tool result, which is evidence for reviews and is not recalled"
    if why is Decision.SCOPE:
        return f"it is in {by}, which this conversation could not read (only {', '.join(row.reads)})"
    if why is Decision.NOT_HANDED_OVER:
        return f"nothing was delivered: {describe_outcome(row)}"
    return _REASONS[why].format(
        entries=row.settings.get("recall_entries_max"),
        size=row.settings.get("block_bytes_max"),
        tokens=BLOCK_TOKENS_MAX,
        scored=len(row.candidates),
    )


def describe_score(score: float, kind: ScoreKind | None) -> str:
    return f"{kind or 'score'} {score:.2f}"


def describe_outcome(row: RecallRow) -> str:
    """How a recall ended, as a clause."""
    if row.outcome is Outcome.DELIVERED:
        return describe_point(row.point)
    other = f"{row.outcome} ({row.reason})" if row.reason else str(row.outcome)
    return _OUTCOMES.get(row.outcome, {}).get(row.reason, other)


def describe_point(point: str) -> str:
    return _POINTS[HandoverPoint(point)] if point in list(HandoverPoint) else point


# An entry that was not a candidate is reported if its search score is at least this.
_SEARCH_SCORE_MIN = 0.125
# How many of the newest inactive entries are examined, and how many entries are reported.
SCANNED_MAX = 1000
REPORTED_MAX = 50
# A record may hold a megabyte, and there may be thousands of them.
_READ_CHARS = 16_384
# A withdrawal repeats the text of another version, which is reported.
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

    `score_kind` says what `score` is: a chance cannot be compared with a search score. Scores that were not stored are
    search scores by words alone. `by` is the reference of what replaces it: a newer version, another memory that says
    the same, or the message in whose line an answer is. `text` is what a block shows of it.
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
    score_kind: ScoreKind | None = None


class Explainer:
    """Explains one recall, within one unit. It examines only spaces that the recall could read, unless one is named."""

    def __init__(self, unit: Unit, key: ConversationKey, row: RecallRow) -> None:
        self._unit = unit
        self._key = key
        self._row = row
        self._scope = Scope(key.tenant, row.reads or (key.space,))
        self._excluded = frozenset() if row.settings.get("exhausted") else frozenset(row.excluded)
        self._visible = frozenset(row.visible)
        self._lane_query = LaneQuery(self._scope, now=row.asked_at, conversation=key.id, owner=key.space, evidence=True)

    def candidates(self) -> list[Explained]:
        """The candidates of the recall, each with its decision."""
        return [self._explain_candidate(candidate, entry) for candidate, entry in self._candidates.values()]

    def passed_over(self) -> list[Explained]:
        """Entries that would have been found without exclusions: best first, at most `REPORTED_MAX`."""
        if not self._row.candidates and self._row.outcome not in (Outcome.DELIVERED, Outcome.EMPTY):
            return []
        found: dict[str, Explained] = {}
        for entry in self._not_found():
            self._unit.check()
            explained = self._explain(entry)
            if explained is not None and explained.ref not in found:
                found[explained.ref] = explained
        return sorted(found.values(), key=lambda one: (-(one.score or 0.0), one.ref))[:REPORTED_MAX]

    def about(self, memory: str, look_in: Sequence[str] = ()) -> Explained:
        """Why one memory was included or not. Raises NotFound unless it is in a space that the recall could read,
        or in one of `look_in`."""
        entry_id = memory.partition(".")[0]
        scored = [one for one in self.candidates() if one.ref.partition(".")[0] == entry_id]
        explained = next((one for one in scored if one.why is Decision.SHOWN), scored[-1]) if scored else None
        if explained is not None and explained.why is not Decision.FLOOR:
            return explained
        try:
            versions = self._unit.memories.history(self._scope, entry_id)
        except NotFound:
            return self._explain_elsewhere(entry_id, look_in)
        if explained is None:
            then = [entry for entry in versions if self._status_then(entry) is Status.ACTIVE] or versions
            explained = self._explain_as(then[-1], self._why(then[-1]))
        if explained.why not in (Decision.UNRELATED, Decision.FLOOR):
            return explained
        # An older version may have matched where the newest does not.
        older = (self._explain(entry) for entry in reversed(versions) if entry.ref != explained.ref)
        return next((one for one in older if one is not None), explained)

    @cached_property
    def _candidates(self) -> dict[str, tuple[Candidate, Entry]]:
        """In the order of the row, without those that were forgotten since."""
        return {one.ref: (one, entry) for one in self._row.candidates if (entry := self._find(one.ref)) is not None}

    def _explain_candidate(self, candidate: Candidate, entry: Entry) -> Explained:
        why = candidate.decision or Decision.NOT_HANDED_OVER
        by = self._restated_by.get(candidate.ref, "") if why is Decision.RESTATED else ""
        if why is Decision.RESTATED and (line := self._lines_of_answers.get(candidate.ref)) is not None:
            why, by = line.decision or Decision.NOT_HANDED_OVER, line.ref
        if why is Decision.STALE and entry.status is not Status.ACTIVE:
            why = _BY_STATUS[entry.status]
        return Explained(
            ref=candidate.ref,
            space=candidate.space,
            lane=candidate.lane,
            why=why,
            reason=describe_decision(why, self._row, score=candidate.score, by=by),
            score=candidate.score,
            lexical=candidate.lexical,
            similarity=candidate.similarity,
            terms=self._shared(entry),
            by=by,
            text=best_window(entry.text, self._shared(entry), ENTRY_BYTES_MAX),
            score_kind=score_kind_of(self._row),
        )

    @cached_property
    def _lines_of_answers(self) -> dict[str, Candidate]:
        """The candidates whose lines contain an answer, by the reference of that."""
        return {one.answer: one for one, _ in self._candidates.values() if one.answer is not None}

    @cached_property
    def _restated_by(self) -> dict[str, str]:
        hits = [
            self._hit(candidate, entry)
            for candidate, entry in self._candidates.values()
            if candidate.decision is not Decision.FLOOR
        ]
        ranked = sorted(hits, key=lambda hit: -hit.score)
        return {one.hit.entry.ref: one.by_ref for one in collapse(ranked)[1]}

    def _not_found(self) -> Iterator[Entry]:
        yield from (entry for ref in sorted(self._excluded) if (entry := self._find(ref)) is not None)
        # The query of today; `_why` checks the status at that time one by one.
        query = self._lane_query
        index = self._unit.index
        found = index.matches(query, self._asked.terms, limit=CANDIDATES_MAX, terms_max=TERMS_READ_MAX)
        entries = index.resolve(query, [one.key for one in found])
        yield from (entries[one.key] for one in found)
        pages = self._unit.memories.page
        yield from pages(self._scope, Filter(statuses=_INACTIVE), limit=SCANNED_MAX)
        yield from pages(self._scope, Filter(kind=Kind.STATEMENT), limit=SCANNED_MAX)

    def _explain(self, entry: Entry) -> Explained | None:
        """None when it was a candidate, is not relevant, or was not stored yet."""
        if entry.ref in self._candidates or entry.recorded_at > self._row.asked_at or entry.turn == self._row.turn:
            return None
        if self._status_then(entry) is Status.WITHDRAWAL:
            return None
        scored = self._score(entry)
        if not scored.share or scored.score < _SEARCH_SCORE_MIN:
            return None
        why = self._why(entry)
        return None if why in (Decision.UNRELATED, Decision.FLOOR, Decision.UNFOUND) else self._explain_as(entry, why)

    def _why(self, entry: Entry) -> Decision:
        status = self._status_then(entry)
        if status is None:
            return Decision.LATER
        if status is not Status.ACTIVE:
            return _BY_STATUS[status]
        excluded = self._why_excluded(entry)
        if excluded is not None:
            return excluded
        if not self._row.candidates and self._row.outcome not in (Outcome.DELIVERED, Outcome.EMPTY):
            return Decision.NOT_HANDED_OVER
        if self._lane(entry) in self._row.missing:
            return Decision.MISSING
        scored = self._score(entry)
        if not scored.terms:
            return Decision.UNRELATED
        if scored.score < _SEARCH_SCORE_MIN:
            return Decision.FLOOR
        return Decision.RANK if self._is_crowded else Decision.UNFOUND

    def _why_excluded(self, entry: Entry) -> Decision | None:
        """Why the query did not admit it; None if it did."""
        if not entry.is_valid(self._row.asked_at):
            return Decision.EXPIRED
        if entry.kind is Kind.RECORD and entry.origin is Origin.TOOL:
            return Decision.SCOPE
        if entry.ref in self._excluded:
            return Decision.EXCLUDED
        if self._is_seen(entry) or is_learned_from_seen(self._unit, self._key.tenant, entry, self._is_seen):
            return Decision.VISIBLE
        return Decision.RESTATED if self._replaced_by(entry) else None

    def _is_seen(self, entry: Entry) -> bool:
        """A host that hides its messages still shows its model those since the last compaction."""
        if entry.content_hash in self._visible:
            return True
        since = self._row.settings.get("seen_since")
        return since is not None and self._lane(entry) is Lane.SHORT_TERM and entry.recorded_at > float(since)

    def _replaced_by(self, entry: Entry) -> str:
        """The statement that replaced a record it was learned from."""
        if entry.kind is not Kind.RECORD:
            return ""
        # As it would have been found by words alone.
        scored = self._score(entry)
        record = Hit(entry, self._lane(entry), scored.score, scored.share, None, self._shared(entry))
        resting = (self._hit(*one) for one in self._candidates.values() if entry.id in one[1].sources)
        return next((hit.entry.ref for hit in resting if can_replace(hit, record)), "")

    def _hit(self, candidate: Candidate, entry: Entry) -> Hit:
        scores = (candidate.score, candidate.lexical, candidate.similarity)
        return Hit(entry, candidate.lane, *scores, self._shared(entry))

    @property
    def _is_crowded(self) -> bool:
        """Whether the recall had as many candidates as it may have."""
        scored = self._row.settings.get("candidates_max")
        return scored is not None and len(self._row.candidates) >= int(scored)

    def _explain_as(self, entry: Entry, why: Decision) -> Explained:
        scored = self._score(entry)
        by = (
            self._replaced_by(entry)
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
            reason=describe_decision(why, self._row, by=by),
            score=scored.score,
            lexical=scored.share,
            terms=scored.terms,
            by=by,
            text=best_window(entry.text, scored.terms, ENTRY_BYTES_MAX),
            score_kind=ScoreKind.SEARCH,
        )

    def _explain_elsewhere(self, entry_id: str, look_in: Sequence[str]) -> Explained:
        named = tuple(space for space in look_in if space not in self._scope.spaces)
        searched = ", ".join((*self._scope.spaces, *named))
        entry = find_entry(self._unit, Scope(self._key.tenant, named), entry_id) if named else None
        if entry is None:
            raise NotFound(
                f"There is no memory {entry_id} in {searched}. If it is in another space, name that in `look_in=`."
            )
        reason = describe_decision(Decision.SCOPE, self._row, by=entry.space)
        return Explained(entry.ref, entry.space, self._lane(entry), Decision.SCOPE, reason)

    @cached_property
    def _asked(self) -> Query:
        question = "" if is_acknowledgement(self._row.question) else self._row.question
        return read_query(self._unit.index, self._scope, *read_words(question))

    def _score(self, entry: Entry) -> ScoredRow:
        asked = self._asked
        if entry.space not in asked.spaces:
            # The space has no active entries, so the frequencies of words are unknown.
            asked = Query(asked.terms, asked.names, {entry.space: weigh_terms(asked.terms, {}, 1)})
        scorer = LexicalScorer(self._lane_query, asked, {0: self._newer_then(entry)})
        return scorer.score(indexed_entry(0, entry, terms(entry.text[:_READ_CHARS])), Neighbours())

    def _newer_then(self, entry: Entry) -> int:
        """How many entries of the space were newer at that time."""
        recorded = self._recorded.get(entry.space, [])
        return len(recorded) - bisect_right(recorded, entry.recorded_at)

    @cached_property
    def _recorded(self) -> dict[str, list[float]]:
        """By space, when its newest entries at that time were recorded, ascending."""
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

    def _lane(self, entry: Entry) -> Lane:
        return lane_of(entry, self._lane_query)

    def _find(self, ref: str) -> Entry | None:
        entry_id, _, version = ref.partition(".")
        return find_entry(self._unit, self._scope, entry_id, int(version or 1))

    def _status_then(self, entry: Entry) -> Status | None:
        """None when it was not stored yet."""
        steps = self._unit.operations.steps(Scope(self._key.tenant, (entry.space,)), entry_id=entry.id)
        taken = [step for step in steps if step.version == entry.version and step.operation.at <= self._row.asked_at]
        return taken[-1].after if taken else None

    def _newer(self, entry: Entry) -> str:
        newest = self._unit.memories.get(Scope(self._key.tenant, (entry.space,)), entry.id)
        return newest.ref if newest.version > entry.version else ""


def shown_first(explained: Iterable[Explained]) -> tuple[list[Explained], list[Explained]]:
    """Those that were shown, and the others."""
    explained = list(explained)
    shown = [one for one in explained if one.why is Decision.SHOWN]
    return shown, [one for one in explained if one.why is not Decision.SHOWN]
