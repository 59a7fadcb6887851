"""Search by words, entry by entry: candidates from the store, weighed with what is said around them (L6).

The frequencies are each space's own, so that no space can reorder another's results. It serves until a space is in
memory, and hooks, which have no time for that.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from afterturn.base.ports import Index
from afterturn.base.types import Kind, LaneQuery, Match
from afterturn.recall.asked import Asked, Weights
from afterturn.recall.ranking import (
    CONTEXT,
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
from afterturn.recall.threads import Threads

CANDIDATES_MAX = 400
# So many records of an ordinary length, or 32 of the longest: some 30 ms of Python.
TERMS_READ_MAX = 262_144
_CHECK_EVERY = 64


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
        weights = self.asked.spaces.get(match.entry.space)
        counts = self._counts(match)
        found = tuple(term for term in self.asked.terms if term in counts)
        share = self._share(match, counts, threads, weights) if weights else 0.0
        named = float(self.asked.names_speaker(match.entry.speaker))
        own = float(is_own(match.entry.kind, match.entry.origin))
        known = evidence(share, weights.worth if weights else 0.0, self._likeness(match, threads))
        weight = score(known, standing(named, own, float(self.newer.get(match.key, RECENT))))
        return Weighed(match, weight, share, self.cosines.get(match.key), found)

    def _share(self, match: Match, own: Counter[str], threads: Threads, weights: Weights) -> float:
        if not weights.total:
            return 0.0
        length = float(len(match.terms))
        counts: dict[str, float] = dict(own)
        for factor, around in zip(CONTEXT, threads.around(match), strict=True):
            for other in around:
                said = factor * said_shortly(float(len(other.terms)))
                length += said * len(other.terms)
                for term, count in self._counts(other).items():
                    counts[term] = counts.get(term, 0.0) + said * count
        reached = sum(weights.by_term[term] * saturated(count, length) for term, count in counts.items())
        return reached / weights.total

    def _likeness(self, match: Match, threads: Threads) -> float:
        own = self.cosines.get(match.key, SIMILARITY_ASSUMED)
        before, after = threads.beside(match)
        return in_context(own, self._cosine(before, own), self._cosine(after, own))

    def _cosine(self, match: Match | None, otherwise: float) -> float:
        return otherwise if match is None else self.cosines.get(match.key, SIMILARITY_ASSUMED)

    def _counts(self, match: Match) -> Counter[str]:
        return Counter(filter(self.asked.wanted.__contains__, match.terms))


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
