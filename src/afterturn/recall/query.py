"""Questions: the request that every recall starts with, the terms that are searched for, and what they weigh.

Also the words that are common in any conversation, the months that a question names, and which entries a query admits.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from afterturn.errors import NotFound
from afterturn.recall.scoring import COMMON_WEIGHT, midpoint, worth
from afterturn.text import is_acknowledgement, regex, terms, words
from afterturn.types import ANYTHING, Kind, Lane, LaneQuery, Origin, Scope, Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from afterturn.ports import Index, Unit
    from afterturn.recall.index.searcher import IndexSearcher
    from afterturn.types import Entry, IndexedEntry, StandingRow

Embed: TypeAlias = "Callable[[str], NDArray[np.float32]]"
QueryVector: TypeAlias = "NDArray[np.float32] | Embed"
"""A question's vector, or a function that makes it at once from a text."""


class RecallRequest(NamedTuple):
    """One question above the store. `limit` bounds all lanes together. `score_min` is None for that of a search.

    `admitted` says which entries may be found. Without a conversation there is no short-term lane: every record is
    episodic. `query_vector` leaves out the names of speakers; a function gets the text without them. `repeatable_refs`
    are those of the excluded references that a turn may show again when nothing else is relevant. `standing` is the
    standing block that the model sees: a turn does not repeat its lines.
    """

    text: str
    admitted: LaneQuery
    limit: int
    score_min: float | None = None
    query_vector: QueryVector | None = None
    lanes: tuple[Lane, ...] = tuple(Lane)
    correlation: str = ""
    repeatable_refs: frozenset[str] = frozenset()
    standing: StandingRow | None = None

    @property
    def scope(self) -> Scope:
        return self.admitted.scope

    @property
    def now(self) -> float:
        return self.admitted.now

    def asked(self, *, now: float, correlation: str) -> RecallRequest:
        """The same question, asked now."""
        return self._replace(admitted=self.admitted._replace(now=now), correlation=correlation)

    @property
    def searched_lanes(self) -> tuple[Lane, ...]:
        if self.admitted.conversation is not None:
            return self.lanes
        return tuple([lane for lane in self.lanes if lane is not Lane.SHORT_TERM])


def is_decidable(query: LaneQuery) -> bool:
    """Whether `admits` can decide. Only the store applies filters."""
    return query.filter is ANYTHING or query.filter == ANYTHING


def admits(query: LaneQuery, entry: Entry) -> bool | None:
    """Whether the query may return this active entry of its scope. Agrees with the conditions in SQL.

    None if it depends on other entries, which the store has to read.
    """
    if not entry.is_valid(query.now) or entry.content_hash in query.visible_hashes:
        return False
    if query.excluded_refs and entry.ref in query.excluded_refs:
        return False
    if query.excluded_ids and entry.id in query.excluded_ids:
        return False
    if entry.origin is Origin.TOOL and not query.evidence and entry.kind is Kind.RECORD:
        return False
    if (query.trusted_only and entry.is_report) or not is_shared(entry, query.projects):
        return False
    seen_since = query.seen_since if query.conversation is not None else None
    if query.lane is None and seen_since is None:
        is_admitted = True
    else:
        lane = lane_of(entry, query)
        is_seen = lane is Lane.SHORT_TERM and seen_since is not None and entry.recorded_at > seen_since
        is_admitted = query.lane in (None, lane) and not is_seen
    is_learned = entry.sources and entry.kind is Kind.STATEMENT
    is_unsure = is_learned and (query.visible_hashes or seen_since is not None)
    return None if is_admitted and is_unsure else is_admitted


def is_shared(entry: Entry, projects: Collection[str] | None) -> bool:
    """False for a report of another project, and for anything of it that is not about the user."""
    is_bound = entry.target is Target.ENVIRONMENT or entry.is_report
    return not is_bound or not entry.is_from_elsewhere(projects)


def lane_of(entry: Entry | IndexedEntry, query: LaneQuery) -> Lane:
    """Agrees with the conditions in SQL."""
    if entry.kind is Kind.STATEMENT:
        return Lane.LONG_TERM
    is_here = query.conversation is not None and entry.conversation == query.conversation
    is_owned = query.owner is None or (entry.owner or entry.space) == query.owner
    return Lane.SHORT_TERM if is_here and is_owned else Lane.EPISODIC


def is_learned_from_seen(unit: Unit, tenant: str, entry: Entry, is_seen: Callable[[Entry], bool]) -> bool:
    """Whether all sources of a statement are records of its space for which `is_seen` is true."""
    if entry.kind is not Kind.STATEMENT or not entry.sources:
        return False
    scope = Scope(tenant, (entry.space,))
    try:
        sources = (unit.memories.get(scope, source) for source in entry.sources)
        return all(source.kind is Kind.RECORD and is_seen(source) for source in sources)
    except NotFound:
        return False


@cache
def _word_lists() -> dict[str, str]:
    """`common` words occur in conversations about anything: sharing one means less than its rarity suggests.

    `courtesies` are greetings, thanks and assent in other languages. Some have another meaning in English, so they
    count only in a message that holds nothing else. `courtesies_beyond` are not ASCII after accents are folded.
    """
    lists: dict[str, list[str]] = json.loads(Path(__file__).with_name("query_words.json").read_text(encoding="utf-8"))
    return {name: " ".join(lines) for name, lines in lists.items()}


COMMON_TERMS = frozenset(terms(_word_lists()["common"]))
_ASCII_EMPTY_TERMS = COMMON_TERMS | frozenset(terms(_word_lists()["courtesies"]))
_QUESTION_WORDS = frozenset(
    "am are can could did do does had has have how is was were what when where which who whom whose why".split()
)
_FIRST_PERSON = frozenset("i me mine my myself our ours us we".split())


def has_content(terms: Collection[str]) -> bool:
    """False for "Noted." and "Sure, happy to!": their context must not make them answers."""
    if "".join(terms).isascii():
        return not _ASCII_EMPTY_TERMS.issuperset(terms)
    return not _courtesy_terms().issuperset(set(terms) - COMMON_TERMS)


def needs_recall(text: str) -> bool:
    """Whether a user message is worth a recall: not stop words, acknowledgements or remarks without content."""
    if is_acknowledgement(text):
        return False
    asked = terms(text)
    return bool(asked) and not _is_remark(text, asked)


# Words for something that was said before. A message with one of them, or without a distinctive word of its own, is
# asked together with the message before it. Words that are also articles or fillers ("das", "il y a") are left out.
_REFERRING = frozenset(_word_lists()["referring"].split())
_REFERRING_RUN = regex("それ|あれ|これ|そこ|その|あの|彼|它|他|她|那|这|그것|거기")
_OPENING = frozenset("and und et y e en".split())


def is_follow_up(text: str) -> bool:
    """Whether a message seems to depend on the one before it: it refers to something, or says little by itself."""
    spoken = words(text)
    refers = any(word in _REFERRING and (place == 0 or word not in _OPENING) for place, word in enumerate(spoken))
    return refers or bool(_REFERRING_RUN.search(text)) or COMMON_TERMS.issuperset(terms(text))


def _is_remark(text: str, asked: Collection[str]) -> bool:
    """Without content, and not a question except to the agent: "sounds good", "what do you mean?", "¿cómo estás?"."""
    # "LA" and "EST" are names in capital letters, not courtesies.
    if has_content(asked) or (text.isascii() and text.strip().isupper()):
        return False
    spoken = words(text)
    is_question = spoken[0] in _QUESTION_WORDS and not ("you" in spoken and _FIRST_PERSON.isdisjoint(spoken))
    return _courtesy_terms().issuperset(asked) or not is_question


@cache
def _courtesy_terms() -> frozenset[str]:
    # Only when needed: it takes 8 ms, and a program's first question is seldom a courtesy.
    return frozenset(terms(f"{_word_lists()['courtesies']} {_word_lists()['courtesies_beyond']}"))


# A pasted page is searched by its rarest words; more of them would cost time for every candidate and decide nothing.
QUERY_TERMS_MAX = 48
WEIGHED_TERMS_MAX = 256
SPEAKERS_MAX = 64
# In a space of three memories every word looks common, so unseen ones are added to the count.
_UNSEEN_DOCUMENTS = 100
_FEW = 3
_NAME_CHARS_MIN = 2
NOBODY: frozenset[str] = frozenset()
_ROLES = frozenset("agent ai assistant bot chatbot human model speaker system tool user".split())


class TermWeights(NamedTuple):
    """The weight of each of a question's terms in one space, and in how many of its entries it occurs.

    `total` is the sum, `distinctive` the sum without common words; `midpoint` is the evidence that scores 0.5 for a
    message of the space.
    """

    by_term: Mapping[str, float]
    documents: Mapping[str, int]
    total: float
    distinctive: float
    midpoint: float

    @property
    def worth(self) -> float:
        return worth(self.total, self.distinctive)


NO_WEIGHTS = TermWeights({}, {}, 0.0, 0.0, midpoint(0))


class Query:
    """An analysed question. `terms` are distinct and in its order; `names` are its words that name a speaker."""

    def __init__(self, terms: tuple[str, ...], names: frozenset[str], spaces: Mapping[str, TermWeights]) -> None:
        self.terms = terms
        self.names = names
        self.spaces = spaces

    @cached_property
    def term_set(self) -> frozenset[str]:
        return frozenset(self.terms)

    @cached_property
    def weights(self) -> Mapping[str, float]:
        """The weight of each term; of a term in several spaces, the largest."""
        found: dict[str, float] = {}
        for weights in self.spaces.values():
            for term, weight in weights.by_term.items():
                found[term] = max(weight, found.get(term, 0.0))
        return found

    def names_speaker(self, speaker: str | None) -> bool:
        return bool(self.names and speaker and not self.names.isdisjoint(words(speaker)))


def named_in(text: str, speakers: Iterable[str]) -> frozenset[str]:
    """The words of `text` that are in a speaker's name. Words for a role, such as "assistant", name nobody."""
    known = name_words(speakers)
    return known.intersection(words(text)) if known else known


def name_words(speakers: Iterable[str]) -> frozenset[str]:
    """The words by which a text may name one of the speakers."""
    found = (word for speaker in speakers for word in words(speaker))
    return frozenset(word for word in found if word not in _ROLES and len(word) >= _NAME_CHARS_MIN)


def without_names(text: str, names: Collection[str]) -> str:
    """The text to embed: in a conversation of two, a name resembles everything that the other one said."""
    if not names:
        return text
    left = [piece for piece in text.split() if not any(word in names for word in words(piece))]
    return " ".join(left) or text


def read_query(
    index: Index,
    scope: Scope,
    words: Sequence[str],
    asked: Sequence[str],
    in_memory: Mapping[str, IndexSearcher] | None = None,
) -> Query:
    """Reads the speakers and the term frequencies of all spaces once, for all lanes: from memory, or from the store.

    `words` and `asked`, the terms in order, are the question's, as `text.read_words` returns them.
    """
    distinct = tuple(dict.fromkeys(asked))[:WEIGHED_TERMS_MAX]
    known = NOBODY
    documents: dict[str, int] = {}
    frequencies: dict[str, Mapping[str, int]] = {}
    for space, searcher in (in_memory or {}).items():
        known |= searcher.name_words()
        documents[space] = searcher.documents
        frequencies[space] = searcher.frequencies(distinct)
    rest = tuple(space for space in scope.spaces if space not in documents)
    if rest:
        stored = Scope(scope.tenant, rest)
        known |= name_words(index.speakers(stored, limit=SPEAKERS_MAX))
        documents |= {space: stats.documents for space, stats in index.stats(stored).items()}
        frequencies |= index.frequencies(stored, distinct) if distinct else {}
    names = known.intersection(words) if known else known
    named = frozenset(terms(" ".join(names))) if names else names
    chosen = choose_terms(distinct, frequencies.values())
    spaces = {space: weigh_terms(chosen, frequencies.get(space, {}), n, named) for space, n in documents.items()}
    return Query(chosen, names, spaces)


def choose_terms(asked: Sequence[str], spaces: Iterable[Mapping[str, int]]) -> tuple[str, ...]:
    """Of a long question, the rarest terms that the spaces know, then unknown ones; each once, in its order."""
    distinct = tuple(dict.fromkeys(asked))[:WEIGHED_TERMS_MAX]
    if len(distinct) <= QUERY_TERMS_MAX:
        return distinct
    totals: Counter[str] = Counter()
    for frequencies in spaces:
        totals.update(frequencies)
    rarest = sorted(distinct, key=lambda term: (term not in totals, totals[term]))
    chosen = frozenset(rarest[:QUERY_TERMS_MAX])
    return tuple(term for term in distinct if term in chosen)


def weigh_terms(
    chosen: Sequence[str],
    frequencies: Mapping[str, int],
    documents: int,
    named: frozenset[str] = frozenset(),
) -> TermWeights:
    """Names of speakers count as common words: the others address them. If all words are common, none is."""
    common = COMMON_TERMS | named if named else COMMON_TERMS
    if common.issuperset(chosen):
        common = frozenset()
    weights: dict[str, float] = {}
    distinctive = 0.0
    for term in chosen:
        count = frequencies.get(term, 0)
        rarity = math.log1p((documents + _UNSEEN_DOCUMENTS - count + 0.5) / (count + 0.5))
        # A word that nearly every entry contains distinguishes none, however few entries there are.
        rarity *= 1 - count / (documents + _FEW)
        weights[term] = rarity * COMMON_WEIGHT if term in common else rarity
        distinctive += 0.0 if term in common else rarity
    words = len(weights) - len(common.intersection(weights))
    return TermWeights(weights, frequencies, sum(weights.values()), distinctive, midpoint(documents, words))
