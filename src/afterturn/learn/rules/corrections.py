"""English: what is no longer so. Where only "it" is named, the assistant's own sentence says what it is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from afterturn.base.types import Target
from afterturn.learn.rules.clause import Clause, Rule
from afterturn.learn.rules.lesson import CORRECTION, FACT
from afterturn.learn.rules.prose import sentences_of
from afterturn.learn.rules.wording import capitalised, conjugated

_CONTEXT_CHARACTERS_MAX = 4_000
_SENTENCE_CHARACTERS_MAX = 160


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.VERBOSE)


_DOING = r"(?:work|live|eat|drink|smoke|use|drive|play|study|teach|own|run)"
_DOING_NOT = r"(?:smoking|drinking|eating|working|using|driving|playing)"
_POINTS = r"\b(?:this|that|these|those|it|here|there)\b"
_TOOL = r"(?:[A-Z][\w.+#-]*|[a-z][\w.+#-]*[\d.+#-][\w.+#-]*|[a-z]\w+)"

CHANGES = (
    Rule(
        CORRECTION,
        Target.USER,
        _pattern(r"i(?:'ve|\shave)?\s(?:just\s|recently\s)?(?:moved|relocated)\s(?:back\s)?(?:from\s\w+\s)?to\s"),
        proper=True,
    ),
    Rule(CORRECTION, Target.USER, _pattern(rf"i\sno\slonger\s{_DOING}\b"), bars=_pattern(_POINTS)),
    Rule(
        CORRECTION,
        Target.USER,
        _pattern(rf"i\s(?:don't|dont|do\snot)\s{_DOING}\b(?=[^,;]{{0,60}}\sany\s?more\b)"),
        bars=_pattern(_POINTS),
    ),
    Rule(
        CORRECTION,
        Target.USER,
        _pattern(
            r"(?:i'm|i\sam)\s(?:not\s(?:an?\s)?(?:vegetarian|vegan|married|single|pescatarian)\sany\s?more|no\slonger\s(?=an?\s|at\s|vegetarian|vegan|married|single|working|living))"
        ),
        bars=_pattern(_POINTS),
    ),
    Rule(
        CORRECTION,
        Target.USER,
        _pattern(rf"i(?:'ve|\shave)?\s(?:stopped|quit|given\sup|gave\sup)\s{_DOING_NOT}\b"),
        bars=_pattern(_POINTS),
    ),
    Rule(
        CORRECTION,
        Target.USER,
        _pattern(
            r"i(?:'ve|\shave)?\s(?:recently\s)?changed\smy\s(?:phone\snumber|number|e-?mail(?:\saddress)?|address|name)\b"
        ),
    ),
    Rule(
        CORRECTION, Target.USER, _pattern(r"i(?:'ve|\shave)?\s(?:just\s|recently\s)?started\sa\snew\sjob\s(?:as|at)\s")
    ),
    Rule(CORRECTION, Target.USER, _pattern(r"(?:i'm|i\sam)\s(?:now\s)?(?:divorced|married|retired|engaged)\snow\b")),
    Rule(
        CORRECTION,
        Target.ENVIRONMENT,
        _pattern(r"we\s(?:no\slonger|don't|do\snot)\suse\s"),
        re.compile(_TOOL),
        _pattern(rf"{_POINTS}|\b(?:much|often|yet)\b"),
    ),
    Rule(
        CORRECTION,
        Target.ENVIRONMENT,
        _pattern(r"we(?:'ve|\shave)?\s(?:recently\s)?(?:moved|switched|migrated)\s(?:over\s)?(?:from\s\S+\s)?to\s"),
        proper=True,
    ),
)

_REPLACING = _pattern(
    r"(?:,\s*|\s)(?:and\s)?(?:not|instead\sof|rather\sthan)\s(?:(?:in|at|for|to|on)\s)?(?P<old>[^,;]{1,40})$"
)
STACK = (
    Rule(
        FACT,
        Target.ENVIRONMENT,
        _pattern(r"we\s(?:always\s|only\s|now\s)?use\s(?!to\b|it\b)"),
        re.compile(rf"{_TOOL},?\s(?:not|instead\sof|rather\sthan|in\sproduction|for\s\w+|\d|now$)|{_TOOL}\s\d"),
        _pattern(_POINTS.replace("this|", "")),
    ),
    Rule(
        FACT,
        Target.ENVIRONMENT,
        _pattern(
            r"our\s(?:\w+\s)?(?:project|repo|repository|codebase|team|back\s?end|front\s?end|api|company|stack|app|service|convention|default\sbranch|database|site)\s(?:uses|targets|runs\son|is\s(?:written|built|hosted|deployed|called|based)\s|is\sthat\s|lives\sin\s|requires)"
        ),
        bars=_pattern(_POINTS),
    ),
)


@dataclass(frozen=True, slots=True)
class Swap:
    """ "Not Lyon but Oslo": `old` is wrong, `new` is right."""

    old: str
    new: str


_THING = r"(?:the\s|an?\s)?[\w.@/+#:-]+(?:\s[\w.@/+#:-]+){0,2}"
_SWAPS = (
    _pattern(
        rf"(?:it's|its|it\sis|that's|(?:her|his|the)\s\w+\s(?:is|isn't)|it\sisn't|it)\s?(?:not|isn't)?\s(?P<old>{_THING}),?\s(?:but\s|it's\s|its\s|it\sis\s|that's\s)(?P<new>{_THING})$"
    ),
    _pattern(rf"not\s(?:in\s|at\s|on\s)?(?P<old>{_THING}),\s(?:but\s|it's\s)?(?:in\s|at\s|on\s)?(?P<new>{_THING})$"),
    _pattern(rf"(?:it's|its|it\sis)\s(?!not\b)(?P<new>{_THING}),\snot\s(?P<old>{_THING})$"),
)
_NEGATES = _pattern(r"\b(?:not|isn't)\b")
_DECLARES = _pattern(
    r"(?:your|you|the|our|his|her)\s[^?]*\b(?:is|are|uses?|lives?|works?|runs?|wears?|prefers?|likes?|starts?|opens?)\b"
)


def split_replaced(said: str) -> tuple[str, str]:
    """What is kept and what it replaces: "Oslo, not Lyon" -> "Oslo", "Lyon"."""
    found = _REPLACING.search(said)
    return (said[: found.start()], found.group("old").strip()) if found else (said, "")


def find_swap(clause: Clause) -> Swap | None:
    if clause.asks or not _NEGATES.search(clause.plain):
        return None
    for pattern in _SWAPS:
        found = pattern.match(clause.plain)
        if found:
            return Swap(*(clause.said[found.start(name) : found.end(name)].strip() for name in ("old", "new")))
    return None


def restated(swap: Swap, answer: str) -> str:
    """The assistant's sentence with what is right in it, or blank when none says so plainly what was wrong."""
    if not answer or swap.old.lower() == swap.new.lower():
        return ""
    wrong = re.compile(rf"(?<![\w-]){re.escape(swap.old)}(?![\w-])", re.IGNORECASE)
    for sentence in reversed(sentences_of(answer[-_CONTEXT_CHARACTERS_MAX:])):
        if sentence.asks or len(sentence.plain) > _SENTENCE_CHARACTERS_MAX or not _DECLARES.match(sentence.plain):
            continue
        if len(wrong.findall(sentence.plain)) == 1:
            return _of_user(wrong.sub(lambda _: swap.new, sentence.said))
    return ""


def _of_user(said: str) -> str:
    lower = said.lower()
    if lower.startswith("your "):
        return f"The user's {said[5:]}"
    if lower.startswith("you "):
        return f"The user {conjugated(said[4:])}"
    return capitalised(said)
