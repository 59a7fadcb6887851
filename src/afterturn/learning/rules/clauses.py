"""Clauses of a sentence, the shape of a rule, and the change from first to third person."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from afterturn.learning.rules.sentences import Sentence
from afterturn.text import load_patterns, regex
from afterturn.types import Target

PREFERENCE = "preference"
NAME = "name"
FACT = "fact"
RULE = "rule"
CORRECTION = "correction"


class Lesson(NamedTuple):
    """One statement that a message teaches. `message` is the index of that message.

    `replaces` is the value that a correction says is wrong; empty if there is none. `is_quote`: the text is in the
    user's own words, so "I" is the user.
    """

    text: str
    target: Target
    kind: str
    message: int
    replaces: str = ""
    is_quote: bool = False


_TABLES = json.loads(Path(__file__).with_suffix(".json").read_bytes())
# For each word of the first person: its replacement in later mentions, and in the first one.
_PRONOUNS: dict[str, tuple[str, str]] = _TABLES["pronouns"]
_IRREGULAR: dict[str, str] = _TABLES["irregular"]
_PATTERNS = load_patterns(__file__)
_NAME_IS = regex(r"^(my (?:\w+ )?name)'?s ", re.IGNORECASE)
_WORD = regex(r"[a-z]+(?:'t)?", re.IGNORECASE)
_UNCHANGED = frozenset(
    """
    can can't cant cannot will won't wont would wouldn't should shouldn't could couldn't might must may
    was wasn't had did didn't went got made took bought left sold met saw came grew ran lost won found told said thought
    kept wrote began became spent taught read put set cut let hurt quit used
    """.split()
)
_HISSING = ("s", "x", "z", "ch", "sh", "o")
_VOWELS = "aeiou"
_MARKS = " \t\n,;:–—-"
_FILLERS = (
    *("btw", "by the way", "please", "pls", "plz", "thanks", "thank you", "thx", "ok", "okay", "too", "though", "fyi"),
    *("just so you know", "so you know", "for the record", "always have", "if you don't mind", "if that's ok", "mate"),
)
_FILLERS_MAX = 3


def trim(text: str) -> str:
    """Without courtesies and punctuation at its end."""
    text = text.strip(_MARKS)
    for _ in range(_FILLERS_MAX):
        filler = next((filler for filler in _FILLERS if text.lower().endswith((f" {filler}", f",{filler}"))), "")
        if not filler:
            break
        text = text[: -len(filler)].rstrip(_MARKS)
    return text


def to_third_person(text: str) -> str:
    """ "aisle seats when I fly" -> "aisle seats when they fly"."""
    return _PATTERNS["FIRST_PERSON"].sub(lambda found: _PRONOUNS[found[0].lower()][0], text.replace("’", "'"))


def state_about_user(text: str) -> str:
    """ "I'm allergic to nuts" -> "The user is allergic to nuts"."""
    text = text.strip().replace("’", "'")
    return capitalise(_of_user(_NAME_IS.sub(r"\1 is ", text)))


def state_instruction(text: str) -> str:
    """ "Always ask me first" -> "Always ask the user first". "You" stays: it is the agent."""
    return capitalise(_of_user(text.strip().replace("’", "'")))


def conjugate(text: str) -> str:
    """Puts the first verb into the third person singular: "never fly" -> "never flies"."""
    at = _PATTERNS["ADVERBS"].match(text)
    start = at.end() if at else 0
    verb = _WORD.match(text, start)
    if verb is None:
        return text
    lower, third = verb.group().lower(), verb.group()
    if lower in _IRREGULAR:
        third = _IRREGULAR[lower]
    elif lower.endswith("y") and lower[-2:-1] not in _VOWELS and lower not in _UNCHANGED:
        third = f"{third[:-1]}ies"
    elif lower not in _UNCHANGED and not lower.endswith(("ed", "ing")):
        third += "es" if lower.endswith(_HISSING) else "s"
    return f"{text[:start]}{third}{text[verb.end() :]}"


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def _of_user(text: str) -> str:
    """The first mention becomes "the user", later ones "they"."""
    found = _PATTERNS["FIRST_PERSON"].search(text)
    if found is None:
        return text
    word = found.group().lower()
    rest = text[found.end() :]
    if word == "i":
        rest = f" {conjugate(rest.lstrip())}"
    return f"{text[: found.start()]}{_PRONOUNS[word][1]}{to_third_person(rest)}"


# Text that teaches nothing, whatever its words: fiction, text to work on, hypotheses, reports, jokes, temporary states.

_POINTS_BACK = regex(r"\b(?:this|that|it|above|these|those|das|ça|cela|esto|eso)\b", re.IGNORECASE)


def begins_play(text: str) -> bool:
    return bool(_PATTERNS["PLAY"].search(text))


def keep_own_sentences(sentences: list[Sentence]) -> list[Sentence]:
    """Without jokes, fiction, and text that the agent is asked to work on."""
    if any(
        _PATTERNS["TEXTS"].search(sentence.plain) or _PATTERNS["JOKE"].search(sentence.plain) for sentence in sentences
    ):
        return []
    for at, sentence in enumerate(sentences):
        if _PATTERNS["WORK_ON_TEXT"].search(sentence.plain):
            return [] if _POINTS_BACK.search(sentence.plain) else sentences[:at]
    return sentences


def is_task(sentence: Sentence) -> bool:
    return bool(_PATTERNS["TASK"].search(sentence.plain))


def is_order(sentences: list[Sentence]) -> bool:
    """Whether something is ordered or booked. A name in such a message belongs to the order."""
    return any(_PATTERNS["ORDER"].search(sentence.plain) for sentence in sentences)


def is_temporary(plain: str) -> bool:
    """Whether it holds only for now or for the task at hand, or is reported speech: "I live in Oslo, I said"."""
    return bool(_PATTERNS["TEMPORARY"].search(plain) or _PATTERNS["SAID_SO"].search(plain))


def is_hypothesis_or_report(before: str) -> bool:
    """Whether the words before a clause make it a hypothesis or somebody else's claim."""
    return bool(_PATTERNS["UNSURE"].search(before) or _PATTERNS["REPORTED"].search(before))


def is_unsure(plain: str) -> bool:
    return bool(_PATTERNS["UNSURE"].search(plain))


CLAUSES_MAX = 12
_WORDS_MAX = 40

_LEADS_MAX = 6
_AND = regex(r",\snot\s|\sand\s(?!some\b|an?\b|the\b|raised\b)(?=[a-z])")


def pattern(text: str) -> re.Pattern[str]:
    """Compiled to ignore case; white space in `text` is ignored too, so it has to be written as `\\s`."""
    return regex(text, re.IGNORECASE | re.VERBOSE)


class Clause(NamedTuple):
    """A part of a sentence from `start` to the sentence's end.

    `is_correction`: it opened with "no", "actually" or the like. `is_first`: nothing but greetings comes before it.
    """

    text: str
    plain: str
    start: int
    is_question: bool = False
    is_correction: bool = False
    is_first: bool = True
    after_task: bool = False

    @property
    def is_lower(self) -> bool:
        return self.text == self.text.lower()


class Rule(NamedTuple):
    """A clause teaches if it begins with `head`, continues with `requires` and does not contain `excludes`.

    `needs_name`: a name must follow `head`. `stops_at_and`: the words after "and" are not part of it.
    `keeps_only_required`: the match of `requires` is all that is kept. `is_instruction`: it is restated as an
    instruction, not as a fact about the user.
    """

    kind: str
    target: Target
    head: re.Pattern[str]
    requires: re.Pattern[str] | None = None
    excludes: re.Pattern[str] | None = None
    needs_name: bool = False
    stops_at_and: bool = False
    keeps_only_required: bool = False
    is_instruction: bool = False

    def find(self, clause: Clause) -> RuleMatch | None:
        head = self.head.match(clause.plain)
        if head is None:
            return None
        end = self._end(clause, head.end())
        rest = clause.plain[head.end() : end]
        is_excluded = (
            (self.requires is not None and not self.requires.match(rest))
            or (self.excludes is not None and self.excludes.search(rest))
            or (self.needs_name and not _begins_with_name(rest, is_lower=clause.is_lower))
            or len(rest.split()) > _WORDS_MAX
        )
        return None if is_excluded else RuleMatch(self, clause, clause.text[head.start() : end], end)

    def _end(self, clause: Clause, start: int) -> int:
        if self.keeps_only_required and self.requires is not None:
            found = self.requires.match(clause.plain, start)
            return found.end() if found else start
        stop = _PATTERNS["STOP"].search(clause.plain, start)
        end = stop.start() if stop else len(clause.plain)
        if self.needs_name and clause.is_lower:
            end = min(end, clause.plain.find(",", start) % (len(clause.plain) + 1))
        if (self.stops_at_and or self.needs_name) and not clause.is_correction:
            other = _AND.search(clause.plain, start, end)
            return other.start() if other else end
        return end


class RuleMatch(NamedTuple):
    """A rule and the words that it matched; `end` is where they end in the clause."""

    rule: Rule
    clause: Clause
    matched: str
    end: int

    @property
    def statement(self) -> str:
        restate = state_instruction if self.rule.is_instruction else state_about_user
        return restate(trim(self.matched))


def split_clauses(sentence: Sentence) -> Iterator[Clause]:
    """Every part of a sentence in which the writer may begin to state something. At most `CLAUSES_MAX`."""
    starts = [0, *(found.end() for found in _PATTERNS["BREAK"].finditer(sentence.plain))]
    for start in starts[:CLAUSES_MAX]:
        if not is_hypothesis_or_report(sentence.plain[:start]):
            begin, is_correction = _after_leads(sentence.plain, start)
            yield Clause(
                sentence.text[begin:],
                sentence.plain[begin:],
                begin,
                is_question=sentence.is_question,
                is_correction=is_correction,
                is_first=begin <= _after_leads(sentence.plain, 0)[0],
                after_task=sentence.after_task,
            )


def _after_leads(plain: str, start: int) -> tuple[int, bool]:
    """The position after greetings, fillers and the like, and whether one of them announces a correction."""
    is_correction = False
    for _ in range(_LEADS_MAX):
        lead = _PATTERNS["LEAD"].match(plain, start)
        if lead is None:
            break
        is_correction = is_correction or bool(lead.group("corrects"))
        start = lead.end()
    return start, is_correction


def _begins_with_name(rest: str, *, is_lower: bool) -> bool:
    if _PATTERNS["NO_NAME"].match(rest):
        return False
    word = rest.removeprefix("the ")
    if is_lower:
        return bool(word) and word[0].isalpha() and not _PATTERNS["COMMON"].match(rest) and len(rest.split()) <= 3
    return bool(word) and word[0].isupper()
