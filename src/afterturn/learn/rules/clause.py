"""Where in a sentence something can begin that teaches, and where it ends; the shape of a rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from afterturn.base.types import Target
from afterturn.learn.rules.barring import is_unsaid
from afterturn.learn.rules.prose import Sentence
from afterturn.learn.rules.wording import told_of_user, trimmed

CLAUSES_MAX = 12
_WORDS_MAX = 40

_LEAD = re.compile(
    r"""(?:hi(?:\sthere|\sagain)?|hello|hey|good\smorning|thanks(?:\sa\slot)?|thank\syou|great|cool|nice|
        ok(?:ay)?|oh|ah|u[hm]+|hm+|
    well|also|and|but|so|btw|by\sthe\sway|just\sso\s(?:you|u|ya)\sknow|(?:just\s)?fyi|for\swhat\sit'?s\sworth|
    fwiw|for\sthe\srecord|
    please|pls|yes|yeah|yep|sure|(?:one|another|a\squick|quick|small|last|side)\s(?:more\s)?(?:thing|update|note|
    remark|point)|in\sgeneral|generally|personally|honestly|to\sbe\shonest|tbh|
    we\sboth\sknow|you\sknow|as\syou\sknow|for\scontext|ps|p\.s\.|important|reminder|just|
    (?P<corrects>actually|no|nope|nah|sorry|correction|that'?s\s(?:wrong|not\sright|incorrect)|wrong|not\squite))
    (?:\s*[,:;!…–—-]+\s*|\.{2,}\s*|\s+)""",
    re.IGNORECASE | re.VERBOSE,
)
_LEADS_MAX = 6
_BREAK = re.compile(
    r"[,;]\s+(?:and\s|but\s|so\s)?|\s[–—-]\s|\s(?:and|but|so|because)\s(?=(?:i|i'm|im|i've|my|please|call|we|our)\b)",
    re.IGNORECASE,
)
_STOP = re.compile(
    r"""[,;]\s+(?=(?:so|because|but|which|since|cause|cos|coz|as|i|i'm|im|i've|i'd|i'll|my|please|pls|thanks|
        thank|btw|by\sthe|
        just|if|you|can|could|what|how|where|though|and\s(?:i|i'm|im|we|my|please|so|you|need|want))\b)
    |;|\s[–—-]\s|\s\(|:\s
    |\s(?:but|because|cause|cos)\s
    |\sand\s(?=(?:i|i'm|im|i've|i'd|my|please|we|have|need|want|am|would|was|looking)\b)
    |\s(?:so|as)\s(?=(?:please|i|i'm|my|we|keep|that|don't|no|you|can)\b)""",
    re.IGNORECASE | re.VERBOSE,
)
_AND = re.compile(r",\snot\s|\sand\s(?!some\b|an?\b|the\b|raised\b)(?=[a-z])")
_COMMON = re.compile(
    r"(?:an?|the|my|this|that|it|its|his|her|our|your|their|constant|fear|peace|hope|here|there|one|some|no|not|"
    r"home|night)\b",
    re.IGNORECASE,
)


def pattern(text: str) -> re.Pattern[str]:
    """Of any case, with white space written out."""
    return re.compile(text, re.IGNORECASE | re.VERBOSE)


@dataclass(frozen=True, slots=True)
class Clause:
    """From its beginning to the sentence's end. `corrects`: it opened with "no" or "actually".
    `first`: nothing stands before it but greetings and the like."""

    said: str
    plain: str
    start: int
    asks: bool = False
    corrects: bool = False
    first: bool = True
    tasked: bool = False

    @property
    def is_lower(self) -> bool:
        return self.said == self.said.lower()


@dataclass(frozen=True, slots=True)
class Rule:
    """A clause that begins with `head` teaches, if what follows begins with `wants` and has nothing of `bars` in it.

    `proper`: a name must follow. `single`: what comes after "and" is another matter. `whole`: `wants` is all that is
    kept.
    """

    kind: str
    target: Target
    head: re.Pattern[str]
    wants: re.Pattern[str] | None = None
    bars: re.Pattern[str] | None = None
    proper: bool = False
    single: bool = False
    whole: bool = False
    told: Callable[[str], str] = told_of_user

    def find(self, clause: Clause) -> Found | None:
        head = self.head.match(clause.plain)
        if head is None:
            return None
        end = self._end(clause, head.end())
        rest = clause.plain[head.end() : end]
        if self._is_barred(clause, rest):
            return None
        return Found(self, clause, clause.said[head.start() : end], end)

    def _end(self, clause: Clause, start: int) -> int:
        if self.whole and self.wants is not None:
            found = self.wants.match(clause.plain, start)
            return found.end() if found else start
        end = end_of(clause.plain, start)
        if self.proper and clause.is_lower:
            end = min(end, clause.plain.find(",", start) % (len(clause.plain) + 1))
        other = _AND.search(clause.plain, start, end) if (self.single or self.proper) and not clause.corrects else None
        return other.start() if other else end

    def _is_barred(self, clause: Clause, rest: str) -> bool:
        if self.wants is not None and not self.wants.match(rest):
            return True
        if self.bars is not None and self.bars.search(rest):
            return True
        if self.proper and not _begins_with_name(rest, is_lower=clause.is_lower):
            return True
        return len(rest.split()) > _WORDS_MAX


@dataclass(frozen=True, slots=True)
class Found:
    """A rule and the words that it found; `end` is where they end in the clause."""

    rule: Rule
    clause: Clause
    said: str
    end: int

    @property
    def text(self) -> str:
        return self.rule.told(trimmed(self.said))


def clauses_of(sentence: Sentence) -> Iterator[Clause]:
    """Every place where somebody may begin to tell something of their own. At most `CLAUSES_MAX`."""
    starts = [0, *(found.end() for found in _BREAK.finditer(sentence.plain))]
    for start in starts[:CLAUSES_MAX]:
        if not is_unsaid(sentence.plain[:start]):
            yield clause_at(sentence, start)


def clause_at(sentence: Sentence, start: int) -> Clause:
    begin, corrects = _after_leads(sentence.plain, start)
    first = begin <= _after_leads(sentence.plain, 0)[0]
    return Clause(sentence.said[begin:], sentence.plain[begin:], begin, sentence.asks, corrects, first, sentence.tasked)


def _after_leads(plain: str, start: int) -> tuple[int, bool]:
    """Where the matter begins, and whether it corrects something."""
    corrects = False
    for _ in range(_LEADS_MAX):
        lead = _LEAD.match(plain, start)
        if lead is None:
            break
        corrects = corrects or bool(lead.group("corrects"))
        start = lead.end()
    return start, corrects


def end_of(plain: str, start: int) -> int:
    """Where something else begins that is no part of what was told."""
    found = _STOP.search(plain, start)
    return found.start() if found else len(plain)


_NO_NAME = re.compile(
    r"(?i:stage|team|level|step|phase|chapter|part|page|line|version|round|plan|option|hell|json|python|sql|"
    r"java\w*|html|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"
)


def _begins_with_name(rest: str, *, is_lower: bool) -> bool:
    if _NO_NAME.match(rest):
        return False
    word = rest.removeprefix("the ")
    if is_lower:
        return bool(word) and word[0].isalpha() and not _COMMON.match(rest) and len(rest.split()) <= 3
    return bool(word) and word[0].isupper()
