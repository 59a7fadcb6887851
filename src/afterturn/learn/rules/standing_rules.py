"""English: what the agent shall always or never do, from now on. An instruction for the task at hand is none."""

from __future__ import annotations

from afterturn.base.types import Target
from afterturn.learn.rules.clause import Clause, Found, Rule, pattern
from afterturn.learn.rules.lesson import PREFERENCE, RULE
from afterturn.learn.rules.verbs import VERB, is_of_user
from afterturn.learn.rules.wording import told_of_user, told_to_agent

_FROM_NOW = r"""(?:from\snow\son|from\shere\son(?:\sout)?|going\sforward|moving\sforward|from\stoday\son|henceforth|
    as\sa\s(?:general\s)?rule)"""
_LATER = r"(?:in\s(?:the\s)?future|next\stime|for\sthe\sfuture|for\sfuture\sreference)"
_EVER = r"(?:never\sever|never|always|don'?t\sever|do\snot\sever)"
_ASKED = r"(?:please|pls|you\s(?:should|must)|can\syou|could\syou|i\swant\syou\sto|i'd\slike\syou\sto)"
_NOT = rf"(?:{_EVER}\s|don'?t\s|do\snot\s|only\s)?"
_WHERE = r"in\s(?:this|our|the)\s(?:repo|repository|project|codebase|team)"
_WE = r"""(?:we\s(?:always\s|never\s)?(?:use|write|deploy|run|name|keep|put|call)\s|no\s\w+
    |i\swant\s(?!to\b)|i'd\slike\s(?!to\b))"""
_COURTESY = r"(?:please|pls|thanks|thank\syou|thx)"
# How it talks, whatever the task.
_MANNER = r"""(?:don'?t|do\snot)\suse\s(?:so\smany\s|any\s)?(?:emojis?|em[\s-]dashes)
    (?=$|,?\s(?:please|pls|thanks|with\sme|when\syou\s\w+|in\s(?:your|any)\s(?:answers?|repl(?:y|ies)|responses?|messages?)))"""
_STOP = r"stop\s(?:apologi[sz]ing|lecturing|flattering|repeating\syourself|using\semojis?|calling\sme)\b"

_EVER_HEAD = pattern(rf"(?:(?:also|you\smust|{_WHERE}),?\s)*{_EVER}\s(?:please\s)?|remember\sto\s(?:always|never)\s")
_TIMED_HEADS = (
    pattern(rf"{_FROM_NOW}(?:[,:]\s*|\s)(?:{_ASKED}\s)?{_NOT}"),
    pattern(rf"{_LATER}(?:[,:]\s*|\s)(?:{_ASKED}\s)?{_NOT}"),
    pattern(
        r"""(?:whenever|every\stime|each\stime)\syou\s(?!get\b|have\b|can\b|are\b|want\b|feel\b|like\b)[^,]{3,80},\s
        (?:please\s|always\s)?"""
    ),
)
_DO = pattern(VERB)
_BE = pattern(rf"be\s|{_STOP}")
_TELLS_HOW = pattern(_WE)
_ENDS_TIMED = pattern(rf"\s{_FROM_NOW}(?:,?\s{_COURTESY})*$")
_STOPPING = pattern(rf"{_STOP}|{_MANNER}")
_DO_NOT = pattern(r"(?:don'?t\s|do\snot\s)?")
_LEADS = pattern(rf"(?:(?:also|you\smust|remember\sto|{_FROM_NOW}|{_LATER}|{_ASKED})(?:[,:]\s*|\s))+")
_TAIL = pattern(rf"(?:,?\s(?:{_COURTESY}|{_FROM_NOW}))+$|,\s(?=(?:i|i'm|thanks|thank)\b)")
_BEFORE_VERB = pattern(
    rf"(?:{_EVER}\s|don'?t\s|do\snot\s|only\s|please\s|{_WHERE},?\s|(?:whenever|every\stime|"
    rf"each\stime)[^,]{{3,90}},\s)*"
)
_NOT_STANDING = pattern(
    r"""\b(?:this|that|these|those|it|here)\b(?!\s(?:repo|repository|project|codebase|team|company|house)\b)
    |\b(?:step|line)\s\d|\bnames$|^(?:always|never)\s\w+$
    |^never\s(?:ever\s)?change(?:$|[,;]|\s(?:you|for\s\w+$|on\sme))
    |\byour\s(?!answer|repl|respon|message|code|change|work|commit|step|claim|source|reason|output|tone|feedback|plan|
        suggest|summar|explan|tool|own)"""
)
_SAYING = pattern(
    r"""\b(?:scissors|a\swoman|running\ssystem|put\soff|best\sfoot|gift\shorse|book\sby|blind\sspot|seat\s?belts?|
        manual|
    strangers|hope|faith|dreams?|kids)\b"""
)


def find_standing_rule(clause: Clause) -> Found | None:
    """All to the sentence's end is kept: exceptions and reasons are part of a rule."""
    told_first = clause.first and not clause.tasked and _is_told_first(clause.plain)
    if clause.asks or not (told_first or _is_timed(clause.plain)):
        return None
    lead = _LEADS.match(clause.plain)
    start = lead.end() if lead else 0
    tail = _TAIL.search(clause.plain, start)
    end = tail.start() if tail else len(clause.plain)
    plain = clause.plain[start:end]
    if _NOT_STANDING.search(plain) or _SAYING.search(plain):
        return None
    return Found(_rule_for(plain), clause, clause.said[start:end], len(clause.plain))


def _is_told_first(plain: str) -> bool:
    """As in "never ..." or "answer in German from now on", where nobody else can be the subject."""
    ever = _EVER_HEAD.match(plain)
    if ever is not None:
        return bool(_DO.match(plain, ever.end()))
    start = _DO_NOT.match(plain)
    told = start is not None and _DO.match(plain, start.end()) and _ENDS_TIMED.search(plain)
    return bool(told or _STOPPING.match(plain))


def _is_timed(plain: str) -> bool:
    for at, head in enumerate(_TIMED_HEADS):
        found = head.match(plain)
        if found is not None:
            return bool(
                _DO.match(plain, found.end())
                or _BE.match(plain, found.end())
                or (at == 0 and _TELLS_HOW.match(plain, found.end()))
            )
    return False


def _rule_for(plain: str) -> Rule:
    wishes = plain.lower().startswith(("i want ", "i'd like "))
    before = _BEFORE_VERB.match(plain)
    of_user = wishes or is_of_user(plain[before.end() if before else 0 :])
    return Rule(
        kind=PREFERENCE if of_user else RULE,
        target=Target.USER if of_user else Target.ENVIRONMENT,
        head=_EVER_HEAD,
        told=told_of_user if wishes else told_to_agent,
    )
