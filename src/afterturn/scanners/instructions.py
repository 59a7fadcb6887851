"""Recognizes text that instructs a model: a linear classifier over phrases, words and pairs of words.

`instruction_phrases.json` has the phrases and `instruction_weights.json` the weights, which `lab/train_instructions.py`
trains. A text is judged in parts of a few sentences, in its normal form and in what is decoded from it, and counts as
its most suspicious part. The scanners are for all text that is aimed at a model: hidden text, look-alikes, and links
that carry data out too.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from afterturn.scanners.detection import Detection, ScanAction
from afterturn.scanners.invisible import find_hidden
from afterturn.scanners.normal_form import CHARS_MAX, is_readable, look_alikes, views
from afterturn.text import regex

# The kind of the scanner's findings.
INSTRUCTION = "instruction to the model"
PART_CHARS = 240
PARTS_MAX = CHARS_MAX // 60
_WORDS_MAX = 160
# Words and pairs. Shorter texts, such as "You do.", are not judged.
WORDS_MIN = 7
_SENTENCE_WORDS = 12
# Added to the score of text in base64 or with digits for letters, because only a program is meant to read it. Entities
# are common in pages.
_DISGUISED = 1.0
_USUAL = ("", "html entities", "url encoding")
_TABLES = json.loads(Path(__file__).with_name("instruction_phrases.json").read_text(encoding="utf-8"))
PHRASES: Mapping[str, str] = {
    name: re.sub("<([A-Z]+)>", lambda part: _TABLES["parts"][part[1]], phrase)
    for name, phrase in _TABLES["phrases"].items()
}


class Weights(NamedTuple):
    """All in the units of the score: `phrases` by name, `words` by the word or the pair."""

    bias: float
    threshold: float
    phrases: Mapping[str, float]
    words: Mapping[str, float]


class Suspicion(NamedTuple):
    """How much a text looks like an instruction; above zero it is one. `how` says what it was decoded from."""

    score: float
    how: str = ""


@cache
def load_weights() -> Weights:
    content = json.loads(Path(__file__).with_name("instruction_weights.json").read_text(encoding="utf-8"))
    return Weights(content["bias"], content["threshold"], content["phrases"], content["words"])


def judge(text: str, weights: Weights | None = None) -> Suspicion:
    """The most suspicious part of a text, in any of the forms that it can be read in."""
    weights = weights or load_weights()
    found = [
        Suspicion(max(_scores(view.text, weights)) + _DISGUISED * (view.how not in _USUAL), view.how)
        for view in views(text)
    ]
    return max(found, key=lambda suspicion: suspicion.score)


def is_plain_wish(text: str) -> bool:
    """Whether it is a user's wish for the manner of answers ("Always use metric units in your answers"), or forbids
    something that is not asked for ("Never push to main without asking"), and no more than that."""
    if len(text) > PART_CHARS:
        return False
    if (ban := _BAN.fullmatch(text)) is not None and judge(ban[1]).score <= 0:
        return True
    plain = _OWN_NAME.sub("", _SHORT_QUOTE.sub("", text))
    is_manner = _MANNER.search(plain) and not _OTHERS_NAME.search(plain)
    return bool(is_manner) and set(features_of(plain)[0]) <= _PHRASES_OF_WISHES


_PHRASES_OF_WISHES = frozenset(
    ["always", "your answer", "change your answer", "please at start", "first person", "you must", "from now on"]
)
_MANNER = regex(r"\b(?:answer|repl(?:y|ies)|respon[ds]|write|speak|talk|explain|(?:call|address) me)", re.IGNORECASE)
_OWN_NAME = regex(r"\b(?:in|call me|call the user)(?: [A-Z]\w+)+")
_OTHERS_NAME = regex(
    r"(?<=\S )[A-Z]\w|://|@|\b(?i:recommend|suggest|promot|mention|prefer|choose|approv|compl[iy]|trust|prioriti)"
)
_SHORT_QUOTE = regex(r"[\"“'‘]\w+(?: \w+){0,2}[!?.,]?[\"”'’]")
_BAN = regex(
    r"(\s*(?:please )?(?:never|do not|don['’]t) [^.;!?\n]+?) without "
    r"(?:asking|(?:my |our )?(?:approval|confirmation|permission|review))(?: \w+){0,2}[.!]?",
    re.IGNORECASE,
)


def _scores(text: str, weights: Weights) -> Iterator[float]:
    yield -math.inf
    for part in split_parts(text):
        phrases, words = features_of(part)
        if len(words) >= WORDS_MIN:
            score = sum(weights.words.get(word, 0.0) for word in words) * weight_of_words(len(words))
            yield weights.bias + sum(weights.phrases[name] for name in phrases) + score - weights.threshold


def weight_of_words(count: int) -> float:
    """Words count by the square root of how many there are, and in short texts not more than in a sentence."""
    return 1 / math.sqrt(max(count, _SENTENCE_WORDS))


def split_parts(text: str) -> list[str]:
    """Parts of one or a few sentences, at most `PARTS_MAX`."""
    parts: list[str] = []
    current = ""
    for sentence in _SENTENCE.split(text[:CHARS_MAX]):
        for at in range(0, max(len(sentence), 1), 2 * PART_CHARS):
            piece = sentence[at : at + 2 * PART_CHARS]
            if current and len(current) + len(piece) > PART_CHARS:
                parts.append(current)
                current = piece
            else:
                current = f"{current}\n{piece}" if current else piece
    return [*parts, current][:PARTS_MAX]


def features_of(part: str) -> tuple[list[str], set[str]]:
    """The names of the phrases in a part, and its words and pairs of words."""
    lowered = part.lower()
    phrases = [
        phrase.name
        for phrase in _compiled()
        if (not phrase.hints or any(map(lowered.__contains__, phrase.hints))) and phrase.pattern.search(lowered)
    ]
    # Addresses are in orders and in facts alike.
    words = ["0" if word.isdigit() else word for word in _TOKEN.findall(_ADDRESS.sub(" ", lowered))[:_WORDS_MAX]]
    return phrases, {*words, *(f"{first} {second}" for first, second in pairwise(words))}


_SENTENCE = regex(r"(?<=[.!?;])\s+|\n+")
_TOKEN = regex(r"[^\W\d_]+|\d+|[^\w\s]")


class _Phrase(NamedTuple):
    """A text without any of the `hints` does not match."""

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


@cache
def _compiled() -> tuple[_Phrase, ...]:
    return tuple(_Phrase(name, _hints(pattern), regex(pattern)) for name, pattern in PHRASES.items())


def _hints(pattern: str) -> tuple[str, ...]:
    """How the alternatives that a pattern begins with begin: searching for these is ten times as fast."""
    if not pattern.startswith(_ALTERNATIVES):
        return ()
    depth, alternatives = 0, [""]
    for character in pattern[len(_ALTERNATIVES) :]:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
        if character == "|" and depth == 0:
            alternatives.append("")
        else:
            alternatives[-1] += character
    found = [_LITERAL.match(alternative) for alternative in alternatives]
    return tuple(dict.fromkeys(match.group() for match in found if match is not None)) if all(found) else ()


_ALTERNATIVES = r"\b(?:"
_LITERAL = regex(r"[a-zçéèíñ'. -]{2,}(?![?*])|[a-zçéèíñ'. -]+(?=[a-z][?*])")


# How many hidden characters of a kind may be an accident: copied pages have some soft hyphens and spaces. Any number of
# line breaks: progress bars are full of carriage returns.
_ACCIDENTS = {
    "tag character": 1,
    "variation selector": 2,
    "direction override": 0,
    "direction mark": 7,
    "annotation character": 0,
    "blank letter": 1,
    "joiner": 5,
    "zero-width character": 15,
    "control character": 3,
}
_CONCEALED = regex(r"\x1b\[[0-9;]{0,16}8m")
_LOOK_ALIKES_MIN = 2
_OBFUSCATIONS = ("rot13", "reversed text", "spaced letters")


class InvisibleScanner:
    """Finds text that is hidden in characters that nobody sees. A few of them are an accident, and are only removed."""

    name = "invisible"

    def find(self, text: str) -> Sequence[Detection]:
        hidden = find_hidden(text)
        if not hidden:
            return ()
        counts: Counter[str] = Counter()
        for one in hidden:
            counts[one.kind] += one.end - one.start
        kinds = [kind for kind, count in counts.items() if count > _ACCIDENTS.get(kind, count)]
        if not kinds and not _CONCEALED.search(text):
            return ()
        first = next(one for one in hidden if not kinds or one.kind in kinds)
        return (Detection("hidden text", first.start, first.end, ScanAction.SUSPECT),)


class LookAlikeScanner:
    """Finds words that are written with letters of other scripts, and text that must be decoded to be read."""

    name = "look_alikes"

    def find(self, text: str) -> Sequence[Detection]:
        if look_alikes(text) >= _LOOK_ALIKES_MIN:
            return (Detection("look-alike letters", 0, len(text), ScanAction.SUSPECT),)
        for view in views(text):
            if view.how in _OBFUSCATIONS and is_readable(view.text):
                return (Detection(f"obfuscated text ({view.how})", 0, len(text), ScanAction.SUSPECT),)
        return ()


_SAID = r"(?:summar|conversation|chat|histor|message|memor|prompt|transcript|secret|context|user|data|content)"
# Placeholders that a model is to fill: <summary>, {{conversation}}, [chat history], ${secret}, CONVERSATION_HERE.
_TO_FILL = regex(
    rf"<[^>\s][^>\n]{{0,80}}>|[{{\[][^}}\]\n]{{0,40}}?{_SAID}|\$\{{?\w{{0,30}}?{_SAID}|%7b|%3c"
    rf"|{_SAID}\w{{0,10}}(?:_|\+|%20)(?:here|so|of|text|goes|in|json|base64)",
    re.IGNORECASE,
)
_PARAMETER_TO_FILL = regex(rf"[?&][\w.-]{{1,30}}=[<{{\[$][^\s]{{0,40}}?{_SAID}", re.IGNORECASE)
# An image is fetched without a click.
_IMAGE = regex(r"!\[[^\]\n]{0,200}\]\(([^)\n]{1,400})|<img\b([^\n]{1,400})", re.IGNORECASE)
_ADDRESS = regex(r"https?://[^\s]{1,400}", re.IGNORECASE)


class LinkScanner:
    """Finds links and images whose address is to be filled with what the model knows."""

    name = "links"

    def find(self, text: str) -> Sequence[Detection]:
        if "://" not in text:
            return ()
        for match in _IMAGE.finditer(text, 0, CHARS_MAX):
            address = _ADDRESS.search(match.group(1) or match.group(2) or "")
            if address is not None and _TO_FILL.search(match.group(), match.group().find("://")):
                return (Detection("exfiltration link", *match.span(), ScanAction.SUSPECT),)
        for match in _ADDRESS.finditer(text, 0, CHARS_MAX):
            if _PARAMETER_TO_FILL.search(match.group()):
                return (Detection("exfiltration link", *match.span(), ScanAction.SUSPECT),)
        return ()


class InstructionScanner:
    """Finds text that instructs a model, in plain words or encoded."""

    name = "instructions"

    def find(self, text: str) -> Sequence[Detection]:
        found = judge(text)
        if found.score <= 0:
            return ()
        kind = f"{INSTRUCTION} ({found.how})" if found.how else INSTRUCTION
        return (Detection(kind, 0, len(text), ScanAction.SUSPECT),)
