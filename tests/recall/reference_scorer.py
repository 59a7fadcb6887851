"""Scores one entry at a time by the formula of `ranking`. The index in memory must agree with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from afterturn.recall import scoring
from afterturn.recall.query import Query, TermWeights, has_content
from afterturn.types import IndexedEntry, Kind, Origin


@dataclass(frozen=True)
class ReferenceScorer:
    """`cosines` by key, of the entries that have a vector; empty when the question has none."""

    space: str
    entries: Sequence[IndexedEntry]
    cosines: Mapping[int, float]

    def scores(self, asked: Query) -> dict[int, tuple[float, float]]:
        """(score, share) by key."""
        newest = sorted((entry.key for entry in self.entries), reverse=True)
        newer = {key: number for number, key in enumerate(newest)}
        return {entry.key: self._score(entry, asked, newer[entry.key]) for entry in self.entries}

    def _score(self, entry: IndexedEntry, asked: Query, newer: int) -> tuple[float, float]:
        weights = asked.spaces[self.space]
        before, after = self._neighbour(entry, -1), self._neighbour(entry, 1)
        if not has_content(entry.terms):
            before = after = None
        middle = scoring.MIDPOINT_STATED if entry.kind is Kind.STATEMENT else weights.midpoint
        share = self._share(entry, [before, after], weights)
        own = self._cosine(entry)
        likeness = scoring.in_context(
            own, own if before is None else self._cosine(before), own if after is None else self._cosine(after)
        )
        standing = scoring.prior(
            float(asked.names_speaker(entry.speaker)),
            float(scoring.is_own(entry.kind, entry.origin)),
            float(min(newer, scoring.RECENT)),
        )
        return scoring.score(scoring.evidence(share, weights.worth, likeness), standing, middle), share

    def _share(self, entry: IndexedEntry, beside: list[IndexedEntry | None], weights: TermWeights) -> float:
        beyond = [other and self._neighbour(other, step) for other, step in zip(beside, (-1, 1), strict=True)]
        counts = {term: float(entry.terms.count(term)) for term in weights.by_term}
        length = float(len(entry.terms))
        for factor, around in zip(scoring.CONTEXT, (beside, beyond), strict=True):
            for other in filter(None, around):
                said = factor * scoring.context_weight(float(len(other.terms)))
                length += said * len(other.terms)
                for term in counts:
                    counts[term] += said * other.terms.count(term)
        reached = sum(weight * scoring.saturated(counts[term], length) for term, weight in weights.by_term.items())
        return reached / weights.total if weights.total else 0.0

    def _cosine(self, entry: IndexedEntry) -> float:
        return self.cosines.get(entry.key, scoring.SIMILARITY_ASSUMED)

    def _neighbour(self, entry: IndexedEntry, step: int) -> IndexedEntry | None:
        """The next entry of its conversation in one direction, at most two positions away."""
        if not _has_place(entry) or entry.position is None:
            return None
        talk = self._talks[entry.owner or self.space, entry.conversation]
        return talk.get(entry.position + step) or talk.get(entry.position + 2 * step)

    @cached_property
    def _talks(self) -> Mapping[tuple[str, str | None], dict[int, IndexedEntry]]:
        talks: dict[tuple[str, str | None], dict[int, IndexedEntry]] = {}
        for entry in sorted(self.entries):
            if _has_place(entry) and entry.position is not None:
                talks.setdefault((entry.owner or self.space, entry.conversation), {})[entry.position] = entry
        return talks


def _has_place(entry: IndexedEntry) -> bool:
    is_said = entry.kind is Kind.RECORD and entry.origin is not Origin.TOOL
    return is_said and entry.conversation is not None
