"""Times as people and programs write them: ISO-8601 in and out, ages in words."""

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any, TypeVar

import click

from afterturn.base.clock import SystemClock
from afterturn.base.errors import InvalidInput
from afterturn.context.age import describe_age

F = TypeVar("F", bound=Callable[..., Any])


def parse_time(text: str, *, zone: tzinfo | None) -> float:
    """Unix seconds of an ISO-8601 date or time. One without an offset is in `zone`, or local when that is None."""
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone) if zone else moment.astimezone()
        return moment.timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(
            f"{text!r} is no ISO-8601 time. Write it like 2026-11-15, 2026-11-15T09:30 or 2026-11-15T09:30:00Z."
        ) from error


def iso(moment: float) -> str | float:
    """UTC, to the millisecond; the bare number when it is outside the calendar."""
    try:
        text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return moment
    return text.replace("+00:00", "Z")


def local(moment: float) -> str:
    """To the second, in the machine's zone, for people."""
    try:
        return datetime.fromtimestamp(moment, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{moment:g}"


def local_clock(moment: float) -> str:
    """The time of day to the millisecond, in the machine's zone."""
    return datetime.fromtimestamp(moment, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]


def age(moment: float) -> str:
    """In the words that a block uses: "just now", "3 days ago"."""
    return describe_age(moment, SystemClock().now())


def time_option(flag: str, **settings: Any) -> Callable[[F], F]:
    """An option that takes an ISO-8601 date or time; local when it names no offset."""

    def convert(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        return None if value is None else parse_time(value, zone=None)

    return click.option(flag, metavar="TIME", callback=convert, **settings)
