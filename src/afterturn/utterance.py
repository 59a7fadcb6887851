"""Reads what kind of thing a message is: a statement, a question, an order, a courtesy or a supposition.

A linear classifier over features of each sentence: which classes of words it contains and where, how it ends, how long
it is. `utterance_words.json` has the classes: by language, words that ask, order, thank, suppose or report a change.
`utterance_weights.json` has the weights; `lab/train_utterance.py` computes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from itertools import zip_longest
from math import exp
from pathlib import Path
from typing import NamedTuple, TypedDict

from afterturn.text import HashCache, fold, regex

# A longer text is read at its beginning and its end only.
START_CHARS = 2_000
END_CHARS = 500
START_SENTENCES = 8
END_SENTENCES = 4

WEIGHTS_PATH = Path(__file__).with_name("utterance_weights.json")
_WORDS_PATH = Path(__file__).with_name("utterance_words.json")


class UtteranceKind(StrEnum):
    STATEMENT = "statement"
    QUESTION = "question"
    ORDER = "order"
    SOCIAL = "social"
    SUPPOSITION = "supposition"


class UtteranceChances(NamedTuple):
    """Chances between 0 and 1. Several can be high: a message often states something and asks something."""

    states: float
    """It states something that may be worth knowing later. About a half for general knowledge."""
    asks: float
    orders: float
    """It asks the reader to do something now."""
    social: float
    """It is nothing but thanks, a greeting, an acknowledgement or a reaction."""
    supposes: float
    """A joke, a hypothesis, a wish, a guess, an offer or a suggestion."""
    changes: float
    """It says that something is different from before: moved, cancelled, no longer, instead, a correction."""

    @property
    def kind(self) -> UtteranceKind:
        """The most likely of the five."""
        chances = (self.states, self.asks, self.orders, self.social, self.supposes)
        return tuple(UtteranceKind)[chances.index(max(chances))]


_SOCIAL = 3
_NOTHING = UtteranceChances(0.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def read_utterance(text: str) -> UtteranceChances:
    """Reads every script, with or without punctuation and capitals. A text without words is social."""
    return _known.get(hash(text), lambda: _read(sentence_bits(text)))


# Candidates of recalls and facts that stand are read again and again, as new objects.
_known = HashCache[UtteranceChances](16_384)


def _read(sentences: list[int]) -> UtteranceChances:
    if not sentences:
        return _NOTHING
    weights = _weights()
    read = []
    for bits in sentences:
        columns = zip(*[weights[bit] for bit in split_bits(bits)], strict=True)
        read.append([1.0 / (1.0 + exp(-sum(column))) for column in columns])
    states, asks, orders, _, supposes, changes = map(max, *read) if len(read) > 1 else read[0]
    # A message is social only if every sentence is.
    return UtteranceChances(states, asks, orders, min(chances[_SOCIAL] for chances in read), supposes, changes)


class QuestionReading(NamedTuple):
    """A question as an utterance. `is_personal`: it has a word of the first person, such as "my" and "we".
    `is_general`: it has none, and words of questions that no memory helps with: "stand for", "percent of", "haiku"."""

    utterance: UtteranceChances
    is_personal: bool
    is_general: bool


def read_question(text: str) -> QuestionReading:
    sentences = sentence_bits(text)
    is_personal = _has_first_person(sentences)
    is_general = not is_personal and any(bits & _BITS["general"] for bits in sentences)
    return QuestionReading(_read(sentences), is_personal, is_general)


def _has_first_person(sentences: list[int]) -> bool:
    return any(bits & _BITS["me"] for bits in sentences)


# A longer message is a document, not a statement.
_STATED_CHARS_MAX = 2_000
_STATES_MIN = 0.3
# A message that does not speak of the speaker counts this much.
_IMPERSONAL = 0.6


def states_about_speaker(text: str) -> float:
    """From 0 to 1: how much a message states about the speaker, their people, things and work."""
    if len(text) > _STATED_CHARS_MAX:
        return 0.0
    sentences = sentence_bits(text)
    chances = _read(sentences)
    states = chances.states * (1 - chances.social)
    doubts = (1 - chances.asks / 2) * (1 - chances.orders / 4) * (1 - chances.supposes / 2)
    is_personal = _LEAVES_OUT_SPEAKER.search(text) is not None or _has_first_person(sentences)
    return states * doubts * (1.0 if is_personal else _IMPERSONAL)


def is_about_speaker(text: str) -> bool:
    """Whether a sentence states something about the person who speaks, and not about the project at hand.

    "My sister is coeliac" does; "we deploy on Fridays" and "I hate mocks in our tests" do not.
    """
    sentences = _SENTENCE_GAP.split(leave_out_project(text[:_STATED_CHARS_MAX]))
    return any(_speaks_of_self(one) and states_about_speaker(one) >= _STATES_MIN for one in sentences)


def _speaks_of_self(sentence: str) -> bool:
    """Whether it has a word of the first person singular, or could leave it out, as in Japanese."""
    language, folded, lists = _language_of(sentence), fold(sentence), _word_lists()
    others = lists["plural"][language].split()
    if language in lists["patterns"]:
        return not any(word in folded for word in others)
    said = [word for word in _WORD.findall(folded) if _lexicon(language).get(word, _UNKNOWN).anywhere & _BITS["me"]]
    return any(word not in others for word in said) or (not said and bool(_LEAVES_OUT_SPEAKER.search(sentence)))


_SENTENCE_GAP = regex(r"(?<=[.!?؟।])\s+|(?<=[。！？])|\n+")


def leave_out_project(text: str) -> str:
    """A message without the sentences that speak of the project at hand."""
    if not is_about_project(text):
        return text
    return " ".join(sentence for sentence in _SENTENCE_GAP.split(text) if not is_about_project(sentence)).strip()


def is_about_project(text: str) -> bool:
    """Whether it speaks of the project at hand: "in this repository", "our tests", "here"."""
    folded = fold(text)
    patterns = _word_lists()["project"]
    return any(re.search(patterns.get(name, "(?!)"), folded) for name in ("any", _language_of(text)))


def read_features(text: str) -> tuple[list[int], UtteranceChances]:
    """Returns the numbers of the features, as in FEATURES, that any sentence of `text` has, and its chances."""
    sentences = sentence_bits(text)
    found = 0
    for bits in sentences:
        found |= bits
    return [bit.bit_length() - 1 for bit in split_bits(found)], _read(sentences)


@cache
def _weights() -> dict[int, tuple[float, ...]]:
    """By a feature's bit. A feature that was too rare in training has no weight."""
    stored: dict[str, list[int]] = json.loads(WEIGHTS_PATH.read_text(encoding="utf-8"))
    none = [0] * len(stored["bias"])
    return {bit: tuple(hundredth / 100 for hundredth in stored.get(name, none)) for name, bit in _BITS.items()}


# Sentences

_END = regex(r"[.!?。؟।…？！｡\n]+")
# Alone, they are also in "3.20" and "example.org/?page=2".
_DOUBTFUL = frozenset(".!?")
_ABBREVIATIONS = ("dr", "mr", "mrs", "ms", "st", "vs", "e.g", "i.e", "z.b", "nr", "p.s")


def cut_sentences(text: str) -> Iterator[tuple[str, str]]:
    """Yields each sentence of `text` as it is written, without its end mark, and the mark."""
    start = 0
    for end in _END.finditer(text):
        mark = end.group()
        if mark in _DOUBTFUL and not _ends_sentence(text, end.start()):
            continue
        if sentence := text[start : end.start()].strip():
            yield sentence, mark
        start = end.end()
    if rest := text[start:].strip():
        yield rest, ""


def split_sentences(text: str) -> list[tuple[str, str]]:
    """Returns the sentences, each with its end mark, of the beginning and the end of `text`. They are folded."""
    found = []
    for sentence, mark in cut_sentences(_cut(text)):
        folded = fold(mark)
        found.append((fold(sentence), "?" if "?" in folded or "؟" in folded else folded[:1]))
    if len(found) > START_SENTENCES + END_SENTENCES:
        return found[:START_SENTENCES] + found[-END_SENTENCES:]
    return found


def _cut(text: str) -> str:
    return f"{text[:START_CHARS]}\n{text[-END_CHARS:]}" if len(text) > START_CHARS + END_CHARS else text


def _ends_sentence(text: str, at: int) -> bool:
    """Whether the mark at `at` ends a sentence: not in "3.20", "pnpm.io/?a=b", "24. Oktober" or "Dr. Roth"."""
    following = text[at + 1 : at + 2]
    if not following:
        return True
    if text[at] != ".":
        return not following.isascii() or not (following.isalnum() or following in "/=&_-")
    if not following.isspace() or text[at - 1 : at].isdigit():
        return False
    return text[max(0, at - 4) : at].rpartition(" ")[2].lower() not in _ABBREVIATIONS


# Features. A sentence's set of features is an integer with one bit for each.

_CLASSES = (
    "common", "question", "helper", "order", "request", "please", "social", "suppose", "offer", "change", "noted", "me",
    "you", "negation", "standing", "general",
)  # fmt: skip
_LENGTHS = {2: "length 1-2", 4: "length 3-4", 7: "length 5-7", 12: "length 8-12", 25: "length 13-25"}
_LONG = "length 26-"
FEATURES = (
    "bias", "end ?", "end !", "end .", "digit", "colon", "quote", "symbol", "only sentence", "first sentence",
    "inner sentence", "last sentence", *_LENGTHS.values(), _LONG, "all social", "half social", "little social",
    "inverted first", "inverted clause", "question inside",
    *(f"{name}{place}" for name in _CLASSES for place in ("", " first", " clause", " last")),
)  # fmt: skip
_BITS = {name: 1 << at for at, name in enumerate(FEATURES)}
# Classes that count only at the start of a clause or the end of a sentence: elsewhere "test" is a noun.
_BY_PLACE = frozenset(("order", "helper", "request", "relative", "common"))

_WORD = regex(r"[\w\u0900-\u0dff]+")  # Python's \w does not include the vowel signs of the scripts of India.
# Enough for the words that may come before the one that asks, and two more.
_OPENING_CHARS = 40
_CLAUSE_END = regex(r"[,;:()–—،、]| - ")
_UNSPACED = regex(r"[\u3040-\u30ff\u3400-\u9fff]")
_KANA = regex(r"[\u3040-\u30ff]")
# Thai, Japanese, Chinese and Korean.
_LEAVES_OUT_SPEAKER = regex(r"[\u0e01-\u0e4e\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_HANGUL = regex(r"[\uac00-\ud7af\u3131-\u318e]")
_DIGIT = regex(r"\d")
_SYMBOL = regex(r"[\u2600-\u27bf\U0001f300-\U0001faff]")
# Words before the one that decides the kind: "and when was that", "now add a test".
_LEADING = frozenset(
    "and but so now then also anyway btw well just oh quick again und aber also dann ach et mais alors donc y pero pues"
    " e ma allora mas entao en maar dus och men i ale ve ama и а но ну و".split()
)


def split_bits(bits: int) -> list[int]:
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest)
        bits ^= lowest
    return found


def sentence_bits(text: str) -> list[int]:
    sentences = split_sentences(text)
    if language := _unspaced_language(_cut(text)):
        found = [_match(sentence, _compiled(language)) for sentence, _ in sentences]
    else:
        lexicon = _lexicon(_language(sentences))
        sentences = [part for sentence in sentences for part in _split_off_questions(*sentence, lexicon)]
        found = [_look_up(sentence, lexicon) for sentence, _ in sentences]
    last = len(sentences) - 1
    for at, (sentence, end) in enumerate(sentences):
        place = "only sentence" if not last else "first sentence" if not at else "inner sentence"
        found[at] |= _shape(sentence, end) | _BITS["last sentence" if at == last > 0 else place]
    return found


def _split_off_questions(sentence: str, end: str, lexicon: dict[str, _Entry]) -> Iterator[tuple[str, str]]:
    """Splits before a clause that asks: "the train leaves at eight, can you call a taxi?" """
    start = 0
    for comma in _CLAUSE_END.finditer(sentence):
        words = _WORD.findall(sentence[comma.end() : comma.end() + _OPENING_CHARS])
        while words and words[0] in _LEADING:
            del words[0]
        if len(words) > 1 and _asks(words[0], words[1], lexicon):
            yield sentence[start : comma.start()], ","
            start = comma.end()
    yield sentence[start:], end


def _asks(word: str, following: str, lexicon: dict[str, _Entry]) -> bool:
    entry, pair = lexicon.get(word, _UNKNOWN), lexicon.get(f"{word} {following}", _UNKNOWN)
    is_inverted = entry.is_helper and lexicon.get(following, _UNKNOWN).is_pronoun
    return entry.is_question or pair.is_question or is_inverted


def _shape(sentence: str, end: str) -> int:
    bits = _BITS["bias"]
    if end and end != ",":
        bits |= _BITS["end ?" if end == "?" else "end !" if end == "!" else "end ."]
    if _DIGIT.search(sentence):
        bits |= _BITS["digit"]
    if ":" in sentence:
        bits |= _BITS["colon"]
    if '"' in sentence or "`" in sentence:
        bits |= _BITS["quote"]
    if not sentence.isascii() and _SYMBOL.search(sentence):
        bits |= _BITS["symbol"]
    return bits


def _length(words: float) -> int:
    for most, name in _LENGTHS.items():
        if words <= most:
            return _BITS[name]
    return _BITS[_LONG]


class _Entry(NamedTuple):
    """A word or a pair of words in one language's lexicon: the features it gives by its place."""

    anywhere: int = 0
    first: int = 0
    clause: int = 0
    last: int = 0
    is_social: bool = False
    is_helper: bool = False
    is_question: bool = False
    is_pronoun: bool = False


_UNKNOWN = _Entry()


def _look_up(sentence: str, lexicon: dict[str, _Entry]) -> int:
    """The features of a sentence that is written with spaces."""
    bits = count = social = 0
    is_first = True
    entry = _UNKNOWN
    for clause in _CLAUSE_END.split(sentence):
        words = _WORD.findall(clause)
        count += len(words)
        # A clause opens with its first word, or after words that come before the one that decides the kind.
        helped = False
        opens = True
        for word, following in zip_longest(words, words[1:], fillvalue=""):
            entry = lexicon.get(word, _UNKNOWN)
            pair = lexicon.get(f"{word} {following}", _UNKNOWN)
            bits |= entry.anywhere | pair.anywhere
            if helped and entry.is_pronoun:
                bits |= _BITS["inverted first" if is_first else "inverted clause"]
            if opens:
                bits |= (entry.first | pair.first) if is_first else (entry.clause | pair.clause)
            helped = opens and (entry.is_helper or pair.is_helper)
            is_social = entry.is_social or pair.is_social
            social += 2 if pair.is_social else is_social
            opens = word in _LEADING or (opens and is_social)
        is_first = is_first and opens
    bits |= entry.last | _length(count)
    if social:
        bits |= _BITS["all social" if social >= count else "half social" if 2 * social >= count else "little social"]
    return bits


def _match(sentence: str, patterns: dict[str, re.Pattern[str]]) -> int:
    """The features of a sentence in a script without spaces, or in Korean."""
    bits = _length(len(sentence) / 2)
    for name, pattern in patterns.items():
        matches = [*pattern.finditer(sentence)]
        if not matches:
            continue
        bits |= _BITS["question inside" if name == "question" else name]
        if matches[0].start() == 0:
            bits |= _BITS[f"{name} first"]
        if matches[-1].end() == len(sentence):
            bits |= _BITS[f"{name} last"]
        if name == "social":
            share = sum(len(match.group()) for match in matches) / len(sentence)
            bits |= _BITS["all social" if share > 0.7 else "half social" if share > 0.4 else "little social"]
    return bits


# Languages

_LANGUAGE_SENTENCES = 4


def _language(sentences: list[tuple[str, str]]) -> str:
    """The language whose lists contain the most words of the first sentences. English if none does."""
    words = {word for sentence, _ in sentences[:_LANGUAGE_SENTENCES] for word in _WORD.findall(sentence)}
    return max(_vocabularies(), key=lambda language: len(words & _vocabularies()[language]))


class _WordLists(TypedDict):
    """By language and class. `words` are separated by spaces, and a pair of words is joined by "_": "no_longer".

    `common` words help to recognize the language, and `relative` ones ask only at the start of a clause. Chinese and
    Japanese, which have no spaces, have `patterns` instead, and so has Korean, whose endings carry the mood. `plural`
    has the words of the class `me` that speak of several, `project` patterns for words of the project at hand: of any
    language, and those that mean something else in another one.
    """

    words: dict[str, dict[str, str]]
    patterns: dict[str, dict[str, str]]
    plural: dict[str, str]
    project: dict[str, str]


@cache
def _word_lists() -> _WordLists:
    lists: _WordLists = json.loads(_WORDS_PATH.read_text(encoding="utf-8"))
    return lists


@cache
def _vocabularies() -> dict[str, frozenset[str]]:
    """By language, all words and pairs of its lists."""
    return {language: frozenset(_split(" ".join(lists.values()))) for language, lists in _word_lists()["words"].items()}


@cache
def _lexicon(language: str) -> dict[str, _Entry]:
    names: dict[str, list[str]] = {}
    for name, listed in _word_lists()["words"][language].items():
        for entry in _split(listed):
            names.setdefault(entry, []).append(name)
    return {entry: _entry(tuple(found)) for entry, found in names.items()}


def _split(listed: str) -> list[str]:
    return [entry.replace("_", " ") for entry in fold(listed).split()]


@cache
def _entry(names: tuple[str, ...]) -> _Entry:
    anywhere = first = clause = last = 0
    for name in names:
        if name not in _BY_PLACE:
            anywhere |= _BITS[name]
        if name == "relative":
            name = "question"
        first |= _BITS[f"{name} first"]
        clause |= _BITS[f"{name} clause"]
        last |= _BITS[f"{name} last"]
    is_pronoun = not {"me", "you", "common"}.isdisjoint(names)
    is_question = not {"question", "request"}.isdisjoint(names)
    return _Entry(anywhere, first, clause, last, "social" in names, "helper" in names, is_question, is_pronoun)


def _unspaced_language(text: str) -> str:
    """Japanese, Chinese or Korean if at least a quarter of the text is written in it, or blank."""
    unspaced, hangul = (0, 0) if text.isascii() else (len(_UNSPACED.findall(text)), len(_HANGUL.findall(text)))
    if 4 * (unspaced + hangul) < max(1, len(text)):
        return ""
    return "ko" if hangul > unspaced else "ja" if _KANA.search(text) else "zh"


def _language_of(text: str) -> str:
    return _unspaced_language(text) or _language(split_sentences(text))


@cache
def _compiled(language: str) -> dict[str, re.Pattern[str]]:
    return {name: regex(pattern) for name, pattern in _word_lists()["patterns"][language].items()}
