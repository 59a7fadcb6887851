"""Finds personal data in texts: e-mail addresses, phone numbers, bank accounts, payment cards, social security numbers.

Off unless `personal_data` is set. Numbers with a check digit count only if it is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from afterturn.scanners.detection import Detection, ScanAction, without_overlaps
from afterturn.text import load_patterns, regex

# Lengths of IBANs by country. Another length is another number.
_IBAN_CHARS = {
    code: int(length)
    for length, codes in {
        "15": "NO", "16": "BE", "18": "DK FI FO GL NL", "19": "MK SI", "20": "AT BA EE KZ LT LU XK",

        "21": "CH HR LI LV",
        "22": "BG BH CR DE GB GE IE ME RS", "23": "AE GI IL", "24": "AD CZ ES MD PK RO SA SE SK TN", "25": "PT",
        "26": "IS TR", "27": "FR GR IT MC SM", "28": "AL AZ CY DO GT HU LB PL", "29": "BR PS QA", "30": "JO KW MU UA",
        "31": "MT",
    }.items()
    for code in codes.split()
}  # fmt: skip
_CARD_DIGITS = range(13, 20)
_PHONE_DIGITS = range(8, 16)


class _Pattern(NamedTuple):
    """`sign` is in every match; `is_one` checks it."""

    kind: str
    sign: str
    pattern: re.Pattern[str]
    is_one: Callable[[str], bool]


def _is_iban(text: str) -> bool:
    plain = re.sub(r"[\s-]", "", text).upper()
    if _IBAN_CHARS.get(plain[:2]) != len(plain):
        return False
    return int("".join(str(int(character, 36)) for character in plain[4:] + plain[:4])) % 97 == 1


def _is_card(text: str) -> bool:
    digits = [int(character) for character in text if character.isdigit()]
    if len(digits) not in _CARD_DIGITS or len(set(digits)) == 1 or digits[0] not in (2, 3, 4, 5, 6):
        return False
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_phone(text: str) -> bool:
    digits = sum(map(str.isdigit, text))
    return digits in _PHONE_DIGITS and not re.fullmatch(r"\d{4}-\d{2}-\d{2}.*", text)


def _is_social_security_number(text: str) -> bool:
    area, group, serial = text.split("-")
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


_PATTERNS = load_patterns(__file__)
_KINDS = (
    _Pattern("e-mail address", "@", _PATTERNS["email"], bool),
    _Pattern("bank account", "", _PATTERNS["iban"], _is_iban),
    _Pattern("payment card", "", _PATTERNS["card"], _is_card),
    _Pattern("social security number", "-", _PATTERNS["ssn"], _is_social_security_number),
    _Pattern("phone number", "+", _PATTERNS["international_phone"], _is_phone),
    _Pattern("phone number", "", _PATTERNS["phone"], _is_phone),
)
_DIGITS = regex(r"[0-9]")


class PersonalDataScanner:
    """Finds personal data; `action` says what follows."""

    name = "personal_data"

    def __init__(self, action: ScanAction) -> None:
        self._action = action

    def find(self, text: str) -> Sequence[Detection]:
        has_digits = _DIGITS.search(text) is not None
        found = [
            Detection(one.kind, *match.span(), self._action)
            for one in _KINDS
            if (one.sign in text if one.sign else has_digits)
            for match in one.pattern.finditer(text)
            if one.is_one(match.group())
        ]
        return without_overlaps(found)
