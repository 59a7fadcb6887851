"""What may be said about a memory beside its text, as `add` takes it: checked and turned into a draft."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypedDict

from afterturn.base.errors import InvalidInput
from afterturn.base.types import Draft, Metadata, Origin, Target

_OLDER_NAMES = {"memory": Target.ENVIRONMENT}


class DraftFields(TypedDict, total=False):
    """`target` is "user" or "environment"; times are Unix seconds or datetimes with a time zone."""

    target: str
    origin: str
    agent: str | None
    project: str | None
    speaker: str | None
    metadata: Metadata | None
    pinned: bool
    occurred_at: float | datetime | None
    valid_from: float | datetime | None
    valid_to: float | datetime | None
    expires_at: float | datetime | None
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
        metadata=fields.get("metadata") or {},
        pinned=bool(fields.get("pinned", False)),
        occurred_at=moment(fields.get("occurred_at")),
        valid_from=moment(fields.get("valid_from")),
        valid_to=moment(fields.get("valid_to")),
        expires_at=moment(fields.get("expires_at")),
        sources=tuple(fields.get("sources", ())),
    )


def target_of(value: str) -> Target:
    try:
        return _OLDER_NAMES.get(value) or Target(value)
    except ValueError:
        raise InvalidInput(f"{value!r} is no target. Use one of: {', '.join(Target)}.") from None


def origin_of(value: str) -> Origin:
    try:
        return Origin(value)
    except ValueError:
        raise InvalidInput(f"{value!r} is no origin. Use one of: {', '.join(Origin)}.") from None


def moment(value: float | datetime | None) -> float | None:
    return None if value is None else seconds(value)


def seconds(value: float | datetime) -> float:
    """Unix seconds. A datetime without a time zone is an error: it could mean any of a day's hours."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidInput(f"{value.isoformat()} has no time zone. Use datetime.now(timezone.utc) or add one.")
        return value.astimezone(UTC).timestamp()
    if not isinstance(value, int | float) or not abs(value) < 1e11:
        raise InvalidInput(f"{value!r} is no time. Pass Unix seconds or a datetime with a time zone.")
    return float(value)
