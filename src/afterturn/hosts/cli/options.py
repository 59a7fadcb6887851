"""Options that several commands take, and the reading of their values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from typing import Any, TypeVar

import click

from afterturn.errors import InvalidInput, InvalidText, TooLarge
from afterturn.recall.times import parse_range
from afterturn.runtime.clock import SystemClock
from afterturn.types import Filter, Kind, Scalar, Status, Target

F = TypeVar("F", bound=Callable[..., Any])

LIMIT = click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many to show at most."
)
STDIN_BYTES_MAX = 16 * 1024 * 1024
TARGETS = tuple(str(target) for target in Target)


def read_text(argument: str) -> str:
    """The argument, or all of stdin when it is `-`."""
    if argument != "-":
        return argument
    content = sys.stdin.buffer.read(STDIN_BYTES_MAX + 1)
    if len(content) > STDIN_BYTES_MAX:
        raise TooLarge(
            f"stdin has more than {STDIN_BYTES_MAX} bytes; a memory is one statement. Use `afterturn import` for many.",
            size_bytes=len(content),
            limit_bytes=STDIN_BYTES_MAX,
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidText(
            f"stdin is not UTF-8 text (byte {error.start}). Convert it first, for example with iconv."
        ) from error


def metadata_option(help_text: str) -> Callable[[F], F]:
    """`--meta KEY=VALUE`, repeatable. true, false, null and numbers are converted; everything else is text."""

    def convert(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> list[tuple[str, Scalar]]:
        pairs = [value.partition("=") for value in values]
        for value, (key, equals, _) in zip(values, pairs, strict=True):
            if not equals or not key:
                raise InvalidInput(f"--meta {value!r} is not KEY=VALUE. Write it like --meta team=platform.")
        return [(key, _scalar(text)) for key, _, text in pairs]

    return click.option("--meta", "metadata", metavar="KEY=VALUE", multiple=True, callback=convert, help=help_text)


_WORDS: dict[str, Scalar] = {"true": True, "false": False, "null": None}


def _scalar(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    for number in (int, float):
        try:
            found = number(text)
        except ValueError:
            continue
        # "007" and "1e3" are names as often as numbers, so only what prints back the same counts as one.
        if str(found) == text and text not in ("nan", "inf", "-inf"):
            return found
    return text


def filter_options(function: F) -> F:
    """Options that filter within a space; `as_filter` turns them into a Filter."""
    for option in reversed(_FILTERS):
        function = option(function)
    return function


_FILTERS = (
    click.option("--target", type=click.Choice(TARGETS), help="Only what is about this."),
    click.option("--agent", metavar="NAME", help="Only what belongs to this agent."),
    click.option("--project", metavar="NAME", help="Only what belongs to this project."),
    metadata_option("Only with this metadata; repeatable."),
)


def as_filter(
    options: dict[str, Any],
    *,
    kind: Kind | None = None,
    conversation: str | None = None,
    pinned: bool | None = None,
    firm: bool | None = None,
    statuses: Sequence[Status] = (Status.ACTIVE,),
    since: float | None = None,
    until: float | None = None,
) -> Filter:
    """Several values for one metadata key are alternatives."""
    wanted: dict[str, Scalar | tuple[Scalar, ...]] = {}
    for key, value in options["metadata"]:
        known = wanted.get(key)
        earlier = known if isinstance(known, tuple) else (known,)
        wanted[key] = (*earlier, value) if key in wanted else value
    return Filter(
        kind=kind,
        target=Target(options["target"]) if options["target"] else None,
        agent=options["agent"],
        project=options["project"],
        conversation=conversation,
        pinned=pinned,
        firm=firm,
        metadata=wanted,
        statuses=tuple(statuses),
        since=since,
        until=until,
    )


def parse_time(text: str, *, zone: tzinfo | None) -> float:
    """Unix seconds of an ISO-8601 date or time. Without an offset it is in `zone`, or local if that is None."""
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone) if zone else moment.astimezone()
        return moment.timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(
            f"{text!r} is not an ISO-8601 time. Write it like 2026-11-15, 2026-11-15T09:30 or 2026-11-15T09:30:00Z."
        ) from error


_TIME_FORMS = (
    "Write it like 2026-11-15, 2026-11-15T09:30 or 2026-11-15T09:30:00Z, or in words: "
    '"last week", "3 days ago", "October 2025".'
)


def parse_moment(text: str) -> float:
    """Unix seconds of an ISO-8601 date or time, or of the beginning of a time in words. Local without an offset."""
    try:
        return parse_time(text, zone=None)
    except InvalidInput:
        found = parse_range(text, SystemClock().now())
    if found is None:
        raise InvalidInput(f"{text!r} is not a time. {_TIME_FORMS}")
    return found[0]


def time_option(flag: str, **settings: Any) -> Callable[[F], F]:
    """An option that takes a date, a time, or words for one; local unless it has an offset."""

    def convert(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        return None if value is None else parse_moment(value)

    return click.option(flag, metavar="TIME", callback=convert, **settings)


def range_options(function: F) -> F:
    """`--since`, `--until` and `--during`; `time_range` reads them."""
    for option in reversed(_RANGES):
        function = option(function)
    return function


_RANGES = (
    time_option("--since", help='Only from this time on, such as 2026-11-01 or "last week".'),
    time_option("--until", help="Only before this time begins."),
    click.option("--during", metavar="TIME", help='Only from this day, month or year, such as 2026-10 or "last week".'),
)


def time_range(options: dict[str, Any]) -> tuple[float | None, float | None]:
    since, until, during = options["since"], options["until"], options["during"]
    if during is None:
        return since, until
    if since is not None or until is not None:
        raise InvalidInput("--during cannot be used with --since or --until. Leave one of them out.")
    found = parse_range(during, SystemClock().now())
    if found is None:
        raise InvalidInput(
            f'{during!r} is not a day, a month or a year. Write it like 2026-11-15, 2026-10, "last week" or October.'
        )
    return found
