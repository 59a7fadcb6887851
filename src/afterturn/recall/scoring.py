"""The scoring formulas: how words, similarity and what is known of an entry make one score from 0 to 1.

They take numbers or arrays: the search in the store scores one entry at a time, the search in memory a whole space.
The constants were chosen on conversations of three kinds (short turns, long answers, months of sessions). Around each
there is a wide plateau; `afterturn eval` shows the effect of a change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from afterturn.types import Hit, Kind, Origin

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from afterturn.types import Entry, Lane, RecallRow

N = TypeVar("N", float, "NDArray[Any]")

CONTEXT = (0.8, 0.4)
"""The weight of a term in the next message and in the one after that, before `context_weight`."""
REACH = len(CONTEXT)
"""How many messages before and after a message are its context."""
COMMON_WEIGHT = 0.6
"""The share of its rarity that a common word weighs."""
SEARCH_SCORE_MIN = 0.5
"""If the best match of a direct search has a lower score, nothing is found."""
FLOOR_SHARE = 0.9
"""Entries after the best may score this share of the floor."""
BEST_SHARE = 0.72
"""Entries after the best must score this share of the best: next to a perfect answer, a fair one is noise."""
RECENT = 1000
"""How many of a space's newest entries differ in recency."""
SIMILARITY_ASSUMED = 0.3
"""The similarity of an entry without a vector, or to a question without one: that of an ordinary match."""
MIDPOINT_STATED = 1.0
"""The midpoint for statements. It is low because nobody states small talk."""
# A message with this many terms counts half as much in the context of its neighbours as a very short one.
_SHORT_TERMS = 30
# Term saturation: half reached by a seventh of an occurrence in an empty entry, by nearly one in a hundred terms.
_LENGTH_FREE = 20
_LENGTH_PIVOT = 140
_SHARE_WORTH = 1.3
_DISTINCTIVE_HALF = 8
_WEIGHT_WORTH = 0.05
_NEIGHBOUR_SIMILARITY = 0.3
_GROUND = 0.3
_NAMED, _OWN, _RECENT = 0.24, 0.28, 0.4
_RECENT_HALF = 200
# More messages resemble a question by chance as a space grows, up to about five hundred.
_MIDPOINT_ALONE = 0.8
_MIDPOINT_TENFOLD = 0.278
_CROWD = 500
# No entry holds all of a long question, and small talk is short: each word after the seventh lowers the midpoint.
_WORDS_PLAIN, _WORDS_MANY = 7, 12
_MIDPOINT_WORD = 0.04


class ScoredRow(NamedTuple):
    """An entry, by the store's key, and its score. `share` is how much of the question's weight it holds.

    `similarity` is None without a vector. `terms` are the question's terms that the entry contains, in their order.
    `partner` is the key of the other message of its exchange, if that is known.
    """

    key: int
    lane: Lane
    score: float
    share: float
    similarity: float | None
    terms: tuple[str, ...]
    partner: int | None = None

    def hit(self, entry: Entry, partner: Entry | None = None) -> Hit:
        return Hit(entry, self.lane, self.score, self.share, self.similarity, self.terms, partner)


def context_weight(length: N) -> N:
    """How much a message of `length` terms counts in the context of its neighbours. Long answers count little."""
    weight: N = _SHORT_TERMS / (_SHORT_TERMS + length)
    return weight


def saturated(count: N, length: N) -> N:
    """0 to 1: what `count` occurrences in an entry of `length` terms are worth. Both include the context."""
    share: N = count / (count + (length + _LENGTH_FREE) / _LENGTH_PIVOT)
    return share


def in_context(own: N, before: N, after: N) -> N:
    """The similarity of an entry together with its two neighbours. Pass `own` for a neighbour that is missing."""
    similarity: N = (own + _NEIGHBOUR_SIMILARITY * (before + after)) / (1 + 2 * _NEIGHBOUR_SIMILARITY)
    return similarity


def worth(total: float, distinctive: float) -> float:
    """The weight of all of a question's words compared with its similarity. `distinctive` leaves out common words."""
    return _SHARE_WORTH * distinctive / (distinctive + _DISTINCTIVE_HALF) + _WEIGHT_WORTH * total


def evidence(share: N, worth: float, similarity: N) -> N:
    """`share` is how much of the question's weight an entry holds."""
    found: N = worth * share + similarity
    return found


def prior(named: N, own: N, newer: N) -> N:
    """A factor for what is known of an entry apart from the question's words.

    `named` and `own` are 1 or 0: its speaker is named in the question; it is a statement or the user's own message.
    `newer` is how many entries of the space are newer, at most `RECENT`.
    """
    factor: N = 1 + _NAMED * named + _OWN * own + _RECENT / (1 + newer / _RECENT_HALF)
    return factor


def midpoint(documents: int, words: int = 0) -> float:
    """The evidence that scores 0.5 for a message in a space of `documents`. One small talk in twenty reaches it.

    `words` counts the question's words that are not common.
    """
    alone = _MIDPOINT_ALONE + _MIDPOINT_TENFOLD * math.log10(max(1, min(documents, _CROWD)))
    return alone * (1 - _MIDPOINT_WORD * max(0, min(words, _WORDS_MANY) - _WORDS_PLAIN))


def score(evidence: N, prior: N, midpoint: N) -> N:
    """0 to 1; below 0 for an entry that means the opposite of the question."""
    value: N = (evidence + _GROUND) * prior
    share: N = value / (value + midpoint)
    return share


def is_own(kind: Kind, origin: Origin) -> bool:
    return kind is Kind.STATEMENT or origin is Origin.USER


class ScoreKind(StrEnum):
    """The meaning of a recall's scores.

    `chance`: the chance that a line helps. `search score`: how well it matches, in a recall that was not judged.
    `profile score`: its place in the answer to a broad question.
    """

    CHANCE = "chance"
    SEARCH = "search score"
    PROFILE = "profile score"


def score_kind_of(row: RecallRow) -> ScoreKind | None:
    """The meaning of the scores of a recall's candidates. None if it was not stored."""
    kind = row.settings.get("score_kind")
    return ScoreKind(str(kind)) if kind else None


def best_first(hits: Iterable[Hit]) -> list[Hit]:
    """Sorted by score; for equal scores the newer, then by id."""
    found = list(hits)
    # One space returns them in this order already.
    if all(one.score > other.score for one, other in pairwise(found)):
        return found
    return sorted(found, key=lambda hit: (-hit.score, -hit.entry.occurred_at, hit.entry.id, hit.entry.version))


def above_floor(hits: Sequence[Hit], score_min: float) -> list[Hit]:
    """Nothing when the best is below `score_min`; otherwise those that are close to it. `hits` are best first."""
    if not hits or hits[0].score < score_min:
        return []
    least = max(score_min * FLOOR_SHARE, hits[0].score * BEST_SHARE) if score_min else 0.0
    return [hit for hit in hits if hit.score >= least]
