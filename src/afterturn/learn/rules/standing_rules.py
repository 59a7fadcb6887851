"""English: what the agent shall always or never do, from now on. An instruction for the task at hand is none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from afterturn.base.types import Target
from afterturn.learn.rules.clause import Clause, Found, Rule
from afterturn.learn.rules.lesson import PREFERENCE, RULE
from afterturn.learn.rules.wording import told_of_user, told_to_agent

# How somebody is spoken to, and what is arranged for them, tells about them; the rest about the work.
_TALK = """
    address answer apologi[sz]e be call curse explain flatter greet interrupt joke lecture mention patroni[sz]e praise
    quote refer reply respond sign speak spell stop summari[sz]e swear talk thank translate
    """.split()
_ARRANGE = "book buy cook find look move order pick plan recommend remind reserve schedule search suggest".split()
_WORK = """
    add allow amend append approve archive ask assign assume attach back base branch build bump cache catch cc change
    check cherry-pick choose clean close comment commit compile confirm copy create cut delete deploy disable document
    drop edit enable end ensure escape export expose fix follow force force-push format generate handle hardcode
    hard-code hash ignore import include indent initiali[sz]e insert install keep leave link lint list load lock log
    make mark merge migrate mix mock modify name omit open overwrite paste pin post prefer prefix print process publish
    pull push put quote raise read rebase redact refactor refund release remember remove rename replace require reset
    restart return reuse revert review rewrite rm round run sanitize save ship skip sort split squash start store stage
    submit suppress switch tag test throw touch track trim trust type update upgrade upload use validate verify version
    wait warn wrap write
    """.split()
_TO_ME = "send give show tell offer provide".split()

_ARRANGED = re.compile(rf"(?:{'|'.join(_ARRANGE)})\b", re.IGNORECASE)
_SPOKEN = re.compile(rf"(?:{'|'.join(_TALK)})\b", re.IGNORECASE)
_SENT = re.compile(
    rf"(?:{'|'.join(_TO_ME)})\b(?=\sme\b|.*\b(?:temperatures?|prices?|units|dates|times|distances)\b)", re.IGNORECASE
)
_OF_TALK = re.compile(
    r"\b(?:emojis?|your\s(?:answers?|repl(?:y|ies)|responses?|messages?|tone)|(?:every|each|any|a)\s(?:answer|reply|response)|"
    r"(?:replies|answers|responses)|talk\sto\sme|my\s(?:first|last|full)?\s?name|bullet\spoints|small\stalk)\b",
    re.IGNORECASE,
)
_VERB = rf"(?:{'|'.join([*_TALK, *_ARRANGE, *_WORK, *_TO_ME])})(?=\s|$|[,;(])"
_WE = r"(?:we\s(?:always\s|never\s)?(?:use|write|deploy|run|name|keep|put|call|want|need)\s|no\s\w+|i\swant\s|i'd\slike\s(?:you\s)?)"
_NOT_STANDING = re.compile(
    r"\b(?:this|that|these|those|it|here)\b(?!\s(?:repo|repository|project|codebase|team|company|house))", re.IGNORECASE
)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.VERBOSE)


_ONE_ON = r"(?:from\snow\son|from\shere\son(?:\sout)?|going\sforward|moving\sforward|from\stoday\son|henceforth|as\sa\s(?:general\s)?rule|for\sall\sfuture\s\w+)"
_LATER = r"(?:in\s(?:the\s)?future|next\stime|for\sthe\sfuture|for\sfuture\sreference)"
_EVER = r"(?:never\sever|never|always|don'?t\sever|do\snot\sever)"
_REQUEST = r"(?:[,:]\s*|\s)(?:please\s|pls\s|you\s(?:should|must)\s|can\syou\s|could\syou\s|i\swant\syou\sto\s|i'd\slike\syou\sto\s)?"

_HEADS = (
    _pattern(
        rf"(?:(?:please|pls|also|you\smust|in\s(?:this|our|the)\s(?:repo|repository|project|codebase|team)),?\s)*{_EVER}\s(?:please\s)?(?={_VERB})"
    ),
    _pattern(rf"{_ONE_ON}{_REQUEST}(?=(?:{_EVER}\s|don'?t\s|do\snot\s|only\s)?{_VERB}|{_WE})"),
    _pattern(rf"{_LATER}{_REQUEST}(?=(?:{_EVER}\s|don'?t\s|do\snot\s|only\s)?{_VERB})"),
    _pattern(rf"(?:whenever|every\stime|each\stime)\syou\s[^,]{{3,80}},\s(?:please\s|always\s)?(?={_VERB})"),
    _pattern(rf"(?:please\s)?(?:don'?t\s|do\snot\s)?(?={_VERB}[^,;]{{3,120}}\s{_ONE_ON}$)"),
    _pattern(rf"remember\sto\s(?=(?:always|never)\s{_VERB})"),
)
_LEADS = _pattern(
    rf"(?:(?:please|pls|also|you\smust|remember\sto|{_ONE_ON}|{_LATER}|you\s(?:should|must)|can\syou|could\syou|i\swant\syou\sto|i'd\slike\syou\sto)(?:[,:]\s*|\s))+"
)
_TAIL = _pattern(rf",?\s(?:please|pls|thanks|{_ONE_ON})$")


def find_standing_rule(clause: Clause) -> Found | None:
    """All to the sentence's end is kept: exceptions and reasons are part of a rule."""
    if clause.asks or not any(head.match(clause.plain) for head in _HEADS):
        return None
    lead = _LEADS.match(clause.plain)
    start = lead.end() if lead else 0
    plain = clause.plain[start:]
    if _NOT_STANDING.search(plain):
        return None
    said = clause.said[start:]
    tail = _TAIL.search(plain)
    if tail:
        said = said[: tail.start()]
    target = Target.USER if _is_of_user(plain) else Target.ENVIRONMENT
    kind = PREFERENCE if target is Target.USER else RULE
    told = told_of_user if plain.lower().startswith(("i ", "i'd ")) else told_to_agent
    return Found(Rule(kind, target, _HEADS[0], told=told), clause, said, len(clause.plain))


def _is_of_user(plain: str) -> bool:
    return (
        any(pattern.match(verb) for verb in _verbs(plain) for pattern in (_SPOKEN, _ARRANGED, _SENT))
        or bool(_OF_TALK.search(plain))
        or plain.lower().startswith(("i want ", "i'd like "))
    )


_BEFORE_VERB = _pattern(rf"(?:{_EVER}\s|don'?t\s|do\snot\s|only\s|please\s|in\s\w+\s\w+,\s)*")


def _verbs(plain: str) -> Iterator[str]:
    """What begins with the verb: after "never", and after the comma of "whenever you ..."."""
    before = _BEFORE_VERB.match(plain)
    yield plain[before.end() if before else 0 :]
    if plain.lower().startswith(("whenever", "every time", "each time")):
        yield plain.partition(", ")[2]
