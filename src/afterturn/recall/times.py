"""Times in texts: the range that a question asks for, and dates for words such as "last weekend" in a statement.

`time_phrases.py` finds the phrases; here they get their days in a calendar.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple, TypeAlias

from afterturn.recall.time_phrases import (
    FLAGS,
    NEXT,
    TIMES,
    UNSPACED,
    PhraseReader,
    TimePhrase,
    TokenizedText,
    Words,
    fillers,
    language_words,
    read_tense,
)
from afterturn.text import HashCache, regex

Range: TypeAlias = tuple[date | None, date | None]
"""The first day, and the day after the last one. None is open."""
Days: TypeAlias = tuple[date, date]

_SEASONS = {"spring": (3, 1), "summer": (6, 1), "autumn": (9, 1), "winter": (12, 1), "christmas": (12, 24)}
_NAMED_UNITS = {"week": "week", "weekend": "weekend", "month_unit": "month", "year_unit": "year"}
_SECONDS = {"minute": 60, "hour": 3600}
_ONE = timedelta(days=1)
_DATED = regex(r"\s?[(（][^()（）]{0,40}\d{4}[^()（）]{0,20}[)）]")
# A pasted page names many times and asks about none of them.
_READ_CHARS_MAX = 2_000
_SOON = timedelta(days=60)
# "a few days ago": from six to one of them ago.
_FEW = 6


class AskedTime(NamedTuple):
    """When the things happened that a question is about, in Unix seconds. Without a range, both limits are None.

    A range may lie in the future.
    """

    since: float | None
    """Inclusive."""
    until: float | None
    """Exclusive."""
    is_past: bool = False
    """Asks what was so earlier and may have changed: "where did I live before?", "originally"."""
    looks_ahead: bool = False
    """The range is not over, and the question is not in the past: "what is the plan for today?". The answer was said
    before it."""

    @property
    def has_range(self) -> bool:
        return self.since is not None or self.until is not None


def time_asked(text: str, now: float, *, zone: tzinfo = UTC, is_query: bool = False) -> AskedTime | None:
    """Returns what a question asks about time, or None. Sentences that are only statements are not read, except in a
    query: the words that somebody searches for.

    A month or a weekday is the last one, or the next one if the question is in the present or the future. Several times
    give the range from the first to the last. Days begin at midnight in `zone`.
    """
    today = _day(now, zone)
    if today is None:
        return None
    tokens = TokenizedText(text[:_READ_CHARS_MAX])
    found = [one for one in PhraseReader(tokens).read_all() if is_query or tokens.is_asked(one)]
    if not found:
        return None
    calendar = _Calendar(today, tokens)
    ranges: list[Range] = []
    looks_ahead = False
    for group in _groups(found, tokens):
        asked = _group_range(group, calendar)
        if asked is not None:
            ranges.append(asked)
            looks_ahead |= _looks_ahead(group, asked, calendar)
    is_past = any(one.meaning.name == "past" for one in found)
    if not ranges and not is_past:
        return None
    since, until = _hull(ranges)
    return AskedTime(_midnight(since, zone), _midnight(until, zone), is_past, looks_ahead)


# Most lines of a standing block name no time, and are the same in each conversation.
_has_phrases = HashCache[bool](16_384)


def resolve_times(text: str, said_at: float, *, zone: tzinfo = UTC) -> str:
    """Adds dates to relative times: "last weekend" becomes "last weekend (14 Nov 2026)".

    A date that is there already is not added again. Times whose date is not certain, such as "on Friday" in a sentence
    whose tense is not clear, are left alone. `said_at` is in Unix seconds.
    """
    today = _day(said_at, zone)
    if today is None or not _has_phrases.get(hash(text), lambda: bool(PhraseReader(TokenizedText(text)).read_all())):
        return text
    tokens = TokenizedText(text)
    calendar = _Calendar(today, tokens)
    pieces: list[str] = []
    done = 0
    for group in _datable(_groups(PhraseReader(tokens).read_all(), tokens)):
        label = _group_label(group, calendar)
        end = tokens.ends[group[-1].end - 1]
        if label is None or _DATED.match(text, end):
            continue
        pieces += [text[done:end], f"（{label}）" if group[-1].meaning.language in UNSPACED else f" ({label})"]
        done = end
    return "".join([*pieces, text[done:]])


def parse_range(text: str, now: float, *, zone: tzinfo | None = None) -> tuple[float, float] | None:
    """Returns the range that a text names if it is nothing but a time: "last week", "2026-10", "3 days ago".

    "3 days ago" begins on that day, "2 hours ago" at that moment. None if it is not a time. `zone` None is local.
    """
    today = _day(now, zone)
    tokens = TokenizedText(text[:_READ_CHARS_MAX])
    group = PhraseReader(tokens).read_only()
    if today is None or _groups(group, tokens) != [group]:
        return None
    calendar = _Calendar(today, tokens)
    if group[0].meaning.name in ("ago", "ahead", "rolling"):
        return _exact(group[0], calendar, now, zone)
    since, until = _group_range(group, calendar) or (None, None)
    start, end = _midnight(since, zone), _midnight(until, zone)
    return None if start is None or end is None else (start, end)


def _exact(found: TimePhrase, calendar: _Calendar, now: float, zone: tzinfo | None) -> tuple[float, float] | None:
    unit, number = _unit(found), _number(found)
    sign = 1 if found.meaning.name == "ahead" else -1
    if unit in _SECONDS:
        moment = now + sign * number * _SECONDS[unit]
        return moment, max(now, moment + _SECONDS[unit])
    day = _moved(calendar.today, unit, sign * number)
    start = _midnight(day, zone)
    end = _midnight(calendar.today + _ONE if found.meaning.name == "rolling" else day + _ONE, zone)
    return None if start is None or end is None else (start, end)


def _datable(groups: Sequence[Sequence[TimePhrase]]) -> Iterator[list[TimePhrase]]:
    """The times that get one date each. None for "the Sunday before 25 October"."""
    for group in groups:
        if len(group) == 1:
            yield from ([one] for one in _leaves(group))
        elif all(one.meaning.name in ("in", "since", "until") or not one.times for one in group):
            yield list(_leaves(group))


def _leaves(found: Sequence[TimePhrase]) -> Iterator[TimePhrase]:
    for one in found:
        if one.times:
            yield from _leaves(one.times)
        elif one.meaning.name in TIMES:
            yield one


def _groups(found: Sequence[TimePhrase], tokens: TokenizedText) -> list[list[TimePhrase]]:
    """Times that belong together, since only words such as "of" are between them: "on Monday of last week"."""
    groups: list[list[TimePhrase]] = []
    for one in found:
        if one.meaning.name in FLAGS:
            continue
        last = groups[-1][-1] if groups else None
        between = tokens.keys[last.end : one.start] if last else []
        # One of them can be inside the other.
        belong = last and (_recurs(last) or _recurs(one)) and _breadth(last) != _breadth(one)
        if belong and len(between) <= 2 and fillers().issuperset(between):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


# Evaluating.


class _Calendar(NamedTuple):
    """`is_past`: whatever the tense, nothing is in the future."""

    today: date
    tokens: TokenizedText
    is_past: bool = False

    def tense(self, found: TimePhrase, *, certain: bool = False) -> int:
        if self.is_past:
            return -1
        return read_tense(self.tokens, found.start, found.end, found.meaning.language, certain=certain)


def _day(moment: float, zone: tzinfo | None) -> date | None:
    try:
        day = datetime.fromtimestamp(moment, UTC).astimezone(zone).date()
    except (OverflowError, OSError, ValueError):
        return None
    # Some years must be left before and after it.
    return day if 1000 <= day.year <= 8000 else None


def _midnight(day: date | None, zone: tzinfo | None) -> float | None:
    if day is None:
        return None
    start = datetime(day.year, day.month, day.day, tzinfo=zone)
    return start.astimezone(zone).timestamp()


def _hull(ranges: Sequence[Range]) -> Range:
    if not ranges:
        return None, None
    starts, ends = [since for since, _ in ranges], [until for _, until in ranges]
    since = None if None in starts else min(start for start in starts if start is not None)
    until = None if None in ends else max(end for end in ends if end is not None)
    return since, until


def _group_range(group: Sequence[TimePhrase], calendar: _Calendar) -> Range | None:
    """The range of times that belong together: the narrowest one, inside the others."""
    ranges: list[Range] = []
    if any(_breadth(one) == 0 for one in group):
        # "Friday, 20 November": the date says it all.
        group = [one for one in group if _breadth(one) != 1]
    for one in sorted(group, key=lambda one: (not _recurs(one), _breadth(one)), reverse=True):
        base = ranges[-1] if ranges else None
        if base and any(other.meaning.name == "late" for other in group):
            # "the Friday at the end of October" is the last one.
            base = None, base[1]
        inside = _evaluate(one, calendar, base) if base and _recurs(one) else None
        if inside:
            ranges.pop()
        found = inside or _evaluate(one, calendar)
        if found is not None:
            ranges.append(found)
    return _hull(ranges) if ranges else None


# Words before a time that may belong to a longer one: "since October last year".
_NARROWED = frozenset("in since until early mid late weekend_of".split())
_BACK = frozenset(("since", "after", "before", "ago", "few_ago", "rolling", "few_rolling"))


def _looks_ahead(group: Sequence[TimePhrase], days: Range, calendar: _Calendar) -> bool:
    if days[0] is not None and days[0] > calendar.today:
        return True
    is_over = days[1] is not None and days[1] <= calendar.today
    is_back = any(one.meaning.name in _BACK for one in (*group, *_leaves(group)))
    return not is_over and not is_back and calendar.tense(group[0]) >= 0


def _recurs(found: TimePhrase) -> bool:
    """Whether it is one of many, such as "on Monday" or "in October"."""
    if found.meaning.name in _NARROWED:
        return _recurs(found.times[0])
    is_open = found.meaning.offset is None and found.value("year") is None
    return is_open and found.meaning.name in ("weekday", "month", "day_month", "day_of_month", "period", "weekend")


def _evaluate(found: TimePhrase, calendar: _Calendar, base: Range | None = None) -> Range | None:
    """None if there is no such time in the calendar, or none in `base`."""
    try:
        if found.times:
            return _limited_range(found, calendar, base)
        return _time_range(found, calendar, base)
    except (OverflowError, ValueError):
        return None


def _limited_range(found: TimePhrase, calendar: _Calendar, base: Range | None) -> Range | None:
    if found.meaning.name == "since":
        calendar = calendar._replace(is_past=True)
    time = _evaluate(found.times[0], calendar, base)
    if time is None:
        return None
    since, until = time
    match found.meaning.name:
        case "since":
            return since, None
        case "before":
            return None, since
        case "until":
            return None, until
        case "after":
            return until, None
        case "between":
            return _between(found, calendar, time)
        case "both":
            other = _evaluate(found.times[1], calendar)
            return _hull([time, other]) if other else time
    return time if since is None or until is None else _part(found.meaning.name, since, until)


def _part(name: str, since: date, until: date) -> Days:
    """The beginning, the middle or the end of a range, or the weekend of a day."""
    days = (until - since).days
    part = timedelta(days=max(1, round(days * 0.4)))
    match name:
        case "early":
            return since, since + part
        case "mid":
            return since + timedelta(days=round(days * 0.3)), since + timedelta(days=round(days * 0.7))
        case "late":
            return until - part, until
        case "weekend_of":
            # The Saturday that is nearest to the day.
            saturday = since + timedelta(days=(5 - since.weekday() + 3) % 7 - 3)
            return saturday, saturday + timedelta(days=2)
    return since, until


def _between(found: TimePhrase, calendar: _Calendar, first: Range) -> Range | None:
    """The first time is the last one before the end: "from October to December", asked in November."""
    last = _evaluate(found.times[1], calendar)
    if last is None or last[1] is None:
        return None
    if _recurs(found.times[0]):
        first = _evaluate(found.times[0], calendar, (None, last[1])) or first
    return first[0], max(last[1], first[1] or last[1])


def _time_range(found: TimePhrase, calendar: _Calendar, base: Range | None) -> Range | None:
    name, offset, today = found.meaning.name, found.meaning.offset, calendar.today
    match name:
        case "day":
            day = today + timedelta(days=offset or 0)
            return day, day + _ONE
        case "iso":
            return _iso(found.value("iso"))
        case "slash":
            return _slash(found)
        case "year":
            return date(found.value("year"), 1, 1), date(found.value("year") + 1, 1, 1)
        case "weekday_of_week":
            day = _unit_range("week", today, offset or 0)[0] + timedelta(days=found.value("zhday"))
            return day, day + _ONE
        case "ago" | "ahead" | "few_ago":
            return _distant(found, today)
        case "rolling" | "few_rolling" | "following" | "few_following":
            number = _FEW if name.startswith("few") else _number(found)
            day = _moved(today, _unit(found), number if name.endswith("following") else -number)
            return min(day, today), max(day, today) + _ONE
        case "month" if found.value("year"):
            return _dates(found, found.value("year"))
        case "period" if found.value("year"):
            return _season(found.value("season"), found.value("year"))
        case "season_of_year":
            return _season(found.value("season"), today.year + (offset or 0))
    unit = _NAMED_UNITS.get(name) or found.value("period") or found.value("season") or ""
    if unit in ("week", "month", "year", "quarter"):
        return _unit_range(unit, today, 1 if offset == NEXT else offset or 0)
    return _one_of(found, calendar, base)


def _iso(parts: tuple[int, ...]) -> Days:
    if len(parts) == 3:
        day = date(*parts)
        return day, day + _ONE
    first = date(parts[0], parts[1], 1)
    return first, _add_months(first, 1)


def _slash(found: TimePhrase) -> Days | None:
    """14/11/2026 is certain, 5/11/2026 is two days."""
    numbers = [value for _, value in found.values]
    if len(found.values) == 3 and found.values[1][0] == "mm":
        day, month = numbers[:2]
    else:
        month, day = sorted(numbers[:2])
        if day <= 12 and day != month:
            return None
    only = date(numbers[2], month, day)
    return only, only + _ONE


def _unit(found: TimePhrase) -> str:
    unit = found.value("unit") or found.value("units") or found.value("period")
    assert isinstance(unit, str)
    return unit


def _number(found: TimePhrase) -> int:
    return int(found.value("n") or 1)


def _add_months(day: date, months: int) -> date:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if day.day == 1:
        return date(year, month + 1, 1)
    return date(year, month + 1, min(day.day, _days_in(year, month + 1)))


def _days_in(year: int, month: int) -> int:
    from calendar import monthrange

    return monthrange(year, month)[1]


_UNIT_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_UNIT_DAYS = {"minute": 0.0, "hour": 1 / 24, "day": 1, "week": 7, "weekend": 7}


def _moved(day: date, unit: str, number: int) -> date:
    if unit in _UNIT_MONTHS:
        return _add_months(day, number * _UNIT_MONTHS[unit])
    if unit in _UNIT_DAYS:
        return day + timedelta(days=int(number * _UNIT_DAYS[unit]))
    return _add_months(day, number * 12)


# How far "two weeks ago" reaches on both sides: half of the unit.
_SLACK_DAYS = {"week": 3, "month": 15, "quarter": 45, "year": 182}


def _distant(found: TimePhrase, today: date) -> Days:
    unit, name = _unit(found), found.meaning.name
    if name == "few_ago":
        return _moved(today, unit, -_FEW), max(_moved(today, unit, -1), _moved(today, unit, -_FEW)) + _ONE
    number = _number(found) if name == "ahead" else -_number(found)
    if unit == "weekend":
        return _unit_range("weekend", today, number)
    day, slack = _moved(today, unit, number), timedelta(days=_SLACK_DAYS.get(unit, 0))
    return day - slack, day + slack + _ONE


def _unit_range(unit: str, today: date, offset: int) -> Days:
    """The week, month, quarter, year or weekend that is `offset` after the one of today."""
    monday = today - timedelta(days=today.weekday())
    if unit == "week":
        first = monday + timedelta(weeks=offset)
        return first, first + timedelta(days=7)
    if unit == "weekend":
        saturday = monday + timedelta(days=5, weeks=offset)
        return saturday, saturday + timedelta(days=2)
    months = _UNIT_MONTHS[unit]
    start = date(today.year, (today.month - 1) // months * months + 1, 1)
    first = _add_months(start, offset * months)
    return first, _add_months(first, months)


def _one_of(found: TimePhrase, calendar: _Calendar, base: Range | None) -> Days | None:
    """One of the weekdays, months or seasons around today, or the first one in `base`, the last one before it."""
    first, last = base or (None, None)
    candidates = list(_occurrences(found, first or last or calendar.today))
    if base:
        after = [one for one in candidates if first is None or one[0] >= first]
        inside = [one for one in after if last is None or one[0] < last]
        return (inside[-1] if first is None else inside[0]) if inside else None
    tense = calendar.tense(found)
    if tense == 0 and found.meaning.name in ("month", "day_month") and found.value("day"):
        # A date in a question without a clear tense: soon, or else in the past.
        soon = (one for one in candidates if timedelta(0) <= one[0] - calendar.today <= _SOON)
        return next(soon, None) or _choose(candidates, calendar.today, None, -1)
    chosen = _choose(candidates, calendar.today, found.meaning.offset, tense)
    week = _unit_range("week", calendar.today, 0)
    if chosen and _is_ambiguous(found) and week[0] <= chosen[0] < week[1]:
        # Both: the one of this week, and the one of the week before or after it.
        other = candidates[candidates.index(chosen) + (1 if found.meaning.offset == NEXT else -1)]
        return min(chosen[0], other[0]), max(chosen[1], other[1])
    return chosen


def _is_ambiguous(found: TimePhrase) -> bool:
    """Whether it may be the one of this week or the one of the week before or after it: "next Friday"."""
    if found.meaning.name == "weekday":
        return found.meaning.offset in (-1, NEXT)
    return found.meaning.offset == NEXT and found.value("period") == "weekend"


def _choose(candidates: Sequence[Days], today: date, offset: int | None, tense: int) -> Days | None:
    """Of ranges in their order: the last or the next one, or as the tense says. A day is never today."""
    is_day = bool(candidates) and candidates[0][1] - candidates[0][0] == _ONE
    before = [one for one in candidates if one[1] <= today]
    after = [one for one in candidates if one[0] > today]
    if offset in (1, NEXT):
        return after[0] if after else None
    if offset in (-1, -2):
        return before[offset] if len(before) >= -offset else None
    if offset == 2:
        return after[1] if len(after) > 1 else None
    coming = [one for one in candidates if one[1] > today]
    begun = [one for one in candidates if one[0] <= today]
    if offset == 0 and tense == 0 and not is_day:
        return next((one for one in candidates if one[0].year == today.year), None)
    if tense > 0 or (offset == 0 and tense == 0):
        wanted = after if is_day and offset is None else coming
        return wanted[0] if wanted else None
    wanted = before if is_day else begun
    return wanted[-1] if wanted else None


def _occurrences(found: TimePhrase, near: date) -> Iterator[Days]:
    """Around `near`, in their order."""
    name, season = found.meaning.name, found.value("period") or found.value("season")
    if name == "weekday":
        first = near - timedelta(days=near.weekday()) + timedelta(days=found.value("weekday"), weeks=-3)
        yield from ((day, day + _ONE) for day in (first + timedelta(weeks=week) for week in range(7)))
    elif name == "weekend" or season == "weekend":
        yield from (_unit_range("weekend", near, week) for week in range(-4, 5))
    elif name == "day_of_month":
        month = near.replace(day=1)
        days = (_on_day(_add_months(month, offset), found.value("day")) for offset in range(-14, 15))
        yield from (one for one in days if one is not None)
    elif name in ("month", "day_month"):
        dates = (_dates(found, near.year + offset) for offset in range(-4, 5))
        yield from (one for one in dates if one is not None)
    elif season in _SEASONS:
        yield from (_season(season, near.year + offset) for offset in range(-3, 4))


def _on_day(month: date, day: int) -> Days | None:
    if day > _days_in(month.year, month.month):
        return None
    only = month.replace(day=day)
    return only, only + _ONE


def _dates(found: TimePhrase, year: int) -> Days | None:
    """A month or some days of it, in this year. None for 29 February in most years."""
    month = found.value("month") or found.value("mon") or found.value("mm")
    first, days = date(year, month, 1), [value for name, value in found.values if name == "day"]
    if not days:
        return first, _add_months(first, 1)
    start, end = _on_day(first, days[0]), _on_day(first, days[-1])
    return (start[0], end[1]) if start and end and start <= end else None


def _season(name: str, year: int) -> Days:
    """Of the northern half of the world."""
    first = date(year, *_SEASONS[name])
    return first, first + timedelta(days=3) if name == "christmas" else _add_months(first, 3)


# Writing dates.


def _group_label(group: Sequence[TimePhrase], calendar: _Calendar) -> str | None:
    """The date of times that belong together. None if it is written there already, or not certain."""
    is_written = (one.meaning.name in ("iso", "slash", "year") or one.value("year") is not None for one in group)
    if (
        any(is_written)
        or any(one.value("day") for one in group)
        or not any(_is_certain(one, calendar) for one in group)
    ):
        return None
    days = _group_range(group, calendar)
    if days is None or days[0] is None or days[1] is None:
        return None
    return _label(min(group, key=_breadth), days[0], days[1], calendar.today)


def _is_certain(found: TimePhrase, calendar: _Calendar) -> bool:
    name, offset = found.meaning.name, found.meaning.offset
    if name in ("month", "day_month", "day_of_month"):
        return offset is not None
    if name == "weekday" and offset == 0 and calendar.tense(found) < 0:
        return False
    if name in ("weekday", "weekend", "period") and offset is None:
        is_plain = name == "weekday" and found.meaning.language not in UNSPACED
        return is_plain and calendar.tense(found, certain=True) != 0
    if _is_ambiguous(found):
        # On Tuesday, "next Friday" is in three days for some and in ten for others, and "last Monday" likewise.
        days = _evaluate(found, calendar)
        return days is not None and days[0] is not None and days[1] is not None and days[1] - days[0] <= 2 * _ONE
    is_short = name in ("rolling", "following") and found.value("unit") in _SECONDS
    return not is_short and name not in ("few_ago", "few_rolling", "few_following")


# From the most to the least exact.
_BREADTH = (
    ("iso", "slash"),
    ("day", "weekday", "weekday_of_week"),
    ("weekend", "weekend_of"),
    ("week",),
    ("month", "day_month", "month_unit"),
    ("period",),
    ("year", "year_unit"),
)


def _breadth(found: TimePhrase) -> int:
    """Smaller for more exact times."""
    if found.times:
        return _breadth(found.times[0]) if found.meaning.name in _NARROWED else len(_BREADTH)
    if found.value("day") is not None:
        return 0  # a date
    name = found.value("period") if found.meaning.name == "period" else found.meaning.name
    return next((at for at, names in enumerate(_BREADTH) if name in names), len(_BREADTH))


def _label(found: TimePhrase, since: date, until: date, today: date) -> str:
    words, name = language_words(found.meaning.language), found.meaning.name
    unit = _NAMED_UNITS.get(name) or found.value("period") or found.value("season") or found.value("unit")
    if name in ("ago", "ahead") and unit in (*_UNIT_MONTHS, "week", *_SECONDS, "day"):
        number = _number(found) * (1 if name == "ahead" else -1)
        since = _moved(today, unit, number)
        if unit in ("day", "week", *_SECONDS):
            return _write(words["date"], words, since)
    if name not in ("rolling", "following"):
        if unit == "year":
            return str(since.year)
        if unit == "month" or name == "month":
            return _write(words["month_date"], words, since)
        if unit == "quarter" or (unit in _SEASONS and unit != "christmas"):
            last = until - _ONE
            return f"{_write(words['month_date'], words, since)} – {_write(words['month_date'], words, last)}"
        if unit == "weekend" or until - since == _ONE:
            return _write(words["date"], words, since)
    last = until - _ONE
    if (since.year, since.month) == (last.year, last.month):
        sign = "日" if found.meaning.language in UNSPACED else ""
        return _write(words["date"], words, since, day=f"{since.day}{sign}–{last.day}")
    return f"{_write(words['date'], words, since)} – {_write(words['date'], words, last)}"


def _write(form: str, words: Words, day_of: date, day: str = "") -> str:
    month = words["months"].split()[day_of.month - 1].partition("/")[0]
    if words is language_words("de"):
        month = month.capitalize()
    short = month[:3].capitalize()
    return form.format(day=day or day_of.day, month=month, short=short, number=day_of.month, year=day_of.year)
