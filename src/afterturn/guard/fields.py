"""What stands beside a draft's text: checked for those who write on purpose, mended for what a host's messages say."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from afterturn.base.errors import InvalidInput, InvalidName
from afterturn.base.moments import SECONDS_MAX
from afterturn.base.names import check_id, check_metadata, check_name, check_space, mend_name
from afterturn.base.types import SOURCES_MAX, Draft, Kind, Origin, Target

# JSON's readers elsewhere are exact up to here, and a store's next position still fits behind it.
POSITION_MAX = 2**53

_NAMES = ("agent", "project", "conversation", "turn", "speaker")
_TIMES = ("occurred_at", "valid_from", "valid_to", "expires_at")
_TYPES: tuple[tuple[str, type], ...] = (
    ("kind", Kind),
    ("origin", Origin),
    ("target", Target),
    ("pinned", bool),
    ("proposed", bool),
)


def check_fields(draft: Draft) -> None:
    """Raises InvalidInput, which names the field."""
    for what, kind in _TYPES:
        if not isinstance(getattr(draft, what), kind):
            raise InvalidInput(f"The {what} is {_shown(getattr(draft, what))}, which is no {kind.__name__}.")
    for what in _NAMES:
        if getattr(draft, what) is not None:
            check_name(getattr(draft, what), what)
    for what in _TIMES:
        if getattr(draft, what) is not None and not _is_time(getattr(draft, what)):
            raise InvalidInput(f"The {what} is {_shown(getattr(draft, what))}, which is no time. Pass Unix seconds.")
    _check_order(draft)
    _check_place(draft)
    _check_sources(draft.sources)
    check_metadata(draft.metadata)


def mend_fields(draft: Draft) -> tuple[Draft, str]:
    """A draft that `check_fields` takes, and what had to be mended for it; blank when nothing had."""
    try:
        check_fields(draft)
    except InvalidInput:
        mended = dict(_mended(draft))
        return replace(draft, **mended), f"{', '.join(mended)} mended"
    return draft, ""


def names_in(draft: Draft) -> Iterator[tuple[str, str]]:
    """(what it names, name) of what may be called otherwise. A conversation and a turn may not: everything that was
    said and learned in one is tied together by them."""
    for what in ("agent", "project", "speaker"):
        if (name := getattr(draft, what)) is not None:
            yield what, name
    for source in draft.sources:
        yield "source", source
    for key in draft.metadata:
        yield "metadata key", key


def rename(draft: Draft, clean: Callable[[str], str]) -> Draft:
    """With what `clean` makes of its names. Sources and metadata whose name would be another are left out."""

    def named(name: str | None) -> str | None:
        return None if name is None else mend_name(clean(name))

    return replace(
        draft,
        agent=named(draft.agent),
        project=named(draft.project),
        speaker=named(draft.speaker),
        sources=tuple(source for source in draft.sources if clean(source) == source),
        metadata={key: value for key, value in draft.metadata.items() if clean(key) == key},
    )


def _check_order(draft: Draft) -> None:
    if draft.valid_from is not None and draft.valid_to is not None and draft.valid_to <= draft.valid_from:
        raise InvalidInput("The memory would end being valid before it begins. Let `valid_to` be after `valid_from`.")


def _check_place(draft: Draft) -> None:
    if draft.id is not None:
        check_id(draft.id, "id")
    if draft.owner is not None:
        _check_owner(draft.owner)
    if draft.position is not None and not _is_position(draft.position):
        raise InvalidInput(
            f"The position is {_shown(draft.position)}. Use a whole number from 0 to {POSITION_MAX}, or none."
        )


def _check_owner(owner: object) -> None:
    try:
        check_space(owner)
    except InvalidName as error:
        raise InvalidName(f"The owner must be a space. {error}") from error


def _check_sources(sources: object) -> None:
    if not isinstance(sources, tuple):
        raise InvalidInput(f"The sources must be a tuple of ids, not {type(sources).__name__}.")
    if len(sources) > SOURCES_MAX:
        raise InvalidInput(f"There are {len(sources)} sources; at most {SOURCES_MAX} fit. Name those that matter.")
    for source in sources:
        check_name(source, "source")


def _mended(draft: Draft) -> Iterator[tuple[str, Any]]:
    """(field, new value) of what has to change."""
    for what in _NAMES:
        value = getattr(draft, what)
        if value is not None and (name := _name(value)) != value:
            yield what, name
    for what in _TIMES:
        value = getattr(draft, what)
        if value is not None and not _is_time(value):
            yield what, None
    if draft.position is not None and not _is_position(draft.position):
        yield "position", _nearest_position(draft.position)
    if _is_refused(_check_sources, draft.sources):
        yield "sources", _sources(draft.sources)
    for what, check in (("id", check_id), ("owner", check_space), ("metadata", check_metadata)):
        value = getattr(draft, what)
        if value is not None and _is_refused(check, value):
            yield what, {} if what == "metadata" else None
    if _is_time(draft.valid_from) and _is_time(draft.valid_to) and _is_refused(_check_order, draft):
        yield "valid_to", None


def _is_refused(check: Callable[[Any], object], value: object) -> bool:
    try:
        check(value)
    except InvalidInput:
        return True
    return False


def _name(value: object) -> str | None:
    return mend_name(value) if isinstance(value, str) else None


def _sources(value: object) -> tuple[str, ...]:
    if not isinstance(value, tuple):
        return ()
    return tuple(name for source in value[:SOURCES_MAX] if (name := _name(source)) is not None)


def _is_position(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= POSITION_MAX


def _nearest_position(value: object) -> int | None:
    return max(0, min(value, POSITION_MAX)) if isinstance(value, int) and not isinstance(value, bool) else None


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < SECONDS_MAX


def _shown(value: object) -> str:
    return repr(value)[:60]
