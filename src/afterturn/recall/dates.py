"""When a question is about: the months that it names, and what was said in them."""

import re
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from afterturn.types import Hit

# What was said in a month that is named counts so much more; as much as being the user's own word.
_THEN = 0.3
# A pasted page names many months and asks for none of them.
_READ_CHARS_MAX = 2_000
_NAMES = "january february march april may june july august september october november december".split()
_SHORT = {name[:3]: number for number, name in enumerate(_NAMES, start=1)}
# What no month is written without; most questions hold nothing of it, and looking for that takes a microsecond.
_HINTS = (*_SHORT, "-0", "-1")
_LOOKED_BACK = 16


class MonthRange(NamedTuple):
    """`year` is None where none is named: any year's will do."""

    year: int | None
    month: int


_NEVER: frozenset[MonthRange] = frozenset()


def raise_named_months(hits: Iterable[Hit], question: str) -> list[Hit]:
    """`hits`, with a higher score where they are of a month that the question names. In the order given.

    The score stays between 0 and 1, and nothing is taken from the others: what happened in May may be told in June.
    """
    found = list(hits)
    months = months_in(question) if found else _NEVER
    if not months:
        return found
    return [replace(hit, score=_raised(hit.score)) if _is_in(hit.entry.occurred_at, months) else hit for hit in found]


def months_in(text: str) -> frozenset[MonthRange]:
    """Such as "in May", "on 7 October 2023", "March 3rd" and "2023-10-07". Names are read in English alone."""
    read = text[:_READ_CHARS_MAX]
    plain = read.lower()
    if not any(hint in plain for hint in _HINTS):
        return _NEVER
    patterns = _patterns()
    named = [
        MonthRange(int(found["year"]) if found["year"] else None, _SHORT[found["name"][:3].lower()])
        for found in patterns.named.finditer(read)
        if found["day"] or found["date"] or found["year"] or _is_month(read, found, patterns)
    ]
    written = [MonthRange(int(found["year"]), int(found["month"])) for found in patterns.written.finditer(read)]
    return frozenset(named + written)


class _Patterns(NamedTuple):
    """`after` and `beginning` are for what stands before a name."""

    named: re.Pattern[str]
    written: re.Pattern[str]
    after: re.Pattern[str]
    beginning: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    """Made when first needed: it takes longer than a whole recall."""
    names = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in _NAMES)
    day = r"(?:st|nd|rd|th)?"
    # Letters that merely look like others ("ſept") are not ours to read.
    flags = re.IGNORECASE | re.ASCII
    return _Patterns(
        re.compile(
            rf"(?:\b(?P<day>\d{{1,2}}){day}(?:\s+of)?\s+)?\b(?P<name>{names}|sept)\b\.?"
            rf"(?:\s+(?P<date>\d{{1,2}}){day}\b)?(?:,?\s+(?:of\s+)?(?P<year>\d{{4}})\b)?",
            flags,
        ),
        re.compile(r"\b(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])(?:-\d{2})?\b", flags),
        re.compile(r"\b(?:in|of|since|during|until|till|by|last|this|early|late|mid)[\s-]+$", flags),
        re.compile(r"(?:^|[.!?:;\n]\s*)[\"'(\s]*$"),
    )


def _is_month(text: str, found: re.Match[str], patterns: _Patterns) -> bool:
    """Of a name without a number: in the middle of a sentence or after a word like "in", not "May I", "they march".

    Short ones ("Jan", "Mar") are people.
    """
    name, before = found["name"], text[max(0, found.start("name") - _LOOKED_BACK) : found.start("name")]
    if name.lower() not in _NAMES:
        return False
    if patterns.after.search(before) is not None:
        return True
    return name[0].isupper() and patterns.beginning.search(before) is None


def _raised(score: float) -> float:
    """By the odds, as all that is known of an entry beside its words."""
    return score * (1 + _THEN) / (1 + _THEN * score) if score > 0 else score


def _is_in(occurred_at: float, months: frozenset[MonthRange]) -> bool:
    try:
        then = time.gmtime(occurred_at)
    except (OSError, OverflowError, ValueError):
        return False
    return not months.isdisjoint((MonthRange(then.tm_year, then.tm_mon), MonthRange(None, then.tm_mon)))
