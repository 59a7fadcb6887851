"""English: what people like, and what they are called. A choice among what is at hand is neither."""

from __future__ import annotations

import re

from afterturn.base.types import Target
from afterturn.learn.rules.clause import Rule, pattern
from afterturn.learn.rules.lesson import NAME, PREFERENCE
from afterturn.learn.rules.wording import told_to_agent

_OFTEN = r"(?:(?:generally|usually|really|much|always|strongly|definitely|personally|do|still|also|just)\s){0,2}"
# What points at something in the conversation is a choice for now.
POINTS = r"""\b(?:this|that|these|those|it|here|option|version|draft|one|the\s(?:\w+\s)?ones|former|latter|first|
    second|
    third|line\s\d+)\b"""
_FOR_NOW = pattern(
    rf"""^(?:the|to|not|you|your|being|how|what|when|if|them|him|her|us|myself|everything|everyone|[a-z]|\d+)\b(?!')
    |{POINTS}"""
)
_NAME = re.compile(
    r"""(?:(?:Dr|Mr|Mrs|Ms|Prof)\.?\s)?[A-ZÀ-Þ][\w'-]*(?:\s[A-ZÀ-Þ][\w'-]*){0,3}(?=\s*(?:$|[,;:.!(–—-]|and\b|
        but\b|pls\b|please\b|btw\b|by\sthe\b|from\b|now\b|here\b|with\b|instead\b|not\b|too\b|so\b|-))
    |[a-zß-ÿ]{2,15}(?=\s*(?:$|[,;(]|and\b|but\b|pls|please|btw|by\sthe|from|now))""",
    re.VERBOSE,
)
_NO_NAME = pattern(
    r"""^(?:an?|the|when(?:ever)?|if|back|on|at|in|later|to|today|tomorrow|as|again|maybe|crazy|old|whatever|by|after|
    before|any\s?time|asap|now|from|for|up|out|once|please|pls|not|misspelled|wrong|what|too|also|missing|hard|
    difficult|
    listed|under|going|still|being|is|it|that|this|my|your|names|stupid|bond|ishmael|mud|legion|correct|right|spelled|
    tonight|soon|
    first|ever|never|about|with|there|here|directly|daily|every)\b"""
)


def _prefers(head: str, wants: str = "", bars: re.Pattern[str] | None = None) -> Rule:
    return Rule(PREFERENCE, Target.USER, pattern(head), pattern(wants) if wants else None, bars)


def _named(head: str) -> Rule:
    return Rule(NAME, Target.USER, pattern(head), _NAME, _NO_NAME, whole=True)


def _asks_to_be_called(head: str) -> Rule:
    return Rule(NAME, Target.USER, pattern(head), _NAME, _NO_NAME, whole=True, told=told_to_agent)


PREFERENCES = (
    _prefers(rf"i\s{_OFTEN}prefer\s", bars=_FOR_NOW),
    _prefers(r"when(?:ever)?\si\s[\w\s]{2,40},?\si\s(?:usually\s|always\s)?prefer\s", bars=pattern(POINTS)),
    _prefers(
        r"""(?:i'd|i\swould)\s(?:generally\s|always\s|usually\s)?rather\s
        (?=(?:be|get|receive|have)\b)""",
        wants=r".*\bthan\b",
        bars=pattern(rf"\berror|\bfor\sthe\b|{POINTS}"),
    ),
    _prefers(
        rf"i\s{_OFTEN}like\s",
        wants=r"[^,]+\s(?:more|better)\sthan\s",
        bars=pattern(rf"^the\b|\bthan\s(?:i|ever|before)\b|{POINTS}"),
    ),
    _prefers(rf"i\s{_OFTEN}like\smy\s", wants=r"\w+\s\w+", bars=pattern(rf"\b(?:new|old|job|work)\b|{POINTS}")),
    _prefers(rf"i\s{_OFTEN}(?:don't|dont|do\snot)\s(?:really\s)?like\s", bars=_FOR_NOW),
    _prefers(r"i\s(?:really\s|absolutely\s)?(?:dislike|detest)\s", bars=_FOR_NOW),
    # "I hate regex" is a sigh; who hates something for good says more about it.
    _prefers(
        r"i\s(?:really\s|absolutely\s)?(?:hate|can't\sstand|cannot\sstand)\s",
        r"\w+\s\w+",
        pattern(rf"\b(?:sometimes|so\smuch)\b|{_FOR_NOW.pattern}"),
    ),
    _prefers(r"i\s(?:really\s)?(?:hate|dislike|don't\slike)\sit\swhen\syou\s"),
    _prefers(
        r"""my\s(?:favou?rite|preferred)\s(?!part|thing|bit|moment|one|memory|scene|line|way|of|quote|to)
        [\w-]+(?:\s[\w-]+)?\s(?:is|are)\s""",
        bars=pattern(
            rf"^(?:the\s(?:last|same)|when|how|to|not|so|crashing|failing|broken|gone|missing|down)\b|{POINTS}"
        ),
    ),
)

NAMES = (
    _asks_to_be_called(r"(?:you\s(?:can|may)\s)?(?:please\s|just\s)*call\sme\s"),
    _asks_to_be_called(r"(?:you\s(?:can|may)\s)?(?:please\s)?address\sme\sas\s"),
    _named(r"my\s(?:full\s|first\s|last\s|real\s)?name(?:'?s|\sis)\s(?:spelled\s)?"),
    _named(r"i\sgo\sby\s"),
    _named(r"(?:everyone|everybody|most\speople|my\sfriends)\scalls?\sme\s"),
    Rule(NAME, Target.USER, pattern(r"my\spronouns\sare\s"), pattern(r"\w+/\w+")),
)
