"""A question as recall asks it: its telling terms, who is named in it, and what each term weighs in each space."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from afterturn.base.ports import Index
from afterturn.base.terms import terms, words
from afterturn.base.types import Scope
from afterturn.recall.light import LIGHT_TERMS
from afterturn.recall.ranking import LIGHT

# A pasted page asks for its rarest words; further ones would cost time at every candidate and decide nothing.
QUERY_TERMS_MAX = 48
WEIGHED_TERMS_MAX = 256
SPEAKERS_MAX = 64
# In a space of three memories every word looks rare or everywhere; as many unseen ones make the weights moderate.
_UNSEEN_DOCUMENTS = 10
_NAME_CHARS_MIN = 2
_ROLES = frozenset("agent ai assistant bot chatbot human model speaker system tool user".split())


@dataclass(frozen=True, slots=True)
class Weights:
    """What each of the question's terms weighs in one space, and in how many of its entries it occurs."""

    by_term: Mapping[str, float]
    documents: Mapping[str, int]

    @property
    def total(self) -> float:
        return sum(self.by_term.values())


@dataclass(frozen=True)
class Asked:
    """`terms` are distinct and in the question's order, without `names`: the words of it that name a speaker."""

    terms: tuple[str, ...]
    names: frozenset[str]
    spaces: Mapping[str, Weights]

    @cached_property
    def wanted(self) -> frozenset[str]:
        return frozenset(self.terms)

    def names_speaker(self, speaker: str | None) -> bool:
        return bool(speaker and self.names and not self.names.isdisjoint(words(speaker)))


def named_in(text: str, speakers: Iterable[str]) -> frozenset[str]:
    """The words of `text` that are in a speaker's name. What says a part in a conversation names nobody."""
    known = {word for speaker in speakers for word in words(speaker)}
    return frozenset(
        word for word in words(text) if word in known and word not in _ROLES and len(word) >= _NAME_CHARS_MIN
    )


def without_names(text: str, names: Collection[str]) -> str:
    """For an embedder: in a conversation of two, a name resembles everything that the other one said."""
    if not names:
        return text
    kept = [piece for piece in text.split() if not any(word in names for word in words(piece))]
    return " ".join(kept) or text


def read_question(index: Index, scope: Scope, text: str) -> Asked:
    """Reads the speakers and frequencies of all spaces once, for all lanes."""
    names = named_in(text, index.speakers(scope, limit=SPEAKERS_MAX))
    named = frozenset(terms(" ".join(names)))
    distinct = tuple(term for term in dict.fromkeys(terms(text)) if term not in named)[:WEIGHED_TERMS_MAX]
    # A question of nothing but a name asks for who is mentioned.
    asked = distinct or tuple(named)
    frequencies = index.frequencies(scope, asked) if asked else {}
    chosen = telling_terms(asked, frequencies.values())
    spaces = {
        name: weigh(chosen, frequencies.get(name, {}), extent.documents)
        for name, extent in index.extents(scope).items()
    }
    return Asked(chosen, names, spaces)


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


def weigh(chosen: Sequence[str], frequencies: Mapping[str, int], documents: int) -> Weights:
    return Weights({term: _weight(term, frequencies.get(term, 0), documents) for term in chosen}, frequencies)


def is_light(asked: Iterable[str]) -> bool:
    """Whether nothing is said that could be remembered by: "that sounds right", "will do"."""
    return all(term in LIGHT_TERMS for term in asked)


def _weight(term: str, frequency: int, documents: int) -> float:
    rarity = math.log1p((documents + _UNSEEN_DOCUMENTS - frequency + 0.5) / (frequency + 0.5))
    return rarity * (LIGHT if term in LIGHT_TERMS else 1.0)
