"""English: "not Lyon but Oslo". Where only "it" is named, the assistant's own sentence says what it is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from afterturn.learn.rules.clause import Clause, pattern
from afterturn.learn.rules.prose import sentences_of
from afterturn.learn.rules.wording import capitalised, conjugated

_CONTEXT_CHARACTERS_MAX = 4_000
_SENTENCE_CHARACTERS_MAX = 160
_THING = r"(?:the\s|an?\s)?[\w.@/+\#:-]{1,60}(?:\s[\w.@/+\#:-]{1,60}){0,2}"
_IT_IS = r"(?:it's|its|it\sis|that's)"

_REPLACED = pattern(
    r"""(?:,\s*|\s)(?:and\s)?(?:not|instead\sof|rather\sthan)\s(?:(?:in|at|for|to|on)\s)?(?P<old>[^,;]{1,40}?)
    (?:\sin\s(?:this|our)\s\w+)?$"""
)
_SWAPS = (
    pattern(
        rf"""(?:{_IT_IS}\snot|it\sisn't|it\sain't|(?:her|his|the|my|our)\s\w+\s(?:is\snot|isn't))\s
        (?P<old>{_THING}),?\s(?:but|{_IT_IS})\s(?P<new>{_THING})$"""
    ),
    pattern(rf"not\s(?:in\s|at\s|on\s)?(?P<old>{_THING}),\s(?:but\s|it's\s)?(?:in\s|at\s|on\s)?(?P<new>{_THING})$"),
    pattern(rf"{_IT_IS}\s(?!not\b)(?P<new>{_THING}),\snot\s(?P<old>{_THING})$"),
)
# Only what it said to be so can be wrong; what it did or will do, and the code at hand, are the task's affair.
_DECLARES = pattern(
    r"""(?:your|you|our|his|her|the\s(?:\w+\s)?(?:branch|database|project|repo|repository|service|server|staging|
        production|team|
    company|office|port|region|package\smanager|framework|stack|site|api|pipeline|cluster|warehouse|store|shop|
    meeting))\s
    [^?]*\b(?:is|are|uses?|lives?|works?|runs?|wears?|prefers?|likes?|starts?|opens?|listens?)\b"""
)
_EQUIPMENT = pattern(
    r"""the\suser's\s(?:\w+\s)?(?:database|bucket|server|repo|repository|branch|project|service|build|pipeline|
        api|cluster|
    deployment|domain|app|site|region|stack|framework|registry)\b"""
)
_STATE = pattern(
    r"""(?:down|up|slow|fast|broken|fine|ok(?:ay)?|just|too|so|very|big|small|empty|missing|gone|full|done|ready|
        wrong|right|
    good|bad|\w+ing|\w+ed)\b"""
)


@dataclass(frozen=True, slots=True)
class Swap:
    """`old` is wrong, `new` is right."""

    old: str
    new: str


def split_replaced(said: str) -> tuple[str, str]:
    """What is kept and what it replaces: "Oslo, not Lyon" is "Oslo" and "Lyon"."""
    found = _REPLACED.search(said)
    return (said[: found.start()], found.group("old").strip()) if found else (said, "")


def find_swap(clause: Clause) -> Swap | None:
    if clause.asks:
        return None
    for shape in _SWAPS:
        found = shape.match(clause.plain)
        if found:
            return Swap(*(clause.said[found.start(name) : found.end(name)].strip() for name in ("old", "new")))
    return None


def restated(swap: Swap, answer: str) -> str:
    """The assistant's sentence with what is right in it. Blank where none says plainly what was wrong."""
    if swap.old.lower() == swap.new.lower() or _STATE.match(swap.new):
        return ""
    wrong = re.compile(rf"(?<![\w-]){re.escape(swap.old)}(?![\w-])", re.IGNORECASE)
    for sentence in reversed(sentences_of(answer[-_CONTEXT_CHARACTERS_MAX:])):
        if sentence.asks or len(sentence.plain) > _SENTENCE_CHARACTERS_MAX or not _DECLARES.match(sentence.plain):
            continue
        if len(wrong.findall(sentence.plain)) == 1:
            return _of_user(wrong.sub(lambda _: swap.new, sentence.said))
    return ""


def is_of_user(text: str) -> bool:
    return text.startswith("The user") and not _EQUIPMENT.match(text)


def _of_user(said: str) -> str:
    lower = said.lower()
    if lower.startswith("your "):
        return f"The user's {said[5:]}"
    if lower.startswith("you "):
        return f"The user {conjugated(said[4:])}"
    return capitalised(said)
