"""Points in time as callers give them, in seconds as they are kept. Checked once, where they come in."""

from __future__ import annotations

from datetime import datetime

from afterturn.base.errors import InvalidInput

# Some three thousand years either way: beyond the calendar nothing can be shown.
SECONDS_MAX = 1e11
_FORMS = "Pass Unix seconds, a datetime with a time zone, or a text such as 2026-11-15T09:30:00Z."


def moment(value: float | datetime | str | None) -> float | None:
    return None if value is None else seconds(value)


def seconds(value: float | datetime | str) -> float:
    """Unix seconds of a datetime or an ISO-8601 text. Without a time zone both are an error: which one is unknown."""
    if isinstance(value, str):
        text = value.strip()
        try:
            value = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidInput(f"{text[:60]!r} is not a time. {_FORMS}") from None
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InvalidInput(f"{value.isoformat()} has no time zone. Add one, for example +00:00 or timezone.utc.")
        try:
            value = value.timestamp()
        except (OverflowError, ValueError, OSError):
            raise InvalidInput(f"{value} is outside the calendar. {_FORMS}") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < SECONDS_MAX:
        raise InvalidInput(f"{value!r} is not a time. {_FORMS}")
    return float(value)
