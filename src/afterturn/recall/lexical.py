"""Search by words, entry by entry: candidates from the store, weighed with what is said around them (L6).

The frequencies are each space's own, so that no space can reorder another's results. It serves until a space is in
memory, and hooks, which have no time for that.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from afterturn.base.ports import Index
from afterturn.base.types import Kind, LaneQuery, Match
from afterturn.recall.asked import NO_WEIGHTS, Asked, Weights
from afterturn.recall.light import says_something
from afterturn.recall.ranking import (
    CONTEXT,
    EVEN_STATED,
    RECENT,
    SIMILARITY_ASSUMED,
    evidence,
    in_context,
    is_own,
    said_shortly,
    saturated,
    score,
    standing,
)
from afterturn.recall.threads import Around, Threads

CANDIDATES_MAX = 256
# So many records of an ordinary length, or 32 of the longest: some 30 ms of Python.
TERMS_READ_MAX = 262_144
_CHECK_EVERY = 64
# Counting a few terms one by one is faster than looking at all; a page that is asked for with a page has many.
_COUNTED_ALONE_MAX = 6
_ALONE = Around((), (), (None, None))


def _never_given_up() -> None:
    """For callers whose matches are few."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """`score` and `share` are 0 to 1, the share that of the query's weight; `terms` are those of the query in it."""

    match: Match
    score: float
    share: float
    similarity: float | None
    terms: tuple[str, ...]


@dataclass(frozen=True)
class Weigher:
    """Of one question. `newer` tells by key how many entries of the space are newer, where that is fewer than 1,000;
    `cosines` those of entries with a vector."""

    asked: Asked
    newer: Mapping[int, int]
    cosines: Mapping[int, float]

    def weigh_all(
        self, matches: Iterable[Match], threads: Threads, check: Callable[[], None] = _never_given_up
    ) -> Iterator[Weighed]:
        """In the order given. `check` is called now and then, to raise when nobody waits for the rest."""
        for number, match in enumerate(matches):
            if number % _CHECK_EVERY == 0:
                check()
            yield self.weigh(match, threads)

    def weigh(self, match: Match, threads: Threads) -> Weighed:
        """With what is said around it, as far as `threads` knows."""
        entry, weights = match.entry, self.asked.spaces.get(match.entry.space, NO_WEIGHTS)
        counts: dict[str, float] = dict(self._counts(match))
        found = tuple(term for term in self.asked.terms if term in counts) if counts else ()
        around = threads.around(match) if threads and says_something(match.terms) else _ALONE
        even = EVEN_STATED if entry.kind is Kind.STATEMENT else weights.even
        length = self._add_context(match, counts, around)
        share = self._share(counts, length, weights)
        named = float(self.asked.names_speaker(entry.speaker))
        rank = standing(named, float(is_own(entry.kind, entry.origin)), float(self.newer.get(match.key, RECENT)))
        own = self.cosines.get(match.key, SIMILARITY_ASSUMED)
        before, after = around.beside
        likeness = in_context(own, self._cosine(before, own), self._cosine(after, own))
        weight = score(evidence(share, weights.worth, likeness), rank, even)
        return Weighed(match, weight, share, self.cosines.get(match.key), found)

    def _counts(self, match: Match) -> list[tuple[str, int]]:
        """In the question's order, so that sums are the same in every process."""
        held = self.asked.wanted.intersection(match.terms)
        if len(held) > _COUNTED_ALONE_MAX:
            counted = Counter(filter(held.__contains__, match.terms))
            return [(term, counted[term]) for term in self.asked.terms if term in held]
        return [(term, match.terms.count(term)) for term in self.asked.terms if term in held] if held else []

    def _add_context(self, match: Match, counts: dict[str, float], around: Around) -> float:
        """The length that the counts are of, its context included."""
        length = float(len(match.terms))
        for factor, others in zip(CONTEXT, (around.near, around.far), strict=True):
            for other in others:
                said = factor * said_shortly(float(len(other.terms)))
                length += said * len(other.terms)
                for term, count in self._counts(other):
                    counts[term] = counts.get(term, 0.0) + said * count
        return length

    def _share(self, counts: Mapping[str, float], length: float, weights: Weights) -> float:
        if not counts or not weights.total:
            return 0.0
        by_term = weights.by_term
        return sum(by_term[term] * saturated(count, length) for term, count in counts.items()) / weights.total

    def _cosine(self, match: Match | None, otherwise: float) -> float:
        return otherwise if match is None else self.cosines.get(match.key, SIMILARITY_ASSUMED)


def ranked(weighed: Iterable[Weighed]) -> list[Weighed]:
    """Equal scores: the newer first, then by id."""
    return sorted(weighed, key=lambda item: (-item.score, -item.match.entry.occurred_at, item.match.entry.id))


def find_by_words(index: Index, query: LaneQuery, asked: Asked) -> list[Match]:
    """Common terms only weigh what rarer ones found, so that a long query costs no more than a short one."""
    searched = rarest_terms(asked)
    if not searched:
        return []
    return index.matches(query, searched, limit=CANDIDATES_MAX, terms_max=TERMS_READ_MAX)


def rarest_terms(asked: Asked) -> tuple[str, ...]:
    """The terms to search by: from the rarest on, while the entries that hold them are few enough to weigh."""
    totals: Counter[str] = Counter()
    for weights in asked.spaces.values():
        totals.update({term: weights.documents.get(term, 0) for term in asked.terms})
    chosen: list[str] = []
    candidates = 0
    for term in sorted((term for term in asked.terms if totals[term]), key=lambda term: (totals[term], term)):
        candidates += totals[term]
        if chosen and candidates > CANDIDATES_MAX:
            break
        chosen.append(term)
    return tuple(chosen)


def records_of(weighed: Sequence[Weighed], *, limit: int) -> list[int]:
    """Keys of the first records among them."""
    records = (item.match.key for item in weighed if item.match.entry.kind is Kind.RECORD)
    return [key for key, _ in zip(records, range(limit), strict=False)]
