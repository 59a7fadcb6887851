"""Points in time as callers give them, in seconds as they are kept. Checked once, where they come in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from afterturn.base.errors import InvalidInput

if TYPE_CHECKING:
    from datetime import datetime

# Some three thousand years either way: beyond the calendar nothing can be shown.
SECONDS_MAX = 1e11


def moment(value: float | datetime | None) -> float | None:
    return None if value is None else seconds(value)


def seconds(value: float | datetime) -> float:
    """Unix seconds. A datetime without a time zone is an error: it could mean any of a day's hours."""
    from datetime import datetime

    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InvalidInput(f"{value.isoformat()} has no time zone. Use datetime.now(timezone.utc) or add one.")
        value = value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < SECONDS_MAX:
        raise InvalidInput(f"{value!r} is no time. Pass Unix seconds or a datetime with a time zone.")
    return float(value)
