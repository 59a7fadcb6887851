"""The chance that a hit helps with a question.

A small linear model over named features. `relevance_weights.json` has its weights; `lab/train_relevance.py`
computes them from conversations of people with an agent, so they hold for questions like those. A message is judged
together with the other message of its exchange: a question says nothing without its answer, and an answer that repeats
what the user said adds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import exp, log, log1p
from pathlib import Path
from typing import NamedTuple

from afterturn.recall.broad_questions import read_broad_question
from afterturn.recall.features import EntryFeatures, features_of, is_request, passage_of
from afterturn.recall.query import COMMON_TERMS, has_content
from afterturn.recall.scoring import SIMILARITY_ASSUMED
from afterturn.recall.times import AskedTime, time_asked
from afterturn.recall.what_holds import Features, Weights, grammar_terms, log_odds, put_newer_first, weigh
from afterturn.text import terms
from afterturn.types import Entry, Hit, Kind, Lane, Origin
from afterturn.utterance import UtteranceChances, read_question, read_utterance

WEIGHTS_PATH = Path(__file__).with_name("relevance_weights.json")
JUDGED_MAX = 32
"""How many exchanges are judged, the best by their search scores first."""
FLOOR_SHARE_OF_CHANCE = 0.5
"""Lines after the best may have this share of the floor."""
BEST_SHARE_OF_CHANCE = 1 / 4
"""Lines after the best must have this share of its chance: next to a perfect answer, a fair one is noise."""
# Fewer candidates make none of them more likely: most questions have nothing to do with a single fact.
_CANDIDATES_FEW = 10
# That of a word in a fifth of all messages. A word in all of a dozen facts is their subject, not small talk.
_WEIGHT_MIN = 2.0
# A statement takes the place of a message that is this many times as long.
_WORDY = 2

STORED = "stored"
_STORED_ODDS = 1.5


class JudgedQuestion(NamedTuple):
    """A question as it is judged. `weights` are those of its distinctive terms."""

    weights: Weights
    utterance: UtteranceChances
    is_personal: bool
    is_general: bool
    time: AskedTime | None

    @classmethod
    def read(cls, text: str, now: float, weights: Weights, names: frozenset[str] = frozenset()) -> JudgedQuestion:
        """`names` are those of its words that name a speaker."""
        empty = COMMON_TERMS | grammar_terms()
        asked = {term: max(weight, _WEIGHT_MIN) for term, weight in weights.items() if term not in empty}
        read = read_question(text)
        is_personal = bool(names) or read.is_personal
        return cls(asked, read.utterance, is_personal, read.is_general, time_asked(text, now))

    @property
    def terms(self) -> frozenset[str]:
        return frozenset(self.weights)

    def share(self, content: frozenset[str]) -> float:
        """How much of the question, by weight, is in `content`."""
        return sum([weight for term, weight in self.weights.items() if term in content]) / (self.total or 1)

    @property
    def total(self) -> float:
        return sum(self.weights.values())

    def asks_for_time_of(self, occurred_at: float) -> bool | None:
        """Whether that time is in the range that is asked for; None if none is."""
        if self.time is None or not self.time.has_range or self.time.looks_ahead:
            return None
        since, until = self.time.since, self.time.until
        return (since is None or occurred_at >= since) and (until is None or occurred_at < until)


@dataclass(frozen=True)
class RecalledExchange:
    """A user's message and its answer, or one statement. `hits` are the hits in it, the user's message first.

    Of long messages, only the passages that bear on the terms that are `asked` are judged.
    """

    hits: tuple[Hit, ...]
    said: Entry | None
    answer: Entry | None
    asked: frozenset[str] = frozenset()

    @cached_property
    def said_passage(self) -> EntryFeatures | None:
        return passage_of(features_of(self.said), self.asked) if self.said is not None else None

    @cached_property
    def answer_passage(self) -> EntryFeatures | None:
        return passage_of(features_of(self.answer), self.asked, self.said) if self.answer is not None else None

    @cached_property
    def content(self) -> frozenset[str]:
        """The distinctive terms of both passages. Computed when needed: most exchanges are not judged."""
        return _terms(self.said_passage) | _terms(self.answer_passage)

    @property
    def occurred_at(self) -> float:
        return self.hits[0].entry.occurred_at


def prepare() -> None:
    """Loads the word lists and weights, which takes some 30 ms: longer than a first turn should wait."""
    _weights()
    read_utterance("Where was it?")
    time_asked("Where was it last week?", 0.0)
    read_broad_question("What do you know about me?")


def judge(
    text: str,
    hits: Sequence[Hit],
    *,
    now: float,
    weights: Weights,
    names: frozenset[str] = frozenset(),
    keep_all: bool = True,
) -> list[Hit]:
    """Scores `hits` by the chance that each helps with the question, best first. `weights` are those of its terms,
    `names` those of its words that name a speaker. Only the best 32 exchanges are judged; those behind them score 0, or
    are left out without `keep_all`.

    Of two that are about the same thing, the newer comes first if it says what holds now; the older is marked.
    """
    if not hits:
        return []
    question = JudgedQuestion.read(text, now, weights, names)
    asked = question.terms
    found = group_exchanges(with_partners(hits), asked)
    exchanges: list[RecalledExchange] = []
    # They state nothing, such as a question that was asked before.
    silent: list[RecalledExchange] = []
    for one in found:
        if len(exchanges) == JUDGED_MAX:
            break
        (silent if line_of(one) is None else exchanges).append(one)
    unjudged = [*silent, *found[len(exchanges) + len(silent) :]] if keep_all else silent
    rest = [_scored(hit, 0.0) for one in unjudged for hit in one.hits]
    if not exchanges:
        return rest
    model = _weights()
    chances = [chance(features, model) for features in line_features(question, exchanges)]
    order, earlier = put_newer_first(question, exchanges, chances)
    judged = [
        _scored(hit, score, is_earlier=hit.is_earlier or at in earlier)
        for at, score in zip(order, falling_scores(order, chances), strict=True)
        for hit in exchanges[at].hits
    ]
    return judged + rest


def _scored(hit: Hit, score: float, *, is_earlier: bool = False) -> Hit:
    """A copy with another score. There are over a hundred in a turn, and `replace` takes three times as long."""
    return Hit(hit.entry, hit.lane, score, hit.lexical, hit.similarity, hit.terms, hit.partner, is_earlier, hit.answer)


def falling_scores(order: Sequence[int], chances: Sequence[float]) -> list[float]:
    """The chances in this order, where what holds now has at least the chance of what it replaces."""
    scores: list[float] = []
    best = 0.0
    for at in reversed(order):
        best = max(best, chances[at])
        scores.append(best)
    return scores[::-1]


def _is_said(entry: Entry) -> bool:
    """Whether it is the message that was answered: the user's, or in a sub-agent's conversation its host's."""
    return entry.origin is Origin.USER or (entry.origin is not Origin.AGENT and entry.speaker != "assistant")


def with_partners(hits: Sequence[Hit]) -> list[Hit]:
    """Adds the partner of each record that has none yet, if it is among `hits`."""
    said: dict[tuple[str, str | None], Entry] = {}
    answers: dict[tuple[str, str | None], Entry] = {}
    for hit in hits:
        entry = hit.entry
        if entry.kind is Kind.RECORD and entry.turn is not None:
            (said if _is_said(entry) else answers).setdefault((entry.space, entry.turn), entry)

    def partner_of(entry: Entry) -> Entry | None:
        if entry.kind is not Kind.RECORD:
            return None
        return (answers if _is_said(entry) else said).get((entry.space, entry.turn))

    partners = [hit.partner or partner_of(hit.entry) for hit in hits]
    return [
        hit if partner is hit.partner else replace(hit, partner=partner)
        for hit, partner in zip(hits, partners, strict=True)
    ]


def group_exchanges(hits: Sequence[Hit], asked: frozenset[str] = frozenset()) -> list[RecalledExchange]:
    """The exchanges of these hits, in the order of their best hits. `asked` are the distinctive terms of the question.
    A statement belongs to the exchange that it was learned from, if a message of that is among them."""
    known = {entry.id for hit in hits for entry in (hit.entry, hit.partner) if entry is not None}
    members: dict[str, list[Hit]] = {}
    for hit in hits:
        key = hit.entry.id
        if hit.entry.kind is Kind.STATEMENT:
            key = next((source for source in hit.entry.sources if source in known), key)
        elif hit.partner is not None and not _is_said(hit.entry):
            key = hit.partner.id
        members.setdefault(key, []).append(hit)
    return [_exchange(found, asked) for found in members.values()]


def _exchange(found: list[Hit], asked: frozenset[str]) -> RecalledExchange:
    record = next((hit for hit in found if hit.entry.kind is Kind.RECORD), None)
    if record is None:
        return RecalledExchange(tuple(found), found[0].entry, None, asked)
    pair = (record.entry, record.partner)
    said = next((entry for entry in pair if entry is not None and _is_said(entry)), None)
    answer = next((entry for entry in pair if entry is not None and entry is not said), None)
    ordered = tuple(sorted(found, key=lambda hit: hit.entry is not said))
    return RecalledExchange(ordered, said, answer, asked)


_ORDERS = 0.5
# A question without a telling answer is shown if it seems to state something as well.
_STATES_ALSO = 0.3
# Below this chance an answer states nothing: "You're welcome.", "One moment, please."
_TELLING = 0.2


def worth_showing(hits: Sequence[Hit], chance_min: float) -> list[Hit]:
    """Nothing when the best is below `chance_min`; otherwise those that come close enough, without mere thanks, and the
    best of another conversation if it reaches `chance_min`: ten messages about a draft do not hide it. Best first."""
    if not hits or hits[0].score < chance_min:
        return []
    least = max(chance_min * FLOOR_SHARE_OF_CHANCE, hits[0].score * BEST_SHARE_OF_CHANCE) if chance_min else 0.0
    lasting = next((hit for hit in hits if hit.lane is not Lane.SHORT_TERM and hit.score >= chance_min), None)
    return [one for one in hits if (one.score >= least or one is lasting) and has_content(features_of(one.entry).terms)]


def lines_of(text: str, hits: Sequence[Hit]) -> list[Hit]:
    """The hits that are lines of a block, in the order of `hits`: one for each exchange.

    A question or an order is shown with its answer or not at all. An answer to anything else is added if it has words
    of the question that the message has not.
    """
    asked = frozenset(terms(text)) - COMMON_TERMS
    lines = [line_of(one) for one in group_exchanges(hits, asked)]
    return [line for line in lines if line is not None]


def line_of(one: RecalledExchange) -> Hit | None:
    """The line that shows an exchange. None: it states nothing."""
    first = one.hits[0]
    if one.said is None or one.said.kind is Kind.STATEMENT:
        return first
    stated = next((hit for hit in one.hits if hit.entry.kind is Kind.STATEMENT), None)
    if stated is not None:
        # "Remember that …" is an order, and a long message says other things too.
        is_order = features_of(one.said).utterance.orders > _ORDERS
        is_better = is_order or len(one.said.text) > _WORDY * len(stated.entry.text)
        if is_better and one.content & one.asked <= features_of(stated.entry).content_terms:
            return stated
    said = next((hit for hit in one.hits if hit.entry is one.said), None) or replace(first, entry=one.said)
    told = one.answer_passage
    is_telling = told is not None and told.utterance.states >= _TELLING and has_content(told.terms)
    if is_request(one.said):
        if is_telling or (told is not None and not told.details <= features_of(one.said).details):
            return _with_answer(said, one)
        return said if features_of(one.said).utterance.states >= _STATES_ALSO else stated
    adds = is_telling and (_terms(told) - _terms(one.said_passage)) & one.asked
    return _with_answer(said, one) if adds else said


def _with_answer(said: Hit, one: RecalledExchange) -> Hit:
    """With the terms of both, by which long ones are cut."""
    more = one.asked & _content(one.answer).difference(said.terms)
    return replace(said, answer=one.answer, terms=(*said.terms, *sorted(more)))


def replaced_by_lines(lines: Iterable[Hit], hits: Iterable[Hit]) -> dict[str, str]:
    """The hits that another line of their exchange replaces: that line's reference, by reference."""
    by_id: dict[str, list[Hit]] = {}
    for line in lines:
        for known in (line.entry.id, *line.entry.sources):
            by_id.setdefault(known, []).append(line)
    replaced: dict[str, str] = {}
    for hit in hits:
        for known in (hit.entry.id, *hit.entry.sources, hit.partner.id if hit.partner is not None else ""):
            for line in by_id.get(known, ()):
                if hit.entry is not line.entry and hit.entry is not line.answer:
                    replaced[hit.entry.ref] = line.entry.ref
    return replaced


_NOTHING = UtteranceChances(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def line_features(question: JudgedQuestion, exchanges: Sequence[RecalledExchange]) -> list[Features]:
    """The features of each exchange, by name."""
    scores = [max(log_odds(hit.score) for hit in one.hits) for one in exchanges]
    shares = [question.share(one.content) for one in exchanges]
    best_score, best_share = max(scores), max(shares)
    asked = question.utterance
    of_question = {
        "bias": 1.0,
        "question states": asked.states,
        "question orders": asked.orders,
        "question social": asked.social,
        "question personal": float(question.is_personal),
        "question general": float(question.is_general),
        "question terms": log1p(len(question.weights)),
        "question weight": log1p(question.total),
        # Of few candidates, each is more likely to be the right one.
        "candidates": log(max(len(exchanges), _CANDIDATES_FEW)),
    }
    found = [
        {**of_question, **_features(question, one, score - best_score, share, best_share)}
        for one, score, share in zip(exchanges, scores, shares, strict=True)
    ]
    best_similarity = max(features["similarity"] for features in found)
    for features in found:
        features["similarity below best"] = features["similarity"] - best_similarity
    return found


def _features(
    question: JudgedQuestion,
    one: RecalledExchange,
    below_best: float,
    share: float,
    best_share: float,
) -> Features:
    told, answered = one.said_passage, one.answer_passage
    said = told.utterance if told is not None else _NOTHING
    answer = answered.utterance if answered is not None else _NOTHING
    said_terms, answer_terms = _terms(told), _terms(answered)
    fewest = min(len(said_terms), len(answer_terms))
    similarities = [hit.similarity for hit in one.hits if hit.similarity is not None]
    is_in_range = question.asks_for_time_of(one.hits[0].entry.occurred_at)
    return {
        "score below best": below_best,
        "lexical": max(hit.lexical for hit in one.hits),
        "similarity": max(similarities, default=SIMILARITY_ASSUMED),
        "share below best": share - best_share,
        "shared weight": log1p(share * question.total),
        "said states": said.states,
        "said asks": said.asks,
        "said social": said.social,
        "said supposes": said.supposes,
        "said changes": said.changes,
        "said digit": float(told is not None and told.has_digit),
        "answer states": answer.states,
        "echo": len(said_terms & answer_terms) / fewest if fewest else 0.0,
        "in range": float(is_in_range is True),
        "out of range": float(is_in_range is False),
        "stated": float(any(hit.entry.kind is Kind.STATEMENT for hit in one.hits)),
        "unprompted": float(one.said is None),
        # Somebody decided to store it. Not learned from conversations, which have few: chosen on precisionMemBench.
        STORED: float(one.said is not None and one.said.kind is Kind.STATEMENT),
    }


def chance(features: Features, weights: Weights) -> float:
    """From 0 to 1."""
    odds = weigh(features, weights) + _STORED_ODDS * features[STORED]
    return 1 / (1 + exp(-max(-30.0, min(30.0, odds))))


def _terms(passage: EntryFeatures | None) -> frozenset[str]:
    return passage.content_terms if passage is not None else frozenset()


def _content(entry: Entry | None) -> frozenset[str]:
    return features_of(entry).content_terms if entry is not None else frozenset()


@cache
def _weights() -> Weights:
    stored: dict[str, float] = json.loads(WEIGHTS_PATH.read_text(encoding="utf-8"))
    return stored
