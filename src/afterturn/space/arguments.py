"""The base of a space's verbs, and the checks of their arguments: limits, versions, lanes, filters, selectors, and the
fields of a draft."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, TypedDict, TypeVar

from afterturn.config import Config
from afterturn.errors import InvalidInput
from afterturn.guard.scanning import scanner
from afterturn.recall.query import RecallRequest
from afterturn.scanners.secrets import redact_within, unnamed
from afterturn.types import (
    ANYTHING,
    Draft,
    Filter,
    Kind,
    Lane,
    LaneQuery,
    Metadata,
    Operation,
    Origin,
    Scalar,
    Scope,
    Selector,
    Status,
    Target,
    Verb,
)
from afterturn.validation import (
    check_id,
    check_limit,
    check_member,
    check_metadata,
    check_name,
    check_no_secret,
    check_space,
    check_text,
    is_whole,
    moment,
)

if TYPE_CHECKING:
    from afterturn.services import Services

LIMIT_MAX = 10_000
QUERY_CHARS_MAX = 10_000
# The largest value of a 64-bit column.
VERSION_MAX = 2**63 - 1
# An older name of the target "environment".
_OLDER_NAME = "memory"

E = TypeVar("E", bound=StrEnum)


class SpaceVerbs:
    """Verbs of one space. Their coroutines run on memory's loop."""

    def __init__(self, services: Services, name: str) -> None:
        self._services = services
        self.name = check_no_secret(check_space(name), "space", scanning=services.config.scan_policy)
        self._scope = Scope(services.tenant, (self.name,))

    def _operation(self, verb: Verb, actor: Origin = Origin.USER, group: str | None = None) -> Operation:
        services = self._services
        return Operation(services.ids.new(), services.tenant, self.name, verb, actor, services.clock.now(), group)


def search_request(
    query: str,
    scope: Scope,
    config: Config,
    *,
    limit: int,
    lanes: Iterable[str] | None,
    filter: Filter,
    exclude: Iterable[str],
    now: float,
    correlation: str,
    conversation: str | None = None,
    score_min: float | None = None,
) -> RecallRequest:
    """A checked search by words. Secrets are removed from the query."""
    asked = check_text(query, "query")
    return RecallRequest(
        text=redact_within(asked, QUERY_CHARS_MAX, scanner(scanning=config.scan_policy), mark=unnamed).text,
        admitted=LaneQuery(
            scope,
            now,
            conversation=check_conversation(conversation),
            excluded_ids=check_ids(exclude),
            filter=check_filter(filter),
        ),
        lanes=tuple(Lane) if lanes is None else _members(lanes, Lane, "lane"),
        limit=check_limit(limit, LIMIT_MAX),
        score_min=None if score_min is None else check_score(score_min),
        correlation=correlation,
    )


def check_version(version: object) -> None:
    if version is not None and not is_whole(version, VERSION_MAX):
        raise InvalidInput(f"The version is {_shown(version)}. Use a whole number from 1 on.")


def check_conversation(conversation: object) -> str | None:
    return None if conversation is None else check_name(conversation, "conversation")


def check_score(score: object) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise InvalidInput(f"The minimum score is {_shown(score)}. Use a number from 0 to 1.")
    return score


def check_ids(ids: object) -> frozenset[str]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidInput(f"`exclude` is {_shown(ids)}. Pass a list of memory ids.")
    return frozenset(check_id(one) for one in ids)


def check_filter(wanted: object) -> Filter:
    """The filter in the form that stores take: lists as tuples, numbers as int and as float."""
    if wanted is ANYTHING:
        return ANYTHING
    if not isinstance(wanted, Filter):
        raise InvalidInput(f"The filter is a {type(wanted).__name__}. Pass afterturn.Filter(...).")
    projects = wanted.project if isinstance(wanted.project, tuple) else (wanted.project,)
    for value, what in (
        (wanted.agent, "agent"),
        *((project, "project") for project in projects),
        (wanted.conversation, "conversation"),
    ):
        if value is not None:
            check_name(value, what)
    for name in ("pinned", "firm", "trusted"):
        if (value := getattr(wanted, name)) is not None and not isinstance(value, bool):
            raise InvalidInput(f"The filter's {name} is {_shown(value)}. Use True, False or None.")
    since, until = moment(wanted.since), moment(wanted.until)
    if since is not None and until is not None and since >= until:
        raise InvalidInput(
            f"The filter's since ({_calendar(since)}) is not before its until ({_calendar(until)}). Pass a later until."
        )
    return replace(
        wanted,
        since=since,
        until=until,
        kind=None if wanted.kind is None else _member(wanted.kind, Kind, "kind"),
        target=None if wanted.target is None else _member(wanted.target, Target, "target"),
        origin=None if wanted.origin is None else parse_origin(wanted.origin),
        statuses=_members(wanted.statuses, Status, "status"),
        metadata=_alternatives(wanted.metadata),
    )


def check_selector(selector: Selector) -> Selector:
    """Checks that exactly one thing is chosen. A memory's id is checked when it is looked up."""
    if not isinstance(selector.everything, bool):
        raise InvalidInput(f"`everything` is {_shown(selector.everything)}. Erasing a space takes a plain True.")
    named = [
        (value, what)
        for what in ("memory", "conversation", "source", "speaker")
        if (value := getattr(selector, what)) is not None
    ]
    if len(named) + selector.everything != 1:
        raise InvalidInput("Say what to forget. Pass exactly one of memory, conversation, source, speaker, everything.")
    for value, what in named:
        if what != "memory":
            check_name(value, what)
    return selector


def _alternatives(metadata: object) -> dict[str, tuple[Scalar, ...]]:
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"The filter's metadata is a {type(metadata).__name__}. Pass a mapping of keys to values.")
    found: dict[str, tuple[Scalar, ...]] = {}
    for key, wanted in metadata.items():
        options = wanted if isinstance(wanted, tuple | list) else (wanted,)
        for option in options:
            check_member(key, option)
        found[key] = tuple(spelling for option in options for spelling in _spellings(key, option))
    return found


def _spellings(key: str, value: Scalar) -> Iterator[Scalar]:
    """A number as int and as float: 1 equals 1.0, but their JSON texts differ. Booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield value
        return
    if value != value or value in (float("inf"), float("-inf")):
        raise InvalidInput(f"The filter's {key[:60]!r} is {value!r}, which no memory can have. Use a finite number.")
    if value == 0:
        yield from (0, 0.0, -0.0)
        return
    yield value
    try:
        other = float(value) if isinstance(value, int) else int(value)
    except OverflowError:
        return
    if other == value:
        yield other


def _members(values: object, kind: type[E], what: str) -> tuple[E, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(f"{_shown(values)} is not a list. Pass one, such as [{str(next(iter(kind)))!r}].")
    return tuple(_member(value, kind, what) for value in values)


def _member(value: object, kind: type[E], what: str) -> E:
    if not isinstance(value, str) or value not in list(kind):
        raise InvalidInput(f"{_shown(value)} is not a valid {what}. Use one of: {', '.join(kind)}.")
    return kind(value)


def _shown(value: object) -> str:
    return repr(value)[:60]


def _calendar(at: float) -> str:
    """An ISO-8601 text, or the seconds if the calendar has no such time."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{at:.0f}"


class DraftFields(TypedDict, total=False):
    """The keyword arguments of `Space.add`.

    `target` is "user" or "environment". `origin` says who states it, for example "user" or "tool"; it decides how far
    the statement is trusted. `clean` reports that no text of others had entered the turn of the agent that states it.
    `conversation` is where it was said, and `owner` the space that owns that conversation, if it is another one.
    `sources` are ids of the entries that it was learned from. Times are Unix seconds,
    datetimes with a time zone, or ISO-8601 texts with an offset.
    """

    target: str
    origin: str
    clean: bool
    agent: str | None
    project: str | None
    speaker: str | None
    conversation: str | None
    owner: str | None
    metadata: Metadata | None
    pinned: bool
    firm: bool
    occurred_at: float | datetime | str | None
    valid_from: float | datetime | str | None
    valid_to: float | datetime | str | None
    expires_at: float | datetime | str | None
    sources: Sequence[str]


def make_draft(text: str, fields: DraftFields) -> Draft:
    unknown = set(fields) - set(DraftFields.__annotations__)
    if unknown:
        raise TypeError(
            f"add() has no {', '.join(sorted(unknown))}. It takes {', '.join(DraftFields.__annotations__)}."
        )
    return Draft(
        text=text,
        target=parse_target(fields.get("target", Target.USER)),
        origin=parse_origin(fields.get("origin", Origin.USER)),
        agent=fields.get("agent"),
        project=fields.get("project"),
        speaker=fields.get("speaker"),
        conversation=check_conversation(fields.get("conversation")),
        owner=None if (owner := fields.get("owner")) is None else check_space(owner),
        # A copy, so that later changes of the caller's mapping do not reach the store.
        metadata={} if (metadata := fields.get("metadata")) is None else dict(check_metadata(metadata)),
        pinned=fields.get("pinned", False),
        firm=fields.get("firm", False),
        occurred_at=moment(fields.get("occurred_at")),
        valid_from=moment(fields.get("valid_from")),
        valid_to=moment(fields.get("valid_to")),
        expires_at=moment(fields.get("expires_at")),
        sources=_sources(fields.get("sources", ())),
    )


def _sources(given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidInput(f"`sources` is a list of ids, not {type(given).__name__}. Pass a list.")
    return tuple(given)


def parse_target(value: str) -> Target:
    return _member(Target.ENVIRONMENT if value == _OLDER_NAME else value, Target, "target")


def parse_origin(value: str) -> Origin:
    return _member(value, Origin, "origin")
