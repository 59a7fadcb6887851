"""When something was said, from the dates that collections of conversations write."""

import re
from datetime import UTC, datetime

_MONTHS = {
    name: number
    for number, name in enumerate(
        "january february march april may june july august september october november december".split(), start=1
    )
}
_CLOCK = re.compile(r"\b(\d{1,2}):(\d{2})(?::\d{2})?\s*([ap])?\.?m?\b", re.IGNORECASE)
_ISO = re.compile(r"\b(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")
_DAY_FIRST = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)?[\s,.-]+([a-z]{3,9})[\s,.-]+(\d{4})\b", re.IGNORECASE)
_MONTH_FIRST = re.compile(r"\b([a-z]{3,9})[\s,.-]+(\d{1,2})(?:st|nd|rd|th)?[\s,.-]+(\d{4})\b", re.IGNORECASE)


def find_time(text: str) -> float | None:
    """Unix seconds, the time of day in UTC, midnight where none is named. None for what names no day.

    "1:56 pm on 8 May, 2023", "March-15-2024", "2025-12-15 (Monday)".
    """
    day = _day(text)
    if day is None:
        return None
    hour, minute = _time_of_day(text)
    try:
        return datetime(*day, hour, minute, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _day(text: str) -> tuple[int, int, int] | None:
    if found := _ISO.search(text):
        year, month, day = (int(part) for part in found.groups())
        return year, month, day
    for found in _DAY_FIRST.finditer(text):
        if number := _month(found[2]):
            return int(found[3]), number, int(found[1])
    for found in _MONTH_FIRST.finditer(text):
        if number := _month(found[1]):
            return int(found[3]), number, int(found[2])
    return None


def _month(name: str) -> int | None:
    return next((number for month, number in _MONTHS.items() if month.startswith(name.lower())), None)


def _time_of_day(text: str) -> tuple[int, int]:
    found = _CLOCK.search(text)
    if found is None:
        return 0, 0
    hour, half = int(found[1]), (found[3] or "").lower()
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return hour, int(found[2])
