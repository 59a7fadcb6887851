"""A question as recall asks it: its telling terms, who is named in it, and what each term weighs in each space."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, Protocol

from afterturn.ports import Index
from afterturn.recall.scoring import LIGHT, LIGHT_TERMS, even, is_remark, worth
from afterturn.text import is_acknowledgement, terms, words
from afterturn.types import Scope

# A pasted page asks for its rarest words; further ones would cost time at every candidate and decide nothing.
QUERY_TERMS_MAX = 48
WEIGHED_TERMS_MAX = 256
SPEAKERS_MAX = 64
# In a space of three memories every word looks common; with as many unseen ones, what is rare elsewhere is here too.
_UNSEEN_DOCUMENTS = 100
_FEW = 3
_NAME_CHARS_MIN = 2
NOTHING: Mapping[str, TermStats] = MappingProxyType({})
NOBODY: frozenset[str] = frozenset()
_ROLES = frozenset("agent ai assistant bot chatbot human model speaker system tool user".split())


class QueryTokens(NamedTuple):
    """A question's words, and its terms in order: stop words and "ok" have none (L5)."""

    words: Sequence[str]
    terms: tuple[str, ...]


class Weights(NamedTuple):
    """What each of the question's terms weighs in one space, and in how many of its entries it occurs.

    `total` is of all of them, `telling` without the light words; `even` is what scores 0.5 of a message there.
    """

    by_term: Mapping[str, float]
    documents: Mapping[str, int]
    total: float
    telling: float
    even: float

    @property
    def worth(self) -> float:
        return worth(self.total, self.telling)


NO_WEIGHTS = Weights({}, {}, 0.0, 0.0, even(0))


class Query:
    """`terms` are distinct and in the question's order; `names` are the words of it that name a speaker."""

    def __init__(self, terms: tuple[str, ...], names: frozenset[str], spaces: Mapping[str, Weights]) -> None:
        self.terms = terms
        self.names = names
        self.spaces = spaces

    @cached_property
    def wanted(self) -> frozenset[str]:
        return frozenset(self.terms)

    def names_speaker(self, speaker: str | None) -> bool:
        return bool(self.names and speaker and not self.names.isdisjoint(words(speaker)))


def named_in(text: str, speakers: Iterable[str]) -> frozenset[str]:
    """The words of `text` that are in a speaker's name. What says a part in a conversation names nobody."""
    known = name_words(speakers)
    return known.intersection(words(text)) if known else known


def name_words(speakers: Iterable[str]) -> frozenset[str]:
    """The words by which somebody may name one of these."""
    found = (word for speaker in speakers for word in words(speaker))
    return frozenset(word for word in found if word not in _ROLES and len(word) >= _NAME_CHARS_MIN)


def without_names(text: str, names: Collection[str]) -> str:
    """For an embedder: in a conversation of two, a name resembles everything that the other one said."""
    if not names:
        return text
    kept = [piece for piece in text.split() if not any(word in names for word in words(piece))]
    return " ".join(kept) or text


class TermStats(Protocol):
    """What a space in memory knows of itself, so that the store need not be asked."""

    @property
    def documents(self) -> int: ...

    def name_words(self) -> frozenset[str]: ...

    def frequencies(self, terms: Sequence[str]) -> Mapping[str, int]: ...


def read_question(
    index: Index,
    scope: Scope,
    text: str,
    in_memory: Mapping[str, TermStats] = NOTHING,
    said: QueryTokens | None = None,
) -> Query:
    """Reads the speakers and frequencies of all spaces once, for all lanes. `said` is what the text says, if known."""
    said = said or QueryTokens(words(text), terms(text))
    asked = tuple(dict.fromkeys(said.terms))[:WEIGHED_TERMS_MAX]
    known = NOBODY
    documents: dict[str, int] = {}
    frequencies: dict[str, Mapping[str, int]] = {}
    for space, figures in in_memory.items():
        known |= figures.name_words()
        documents[space] = figures.documents
        frequencies[space] = figures.frequencies(asked)
    rest = tuple(space for space in scope.spaces if space not in in_memory)
    if rest:
        stored = Scope(scope.tenant, rest)
        known |= name_words(index.speakers(stored, limit=SPEAKERS_MAX))
        documents |= {space: extent.documents for space, extent in index.extents(stored).items()}
        frequencies |= index.frequencies(stored, asked) if asked else {}
    names = known.intersection(said.words) if known else known
    named = frozenset(terms(" ".join(names))) if names else names
    chosen = telling_terms(asked, frequencies.values())
    spaces = {space: weigh(chosen, frequencies.get(space, {}), count, named) for space, count in documents.items()}
    return Query(chosen, names, spaces)


def telling_terms(asked: Sequence[str], spaces: Iterable[Mapping[str, int]]) -> tuple[str, ...]:
    """Of a long query, the rarest terms that the spaces know, then unknown ones; each once, in the query's order."""
    distinct = tuple(dict.fromkeys(asked))[:WEIGHED_TERMS_MAX]
    if len(distinct) <= QUERY_TERMS_MAX:
        return distinct
    totals: Counter[str] = Counter()
    for frequencies in spaces:
        totals.update(frequencies)
    by_worth = sorted(distinct, key=lambda term: (term not in totals, totals[term]))
    kept = frozenset(by_worth[:QUERY_TERMS_MAX])
    return tuple(term for term in distinct if term in kept)


def weigh(
    chosen: Sequence[str],
    frequencies: Mapping[str, int],
    documents: int,
    named: frozenset[str] = frozenset(),
) -> Weights:
    """Names of speakers are light too: others say them to them. Where all words are light, none is."""
    light = LIGHT_TERMS | named if named else LIGHT_TERMS
    if light.issuperset(chosen):
        light = frozenset()
    weights: dict[str, float] = {}
    telling = 0.0
    for term in chosen:
        rarity = _rarity(frequencies.get(term, 0), documents)
        weights[term] = rarity * LIGHT if term in light else rarity
        telling += 0.0 if term in light else rarity
    words = len(weights) - len(light.intersection(weights))
    return Weights(weights, frequencies, sum(weights.values()), telling, even(documents, words))


def is_askable(text: str) -> bool:
    """Whether what a user said is worth a recall: not stop words, acknowledgements and remarks of empty words (L5)."""
    if is_acknowledgement(text):
        return False
    asked = terms(text)
    return bool(asked) and not is_remark(text, asked)


def _rarity(frequency: int, documents: int) -> float:
    rarity = math.log1p((documents + _UNSEEN_DOCUMENTS - frequency + 0.5) / (frequency + 0.5))
    # What nearly every entry holds tells none from another, however few there are.
    return rarity * (1 - frequency / (documents + _FEW))
