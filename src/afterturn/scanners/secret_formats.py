"""The formats of secrets, as their issuers document them: a prefix, an alphabet and a length (`secret_formats.json`).

The time to search one grows no faster than the text: every expression matches a bounded number of characters from its
start or repeats possessively, and repeats nothing that repeats.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias

Span: TypeAlias = tuple[int, int]

# How far from the id of a key its secret half is searched for.
_NEAR_CHARS = 200
# The largest length of that half, so that none is missed between two searches.
_SECRET_CHARS = 40
_PEM_CHARS_MAX = 32_768
_LONG_CHARS_MIN = 20
_LONG_CHARACTERS_MIN = 8
_PEM_LINE_CHARS_MIN = 24
_JWT_PARTS = 3
_JWT_HEADER_CHARS_MAX = 4_096
_JWT_BODY_CHARS_MIN = 16
_HEXADECIMAL_CHARS_MIN = 32
_DIGITS_ENOUGH = 4
_LOWER_RUN_MAX = 6
_DASHED_CHARS_MIN, _DASHED_DIGITS_MIN = 40, 8
# Dates, numbers and UUIDs with names before them, and words with dashes.
_DASHED = r"[a-z]{3,}[-/]|[0-9]{4}[-/]|[0-9a-f]{8}-|.*[a-z]{7}|.*-[0-9]{4}-"
_WITHOUT_DIGITS = str.maketrans("", "", "0123456789")

# Escapes of line breaks, colours and signs: in JSON, terminals, URLs and mails.
_CODE = (
    r"(?:\\[bfnrtv0e]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\[0-3][0-7]{2}|\[[0-9;:?]{0,16}[A-Za-z]"
    r"|%[0-9A-Fa-f]{2}|=[0-9A-F]{2})\Z"
)
_CODE_CHARS_MAX = 20

_PLACEHOLDER = (
    r"^[$<%({\[]|[$%{][{(]|\*\*\*|\.\.\.|\u2026|x{4}|X{4}|(?i:example|changeme|change_me|change-me|placeholder|your|"
    r"redacted|dummy|^p[a@]ssw[o0]rd$|insert[-_ ]|replace[-_ ])"
)
_NO_VALUES = frozenset(["password", "passwd", "pass", "pwd", "secret", "token", "key", "none", "null", "true", "false"])
_CALL = r"[A-Za-z_][A-Za-z0-9_.]*+[(\[]"
_REFERENCE = r"[A-Za-z_][A-Za-z0-9_]*+\.[A-Za-z_]|[.~]?/[A-Za-z]"
_NAMED_SO = r"(?i:pass|secret|token|key|pwd)"


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern when it is first needed: a hook must answer in milliseconds, and most texts need none."""
    return re.compile(pattern)


# Checks of the form of a value


def is_value(text: str) -> bool:
    """Whether this is a value, and not a placeholder or the call that returns one."""
    return not (compiled(_PLACEHOLDER).search(text) or compiled(_CALL).match(text)) and text.lower() not in _NO_VALUES


def is_reference(text: str) -> bool:
    """Whether this names something: the attribute of an object, or a file."""
    return compiled(_REFERENCE).match(text) is not None


def is_scrambled(text: str) -> bool:
    """Whether letters and digits look like a random draw, not like words: CamelCase, a version, a date or a name."""
    digits = sum(character.isdigit() for character in text)
    groups = len(compiled(r"[0-9]+").findall(text))
    if text.lower() == text or text.upper() == text:
        return digits >= _DIGITS_ENOUGH and groups >= 3 and digits < len(text)
    if longest_run(text) > max(_LOWER_RUN_MAX, len(text) // 6):
        return False
    changes = len(compiled(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]").findall(text))
    return digits >= 1 and changes >= 0.25 * len(text)


def is_scrambled_case(text: str) -> bool:
    """As `is_scrambled`, for letters alone: capitals in the middle of what is not made of words."""
    if not text.isalpha() or longest_run(text) > 3:
        return False
    return len(compiled(r"(?<=[a-z])[A-Z]|(?<=[A-Z])[a-z]").findall(text)) >= max(3, 0.2 * len(text))


def longest_run(text: str) -> int:
    """The length of the longest run of small letters."""
    return max(map(len, compiled(r"[a-z]+").findall(text)), default=0)


def is_random(text: str) -> bool:
    """Whether this looks random: small letters, capitals and digits, or a long hexadecimal number."""
    digits = sum("0" <= character <= "9" for character in text)
    if digits < 2 and not (len(text) >= _LONG_CHARS_MIN and is_scrambled_case(text.translate(_WITHOUT_DIGITS))):
        return False
    if not is_value(text) or is_reference(text) or not any(map(str.isalpha, text)):
        return False
    # "key" may be in a random draw too.
    if compiled(_NAMED_SO).search(text) and not (len(text) >= _LONG_CHARS_MIN and is_scrambled(text)):
        return False
    if "/" in text and "." in text:
        return False
    if len(text) >= _HEXADECIMAL_CHARS_MIN and compiled(r"[0-9a-fA-F]++").fullmatch(text):
        return _DIGITS_ENOUGH <= digits < len(text)
    if text.upper() != text and text.lower() != text:
        return True
    if "-" in text or "/" in text:
        return len(text) >= _DASHED_CHARS_MIN and digits >= _DASHED_DIGITS_MIN and not compiled(_DASHED).match(text)
    return is_scrambled(text)


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def _is_body_random(text: str) -> bool:
    """For formats that have only a word such as `token_` in front of them."""
    body = compiled(r"[_-]").split(text)[-1]
    if len(body) >= _HEXADECIMAL_CHARS_MIN and compiled(r"[0-9a-f]++").fullmatch(body):
        return _DIGITS_ENOUGH <= sum(map(str.isdigit, body)) < len(body)
    return is_value(text) and sum(map(str.isdigit, body)) >= 2 and is_scrambled(body)


def decode(text: str) -> str | None:
    """The printable text that this is the base64 of, in either alphabet. None if it is not."""
    kept = text.rstrip("=").replace("-", "+").replace("_", "/")
    if len(kept) % 4 == 1:
        kept = kept[:-1]
    try:
        decoded = b64decode(kept + "=" * (-len(kept) % 4), validate=True).decode("utf-8")
    except ValueError:
        return None
    plain = decoded.replace("\n", " ").replace("\r", " ").replace("\t", " ")
    return decoded if plain.isprintable() else None


def _is_jwt(text: str) -> bool:
    """Whether the first part is the header of a JSON web token. The end may have been cut off."""
    parts = text.strip(".").split(".")
    if len(parts) < _JWT_PARTS and len(parts[-1] if len(parts) > 1 else "") < _JWT_BODY_CHARS_MIN:
        return False
    if len(parts[0]) > _JWT_HEADER_CHARS_MAX:
        return False
    try:
        fields = json.loads(urlsafe_b64decode(parts[0] + "=" * (-len(parts[0]) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and ("alg" in fields or "enc" in fields)


class Format(NamedTuple):
    """One format. Every text with such a secret contains one of the `hints`; without hints, it has a long word.

    If the pattern has a group, the group is the secret; `is_one` checks the text of the secret. A match inside a word
    must match `exact` too, which has the issuer's exact lengths.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: str
    is_one: Callable[[str], bool] | None = None
    exact: str = ""

    def find(self, text: str, *, any_case: bool = False) -> Iterator[Span]:
        for match in compiled(f"(?i:{self.pattern})" if any_case else self.pattern).finditer(text):
            group = 1 if match.re.groups else 0
            is_separate = group or is_word_start(text, match.start())
            if not (is_separate or (self.exact and compiled(self.exact).fullmatch(match.group()))):
                continue
            found = match.group(group)
            if _is_varied(found) and (self.is_one is None or self.is_one(found)):
                yield match.span(group)


def _is_varied(found: str) -> bool:
    """False for the keys in manuals, which repeat one letter."""
    return len(found) < _LONG_CHARS_MIN or len(set(found)) >= _LONG_CHARACTERS_MIN


def is_word_start(text: str, at: int) -> bool:
    """Whether a word may begin there: after anything but an ASCII letter or digit, or after an escape.

    A lookbehind in the pattern would be slow for texts without a match.
    """
    before = text[at - 1] if at else ""
    if not (before.isascii() and before.isalnum()):
        return True
    return compiled(_CODE).search(text[max(0, at - _CODE_CHARS_MAX) : at]) is not None


def find_pem(text: str) -> Iterator[Span]:
    """Private keys from the first line to the last. Where the last is cut off, as far as the lines look like a key."""
    ends = list(compiled(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----").finditer(text))
    done = at = 0
    for begin in compiled(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----").finditer(text):
        if begin.start() < done:
            continue
        while at < len(ends) and ends[at].start() < begin.end():
            at += 1
        if at < len(ends) and ends[at].end() - begin.start() <= _PEM_CHARS_MAX:
            done = ends[at].end()
        else:
            done = _end_of_key(text, begin.end())
        if done > begin.end():
            yield begin.start(), done


def _end_of_key(text: str, start: int) -> int:
    """The end of the lines of a key that is cut off; `start` if there are none. Line breaks may be written as \\n."""
    line = compiled(r"(?:\\[nr]|[\s>|+#*\"']){0,16}+([A-Za-z0-9+/=]{1,4096}+)")
    end = start
    while end - start < _PEM_CHARS_MAX and (match := line.match(text, end)) is not None:
        if len(match.group(1)) < _PEM_LINE_CHARS_MIN:
            break
        end = match.end()
    return end


def find_aws(text: str) -> Iterator[Span]:
    """The key's id, and the secret next to it."""
    # Not the hash of a commit, which has no capitals.
    secret = compiled(
        r"(?:(?<![A-Za-z0-9/+=])|(?<=\\[nrt])|(?<=%3D)|(?<=[0-9]m))(?![0-9a-f]{40})[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"
    )
    yield from _pairs(text, r"A(?:[KS]IA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])", secret)


def find_twilio(text: str) -> Iterator[Span]:
    """A key, and the token next to an account's id."""
    for match in compiled(r"SK[0-9a-f]{32}(?![A-Za-z0-9])").finditer(text):
        if is_word_start(text, match.start()):
            yield match.span()
    token = compiled(r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%3D)|(?<=[0-9]m))[0-9a-f]{32}(?![A-Za-z0-9])")
    account = r"AC[0-9a-f]{32}(?![A-Za-z0-9])"
    for start, end in _pairs(text, account, token):
        if not text.startswith("AC", start):
            yield start, end


def _pairs(text: str, name: str, secret: re.Pattern[str]) -> Iterator[Span]:
    """Ids and the secrets near them. Text between two close ids is searched once."""
    done = 0
    for match in compiled(name).finditer(text):
        apart = is_word_start(text, match.start()) or text[match.start() - 1].islower()
        if not apart or not _is_varied(match.group()) or match.group().endswith("EXAMPLE"):
            continue
        yield match.span()
        first, last = max(done, match.start() - _NEAR_CHARS), min(match.end() + _NEAR_CHARS, len(text))
        for other in secret.finditer(text, first, last):
            if _has_digit(other.group()) and any(map(str.isalpha, other.group())):
                yield other.span()
        done = max(done, last - _SECRET_CHARS)


UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "has_digit": _has_digit,
    # A name and a password in base64, as HTTP's basic authentication sends them.
    "is_basic": lambda text: ":" in (decode(text) or "").strip(":"),
    "is_body_random": _is_body_random,
    "is_jwt": _is_jwt,
    "is_random": is_random,
    "is_scrambled": is_scrambled,
    "is_value": is_value,
}


# Lists of formats by the kind of issuer.
_ROWS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8").replace("<UUID>", UUID))
FORMATS = tuple(
    Format(row["kind"], tuple(row["hints"]), row["pattern"], _CHECKS.get(row.get("check")), row.get("exact", ""))
    for row in chain.from_iterable(_ROWS.values())
)


def find_putty(text: str) -> Iterator[Span]:
    """The private lines of a key of PuTTY."""
    for match in compiled(r"Private-Lines: [0-9]{1,3}").finditer(text):
        end = _end_of_key(text, match.end())
        if end > match.end():
            yield match.end(), end


FINDERS: tuple[tuple[str, tuple[str, ...], Callable[[str], Iterator[Span]]], ...] = (
    ("private key", ("PRIVATE KEY",), find_pem),
    ("private key", ("Private-Lines",), find_putty),
    ("aws key", ("AKIA", "ASIA", "ABIA", "ACCA"), find_aws),
    ("twilio key", ("SK", "AC"), find_twilio),
)


_Finder: TypeAlias = tuple[str, Callable[[str], Iterable[Span]]]
# A secret of a known format is one word, at least as long as this.
_WORD_CHARS_MIN = 12
_LONG_WORD_CHARS_MIN = 36


def find_formats(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind, start, end) of what has a known format. Hints are searched in long words only: most texts have none."""
    # A dictionary, because two hints may lead to one finder, and in order.
    finders: dict[_Finder, None] = {}
    words = [word for word in text.split() if len(word) >= _WORD_CHARS_MIN]
    if words:
        long = " ".join(words)
        for sign, hints in _HINTS_BY_SIGN.items():
            if sign in long:
                for hint in [hint for hint in hints if hint in long]:
                    finders.update(dict.fromkeys(_FINDERS_BY_HINT[hint]))
        if max(map(len, words)) >= _LONG_WORD_CHARS_MIN:
            finders.update(dict.fromkeys(_FINDERS_BY_HINT[""]))
    for hint in [hint for hint in _SPOKEN_HINTS if hint in text]:
        finders.update(dict.fromkeys(_FINDERS_BY_HINT[hint]))
    for kind, find in finders:
        for start, end in find(text):
            yield kind, start, end
    capitals = (word for word in words if word.isupper() and compiled(r"[0-9A-Z]{16}").search(word))
    yield from _find_uppercase(text, " ".join(capitals).lower())


def _find_uppercase(text: str, uppercase: str) -> Iterator[tuple[str, int, int]]:
    """Formats of one issuer in words that are in capitals throughout, as forms and labels print them."""
    for format in FORMATS if uppercase else ():
        if format.kind not in ("secret", "password") and any(hint.lower() in uppercase for hint in format.hints):
            for start, end in format.find(text, any_case=True):
                if text[start:end].isupper() and compiled(r".*?\d.*?\d|.*?[0-9A-Z]{30}").match(text, start, end):
                    yield format.kind, start, end


# Hints that are words of their own, apart from the secret.
_SPOKEN_HINTS = (
    *("PRIVATE KEY", "asic ", " -u", "--user", "mysql", "mariadb", "sshpass", "dentified by", "DENTIFIED BY"),
    *("Splunk ", "SSWS ", "algolia", "ldap", " value="),
)
_FINDERS_BY_HINT: dict[str, list[_Finder]] = {}
for _kind, _hints, _find in (*((format.kind, format.hints, format.find) for format in FORMATS), *FINDERS):
    for _hint in _hints or ("",):
        _FINDERS_BY_HINT.setdefault(_hint, []).append((_kind, _find))
# By a character that they contain: searching for one character is thirty times as fast as for three.
_HINTS_BY_SIGN: dict[str, list[str]] = {}
for _hint in (hint for hint in _FINDERS_BY_HINT if hint and hint not in _SPOKEN_HINTS):
    _HINTS_BY_SIGN.setdefault(next((sign for sign in "_=@/:.-" if sign in _hint), ""), []).append(_hint)
