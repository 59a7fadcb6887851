"""Which of the messages at hand stand next to each other: what is said around an entry is part of what it says."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from afterturn.base.types import Kind, Origin, Shelved

Place: TypeAlias = tuple[str, str, str]
# A message that was deleted, or that nobody recalls, leaves a gap; over a wider one nobody goes on talking.
GAP_MAX = 2


class Around(NamedTuple):
    """Messages next to one, and those behind them."""

    near: tuple[Shelved, ...]
    far: tuple[Shelved, ...]


class Threads:
    """Of the records in `entries`, each of its own conversation. Others have no neighbours, and what a tool answered is
    nobody's (C6)."""

    def __init__(self, entries: Iterable[Shelved] = ()) -> None:
        self._at: dict[Place, dict[int, Shelved]] = {}
        # Of two in one position the newer stands for both.
        for entry in sorted(entries, key=itemgetter(0)):
            place = _place(entry)
            if place is not None and entry.position is not None:
                self._at.setdefault(place, {})[entry.position] = entry
        self._positions = {place: sorted(records) for place, records in self._at.items()}
        self._beside: dict[int, tuple[Shelved | None, Shelved | None]] = {}

    def __iter__(self) -> Iterator[Shelved]:
        return chain.from_iterable(records.values() for records in self._at.values())

    def __bool__(self) -> bool:
        return bool(self._at)

    def around(self, entry: Shelved) -> Around:
        before, after = beside = self.beside(entry)
        beyond = (before and self.beside(before)[0], after and self.beside(after)[1])
        return Around(tuple(filter(None, beside)), tuple(filter(None, beyond)))

    def beside(self, entry: Shelved) -> tuple[Shelved | None, Shelved | None]:
        """The one before it, and the one after."""
        beside = self._beside.get(entry.key)
        if beside is None:
            beside = self._beside[entry.key] = self._find(entry)
        return beside

    def _find(self, entry: Shelved) -> tuple[Shelved | None, Shelved | None]:
        place, position = _place(entry), entry.position
        if place is None or position is None or place not in self._at:
            return None, None
        positions = self._positions[place]
        at = bisect_left(positions, position)
        here = at < len(positions) and positions[at] == position
        return self._near(place, position, at - 1), self._near(place, position, at + here)

    def _near(self, place: Place, position: int, at: int) -> Shelved | None:
        positions = self._positions[place]
        if not 0 <= at < len(positions) or abs(positions[at] - position) > GAP_MAX:
            return None
        return self._at[place][positions[at]]


def _place(entry: Shelved) -> Place | None:
    if entry.kind is not Kind.RECORD or entry.origin is Origin.TOOL or entry.conversation is None:
        return None
    return entry.space, entry.owner or entry.space, entry.conversation
