"""The chance that a hit helps with a question, and which of two statements about the same thing holds now.

Two small linear models over named features. `relevance_weights.json` has their weights; `lab/train_relevance.py`
computes them from conversations of people with an agent, so they hold for questions like those. A message is judged
together with the other message of its exchange: a question says nothing without its answer, and an answer that repeats
what the user said adds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import repeat
from math import exp, log, log1p
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from afterturn.guard.trust import TRUST_MIN
from afterturn.recall.broad_questions import read_broad_question
from afterturn.recall.features import features_of, is_request, words_of
from afterturn.recall.query import COMMON_TERMS
from afterturn.recall.scoring import SIMILARITY_ASSUMED
from afterturn.recall.times import AskedTime, time_asked
from afterturn.text import terms
from afterturn.types import Entry, Hit, Kind, Lane, Origin
from afterturn.utterance import UtteranceChances, read_question, read_utterance

if TYPE_CHECKING:
    from afterturn.recall.word_table import WordMatch, WordTable

WEIGHTS_PATH = Path(__file__).with_name("relevance_weights.json")
JUDGED_MAX = 32
"""How many exchanges are judged, the best by their search scores first."""
# The mean length up to which messages are like those that the weights were trained on.
_ORDINARY_CHARS = 400
# How many of the best are compared with each other: whether one holds instead of another.
_COMPARED_MAX = 20
# The log odds above which the newer of two counts as what holds now. Low, because an outdated line misleads, and one
# that stands second does not.
_HOLDS_NOW = -1.8
# The log odds above which the older one is also marked as earlier: an order may be wrong, a mark should not.
_REPLACED = 0.5
# The same for two statements without a question, which would show whether they are about the same thing.
_REPLACED_ALWAYS = 2.5
# Two such statements also share this part of the words of the shorter one.
_SHARED_ALWAYS = 0.4
_DAY = 86400.0
FLOOR_SHARE_OF_CHANCE = 0.5
"""Lines after the best may have this share of the floor."""
BEST_SHARE_OF_CHANCE = 1 / 3
"""Lines after the best must have this share of its chance: next to a perfect answer, a fair one is noise."""
# A statement takes the place of a message that is this many times as long.
_WORDY = 2
# Messages this close in time belong to the same moment; neither replaces the other.
_MOMENT = 60.0
_CHANCE_MIN = 1e-4

STORED = "stored"
_STORED_ODDS = 1.5

Features: TypeAlias = dict[str, float]
Weights: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """A question as it is judged. `weights` are those of its distinctive terms; `unseen` is the share of them, by
    weight, that no hit contains."""

    weights: Weights
    utterance: UtteranceChances
    is_personal: bool
    is_general: bool
    has_digit: bool
    unseen: float
    time: AskedTime | None

    @classmethod
    def read(
        cls, text: str, hits: Iterable[Hit], now: float, weights: Weights, names: frozenset[str] = frozenset()
    ) -> JudgedQuestion:
        """`names` are those of its words that name a speaker."""
        asked = {term: weight for term, weight in weights.items() if term not in COMMON_TERMS}
        seen = frozenset(term for hit in hits for term in hit.terms)
        unseen = sum(weight for term, weight in asked.items() if term not in seen) / (sum(asked.values()) or 1)
        digit = any(character.isdigit() for character in text)
        read = read_question(text)
        is_personal = bool(names) or read.is_personal
        return cls(asked, read.utterance, is_personal, read.is_general, digit, unseen, time_asked(text, now))

    @property
    def terms(self) -> frozenset[str]:
        return frozenset(self.weights)

    def share(self, content: frozenset[str]) -> float:
        """How much of the question, by weight, is in `content`."""
        return sum(weight for term, weight in self.weights.items() if term in content) / (self.total or 1)

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
    """What a user said and the answer to it, or one statement. `hits` are the hits in it, the user's message first."""

    hits: tuple[Hit, ...]
    said: Entry | None
    answer: Entry | None

    @cached_property
    def content(self) -> frozenset[str]:
        """The distinctive terms of both messages. Computed when needed: most exchanges are not judged."""
        return _content(self.said) | _content(self.answer)

    @property
    def occurred_at(self) -> float:
        return self.hits[0].entry.occurred_at


def prepare() -> None:
    """Loads the word lists and weights, which takes some 30 ms: longer than a first turn should wait."""
    _weights()
    read_utterance("Where was it?")
    time_asked("Where was it last week?", 0.0)
    read_broad_question("What do you know about me?")


def is_familiar(hits: Sequence[Hit], names: frozenset[str]) -> bool:
    """Whether a question is like those that the weights were trained on: to one person's agent, about messages of
    ordinary length. Not in a conversation among people, whose `names` are asked for, nor among long documents."""
    if names or not hits:
        return not names
    return sum(len(hit.entry.text) for hit in hits) <= _ORDINARY_CHARS * len(hits)


def judge(
    text: str,
    hits: Sequence[Hit],
    *,
    now: float,
    weights: Weights,
    names: frozenset[str] = frozenset(),
    table: WordTable | None = None,
    keep_all: bool = True,
) -> list[Hit]:
    """Scores `hits` by the chance that each helps with the question, best first. `weights` are those of its terms,
    `names` those of its words that name a speaker. Only the best 32 exchanges are judged; those behind them score 0, or
    are left out without `keep_all`.

    With a `table`, words also match by their meaning. Of two that are about the same thing, the newer comes first if it
    says what holds now; the older is marked.
    """
    if not hits:
        return []
    question = JudgedQuestion.read(text, hits, now, weights, names)
    found = group_exchanges(with_partners(hits))
    asked = question.terms
    exchanges: list[RecalledExchange] = []
    # They tell nothing, such as a question that was asked before.
    silent: list[RecalledExchange] = []
    for one in found:
        if len(exchanges) == JUDGED_MAX:
            break
        (silent if line_of(one, asked) is None else exchanges).append(one)
    unjudged = [*silent, *found[len(exchanges) + len(silent) :]] if keep_all else silent
    rest = [_scored(hit, 0.0) for one in unjudged for hit in one.hits]
    if not exchanges:
        return rest
    matches = match_words(text, exchanges, table) if table is not None and table.is_loaded else None
    model = _weights()["line" if matches is not None else "line by words"]
    chances = [chance(features, model) for features in line_features(question, exchanges, matches, now=now)]
    order, earlier = put_newer_first(question, exchanges, chances)
    judged = [
        _scored(hit, score, is_earlier=at in earlier)
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


def group_exchanges(hits: Sequence[Hit]) -> list[RecalledExchange]:
    """The exchanges of these hits, in the order of their best hits. A statement belongs to the exchange that it was
    learned from, if a message of that is among them."""
    known = {entry.id for hit in hits for entry in (hit.entry, hit.partner) if entry is not None}
    members: dict[str, list[Hit]] = {}
    for hit in hits:
        key = hit.entry.id
        if hit.entry.kind is Kind.STATEMENT:
            key = next((source for source in hit.entry.sources if source in known), key)
        elif hit.partner is not None and not _is_said(hit.entry):
            key = hit.partner.id
        members.setdefault(key, []).append(hit)
    return [_exchange(found) for found in members.values()]


def _exchange(found: list[Hit]) -> RecalledExchange:
    record = next((hit for hit in found if hit.entry.kind is Kind.RECORD), None)
    if record is None:
        return RecalledExchange(tuple(found), found[0].entry, None)
    pair = (record.entry, record.partner)
    said = next((entry for entry in pair if entry is not None and _is_said(entry)), None)
    answer = next((entry for entry in pair if entry is not None and entry is not said), None)
    ordered = tuple(sorted(found, key=lambda hit: hit.entry is not said))
    return RecalledExchange(ordered, said, answer)


_ORDERS = 0.5
# A question without a telling answer is shown if it seems to state something as well.
_STATES_ALSO = 0.3
# An answer that states less than this tells nothing: "You're welcome.", "One moment, please."
_TELLING = 0.2


def worth_showing(hits: Sequence[Hit], chance_min: float) -> list[Hit]:
    """Nothing when the best is below `chance_min`; otherwise those that come close enough. `hits` are best first."""
    if not hits or hits[0].score < chance_min:
        return []
    least = max(chance_min * FLOOR_SHARE_OF_CHANCE, hits[0].score * BEST_SHARE_OF_CHANCE) if chance_min else 0.0
    return [hit for hit in hits if hit.score >= least]


def lines_of(text: str, hits: Sequence[Hit]) -> list[Hit]:
    """The hits that are lines of a block, in the order of `hits`: one for each exchange.

    A question or an order is shown with its answer or not at all. An answer to anything else is added if it has words
    of the question that the message has not.
    """
    asked = frozenset(terms(text)) - COMMON_TERMS
    lines = [line_of(one, asked) for one in group_exchanges(hits)]
    return [line for line in lines if line is not None]


def line_of(one: RecalledExchange, asked: frozenset[str]) -> Hit | None:
    """The line that shows an exchange; `asked` are the distinctive terms of the question. None: it tells nothing."""
    first = one.hits[0]
    if one.said is None or one.said.kind is Kind.STATEMENT:
        return first
    stated = next((hit for hit in one.hits if hit.entry.kind is Kind.STATEMENT), None)
    if stated is not None:
        # "Remember that …" is an order, and a long message says other things too.
        is_order = features_of(one.said).utterance.orders > _ORDERS
        is_better = is_order or len(one.said.text) > _WORDY * len(stated.entry.text)
        if is_better and one.content & asked <= features_of(stated.entry).content_terms:
            return stated
    said = next((hit for hit in one.hits if hit.entry is one.said), None) or replace(first, entry=one.said)
    answer = one.answer
    is_telling = answer is not None and features_of(answer).utterance.states >= _TELLING
    if is_request(one.said):
        if is_telling:
            return replace(said, answer=answer)
        return said if features_of(one.said).utterance.states >= _STATES_ALSO else stated
    adds = is_telling and (_content(answer) - _content(one.said)) & asked
    return replace(said, answer=answer) if adds else said


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
_NO_QUESTION = JudgedQuestion({}, _NOTHING, is_personal=False, is_general=False, has_digit=False, unseen=0.0, time=None)


def match_words(text: str, exchanges: Sequence[RecalledExchange], table: WordTable) -> list[WordMatch]:
    """How well the words of the question match those of each exchange, by their meaning."""
    pairs = [(words_of(one.said, table), words_of(one.answer, table)) for one in exchanges]
    return table.match(table.read(text), pairs)


def line_features(
    question: JudgedQuestion, exchanges: Sequence[RecalledExchange], matches: Sequence[WordMatch] | None, *, now: float
) -> list[Features]:
    """The features of each exchange, by name. Those of `matches` are left out without a table."""
    scores = [max(_log_odds(hit.score) for hit in one.hits) for one in exchanges]
    shares = [question.share(one.content) for one in exchanges]
    best_score, best_share = max(scores), max(shares)
    asked = question.utterance
    of_question = {
        "bias": 1.0,
        "question states": asked.states,
        "question asks": asked.asks,
        "question orders": asked.orders,
        "question social": asked.social,
        "question personal": float(question.is_personal),
        "question general": float(question.is_general),
        "question digit": float(question.has_digit),
        "question terms": log1p(len(question.weights)),
        "question weight": log1p(question.total),
        "question unseen": question.unseen,
        "best share": best_share,
    }
    found = [
        {**of_question, **_features(question, one, score, share, best_score, best_share, now)}
        for one, score, share in zip(exchanges, scores, shares, strict=True)
    ]
    best_match = max((match.soft for match in matches), default=0.0) if matches else 0.0
    for features, match in zip(found, matches or (), strict=False):
        features["best match"] = best_match
        features["match"] = match.pair
        features["match said"] = match.said
        features["match below best"] = match.soft - best_match
    return found


def _features(
    question: JudgedQuestion,
    one: RecalledExchange,
    score: float,
    share: float,
    best_score: float,
    best_share: float,
    now: float,
) -> Features:
    said = features_of(one.said).utterance if one.said is not None else _NOTHING
    answer = features_of(one.answer).utterance if one.answer is not None else _NOTHING
    said_terms, answer_terms = _content(one.said), _content(one.answer)
    fewest = min(len(said_terms), len(answer_terms))
    similarities = [hit.similarity for hit in one.hits if hit.similarity is not None]
    return {
        "score below best": score - best_score,
        "lexical": max(hit.lexical for hit in one.hits),
        "similarity": max(similarities, default=SIMILARITY_ASSUMED),
        "share": share,
        "share below best": share - best_share,
        "shared weight": log1p(share * question.total),
        "said states": said.states,
        "said asks": said.asks,
        "said only asks": said.asks * (1 - said.states),
        "said orders": said.orders,
        "said social": said.social,
        "said supposes": said.supposes,
        "said changes": said.changes,
        "said length": log1p(len(said_terms)),
        "said digit": float(one.said is not None and features_of(one.said).has_digit),
        "answer states": answer.states,
        "answer asks": answer.asks,
        "answer length": log1p(len(answer_terms)),
        "echo": len(said_terms & answer_terms) / fewest if fewest else 0.0,
        "answer adds": log1p(len(answer_terms - said_terms)),
        "in range": float(question.asks_for_time_of(one.occurred_at) is True),
        "out of range": float(question.asks_for_time_of(one.occurred_at) is False),
        "age": log1p(max(0.0, now - one.occurred_at) / _DAY),
        "stated": float(any(hit.entry.kind is Kind.STATEMENT for hit in one.hits)),
        "unprompted": float(one.said is None),
        # Somebody decided to store it. Not learned from conversations, which have few: chosen on precisionMemBench.
        STORED: float(one.said is not None and one.said.kind is Kind.STATEMENT),
    }


def chance(features: Features, weights: Weights) -> float:
    """From 0 to 1."""
    return _chance(_weigh(features, weights) + _STORED_ODDS * features[STORED])


def put_newer_first(
    question: JudgedQuestion,
    exchanges: Sequence[RecalledExchange],
    chances: Sequence[float],
    weights: Weights | None = None,
) -> tuple[list[int], frozenset[int]]:
    """The order of the exchanges by their chances, except that what holds now comes before what it replaces; and which
    of them are replaced."""
    order = sorted(range(len(exchanges)), key=lambda at: -chances[at])
    if question.time is not None and question.time.is_past:
        return order, frozenset()
    best = [at for at in order[:_COMPARED_MAX] if chances[at] > _CHANCE_MIN]
    newer: dict[int, list[int]] = {}
    replaced: set[int] = set()
    for at in best:
        for other in best:
            if not may_replace(exchanges[at], exchanges[other]):
                continue
            if question.asks_for_time_of(exchanges[other].occurred_at) is False:
                continue
            features = pair_features(question, exchanges[at], exchanges[other], chances[at], chances[other])
            odds = _weigh(features, weights or _weights()["pair"])
            if odds > _HOLDS_NOW:
                newer.setdefault(at, []).append(other)
            if odds > _REPLACED and not _only_requests(exchanges[other]):
                replaced.add(at)
    placed: dict[int, None] = {}

    def place_after_newer(at: int, depth: int = 0) -> None:
        if at not in placed and depth <= _COMPARED_MAX:
            for other in newer.get(at, ()):
                place_after_newer(other, depth + 1)
            placed[at] = None

    for at in order:
        place_after_newer(at)
    return list(placed), frozenset(replaced)


def find_replaced(entries: Sequence[Entry]) -> dict[str, Entry]:
    """The statements that a newer one replaces whatever is asked, by reference, each with the newest that does.

    Only statements with the same target, agent and project are compared.
    """
    ordered = sorted(entries, key=lambda entry: (entry.occurred_at, entry.id))
    exchanges = [RecalledExchange((_unscored(one),), one, None) for one in ordered]
    subjects = [(one.target, one.agent, one.project) for one in ordered]
    weights, found = _weights()["pair"], {}
    for at, older in enumerate(exchanges):
        for later in range(len(exchanges) - 1, at, -1):
            newer = exchanges[later]
            least = _SHARED_ALWAYS * min(len(older.content), len(newer.content))
            if subjects[at] != subjects[later] or not 0 < least <= len(older.content & newer.content):
                continue
            features = pair_features(_NO_QUESTION, older, newer, 0.5, 0.5)
            if may_replace(older, newer) and _weigh(features, weights) > _REPLACED_ALWAYS:
                found[ordered[at].ref] = ordered[later]
                break
    return found


def _unscored(entry: Entry) -> Hit:
    return Hit(entry, Lane.LONG_TERM, 1.0, 0.0, None, ())


def _only_requests(one: RecalledExchange) -> bool:
    """Whether it asks or orders. "Book the dinner for my mother" does not make what was said of her earlier untrue."""
    return one.said is not None and one.said.kind is Kind.RECORD and is_request(one.said)


def may_replace(older: RecalledExchange, newer: RecalledExchange) -> bool:
    """Whether the second was said later, and shares a word with the first that is not in both answers only: an agent
    often says the same. A report does not replace what is trusted."""
    if newer.occurred_at <= older.occurred_at + _MOMENT:
        return False
    if newer.hits[0].entry.trust < TRUST_MIN <= older.hits[0].entry.trust:
        return False
    return not (_content(older.said).isdisjoint(newer.content) and _content(newer.said).isdisjoint(older.content))


def pair_features(
    question: JudgedQuestion, older: RecalledExchange, newer: RecalledExchange, older_chance: float, newer_chance: float
) -> Features:
    """The features of two exchanges that share a word."""
    one, other = older.content, newer.content
    shared = one & other
    beyond = min(len(one - question.terms), len(other - question.terms))
    before = features_of(older.said).utterance if older.said is not None else _NOTHING
    after = features_of(newer.said).utterance if newer.said is not None else _NOTHING
    return {
        "bias": 1.0,
        "shared": len(shared) / (min(len(one), len(other)) or 1),
        "shared with question": len(shared & question.terms) / (len(question.terms) or 1),
        "shared beyond question": len(shared - question.terms) / (beyond or 1),
        "newer chance": _log_odds(newer_chance),
        "more likely": _log_odds(newer_chance) - _log_odds(older_chance),
        "newer asks": after.asks,
        "newer states": after.states,
        "newer changes": after.changes,
        "newer supposes": after.supposes,
        "older asks": before.asks,
        "older changes": before.changes,
    }


def _content(entry: Entry | None) -> frozenset[str]:
    return features_of(entry).content_terms if entry is not None else frozenset()


def _weigh(features: Features, weights: Weights) -> float:
    weighed: float = sum(map(mul, map(weights.get, features, repeat(0.0)), features.values()))
    return weighed


def _chance(log_odds: float) -> float:
    return 1 / (1 + exp(-max(-30.0, min(30.0, log_odds))))


def _log_odds(chance: float) -> float:
    bounded = max(0.001, min(0.999, chance))
    return log(bounded / (1 - bounded))


@cache
def _weights() -> dict[str, dict[str, float]]:
    stored: dict[str, dict[str, float]] = json.loads(WEIGHTS_PATH.read_text(encoding="utf-8"))
    return stored
