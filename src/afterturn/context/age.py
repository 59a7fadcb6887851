"""How long ago, in the words a block uses."""

from datetime import UTC, datetime, timedelta

_MINUTE = 60.0
_HOUR = 3600.0
_DAY = 86400.0
_MONTH = 30.44 * _DAY
_YEAR = 365.25 * _DAY
# Further away than anything that is written down: whoever gave the time made a mistake.
_TOLD_MAX = 10_000 * _YEAR
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def describe_age(then: float, now: float) -> str:
    """Both in Unix seconds. Up to a day ahead is taken for a clock that runs fast: "just now"."""
    seconds = now - then
    if not abs(seconds) < _TOLD_MAX:
        return "at an unknown time"
    if seconds < -_DAY:
        return f"in {_count(-seconds, _DAY, 'day')}"
    if seconds < _MINUTE:
        return "just now"
    if _DAY <= seconds < 2 * _DAY:
        return "yesterday"
    return f"{_past(seconds)} ago"


def describe_day(then: float) -> str:
    """The day in UTC, "2024-05-03"; blank for a time that no calendar has."""
    try:
        return (_EPOCH + timedelta(seconds=then)).date().isoformat()
    except (OverflowError, ValueError):
        return ""


def _past(seconds: float) -> str:
    if seconds < _HOUR:
        return _count(seconds, _MINUTE, "minute")
    if seconds < _DAY:
        return _count(seconds, _HOUR, "hour")
    if seconds < _MONTH:
        return _count(seconds, _DAY, "day")
    if seconds < _YEAR:
        return _count(seconds, _MONTH, "month")
    return _count(seconds, _YEAR, "year")


def _count(seconds: float, unit: float, name: str) -> str:
    number = max(1, int(seconds // unit))
    return f"{number} {name}" if number == 1 else f"{number} {name}s"
