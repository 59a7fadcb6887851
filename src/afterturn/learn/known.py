"""What a review is shown of what is known already, so that it updates instead of repeating."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from afterturn.base.ports import Unit
from afterturn.base.reviews import ReviewRow, Snapped
from afterturn.base.terms import terms
from afterturn.base.types import Entry, Filter, Kind, Lane, LaneQuery, Scope
from afterturn.guard.screening import Screen

KNOWN_MAX = 40
KNOWN_BYTES_MAX = 12_288
_NEWEST = 60
_MATCHES = 120
_TERMS = 64
_STATEMENTS = Filter(kind=Kind.STATEMENT)


def find_known(
    unit: Unit, review: ReviewRow, messages: Sequence[Snapped], *, now: float, scanning: bool
) -> list[Entry]:
    """Memories of the spaces that the conversation may change: those that share most words with what is new first.

    With `scanning`, as any model may see them (G3): without secrets that were not known as such when they were written.
    """
    scope = Scope(review.tenant, tuple(dict.fromkeys((review.writes, review.space))))
    said = _terms(messages)
    found = {entry.ref: entry for entry in unit.memories.page(scope, _STATEMENTS, limit=_NEWEST)}
    if said:
        query = LaneQuery(scope, now, lane=Lane.LONG_TERM)
        keys = [candidate.key for candidate in unit.index.matches(query, said[:_TERMS], limit=_MATCHES)]
        found.update((match.entry.ref, match.entry) for match in unit.index.resolve(query, keys))
    spoken = frozenset(said)
    held = [entry for entry in found.values() if entry.holds(now)]
    held.sort(key=lambda entry: (len(spoken.intersection(terms(entry.text))), entry.recorded_at), reverse=True)
    return list(_within(_screened(held, Screen(scanning=scanning))))


def _terms(messages: Sequence[Snapped]) -> list[str]:
    """The rarer, that is longer, words first; what users said before what tools answered."""
    told = [message for message in messages if message.fresh]
    ordered = sorted(told, key=lambda message: message.role != "user")
    found = dict.fromkeys(term for message in ordered for term in terms(message.text)[:_TERMS])
    return sorted(found, key=len, reverse=True)


def _screened(entries: Iterable[Entry], screen: Screen) -> Iterator[Entry]:
    """One by one: no more are looked at than there is room for."""
    for entry in entries:
        text = screen.shown(entry)
        if text is not None:
            yield entry if text == entry.text else replace(entry, text=text)


def _within(entries: Iterable[Entry]) -> Iterator[Entry]:
    room = KNOWN_BYTES_MAX
    for at, entry in enumerate(entries):
        room -= len(entry.text.encode())
        if at >= KNOWN_MAX or room < 0:
            return
        yield entry
