"""What may be said about a memory beside its text, as `add` takes it: checked and turned into a draft."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypedDict

from afterturn.base.errors import InvalidInput
from afterturn.base.moments import moment
from afterturn.base.names import check_metadata
from afterturn.base.types import Draft, Metadata, Origin, Target

_OLDER_NAME = "memory"


class DraftFields(TypedDict, total=False):
    """`target` is "user" or "environment". Times are Unix seconds, or datetimes or ISO-8601 texts with a time zone."""

    target: str
    origin: str
    agent: str | None
    project: str | None
    speaker: str | None
    metadata: Metadata | None
    pinned: bool
    occurred_at: float | datetime | str | None
    valid_from: float | datetime | str | None
    valid_to: float | datetime | str | None
    expires_at: float | datetime | str | None
    sources: Sequence[str]


def draft_of(text: str, fields: DraftFields) -> Draft:
    unknown = set(fields) - set(DraftFields.__annotations__)
    if unknown:
        raise TypeError(
            f"add() has no {', '.join(sorted(unknown))}. It takes {', '.join(DraftFields.__annotations__)}."
        )
    return Draft(
        text=text,
        target=target_of(fields.get("target", Target.USER)),
        origin=origin_of(fields.get("origin", Origin.USER)),
        agent=fields.get("agent"),
        project=fields.get("project"),
        speaker=fields.get("speaker"),
        metadata=_metadata(fields.get("metadata")),
        pinned=fields.get("pinned", False),
        occurred_at=moment(fields.get("occurred_at")),
        valid_from=moment(fields.get("valid_from")),
        valid_to=moment(fields.get("valid_to")),
        expires_at=moment(fields.get("expires_at")),
        sources=_sources(fields.get("sources", ())),
    )


def _metadata(given: Metadata | None) -> Metadata:
    """A copy: what a caller does to its own mapping meanwhile must not reach the store."""
    return {} if given is None else dict(check_metadata(given))


def _sources(given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidInput(f"`sources` is a list of ids, not {type(given).__name__}. Pass a list.")
    return tuple(given)


def target_of(value: str) -> Target:
    try:
        return Target.ENVIRONMENT if value == _OLDER_NAME else Target(value)
    except ValueError:
        raise InvalidInput(f"{value!r} is no target. Use one of: {', '.join(Target)}.") from None


def origin_of(value: str) -> Origin:
    try:
        return Origin(value)
    except ValueError:
        raise InvalidInput(f"{value!r} is no origin. Use one of: {', '.join(Origin)}.") from None
