"""What a `forget` would erase, before it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from afterturn.errors import NotFound
from afterturn.memory import Space
from afterturn.types import Entry, Filter, Kind, Selector, Status

ENTRIES_SHOWN = 50
_PAGE = 500


@dataclass(frozen=True, slots=True)
class ForgetPreview:
    """`matching` entries of any status, by kind and status, and the first of them. `sources` are the messages that a
    memory was learned from. Statements that were learned only from what is erased go too, and are not counted."""

    matching: int
    kinds: dict[str, int]
    entries: Sequence[Entry]
    sources: Sequence[Entry]


async def preview_forget(space: Space, selector: Selector) -> ForgetPreview:
    """Raises NotFound if there is no such memory."""
    if selector.memory is not None:
        history = await space.history(selector.memory)
        entries = list(history.versions[-1:])
        named = dict.fromkeys(source for version in history.versions for source in version.sources)
        return _preview(entries, [one for one in await _find_all(space, named) if one.kind is Kind.RECORD])
    return _preview([one async for one in _all_entries(space, selector) if matches(one, selector)], [])


def matches(entry: Entry, selector: Selector) -> bool:
    """Whether an entry of the selector's conversation, or of the whole space, is selected."""
    if selector.source is not None:
        return selector.source in entry.sources
    return selector.speaker is None or entry.speaker == selector.speaker


def _preview(entries: Sequence[Entry], sources: Sequence[Entry]) -> ForgetPreview:
    kinds = Counter(f"{one.kind}.{one.status}" for one in entries)
    return ForgetPreview(len(entries), dict(sorted(kinds.items())), entries[:ENTRIES_SHOWN], sources)


async def _find_all(space: Space, ids: Iterable[str]) -> list[Entry]:
    found = []
    for one in ids:
        try:
            found.append(await space.get(one))
        except NotFound:
            continue
    return found


async def _all_entries(space: Space, selector: Selector) -> AsyncIterator[Entry]:
    """Each entry once, also those that are not active."""
    every = Filter(conversation=selector.conversation, statuses=tuple(Status))
    seen, before = set[str](), None
    while page := await space.list(limit=_PAGE, before=before, filter=every):
        for entry in page:
            if entry.id not in seen:
                seen.add(entry.id)
                yield entry
        before = page[-1].id
