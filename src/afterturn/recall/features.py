"""Features of an entry: everything that recall computes from one version alone, whatever is asked.

`features_of(entry)` returns its `EntryFeatures`, which are stored in the entry itself. So the entry cache of a space's
index (index/space_index.py) bounds them, and they leave with the entry when it changes or is forgotten. Each feature is
a `cached_property`, computed when it is first needed. To add one, write another pure function of `text`, `origin` and
`voice`, and add its memory to `_FEATURES_BYTES` there.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from afterturn.guard.output_filter import neutralise
from afterturn.recall.query import COMMON_TERMS
from afterturn.text import STOP_WORDS, estimate_tokens, regex, terms, words
from afterturn.types import Entry, Hit, Kind, Origin
from afterturn.utterance import UtteranceChances, read_utterance

if TYPE_CHECKING:
    from afterturn.recall.what_holds import Claims


class EntryFeatures:
    """Has no reference to its entry: a cycle would keep a forgotten text until the next garbage collection."""

    def __init__(self, text: str, origin: Origin, voice: str) -> None:
        self.text = text
        self.origin = origin
        self.voice = voice
        self.claims: Claims | None = None

    @cached_property
    def terms(self) -> frozenset[str]:
        """Its index terms, each once."""
        return frozenset(terms(self.text))

    @cached_property
    def content_terms(self) -> frozenset[str]:
        """Its index terms without those that are common in any conversation."""
        return self.terms - COMMON_TERMS

    @cached_property
    def utterance(self) -> UtteranceChances:
        return read_utterance(self.text)

    @cached_property
    def has_digit(self) -> bool:
        """Whether its first 500 characters have a digit."""
        return any(map(str.isdigit, self.text[:500]))

    @cached_property
    def details(self) -> frozenset[str]:
        """Its numbers, and the words that are written with a capital inside a sentence."""
        found = _DETAIL.findall(self.text)
        return frozenset(word.casefold() for word in found if word[0].isupper() or not word.isalpha())

    @cached_property
    def passages(self) -> tuple[EntryFeatures, ...]:
        """The features of its parts: paragraphs, those of long paragraphs between sentences. A short text is one."""
        if len(self.text) <= _WHOLE_CHARS_MAX:
            return (self,)
        parts = _PASSAGE.findall(self.text[:SEARCHED_CHARS_MAX]) or [self.text[:PASSAGE_CHARS_MAX]]
        return tuple(EntryFeatures(part.rstrip(), self.origin, self.voice) for part in parts)

    @cached_property
    def form(self) -> NormalForm | None:
        """None for a text that is too long for one statement, or empty of meaning."""
        return normal_form(self.text, self.origin, self.voice)

    @cached_property
    def line(self) -> str:
        """The whole text as one line of a block, before anything is cut or redacted."""
        return neutralise(self.text)

    @cached_property
    def line_tokens(self) -> int:
        """The tokens of `line` with its newline."""
        return estimate_tokens(self.line + "\n")


def features_of(entry: Entry) -> EntryFeatures:
    """The same object for the same entry object. Two threads may compute a feature twice, which does no harm."""
    found: EntryFeatures | None = getattr(entry, "features", None)
    if found is None:
        found = EntryFeatures(entry.text, entry.origin, voice_of(entry))
        object.__setattr__(entry, "features", found)
    return found


# In a language that writes all nouns with a capital, these are names too: that shows an answer, and never hides one.
_DETAIL = regex(r"\w*\d[\w:/-]*|(?<=[\w,;:)] )[^\W\d_]{2,}")
PASSAGE_CHARS_MAX = 300
_WHOLE_CHARS_MAX = 400
SEARCHED_CHARS_MAX = 16_384
"""Longer texts are searched up to here: a record may hold a megabyte, and a block has milliseconds."""
_WITHIN = rf"\S(?:(?!\n[ \t\r]*\n)[\s\S]){{0,{PASSAGE_CHARS_MAX - 1}}}"
# To the end of the paragraph; if that is too far, of a sentence, then of a word.
_PASSAGE = regex(
    rf"{_WITHIN}(?=\s*\Z|\n[ \t\r]*\n)|{_WITHIN}(?:(?<=[.!?])(?=\s)|(?<=[。！？\n]))|{_WITHIN}(?=\s)|{_WITHIN}"
)


def passage_of(features: EntryFeatures, asked: Collection[str], said: Entry | None = None) -> EntryFeatures:
    """The part of a text that bears on a question with these terms: the one with most of them, then the first. It is
    what is judged, and what is shown of an answer. Of an answer, only parts count that share a word with what was
    `said` before it: general advice has words of every question."""
    if len(features.passages) == 1:
        return features
    about = features_of(said).content_terms if said is not None else None

    def shared(passage: EntryFeatures) -> int:
        content = passage.content_terms
        return 0 if about is not None and content.isdisjoint(about) else len(content.intersection(asked))

    return max(features.passages, key=shared)


def shows_report(hit: Hit) -> bool:
    """Whether words of others are shown with a hit: in itself, or in the answer next to it."""
    return hit.entry.is_report or (hit.answer is not None and hit.answer.is_report)


# The chance from which a message states something, whatever else it does.
_STATES = 0.5


def is_request(entry: Entry) -> bool:
    """Whether a user's message only asks for something, or orders it. Such a message is not knowledge by itself."""
    if entry.origin is not Origin.USER or entry.kind is not Kind.RECORD:
        return False
    said = features_of(entry).utterance
    is_fact = said.orders > said.asks and _NOUN_FIRST.match(entry.text)
    return max(said.asks, said.orders) > said.states < _STATES and not is_fact


# The normal form of a statement, by which duplicates and contradictions are found. Word order, prepositions, tense,
# negations, numbers and signs stay: a lost fact is worse than one that is shown twice.

# Longer texts are not single statements; two of them are alike only when they are equal.
STATEMENT_CHARS_MAX, _TURNED_STEPS_MAX = 400, 8

SPEAKER = "(speaker)"
AGENT = "(agent)"
_DENIED = "(not)"
_OTHERS = frozenset(["(he)", "(she)", "(they)", "(we)", "(you)", AGENT])
_WORDS = json.loads(Path(__file__).with_name("features_words.json").read_bytes())
_NOUN_FIRST = regex(_WORDS["noun_first"], re.IGNORECASE)
_FIRST, _SECOND, _AFTER_USER, _UNTOLD, _JOINS_CLAUSES, _CONTRACTED, _NOT, DENIALS, _CONDITIONS, _QUALIFIERS = (
    frozenset(_WORDS[name].split())
    for name in "first second after_user untold joins_clauses contracted not denials conditions qualifies".split()
)
_PERSONS = {word: person for person, words in _WORDS["persons"].items() for word in words.split()}
_QUALIFIES = DENIALS | _CONDITIONS | _QUALIFIERS
_SAME = {word: group.split()[0] for group in _WORDS["same"] for word in group.split()}
_AS_THEY_ARE = _SAME.keys() | _NOT | STOP_WORDS
_SAME_RUN = (("用户", "我"), ("用戶", "我"), ("使用者", "我"), ("ユーザー", "私"), ("ユーザ", "私"))
_POLITE_END = regex(r"(?:です|だ|である)[よね]?$")
_CLAUSE_END = regex(r"[,;:!?…–—()\[\]、。，；：！？]|\.(?=\s|$)")
# Signs that are not punctuation: they distinguish C from C++, and < from >.
_SIGN = regex(r"[#$%&*+/<=>@\\^|~€£¥°±×÷]|(?<![\w-])-+(?=\w)")
_WRITTEN_WORD = regex(r"\b[^\W\d_]\w*")
_PLAIN_CAPITAL = regex(r"\b[A-Z]\w*")
# In the middle of a sentence: gate A, the WHO, "I work in IT". They would fold to words without meaning.
_CAPITALS = regex(r"(?<=[\w,;:)/-] )(?!I\b)[A-Z]{1,4}\b(?!['’])")
_CAPITALS_WORD = "caps0x"
_BREAK = "clausebreak"
_SIGN_WORD = "sign0x"
_ASKS = regex(r"[?？؟]")


@dataclass(frozen=True)
class NormalForm:
    """`steps` in the order of the text; `breaks` are the numbers of steps at which a clause ends.

    `names` are the steps that were written with a capital; `voice` is the name of who says "I", or whose
    space it is; blank if unknown.
    """

    steps: tuple[str, ...]
    breaks: tuple[int, ...]
    names: frozenset[str]
    voice: str
    asks: bool

    @cached_property
    def impersonal(self) -> tuple[str, ...]:
        """Without the speaker, whom notes often omit: "likes tea"."""
        return tuple(step for step in self.steps if step != SPEAKER) if SPEAKER in self.steps else self.steps

    @cached_property
    def content(self) -> tuple[str, ...]:
        """The steps as they are compared for contradictions, in order.

        A run without spaces is one step; its character pairs show how much another one shares.
        """
        if all(map(str.isascii, self.steps)):
            return self.steps
        return tuple(part for step in self.steps for part in ((step,) if step.isascii() else terms(step) or (step,)))

    @cached_property
    def turned(self) -> tuple[str, ...] | None:
        """The same for "Miso is my cat" and "My cat is Miso". None where the order changes the meaning."""
        if self.breaks or len(self.steps) > _TURNED_STEPS_MAX or len(self.names) > 1:
            return None
        if not all(map(_is_free, self.steps)):
            return None
        return min(self.steps[at:] + self.steps[:at] for at in range(len(self.steps)))

    def openings(self) -> list[tuple[str, ...]]:
        """The steps up to the end of a clause."""
        return [self.steps[:at] for at in self.breaks]

    def only_adds(self, opening: tuple[str, ...]) -> bool:
        """Whether the rest neither denies nor limits the opening, and adds no name and no number."""
        rest = self.steps[len(opening) :]
        if not _CONDITIONS.isdisjoint(opening):
            # "If it rains" is not the same condition as "if it rains and I am late".
            return False
        new_names = self.names.intersection(rest).difference(opening)
        return not new_names and not any(step in _QUALIFIES or _has_digit(step) for step in rest)


def normal_form(text: str, origin: Origin, voice: str) -> NormalForm | None:
    """None for a text that is too long for one statement, or empty of meaning. `EntryFeatures.form` caches it."""
    if len(text) > STATEMENT_CHARS_MAX:
        return None
    content, breaks = _content_words(_tokens(text), origin)
    if not content:
        return None
    steps = _canonical(content)
    pattern = _PLAIN_CAPITAL if text.isascii() else _WRITTEN_WORD
    capitals = set(words(" ".join(found for found in pattern.findall(text) if found[0].isupper())))
    return NormalForm(
        steps=steps,
        breaks=tuple(at for at in breaks if 0 < at < len(steps)),
        names=frozenset(step for step, token in zip(steps, content, strict=True) if token in capitals),
        voice=voice,
        asks=_ASKS.search(text) is not None,
    )


def voice_of(entry: Entry) -> str:
    """The name of who says "I" in an entry, or whose space it is, without case; blank if unknown."""
    named = "" if entry.speaker in ("user", "assistant") else entry.speaker or ""
    owner = entry.space.removeprefix("user:") if entry.space.startswith("user:") else ""
    return (named or owner).casefold()


def _tokens(text: str) -> list[str]:
    marked = text if text.isupper() else _CAPITALS.sub(_kept_capitals, text)
    marked = _CLAUSE_END.sub(f" {_BREAK} ", marked)
    marked = _SIGN.sub(lambda sign: " " + "".join(map(_sign_word, sign.group())) + " ", marked)
    if not marked.isascii():
        signs = {mark for mark in marked if not mark.isascii() and unicodedata.category(mark) in ("So", "Sm", "Sc")}
        marked = "".join(_sign_word(mark) if mark in signs else mark for mark in marked)
    return words(marked)


def _kept_capitals(found: re.Match[str]) -> str:
    folded = found.group().lower()
    return f"{_CAPITALS_WORD}{folded}" if folded in STOP_WORDS or folded in _UNTOLD else found.group()


def _sign_word(mark: str) -> str:
    return f" {_SIGN_WORD}{ord(mark):x} "


def _content_words(tokens: list[str], origin: Origin) -> tuple[list[str], list[int]]:
    """The words that carry meaning, with persons and negations normalized, and where clauses end."""
    content: list[str] = []
    breaks: list[int] = []
    for at, token in enumerate(tokens):
        if token == _BREAK or token in _JOINS_CLAUSES:
            breaks.append(len(content))
        elif token == "t" and at and tokens[at - 1] in _CONTRACTED:
            content[-1:] = [_DENIED] if content and content[-1] == tokens[at - 1] else [*content[-1:], _DENIED]
        elif (person := _person(tokens, at, origin)) is not None:
            content.append(person)
        elif token not in _UNTOLD:
            content.append(token)
    return content, breaks


def _person(tokens: list[str], at: int, origin: Origin) -> str | None:
    token = tokens[at]
    if token in _FIRST:
        return AGENT if origin is Origin.AGENT else SPEAKER
    if token in _SECOND:
        return {Origin.USER: AGENT, Origin.AGENT: SPEAKER}.get(origin, "(you)")
    if token == "user" and at + 1 < len(tokens) and tokens[at + 1] in _AFTER_USER:
        return SPEAKER
    return _PERSONS.get(token)


def _canonical(content: list[str]) -> tuple[str, ...]:
    named = {token: _SAME.get(token) or (_DENIED if token in _NOT else token) for token in content}
    stemmed = [token for token in named if token not in _AS_THEY_ARE and token.isascii() and token.isalnum()]
    # One call for all words: a call costs more than a stem.
    stems = zip(stemmed, terms(" ".join(stemmed)), strict=True)
    named.update({token: _uninflected(token, stem) for token, stem in stems})
    return tuple(named[token] if named[token].isascii() else _plain_run(named[token]) for token in content)


def _uninflected(token: str, stem: str) -> str:
    """Plurals and persons of a verb become equal; "lived" and "live", "drink" and "drinker" do not."""
    if stem.endswith("i") and token == stem[:-1] + "y":
        return stem
    ending = token[len(stem) :] if token.startswith(stem) else None
    if ending in ("", "s", "e", "es"):
        return stem
    return f"{stem}+ed" if ending in ("d", "ed") else token


def _plain_run(step: str) -> str:
    for written, plain in _SAME_RUN:
        step = step.replace(written, plain)
    return _POLITE_END.sub("", step) or step


def _is_free(step: str) -> bool:
    """A preposition or an auxiliary belongs to the word next to it, so the sentence cannot be reversed around it."""
    return step not in STOP_WORDS and step not in DENIALS and step not in _OTHERS and step.isascii()


def _has_digit(step: str) -> bool:
    return any(character.isdigit() for character in step)
