"""Secrets that only their label gives away: "password: …", "api_key=…". What stands there must look like one, too.

Every expression takes a bounded number of characters a start, and no text is looked at twice for one label (G5).
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

_HEXADECIMAL_CHARS_MIN = 32
_DIGIT = r"[0-9]"
_DIGITS_ENOUGH = 4
_ANY_DIGIT = r"\d"
_HEXADECIMAL = r"[0-9a-f]++"
_SIGN = r"[^\w./\\-]"
_PLACEHOLDER = r"^[$<%({\[]|[$%{][{(]|\*\*\*|\.\.\.|x{4}|X{4}|example|EXAMPLE|changeme|placeholder|your|redacted"
_NO_VALUES = frozenset(["password", "passwd", "pass", "pwd", "secret", "token", "key", "none", "null", "true", "false"])
_CALL = r"[A-Za-z_][A-Za-z0-9_.]*+[(\[]"
_REFERENCE = r"[A-Za-z_][A-Za-z0-9_]*+\.|[.~]?/"
_NAMED_SO = r"(?i:pass|secret|token|key|pwd)"


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """When it is first needed: a hook that answers in milliseconds has no time for what nothing hints at."""
    return re.compile(pattern)


def is_no_placeholder(text: str) -> bool:
    """A value, and not the place of one, or what gives it."""
    return not (compiled(_PLACEHOLDER).search(text) or compiled(_CALL).match(text)) and text.lower() not in _NO_VALUES


def is_password(text: str) -> bool:
    """What nobody writes behind "password:" for another reason: letters, digits, and capitals or signs among them."""
    if compiled(_ANY_DIGIT).search(text) is None:
        return False
    signs = compiled(_SIGN).search(text) is not None
    if (text.upper() != text) + (text.lower() != text) + signs < 2 or not is_no_placeholder(text):
        return False
    return signs or not (compiled(_REFERENCE).match(text) or compiled(_NAMED_SO).search(text))


def is_random(text: str) -> bool:
    """Long, with small letters, capitals and digits all through; or a long hexadecimal number."""
    digits = len(compiled(_DIGIT).findall(text))
    if (
        digits < 2
        or not is_no_placeholder(text)
        or compiled(_REFERENCE).match(text)
        or compiled(_NAMED_SO).search(text)
    ):
        return False
    if len(text) >= _HEXADECIMAL_CHARS_MIN and compiled(_HEXADECIMAL).fullmatch(text):
        return _DIGITS_ENOUGH <= digits < len(text)
    return text.upper() != text and text.lower() != text


class _Label(NamedTuple):
    """`between` is what stands behind a name, `value` what stands behind that. Every value has a digit."""

    kind: str
    names: tuple[str, ...]
    between: str
    value: str
    chars_min: int
    chars_max: int
    is_one: Callable[[str], bool]

    @property
    def reach(self) -> int:
        """How far from a name its value ends at the latest."""
        return self.chars_max + 40


_QUOTES = r"[\\\"'`*]{0,4}"
_IS = r"\s{0,3}(?:[:=]|%3[AaDd])\s{0,3}"
_LABELS = (
    _Label(
        "password",
        ("password", "passwd", "passphrase"),
        rf"{_QUOTES}(?:{_IS}|\s{{1,3}}is\s{{1,3}}){_QUOTES}",
        r"[^\s\"'`,;]{7,127}[^\s\"'`,;.!?)\]}*\\]",
        8,
        128,
        is_password,
    ),
    _Label(
        "secret",
        ("secret", "token", "apikey", "api_key", "api-key", "api key", "bearer"),
        rf"(?:[_\s-]?access)?(?:[_\s-]?key)?{_QUOTES}(?:{_IS}|\s{{1,3}}(?:is\s{{1,3}})?){_QUOTES}",
        # The beginning of one, with dots for the rest, is shown and not told.
        r"(?>[A-Za-z0-9+/_.~-]{19,511}[A-Za-z0-9+/_~-]={0,2})(?!\.\.)",
        20,
        514,
        is_random,
    ),
)


def find_named(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind, start, end) of values that are written behind what they are."""
    # The one letter that takes more room when it is small.
    lowered = text.replace("\u0130", "i").lower()
    for label in _LABELS:
        for name in label.names:
            for start, end in _values(text, lowered, label, name):
                if label.is_one(text[start:end]):
                    yield label.kind, start, end


def _values(text: str, lowered: str, label: _Label, name: str) -> Iterator[tuple[int, int]]:
    """What stands behind each of a name. Where the name comes again in a value, that ends there."""
    at = lowered.find(name)
    digit = -1
    while at >= 0:
        behind = at + len(name)
        if digit < behind:
            digit = _next_digit(text, behind)
        if digit < 0:
            return
        if digit > behind + label.reach:
            # No value up to there: names without one are passed over, however many they are.
            at = lowered.find(name, digit - label.reach)
            continue
        following = lowered.find(name, behind)
        if (found := _value_at(text, behind, following, label, name)) is not None:
            yield found
        at = following


def _value_at(text: str, behind: int, following: int, label: _Label, name: str) -> tuple[int, int] | None:
    between = compiled(label.between)
    begins = between.match(text, behind)
    if begins is None:
        return None
    start, end = begins.end(), len(text)
    if 0 <= following < start + label.chars_max and between.match(text, following + len(name)):
        end = following
    value = compiled(label.value).match(text, start, end) if end - start >= label.chars_min else None
    return None if value is None else value.span()


def _next_digit(text: str, start: int) -> int:
    found = compiled(_ANY_DIGIT).search(text, start)
    return -1 if found is None else found.start()
