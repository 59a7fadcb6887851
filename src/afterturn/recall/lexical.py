"""Search by words: BM25 from each space's own frequencies, so that no space can reorder another's results (L6)."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from afterturn.base.ports import Index
from afterturn.base.types import LaneQuery, Match, Scope

K1 = 1.2
B = 0.4
CANDIDATES_MAX = 500
# Five hundred records of an ordinary length, or 32 of the longest: some 30 ms of Python.
TERMS_READ_MAX = 262_144
# A pasted page asks for its rarest words; further ones would cost time at every candidate and decide nothing.
QUERY_TERMS_MAX = 32
WEIGHED_TERMS_MAX = 256
_CHECK_EVERY = 64
# In a space of three memories every word looks rare or everywhere; as many unseen ones make the weights moderate.
_UNSEEN_DOCUMENTS = 10


def _never_given_up() -> None:
    """For callers whose matches are few."""


@dataclass(frozen=True, slots=True)
class Scored:
    """`score` is 0 to 1; `terms` are those of the query that the entry contains."""

    match: Match
    score: float
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Statistics:
    """One space as a query sees it: how much each of the query's terms weighs there, and how long its entries are."""

    weights: Mapping[str, float]
    weight_total: float
    length_mean: float


class Lexical:
    """One query's terms, weighed in every space of the scope. `search` then runs lane by lane."""

    def __init__(self, terms: tuple[str, ...], spaces: Mapping[str, Statistics], searched: tuple[str, ...]) -> None:
        self.terms = terms
        self._wanted = frozenset(terms)
        self._spaces = spaces
        self._searched = searched

    def search(self, index: Index, query: LaneQuery, check: Callable[[], None] = _never_given_up) -> list[Scored]:
        """Best first. Common terms only score what rarer ones found, so a long query costs no more than a short one."""
        if not self._searched:
            return []
        matches = index.matches(query, self._searched, limit=CANDIDATES_MAX, terms_max=TERMS_READ_MAX)
        return ranked(self.scores(matches, check))

    def scores(self, matches: Iterable[Match], check: Callable[[], None] = _never_given_up) -> Iterator[Scored]:
        """In the order given. `check` is called now and then, to raise when nobody waits for the rest."""
        for number, match in enumerate(matches):
            if number % _CHECK_EVERY == 0:
                check()
            yield self.score(match)

    def score(self, match: Match) -> Scored:
        """How much of what the query could reach in the entry's space this entry reaches."""
        space = self._spaces.get(match.entry.space)
        if space is None or not space.weight_total:
            return Scored(match, 0.0, ())
        counts = Counter(filter(self._wanted.__contains__, match.terms))
        found = tuple(term for term in self.terms if term in counts)
        length = 1 - B + B * len(match.terms) / space.length_mean
        reached = 0.0
        for term in found:
            reached += space.weights[term] * counts[term] / (counts[term] + K1 * length)
        return Scored(match, reached / space.weight_total, found)


def weigh_terms(index: Index, scope: Scope, terms: Sequence[str]) -> Lexical:
    """Reads the frequencies once, for all lanes."""
    asked = tuple(dict.fromkeys(terms))[:WEIGHED_TERMS_MAX]
    if not asked:
        return Lexical((), {}, ())
    frequencies = index.frequencies(scope, asked)
    chosen = telling_terms(asked, frequencies.values())
    spaces = {
        name: weigh_space(chosen, frequencies.get(name, {}), extent.documents, extent.terms_total)
        for name, extent in index.extents(scope).items()
    }
    return Lexical(chosen, spaces, _rarest(chosen, frequencies.values()))


def telling_terms(terms: Sequence[str], spaces: Iterable[Mapping[str, int]]) -> tuple[str, ...]:
    """Of a long query, the rarest terms that the spaces know, then unknown ones; each once, in the query's order."""
    distinct = tuple(dict.fromkeys(terms))[:WEIGHED_TERMS_MAX]
    if len(distinct) <= QUERY_TERMS_MAX:
        return distinct
    totals = _totals(spaces)
    by_worth = sorted(distinct, key=lambda term: (term not in totals, totals[term]))
    kept = frozenset(by_worth[:QUERY_TERMS_MAX])
    return tuple(term for term in distinct if term in kept)


def weigh_space(terms: Sequence[str], frequencies: Mapping[str, int], documents: int, terms_total: int) -> Statistics:
    weights = {term: _weight(frequencies.get(term, 0), documents) for term in terms}
    return Statistics(weights, sum(weights.values()), max(1.0, terms_total / max(1, documents)))


def ranked(scored: Iterable[Scored]) -> list[Scored]:
    """Equal scores: the newer first, then by id."""
    return sorted(scored, key=lambda item: (-item.score, -item.match.entry.occurred_at, item.match.entry.id))


def _weight(frequency: int, documents: int) -> float:
    return math.log1p((documents + _UNSEEN_DOCUMENTS - frequency + 0.5) / (frequency + 0.5))


def _rarest(terms: Sequence[str], spaces: Iterable[Mapping[str, int]]) -> tuple[str, ...]:
    """The terms to search by: from the rarest on, while the entries that hold them are few enough to score."""
    totals = _totals(spaces)
    chosen: list[str] = []
    candidates = 0
    for term in sorted((term for term in terms if totals[term]), key=lambda term: (totals[term], term)):
        candidates += totals[term]
        if chosen and candidates > CANDIDATES_MAX:
            break
        chosen.append(term)
    return tuple(chosen)


def _totals(spaces: Iterable[Mapping[str, int]]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for frequencies in spaces:
        totals.update(frequencies)
    return totals
