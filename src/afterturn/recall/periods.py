"""When a question is about: the months that it names, and what was said in them."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from afterturn.base.types import Hit

# What was said in a month that is named counts so much more; as much as being the user's own word.
_THEN = 0.3
# A pasted page names many months and asks for none of them.
_READ_CHARS_MAX = 2_000
_NAMES = "january february march april may june july august september october november december".split()
_SHORT = {name[:3]: number for number, name in enumerate(_NAMES, start=1)}
# What no month is written without; most questions hold nothing of it, and looking for that takes a microsecond.
_HINTS = (*_SHORT, "-0", "-1")
_NAME = "|".join(f"{name[:3]}(?:{name[3:]})?" if name[3:] else name for name in _NAMES)
_NAMED = re.compile(
    rf"(?:\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?\s+)?\b(?P<name>{_NAME}|sept)\b\.?"
    r"(?:\s+(?P<date>\d{1,2})(?:st|nd|rd|th)?\b)?(?:,?\s+(?:of\s+)?(?P<year>\d{4})\b)?",
    re.IGNORECASE,
)
_WRITTEN = re.compile(r"\b(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])(?:-\d{2})?\b")
# "May I ask", "they march": a name without a number is one in the middle of a sentence, or after such a word.
_AFTER = re.compile(r"\b(?:in|of|since|during|until|till|by|last|this|early|late|mid)[\s-]+$", re.IGNORECASE)
_BEGINNING = re.compile(r"(?:^|[.!?:;\n]\s*)[\"'(\s]*$")
_LOOKED_BACK = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Month(NamedTuple):
    """`year` is None where none is named: any year's will do."""

    year: int | None
    month: int


_NEVER: frozenset[Month] = frozenset()


def of_the_time(hits: Iterable[Hit], question: str) -> list[Hit]:
    """`hits`, with a higher score where they are of a month that the question names. In the order given.

    The score stays between 0 and 1, and nothing is taken from the others: what happened in May may be told in June.
    """
    found = list(hits)
    months = months_in(question) if found else _NEVER
    if not months:
        return found
    return [replace(hit, score=_raised(hit.score)) if _is_in(hit.entry.occurred_at, months) else hit for hit in found]


def months_in(text: str) -> frozenset[Month]:
    """ "in May", "on 7 October 2023", "March 3rd", "2023-10-07". English names alone, whatever the language."""
    read = text[:_READ_CHARS_MAX]
    plain = read.lower()
    if not any(hint in plain for hint in _HINTS):
        return _NEVER
    named = [
        Month(int(found["year"]) if found["year"] else None, _SHORT[found["name"][:3].lower()])
        for found in _NAMED.finditer(read)
        if found["day"] or found["date"] or found["year"] or _is_month(read, found)
    ]
    written = [Month(int(found["year"]), int(found["month"])) for found in _WRITTEN.finditer(read)]
    return frozenset(named + written)


def _is_month(text: str, found: re.Match[str]) -> bool:
    """Of a name without a number: whether it is spelled out, and looks like a month."""
    name, before = found["name"], text[max(0, found.start("name") - _LOOKED_BACK) : found.start("name")]
    if name.lower() not in _NAMES:
        return False
    return _AFTER.search(before) is not None or (name[0].isupper() and _BEGINNING.search(before) is None)


def _raised(score: float) -> float:
    """By the odds, as all that is known of an entry beside its words."""
    return score * (1 + _THEN) / (1 + _THEN * score) if score > 0 else score


def _is_in(occurred_at: float, months: frozenset[Month]) -> bool:
    try:
        then = _EPOCH + timedelta(seconds=occurred_at)
    except (OverflowError, ValueError):
        return False
    return not months.isdisjoint((Month(then.year, then.month), Month(None, then.month)))
