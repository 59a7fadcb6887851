"""Rates the sentences of a message: which of them state something that still matters in weeks, and what kind of fact.

Two linear classifiers over words, pairs of words, parts of words and the features of `utterance`: one rates the kind,
the other whether the sentence says it without its conversation. The weights of both are in `lasting_facts.bin`;
`lab/train_lasting_facts.py` computes them.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterator
from enum import StrEnum
from functools import cache, partial
from itertools import pairwise
from math import exp, sqrt
from pathlib import Path
from struct import unpack_from
from typing import NamedTuple
from zlib import crc32

from afterturn.text import HashCache, fold, regex
from afterturn.utterance import FEATURES, cut_sentences, read_features, read_utterance


class FactKind(StrEnum):
    """In falling order of worth."""

    REFUSAL = "refusal"
    """Things that must not be done or proposed: rules, allergies, diets, phobias, strong preferences."""
    MANNER = "manner"
    """How to answer, and what to call the user."""
    PERSON = "person"
    LIFE = "life"
    """Home, work, health, projects with their tools and conventions."""
    HABIT = "habit"
    POSSESSION = "possession"
    PLAN = "plan"
    PASSING = "passing"


class RatedSentence(NamedTuple):
    """`chance`, from 0 to 1, is that the sentence still matters in weeks; `whole` that it does and can be understood
    alone, unlike "the 14th is fine", and is 0 for what passes. `text` can be two sentences if the second says little
    without the first: "My aunt visits often. She is coeliac.", "Send me filters. Every 8 weeks." """

    text: str
    kind: FactKind
    chance: float
    whole: float = 0.0


KINDS = tuple(FactKind)
WEIGHTS_PATH = Path(__file__).with_name("lasting_facts.bin")
# How much each kind counts.
WORTHS = dict(zip(FactKind, (1000, 985, 970, 955, 940, 925, 910, 0), strict=True))
CHANCE_MIN = 0.5
# A longer text was most likely pasted. Of a text of half that length, only sentences in the first person are rated.
_TEXT_CHARS_MAX = 1_600
_SENTENCES_MAX = 40
_JOINED_CHARS_MAX = 300
_WORDS_MIN, _BYTES_MIN = 4, 24
_ASKING = ("?", "？", "؟")
_COMMA = regex(r"[,，、،]\s*|(?<=\d)\.\s+|\s+(?=(?:so|but|also|aber|donc|mais|quindi|ma|pero|então|mas|dus|maar) )")
_COMMAS_MAX = 3
_STATES_MIN = 0.5
# A sentence whose subject is in the one before.
REFERS_BACK = regex(
    r"(?:(?:she|he|they|it|that|those|these|her|his|their|er|elle|elles|ella|ellos|ellas|lei|ela|ele|eles|zij|hij|hon"
    r"|ona|oni|она|он|они|هي|هو|هم|वह|वे)\b|彼|她|他|它|그녀|그는)",
    re.IGNORECASE,
)


def rate_sentences(text: str) -> tuple[RatedSentence, ...]:
    """Rates the sentences of a message, in order. Nothing in a very long text is rated."""
    found: list[RatedSentence] = []
    for sentence, mark in _cut_questions(text) if len(text) <= _TEXT_CHARS_MAX else ():
        flags, buckets = feature_buckets(written := sentence + mark.rstrip())
        chances = _rate_kinds(flags, buckets)
        chance = 1.0 - chances[-1] if 2 * len(text) < _TEXT_CHARS_MAX or _FIRST_PERSON in flags else 0.0
        kind = KINDS[chances.index(max(chances[:-1]))] if chance >= CHANCE_MIN else FactKind.PASSING
        if found and chance >= CHANCE_MIN and (REFERS_BACK.match(sentence) or _is_fragment(sentence, kind)):
            before = found[-1]
            if len(before.text) + len(written) < _JOINED_CHARS_MAX:
                kind = min(before.kind, kind, key=KINDS.index)
                text = f"{before.text} {written}"
                found[-1] = RatedSentence(text, kind, max(before.chance, chance), _rate_whole(*feature_buckets(text)))
                continue
        whole = _rate_whole(flags, buckets) if chance >= CHANCE_MIN else 0.0
        found.append(RatedSentence(written, kind, chance, whole))
    return tuple(found[:_SENTENCES_MAX])


def _cut_questions(text: str) -> Iterator[tuple[str, str]]:
    """Sentences with their end marks. What a question states before it asks is a sentence of its own: "My sister is
    coeliac so what can I bake her?", "We live at Mill Lane 12. Which bin is it?" """
    for sentence, mark in cut_sentences(text):
        commas = list(_COMMA.finditer(sentence))[-_COMMAS_MAX:] if mark[:1] in _ASKING else []
        for comma in reversed(commas):
            stated, asked = sentence[: comma.start()], sentence[comma.end() :]
            read = read_utterance(stated)
            if read.states > _STATES_MIN > read.asks and read_utterance(asked + mark).asks > _STATES_MIN:
                yield stated, ""
                yield asked, mark
                break
        else:
            yield sentence, mark


def _is_fragment(sentence: str, kind: FactKind) -> bool:
    """Whether it is too short to say what it is about. "No emojis" is not."""
    is_short = len(_WORD.findall(sentence)) < _WORDS_MIN and len(sentence.encode()) < _BYTES_MIN
    return is_short and kind not in (FactKind.REFUSAL, FactKind.MANNER)


def rate_telling(text: str) -> int:
    """From 0 to 1,000: the worth of the most lasting sentence of a message. 0: none of them lasts, and none reports a
    change: "Clara and I broke up"."""
    worth = max((round(WORTHS[one.kind] * one.chance) for one in rate_sentences(text)), default=0)
    return worth or int(len(text) <= _TEXT_CHARS_MAX and read_utterance(text).changes >= CHANCE_MIN)


# Features. The first buckets are flags, fewer than half of `_FLAGS`; words and their parts are hashed into the others.

BUCKETS = 1 << 16
_FLAGS = 256
_FIRST_PERSON = FEATURES.index("me")
_CHANCES = ("states", "asks", "orders", "social", "supposes", "changes")
_LEVELS = (0.2, 0.5, 0.8)
_SHAPES = tuple(
    regex(pattern)
    for pattern in (
        r"\d",
        r"\d{4}",
        r"\b\d{1,2}[:h.]\d\d\b|\b\d{1,2}\s?(?:am|pm|uhr|h|ч)\b|\d[時点时시]",
        r"\d\s?(?:mg|µg|mcg|ml|kg|cm|km|€|%)|[$£€]\s?\d",
        r"\w[-_./]\w+[-_./]\w|[a-z]_\w|--\w|[a-z]/[a-z]|[a-z]\.[a-z]{2,4}\b",
        r"`|https?://",
        r"(?<=[\w,;] )[A-ZÀ-ÖØ-ÞА-Я][^\W\d_]+",
        r"\b[A-Z]{2,}\b",
        r"[\"“”„«»「『]",
        r":\s",
        r",.*,",
    )
)
_UNSPACED = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff"
_WORD = regex(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[\w\u0900-\u0dff])+(?:'[a-z]{{1,2}}\b)?")
_DIGITS = regex(r"\d+")


def feature_buckets(sentence: str) -> tuple[list[int], list[int]]:
    """Returns the flags of a sentence, and the buckets of its words and parts of words."""
    flags, chances = read_features(sentence)
    at = len(FEATURES)
    for name in _CHANCES:
        flags.append(at + sum(getattr(chances, name) > level for level in _LEVELS))
        at += len(_LEVELS) + 1
    flags += [at + number for number, shape in enumerate(_SHAPES) if shape.search(sentence)]
    words = _WORD.findall(_DIGITS.sub("0", fold(sentence)).replace("’", "'"))
    buckets = [bucket for word in words for bucket in _buckets_of_words.get(hash(word), partial(_word_buckets, word))]
    buckets += [_bucket(f"{one} {other}") for one, other in pairwise(["", *words, ""])]
    buckets += [_bucket(f"{one} _ {other}") for one, other in zip(words, words[2:], strict=False)]
    return flags, buckets


# By the hashes of words: nothing of a text that was forgotten stays here.
_buckets_of_words = HashCache[tuple[int, ...]](4_096)


def _word_buckets(word: str) -> tuple[int, ...]:
    if word[0] > "\u2fff":
        lengths = (1, 2, 3) if word[0] < "\uac00" else (2, 3)
        return tuple(_bucket(word[at : at + length]) for length in lengths for at in range(len(word) - length + 1))
    marked = f"<{word}>"
    parts = [marked[at : at + 4] for at in range(len(marked) - 3)] if len(word) > 3 else []
    return tuple(map(_bucket, (marked, *parts)))


def _bucket(feature: str) -> int:
    return _FLAGS + crc32(feature.encode("utf-8", "surrogatepass")) % (BUCKETS - _FLAGS)


@cache
def _weights() -> tuple[float, array[int], array[int], float, bytes]:
    """The scale, and by bucket the weights of four kinds each, as 16 bits of one number: one sum adds all four. Then
    the scale and the weights of the second classifier, one for each two buckets."""
    stored = WEIGHTS_PATH.read_bytes()
    own = 8 + len(KINDS) * BUCKETS
    halves = []
    for half in range(2):
        spread = bytearray(8 * BUCKETS)
        for kind in range(4):
            spread[2 * kind :: 8] = stored[8 + 4 * half + kind : own : 8]
        numbers = array("Q", bytes(spread))
        if sys.byteorder == "big":
            numbers.byteswap()
        halves.append(numbers)
    return unpack_from("<d", stored)[0], halves[0], halves[1], unpack_from("<d", stored, own)[0], stored[own + 8 :]


# So many unsigned bytes have a sum of 16 bits.
_ADDED_MAX = 256


def _add(buckets: list[int]) -> list[float]:
    """The sums of the buckets' weights, by kind."""
    scale, *halves = _weights()[:3]
    totals = [0] * len(KINDS)
    for start in range(0, len(buckets), _ADDED_MAX):
        added = buckets[start : start + _ADDED_MAX]
        for half, numbers in enumerate(halves):
            packed = sum(map(numbers.__getitem__, added))
            for kind in range(4):
                # A byte of 128 is a weight of zero.
                totals[4 * half + kind] += (packed >> 16 * kind & 0xFFFF) - 128 * len(added)
    return [scale * total for total in totals]


def _rate_kinds(flags: list[int], buckets: list[int]) -> list[float]:
    """The chance of each kind."""
    share = 1 / sqrt(len(buckets) or 1)
    logits = [flag + share * part for flag, part in zip(_add(flags), _add(buckets), strict=True)]
    most = max(logits)
    raised = [exp(logit - most) for logit in logits]
    total = sum(raised)
    return [one / total for one in raised]


def _rate_whole(flags: list[int], buckets: list[int]) -> float:
    """The chance that a sentence lasts and is whole."""
    *_, scale, weights = _weights()
    # A byte of 128 is a weight of zero.
    flag = sum(weights[bucket] for bucket in flags) - 128 * len(flags)
    part = sum(weights[bucket >> 1] for bucket in buckets) - 128 * len(buckets)
    return 1 / (1 + exp(-scale * (flag + part / sqrt(len(buckets) or 1))))
